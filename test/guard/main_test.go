package guard_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the run if a goroutine is left when all tests are over.
//
// Source: ALGORITHM section 13, I11.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
