package redlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
)

// Without the guard a master that has lost a key goes on voting, even for the Locker that noticed,
// and no report says that it is in quarantine.
//
// Source: the doc comment of WithoutRestartGuard.
func TestLostKeyWithoutGuard(t *testing.T) {
	for name, lose := range map[string]func(*bubbleNode){
		"DEL":     func(n *bubbleNode) { n.put(redlock.DefaultKeyPrefix+"r", "", 0) },
		"FLUSHDB": func(n *bubbleNode) { n.inside(func(r *miniredis.Miniredis) { r.FlushDB() }) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, b *bubble) {
				forgot := 0
				l := b.warmLocker(redlock.WithoutRestartGuard(), locktest.On(func(redlock.Event) { forgot++ }, redlock.EventKeyLost))
				lease := b.lock(l, "r")
				lose(b.nodes[0])
				must(t, lease.Extend(t.Context()))
				b.nodes[2].kill()
				for _, r := range []string{"a", "b", "c"} { // which need the vote of the first master
					b.unlock(b.lock(l, r))
				}
				must(t, lease.Extend(t.Context()))
				s := l.Stats()
				if forgot != 1 || s.Counts[redlock.EventKeyLost] != 1 || s.Counts[redlock.EventQuarantined] != 0 || s.Masters[0].Quarantine != 0 {
					t.Errorf("got %d events of a lost key, counts %+v, quarantine %v; want one event, and no quarantine", forgot, s.Counts, s.Masters[0].Quarantine)
				}
				b.unlock(lease)
			})
		})
	}
}

// If the Locker does not count a vote after the step of a clock, the vote is reported and counted as
// in quarantine, and the log gives no advice that is impossible without the guard.
func TestStepWithoutGuard(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bubble) {
		logger, text := logText()
		l := b.warmLocker(redlock.WithoutRestartGuard(), redlock.WithLogger(logger))
		b.nodes[0].runClock(1, time.Second)
		b.unlock(b.lock(l, "r"))
		time.Sleep(time.Second)
		if s := l.Stats(); s.Counts[redlock.EventMasterClockStepped] != 1 || s.Counts[redlock.EventQuarantined] != 1 || s.Masters[0].Quarantine == 0 {
			t.Errorf("got counts %+v, quarantine %v; want one step and one quarantine", s.Counts, s.Masters[0].Quarantine)
		}
		b.nodes[2].kill()
		began := time.Now()
		lease, err := l.Lock(context.Background(), "r")
		must(t, err)
		b.unlock(lease)
		if took := time.Since(began); took < 8*time.Second || took > 12*time.Second {
			t.Errorf("a Lock that needs the vote took %v, want the rest of 10.3 s", took)
		}
		if !strings.Contains(text(), "masters in quarantine") || strings.Contains(text(), "redlock init") {
			t.Errorf("got the log\n%s\nwant it to say that a Lock waits, and not to name redlock init", text())
		}
	})
}
