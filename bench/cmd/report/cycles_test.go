package main

import (
	"testing"
	"time"

	"github.com/d0720281/redlock/bench/internal/measure"
)

func TestCycleValues(t *testing.T) {
	const cell = 400 * time.Millisecond
	r := Cycled{Done: 900, CPU: 9 * time.Millisecond}
	r.Last = 450 * time.Millisecond
	used := measure.Usage{Commands: 1800, Busy: 27 * time.Millisecond, Scripts: 18 * time.Millisecond}
	got := cycleValues(r, cell, used, 3)
	for metric, want := range map[string]float64{"rate": 2000, "cpu": 10, "commands": 2, "busy": 10, "script": 20.0 / 3} {
		if diff := got[metric] - want; diff < -1e-6 || diff > 1e-6 {
			t.Errorf("%s: got %v, want %v", metric, got[metric], want)
		}
	}

	r.Failed, r.Last = 100, 100*time.Millisecond // stuck early on
	if got := cycleValues(r, cell, used, 3)["rate"]; got != 2000 {
		t.Errorf("800 without a failure in 400 ms: got %v a second, want 2000", got)
	}

	none := cycleValues(Cycled{}, cell, measure.Usage{}, 0)
	if _, ok := none["cpu"]; ok || none["rate"] != 0 {
		t.Errorf("no cycle: got %v", none)
	}
	if _, ok := none["script"]; ok {
		t.Error("scripts, without a server")
	}
}
