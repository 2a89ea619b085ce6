package clockwatch

import (
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/clock"
)

// A reading is taken for the middle of its exchange, and is off by at most half of it.
//
// Source: ALGORITHM section 9, "est_i".
func TestTakeSample(t *testing.T) {
	const ms = clock.Instant(time.Millisecond)
	s := takeSample(1_000_000, 10*ms, 14*ms)
	if want := (sample{1_000_000, 12 * ms, 2 * time.Millisecond}); s != want {
		t.Fatalf("got %+v, want %+v", s, want)
	}
	for now, want := range map[clock.Instant]int64{12 * ms: 1_000_000, 15 * ms: 1_003_000, 10 * ms: 998_000} {
		if got := s.estimate(now); got != want {
			t.Errorf("estimate at %d: got %d, want %d", now, got, want)
		}
	}
	for _, now := range []clock.Instant{2 * ms, 22 * ms} { // the doubt grows into the past, too
		if got, want := s.uncertainty(now, 0.01), 2100*time.Microsecond; got != want {
			t.Errorf("uncertainty at %d: got %v, want %v", now, got, want)
		}
	}
	for micros, want := range map[int64]bool{9e14 - 1: false, 9e14: true, 9e15: true, 9e15 + 1: false} {
		if got := Plausible(micros); got != want {
			t.Errorf("%d us is plausible: got %v, want %v", micros, got, want)
		}
	}
}

// Whatever the node's clock was when it answered, a request is in time until its end, and
// without effect from deadBy on.
//
// Source: ALGORITHM section 5, "notAfter_i".
func TestNotAfterAndDeadBy(t *testing.T) {
	const ms = clock.Instant(time.Millisecond)
	const sent, received, micros = 10 * ms, 14 * ms, int64(5_000_000)
	s := takeSample(micros, sent, received)
	for _, end := range []clock.Instant{received, received + 1, received + 999, 50 * ms, 3000*ms + 7} {
		// The node read its clock at any moment of the exchange.
		for read := sent; read <= received; read += ms / 4 {
			node := func(local clock.Instant) float64 { return float64(micros) + float64(local-read)/1000 }
			notAfter := float64(s.notAfter(end, 0.01))
			if got := node(end); got > notAfter+1 {
				t.Errorf("read at %d: the request is late at its end %d: the node's clock is %.1f, limit %.1f", read, end, got, notAfter)
			}
			if by := s.deadBy(end, 0.01); node(by) <= notAfter {
				t.Errorf("read at %d: at %d the node's clock is %.1f: a request with the limit %.1f is not dead", read, by, node(by), notAfter)
			}
		}
		if by := s.deadBy(end, 0.01); by < end {
			t.Errorf("dead at %d, before its end %d", by, end)
		}
	}
	// 8 ms after the sample, which had an error of 2 ms and has aged by 80 us.
	if got, want := s.notAfter(20*ms, 0.01), int64(5_000_000+8_000+2_000+80+1); got != want {
		t.Errorf("notAfter: got %d, want %d", got, want)
	}
}

// A sharper sample replaces a sample, and so does a sample that contradicts it.
//
// Source: ALGORITHM section 9.
func TestBetterSample(t *testing.T) {
	const at, later = clock.Instant(time.Hour), clock.Instant(time.Hour + time.Second)
	const ms = time.Millisecond
	old := sample{micros: 7_000_000, at: at, err: 2 * ms}
	for _, test := range []struct {
		name string
		next sample
		want bool
	}{
		{"sharper", sample{7_000_000, at, ms}, true},
		{"as sharp", sample{7_000_000, at, 2 * ms}, true},
		{"blunter and consistent", sample{7_000_000, at, 2*ms + 1}, false},
		{"blunter, but the old one has aged", sample{8_000_000, later, 12 * ms}, true},
		{"blunter than the aged one", sample{8_000_000, later, 12*ms + 1}, false},
		{"blunter, a step forward", sample{8_200_000, later, 20 * ms}, true},
		{"blunter, a step back", sample{7_800_000, later, 20 * ms}, true},
		{"blunter, a huge step back", sample{1, later, 20 * ms}, true},
		// Their errors add up to 2 + 20 ms, 10 ms of age and 1 ms.
		{"as far ahead as can be without a step", sample{8_033_000, later, 20 * ms}, false},
		{"a microsecond more", sample{8_033_001, later, 20 * ms}, true},
		{"as far back as can be without a step", sample{7_967_000, later, 20 * ms}, false},
		{"a microsecond less", sample{7_966_999, later, 20 * ms}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := old.better(test.next, 0.01); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
