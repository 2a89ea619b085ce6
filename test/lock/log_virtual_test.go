package lock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// logged returns an option for a log, and the lines of it that have a text.
func logged() (redlock.Option, func(text string) []string) {
	logger, whole := locktest.LogText()
	return redlock.WithLogger(logger), func(text string) (list []string) {
		for line := range strings.Lines(whole()) {
			if strings.Contains(line, text) {
				list = append(list, line)
			}
		}
		return list
	}
}

func wantLines(t *testing.T, with func(string) []string, text string, n int) {
	t.Helper()
	synctest.Wait()
	if list := with(text); len(list) != n {
		t.Errorf("got %d lines with %q, want %d:\n%s", len(list), text, n, strings.Join(list, ""))
	}
}

// Masters that come into quarantine one shortly after the other are what calls wait for once; the next quarantine
// is another line.
func TestVirtualLogOfOneQuarantine(t *testing.T) {
	locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
		option, log := logged()
		l := b.WarmLocker(option)
		for n := 1; n <= 2; n++ {
			b.All((*virtual.Node).RestartEmpty)
			b.Each((*virtual.Node).Hang, 1, 2, 3, 4)
			w := b.Wait(t.Context(), l)
			for _, m := range b.Nodes[1:] { // each is found a moment later
				time.Sleep(300 * time.Millisecond)
				m.Heal()
			}
			b.Unlock(b.Got(w))
			wantLines(t, log, "masters in quarantine have no vote yet", n)
			time.Sleep(time.Minute)
		}
	})
}

// The end of an outage is one line, if calls and renewals have had it; and a lost lease has no validity.
func TestVirtualLogOfOneOutage(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		option, log := logged()
		l := b.WarmLocker(option)
		b.Lock(b.WarmLocker(), "others")
		held, short := b.Lock(l, "held"), b.Lock(l, "short", redlock.WithTTL(4*time.Second))
		for n := 1; n <= 2; n++ {
			b.Each((*virtual.Node).Hang, 0, 1)
			ctx, cancel := context.WithCancel(t.Context())
			w := b.WaitFor(ctx, l, "others") // a quorum answers that, before the next renewal
			time.Sleep(6 * time.Second)
			b.Each((*virtual.Node).Heal, 0, 1)
			time.Sleep(time.Minute)
			if held.Err() != nil || short.Err() == nil {
				t.Fatalf("got %v, %v, want the second lease lost", held.Err(), short.Err())
			}
			cancel()
			<-w.Done
			wantLines(t, log, "a quorum of the masters votes", n)
		}
		wantLines(t, log, "lease lost", 1)
		wantLines(t, log, "validity=-", 0)
	})
}

// During a change of the list a process has one line for each list that it finds, which is no warning, as the lists
// may stand beside each other.
func TestVirtualLogOfAChange(t *testing.T) {
	locktest.InBubble(t, 5, func(t *testing.T, b *locktest.Bubble) {
		b.Vouch()
		before := b.Part(0, 1, 2).Locker()
		b.Unlock(b.Lock(before, "r"))
		for _, list := range [][]int{{0, 1, 2, 3}, {0, 1, 2, 3, 4}} {
			option, log := logged()
			after := b.Part(list...).Locker(option)
			b.Unlock(b.Lock(after, "r"))
			time.Sleep(time.Minute)
			b.Unlock(b.Lock(after, "r"))
			wantLines(t, log, "has the list of masters", 1)
			wantLines(t, log, "level=WARN", 0)
		}
	})
}
