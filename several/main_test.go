package several_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock/internal/redistest"
)

// TestMain fails the run if a goroutine is left when all tests are over.
func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.WithExamples(m)) }
