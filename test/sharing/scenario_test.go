package sharing_test

import (
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// What readers are promised.
//
// Source: ALGORITHM section 12.
func TestReaderScenarios(t *testing.T) { locktest.Scenarios(t, "testdata/readers.txt") }
