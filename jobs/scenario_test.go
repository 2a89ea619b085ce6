package jobs_test

import (
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

func TestScenarios(t *testing.T) {
	for _, file := range []string{"jobs", "due"} {
		t.Run(file, func(t *testing.T) { locktest.Scenarios(t, "testdata/"+file+".txt") })
	}
}
