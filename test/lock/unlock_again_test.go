package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// After an Unlock that no quorum confirmed, a second Unlock waits until a quorum lacks the key, and says so: because
// the nodes confirm it once they can be reached again, or because the key has expired.
//
// Source: ALGORITHM section 5.
func TestUnlockAgain(t *testing.T) {
	for _, test := range []struct {
		name       string
		fail, heal func(*virtual.Node)
	}{
		{"requests are lost", (*virtual.Node).Kill, (*virtual.Node).Heal},
		{"replies are lost", (*virtual.Node).LoseReplies, (*virtual.Node).Heal}, // the keys are gone, but no node says so
		{"the nodes hang", (*virtual.Node).Hang, (*virtual.Node).Resume},
		{"the connection is a hole", (*virtual.Node).Blackhole, (*virtual.Node).Heal},
	} {
		locktest.Subtest(t, test.name, 3, func(t *testing.T, b *locktest.Bubble) {
			l := b.WarmLocker()
			lease := b.Lock(l, "r")
			b.Each(test.fail, 0, 1)
			locktest.WantMatch(t, "the first Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNoQuorum}, redlock.ErrNotHeld)
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for range 2 { // the end of a context changes nothing
				locktest.WantMatch(t, "a short context", lease.Unlock(short), []error{redlock.ErrNoQuorum, context.DeadlineExceeded}, redlock.ErrNotHeld)
			}
			results := make(chan error, 2)
			for range 2 {
				go func() { results <- lease.Unlock(t.Context()) }()
			}
			synctest.Wait()
			if len(results) > 0 {
				t.Errorf("the second Unlock: got %v while the nodes cannot be reached, want none yet", <-results)
				return
			}
			b.Each(test.heal, 0, 1)
			healed := time.Now()
			for range 2 {
				locktest.Must(t, <-results)
			}
			locktest.WantWithin(t, "the confirmation after the nodes were back", healed, 2*time.Second)
			if holding := b.Holding("r"); len(holding) > 1 {
				t.Errorf("the nodes %v have the key, want no quorum of them", holding)
			}
			locktest.WantMatch(t, "the third Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNotHeld, redlock.ErrReleased})
		})
	}
	locktest.Subtest(t, "the keys expire", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		b.Each((*virtual.Node).Kill, 0, 1)
		began := time.Now()
		locktest.WantMatch(t, "the first Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNoQuorum})
		locktest.Must(t, lease.Unlock(t.Context()))
		if took := time.Since(began); took < redlock.DefaultTTL || took > redlock.DefaultTTL*11/10 {
			t.Errorf("the second Unlock: it took %v, want a TTL of 10 s and a little more", took)
		}
		b.All((*virtual.Node).Heal)
		b.WantHolding("r")
	})
	locktest.Subtest(t, "the Locker is closed", 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		lease := b.Lock(l, "r")
		b.Each((*virtual.Node).Kill, 0, 1)
		locktest.WantMatch(t, "the first Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNoQuorum})
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		locktest.WantMatch(t, "the second Unlock", lease.Unlock(t.Context()), []error{redlock.ErrNoQuorum, redlock.ErrClosed}, redlock.ErrNotHeld)
	})
}
