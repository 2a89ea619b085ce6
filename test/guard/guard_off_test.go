package guard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// Without the guard a master that has lost a key goes on voting, even for the Locker that noticed,
// and no report says that it is in quarantine.
//
// Source: the doc comment of WithoutRestartGuard.
func TestLostKeyWithoutGuard(t *testing.T) {
	for name, lose := range map[string]func(*virtual.Node){
		"DEL":     func(n *virtual.Node) { n.Put(redlock.DefaultKeyPrefix+"r", "", 0) },
		"FLUSHDB": func(n *virtual.Node) { n.Inside(func(r *miniredis.Miniredis, _ time.Time) { r.FlushDB() }) },
	} {
		locktest.Subtest(t, name, 3, func(t *testing.T, b *locktest.Bubble) {
			forgot := 0
			l := b.WarmLocker(redlock.WithoutRestartGuard(), locktest.On(func(redlock.Event) { forgot++ }, redlock.EventKeyLost))
			lease := b.Lock(l, "r")
			lose(b.Nodes[0])
			locktest.Must(t, lease.Extend(t.Context()))
			b.Nodes[2].Kill()
			for _, r := range []string{"a", "b", "c"} { // which need the vote of the first master
				b.Unlock(b.Lock(l, r))
			}
			locktest.Must(t, lease.Extend(t.Context()))
			s := l.Stats()
			if forgot != 1 || s.Counts[redlock.EventKeyLost] != 1 || s.Counts[redlock.EventQuarantined] != 0 || s.Masters[0].Quarantine != 0 {
				t.Errorf("got %d events of a lost key, counts %+v, quarantine %v; want one event, and no quarantine", forgot, s.Counts, s.Masters[0].Quarantine)
			}
			b.Unlock(lease)
		})
	}
}

// If the Locker does not count a vote after the step of a clock, the vote is reported and counted as
// in quarantine, and the log gives no advice that is impossible without the guard.
func TestStepWithoutGuard(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		logger, text := locktest.LogText()
		l := b.WarmLocker(redlock.WithoutRestartGuard(), redlock.WithLogger(logger))
		b.Nodes[0].RunClock(1, time.Second)
		b.Unlock(b.Lock(l, "r"))
		time.Sleep(time.Second)
		if s := l.Stats(); s.Counts[redlock.EventMasterClockStepped] != 1 || s.Counts[redlock.EventQuarantined] != 1 || s.Masters[0].Quarantine == 0 {
			t.Errorf("got counts %+v, quarantine %v; want one step and one quarantine", s.Counts, s.Masters[0].Quarantine)
		}
		b.Nodes[2].Kill()
		began := time.Now()
		lease, err := l.Lock(context.Background(), "r")
		locktest.Must(t, err)
		b.Unlock(lease)
		if took := time.Since(began); took < 8*time.Second || took > 12*time.Second {
			t.Errorf("a Lock that needs the vote took %v, want the rest of 10.3 s", took)
		}
		if !strings.Contains(text(), "masters in quarantine") || strings.Contains(text(), "redlock init") {
			t.Errorf("got the log\n%s\nwant it to say that a Lock waits, and not to name redlock init", text())
		}
	})
}
