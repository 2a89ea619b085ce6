package node

import (
	"testing"
	"time"
)

// Milliseconds are rounded up: a node keeps a key for no less than the TTL.
//
// Source: ALGORITHM section 1, "whole milliseconds".
func TestMillisRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond - 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		50 * time.Millisecond: 50, 10*time.Second + 1: 10001, 240 * time.Hour: 864_000_000,
	} {
		if got := Millis(d); got != want {
			t.Errorf("Millis(%d ns): got %d, want %d", d, got, want)
		}
	}
}

// A node's clock may be off by half a quarantine.
//
// Source: ALGORITHM section 1, "MaxSkew".
func TestMaxSkew(t *testing.T) {
	const ms = time.Millisecond
	if got, want := MaxSkew(10*time.Second, 0.01), 5150*ms; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
