package servers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
)

// Another program has put a large string at a lock key, and a large string at the key of a fencing
// counter. The scripts read only the beginning.
func TestLargeForeignValue(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	c.Warm(t, l)
	const size = 32 << 20 // larger than any reply that the library reads
	for _, n := range c.Nodes {
		for _, key := range []string{"redlock:r", "redlock:s~fence"} {
			locktest.Must(t, n.Set(t.Context(), key, strings.Repeat("x", 1024), time.Minute).Err())
			locktest.Must(t, n.SetRange(t.Context(), key, size-1, "x").Err())
		}
		locktest.Must(t, n.Set(t.Context(), "redlock:empty", "", time.Minute).Err())
		locktest.Must(t, n.ConfigResetStat(t.Context()).Err())
	}
	for _, resource := range []string{"r", "empty"} {
		_, err := l.TryLock(t.Context(), resource)
		locktest.WantErr(t, err, redlock.ErrTaken)
	}
	_, err := l.TryLock(t.Context(), "s")
	locktest.WantErr(t, err, reason.WrongType)
	seen, err := admin.Inspect(t.Context(), l, "r")
	locktest.Must(t, err)
	if seen.Verdict != admin.VerdictHeld || len(seen.Token) > 256 {
		t.Errorf("Inspect: got %+v, want a holder with a token that is cut", seen)
	}
	for i, n := range c.Nodes {
		if got := n.StrLen(t.Context(), "redlock:r").Val(); got != size {
			t.Errorf("node %d: got %d bytes, want them as they were", i, got)
		}
		if got := n.Exists(t.Context(), "redlock:empty").Val(); got != 1 {
			t.Errorf("node %d: the empty string has gone", i)
		}
		stats := n.Info(t.Context(), "commandstats").Val()
		if strings.Contains(stats, "cmdstat_get:") {
			t.Errorf("node %d: got GET used, want no more read than a lock's value", i)
		}
	}
}
