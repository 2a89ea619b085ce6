package guard_test

import (
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// What is promised while masters have no vote.
//
// Source: ALGORITHM section 8.
func TestQuarantineScenarios(t *testing.T) { locktest.Scenarios(t, "testdata/quarantine.txt") }
