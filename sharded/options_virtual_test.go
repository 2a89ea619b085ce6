package sharded_test

import (
	"context"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/sharded"
)

// Each option of a lock means the same where there are groups, given to the call or to New.
func TestVirtualOptions(t *testing.T) {
	type taking func(*sharded.Locker, context.Context, string, ...redlock.LockOption) (*redlock.Lease, error)
	for name, test := range map[string]struct {
		waits, ofNew bool
		take         taking
	}{
		"Lock":                        {true, false, (*sharded.Locker).Lock},
		"TryLock":                     {false, false, (*sharded.Locker).TryLock},
		"TryLock, the options of New": {false, true, (*sharded.Locker).TryLock},
		"Do":                          {true, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.EachOption(t, 6, locktest.Entry{Waits: test.waits, Take: func(b *locktest.Bubble, opts ...redlock.LockOption) (h locktest.Held, err error) {
				var all []redlock.Option
				if test.ofNew {
					all, opts = append(all, opts[0]), nil
				}
				l := open(b, groupsAB, all...)
				h.Locker = l.GroupOf("r")
				if test.take == nil {
					h.Nest = func(ctx context.Context) (*redlock.Lease, error) { return l.Lock(ctx, "r", opts...) }
					err = h.Run(b.T, func(work func(context.Context, locktest.HeldLease) error) error {
						return l.Do(b.T.Context(), "r", func(ctx context.Context, lease *redlock.Lease) error { return work(ctx, lease) }, opts...)
					})
					return h, err
				}
				h.Nest = func(ctx context.Context) (*redlock.Lease, error) { return test.take(l, ctx, "r", opts...) }
				lease, err := test.take(l, b.T.Context(), "r", opts...)
				if err == nil {
					h.Lease, h.Work, h.End = lease, lease.Context(), func() { _ = lease.Unlock(b.T.Context()) }
				}
				return h, err
			}})
		})
	}
}

// TryLock with WithQuarantineWait waits for the masters of its group, too, when the survey has passed.
func TestVirtualQuarantineWaitInAGroup(t *testing.T) {
	locktest.InBubble(t, 6, func(t *testing.T, b *locktest.Bubble) {
		l := open(b, groupsAB)
		r := inGroup(t, l, 0)
		b.Unlock(lock(b, l, r))
		b.Each((*virtual.Node).RestartEmpty, groupsAB[0]...)
		began := time.Now()
		lease, err := l.TryLock(t.Context(), r, redlock.WithQuarantineWait(locktest.Quarantine+time.Second))
		locktest.Must(t, err)
		locktest.WantWithin(t, "the lease", began, locktest.Quarantine+time.Second)
		b.Unlock(lease)
	})
}

// What the group would refuse is refused before a survey asks a master.
func TestVirtualBadArguments(t *testing.T) {
	type call func(l *sharded.Locker, ctx context.Context, resource string, opts ...redlock.LockOption) error
	work := func(context.Context, *redlock.Lease) error { return nil }
	var none context.Context
	locktest.InBubble(t, 6, func(t *testing.T, b *locktest.Bubble) {
		l := open(b, groupsAB)
		for name, do := range map[string]call{
			"Lock": func(l *sharded.Locker, ctx context.Context, r string, opts ...redlock.LockOption) error {
				_, err := l.Lock(ctx, r, opts...)
				return err
			},
			"TryLock": func(l *sharded.Locker, ctx context.Context, r string, opts ...redlock.LockOption) error {
				_, err := l.TryLock(ctx, r, opts...)
				return err
			},
			"Do": func(l *sharded.Locker, ctx context.Context, r string, opts ...redlock.LockOption) error {
				return l.Do(ctx, r, work, opts...)
			},
			"Adopt": func(l *sharded.Locker, ctx context.Context, r string, opts ...redlock.LockOption) error {
				_, err := l.Adopt(ctx, r, locktest.NewID(), 0, opts...)
				return err
			},
		} {
			for what, err := range map[string]error{
				"a TTL that is too long":  do(l, t.Context(), "r", redlock.WithTTL(time.Hour)),
				"options that conflict":   do(l, t.Context(), "r", redlock.WithMaxHold(time.Minute), redlock.WithoutRenewal()),
				"a nil option":            do(l, t.Context(), "r", nil),
				"no resource":             do(l, t.Context(), ""),
				"a name of the library":   do(l, t.Context(), "r~turn"),
				"no context":              do(l, none, "r"),
				"no function, only of Do": l.Do(t.Context(), "r", nil),
			} {
				locktest.WantMatch(t, name+" with "+what, err, []error{redlock.ErrConfig}, redlock.ErrNotAcquired)
			}
		}
		for i, n := range b.Nodes {
			if n.Conns() > 0 {
				t.Errorf("node %d was asked", i)
			}
		}
	})
}
