package semaphore_test

import (
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

func TestScenarios(t *testing.T) { locktest.Scenarios(t, "testdata/semaphore.txt") }
