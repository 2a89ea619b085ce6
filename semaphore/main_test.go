package semaphore_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the run if a goroutine is left when all tests are over.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
