package order_test

import (
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// How processes wait in a queue, and how a lease that was handed over ends.
//
// Source: ALGORITHM section 10.
func TestQueueScenarios(t *testing.T)    { locktest.Scenarios(t, "testdata/queue.txt") }
func TestHandOverScenarios(t *testing.T) { locktest.Scenarios(t, "testdata/handover.txt") }
