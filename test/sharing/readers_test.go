package sharing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// Which holders may have a resource together, on real masters of which one is killed and one hangs: each
// pair of kinds, by one Locker and by two. Each pair has a resource of its own: TryLock is refused before all
// masters have answered, so a request of it may reach a master after the resource is free again.
//
// Source: ALGORITHM section 12.
func TestConflicts(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 5)
	patient := redlock.WithMasterTimeout(2 * time.Second) // all masters that are left have to answer
	l, other := locktest.Open(t, c.Addrs, patient), locktest.Open(t, c.Addrs, patient)
	locktest.ReachAll(t, l, other)
	locktest.Must(t, errors.Join(c.Procs[0].Kill(), c.Procs[1].Pause()))
	ctx := t.Context()
	type get = func(l *redlock.Locker, resource string) (*redlock.Lease, error)
	kinds := map[string]get{
		"writer": func(l *redlock.Locker, resource string) (*redlock.Lease, error) { return l.TryLock(ctx, resource) },
		"reader": func(l *redlock.Locker, resource string) (*redlock.Lease, error) {
			return l.TryLock(ctx, resource, redlock.Shared())
		},
		"writer that reads on": func(l *redlock.Locker, resource string) (*redlock.Lease, error) {
			lease, err := l.TryLock(ctx, resource)
			if err == nil {
				err = lease.Downgrade(ctx)
			}
			return lease, err
		},
	}
	isReader := map[string]bool{"reader": true, "writer that reads on": true}
	for has, first := range kinds {
		for wants, second := range kinds {
			together := isReader[has] && wants == "reader"
			for where, by := range map[string]*redlock.Locker{"same Locker": l, "another Locker": other} {
				pair := has + ", " + wants + ", " + where
				t.Run(pair, func(t *redistest.T) {
					held, err := first(l, pair)
					locktest.Must(t, err)
					next, err := second(by, pair)
					if together && err != nil || !together && !errors.Is(err, redlock.ErrTaken) {
						t.Errorf("got %v, want them together: %v", err, together)
					}
					if next != nil && next.Fence() < held.Fence() {
						redistest.Broken(t, fmt.Sprintf("fence %d after %d", next.Fence(), held.Fence()))
					}
					if next != nil {
						locktest.Must(t, next.Unlock(ctx))
					}
					locktest.Must(t, held.Unlock(ctx))
				})
			}
		}
	}
}

// Do with a lease of a reader, on real masters.
func TestDoShared(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l, other := locktest.Open(t, c.Addrs, redlock.WithOwner("reader 1")), locktest.Open(t, c.Addrs)
	oops := errors.New("oops")
	err := l.Do(t.Context(), "r", func(ctx context.Context, le *redlock.Lease) error {
		var refused *redlock.QuorumError
		if _, err := other.TryLock(ctx, "r"); !errors.As(err, &refused) || !errors.Is(err, redlock.ErrTaken) {
			return fmt.Errorf("TryLock beside a reader: %w", err)
		}
		if owner, left := refused.Holder(); owner != "reader 1" || left <= 0 {
			return fmt.Errorf("got owner %q and %v left", owner, left)
		}
		in, err := admin.Inspect(ctx, other, "r")
		if err != nil || in.Verdict != admin.VerdictShared || len(in.Readers) != 1 || in.Readers[0].Token != le.Token() || in.Readers[0].Owner != "reader 1" {
			return fmt.Errorf("got %+v, %w", in, err)
		}
		found := 0
		for in, err := range admin.List(ctx, other) {
			if err != nil {
				return err
			}
			if in.Verdict == admin.VerdictShared {
				found++
			}
		}
		if found != 1 {
			return fmt.Errorf("List: got %d shared resources", found)
		}
		return oops
	}, redlock.Shared())
	if !errors.Is(err, oops) {
		t.Error(err)
	}
	locktest.Must(t, locktest.Lock(t, other, "r").Unlock(t.Context()))
	c.Empty(t, "redlock:r")
	c.Empty(t, "redlock:r~readers")
}
