package admin_test

import (
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// What is promised of a lock that is broken.
//
// Source: ALGORITHM section 5, "Break".
func TestBreakScenarios(t *testing.T) { locktest.Scenarios(t, "testdata/break.txt") }
