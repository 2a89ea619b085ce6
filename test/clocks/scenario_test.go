package clocks_test

import (
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// What is promised when clocks are wrong.
//
// Source: ALGORITHM section 9.
func TestClockScenarios(t *testing.T) { locktest.Scenarios(t, "testdata/clocks.txt") }
func TestWatchScenarios(t *testing.T) { locktest.Scenarios(t, "testdata/watch.txt") }
