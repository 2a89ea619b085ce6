package lock_test

import (
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// What one holder is promised, as a text: how it gets a lease, until when it has it, and what ends it.
//
// Source: ALGORITHM sections 3 to 8.
func TestScenarios(t *testing.T) {
	for _, file := range []string{"lock", "attempt", "renew", "release", "adopt", "fence", "log"} {
		t.Run(file, func(t *testing.T) { locktest.Scenarios(t, "testdata/"+file+".txt") })
	}
}
