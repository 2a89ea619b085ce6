package redlock

import (
	"testing"
	"time"
)

// A process pauses after its share of turns if it has met a client of another library, or may meet one
// without a sign of it.
//
// Source: ALGORITHM section 10, "Other libraries".
func TestForeignHolders(t *testing.T) {
	p := defaultForeignPolicy
	// taken has the process take turns of a length, one after the other, and returns the time from the first
	// to the first pause; 0 if there is none for a minute.
	taken := func(h *foreignHolders, turn time.Duration, now time.Time) time.Duration {
		for start := now; now.Sub(start) < time.Minute; {
			if d := h.pause("r", now); d > 0 {
				if d < p.pause/2 || d > 2*p.pause {
					t.Errorf("got a pause of %v, want about %v", d, p.pause)
				}
				if left := h.pause("r", now.Add(d/2)); left != d-d/2 {
					t.Errorf("in the middle of a pause of %v: got %v more", d, left)
				}
				if again := h.pause("r", now.Add(d)); again != 0 {
					t.Errorf("after a pause: got another one of %v", again)
				}
				return now.Sub(start)
			}
			h.turn("r", now)
			now = now.Add(turn)
			h.freed("r", now)
		}
		return 0
	}
	whole := func(d, turn time.Duration) time.Duration { return (d + turn - 1) / turn * turn } // turns
	for _, turn := range []time.Duration{time.Millisecond, 30 * time.Millisecond, p.search + time.Second} {
		ours, shared := &foreignHolders{}, &foreignHolders{search: true}
		now := time.Now()
		if got := taken(ours, turn, now); got != 0 || len(ours.all) != 0 {
			t.Errorf("turns of %v, no other library known: got a pause after %v, want none", turn, got)
		}
		if got, want := taken(shared, turn, now), whole(p.search, turn); got != want {
			t.Errorf("turns of %v, empty prefix: got a pause after %v, want %v", turn, got, want)
		}
		for _, h := range []*foreignHolders{ours, shared} {
			h.meet("r", now)
			want := min(time.Duration(p.turns)*turn, whole(p.share, turn))
			for range 2 { // and again after the pause
				if got := taken(h, turn, now); got != want {
					t.Errorf("turns of %v, another library met: got a pause after %v, want %v", turn, got, want)
				}
				now = now.Add(time.Second)
			}
		}
		now = now.Add(p.memory)
		if got := taken(ours, turn, now); got != 0 || len(ours.all) != 0 {
			t.Errorf("turns of %v, another library long ago: got a pause after %v, want none", turn, got)
		}
	}
	// Where the resource was free by itself for as long as a pause, none is needed.
	h := &foreignHolders{search: true}
	h.meet("r", time.Now())
	for now, end := time.Now(), time.Now().Add(time.Minute); now.Before(end); now = now.Add(p.pause) {
		if d := h.pause("r", now); d > 0 {
			t.Fatalf("got a pause of %v for a resource that is free most of the time", d)
		}
		h.turn("r", now)
		h.freed("r", now)
	}
	// What is old is forgotten.
	for i := range 1000 {
		h.turn(string(rune('a'+i)), time.Now().Add(time.Duration(i)*p.memory))
	}
	if len(h.all) > 100 {
		t.Errorf("got %d resources remembered, want the late ones", len(h.all))
	}
}
