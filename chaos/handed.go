package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
)

// handed is the resource whose leases are passed on.
const handed = "handed"

// transferable is a lease that can be passed on.
type transferable interface {
	history.Lease
	Extend(context.Context) error
	Handle() redlock.Handle
	Detach() (redlock.Handle, error)
}

// adopter is a way to adopt a lease: that of the library, or a wrong one.
type adopter func(ctx context.Context, heir *redlock.Locker, former redlock.Handle) (transferable, error)

func adopt(ctx context.Context, heir *redlock.Locker, former redlock.Handle) (transferable, error) {
	return heir.Adopt(ctx, former)
}

// passOn takes a lease, and passes it on once to three times. Each holder is a process of its own. It detaches
// its lease, or forgets that, and then goes on for a while with what it takes for its lease. One or two
// processes adopt it at a time.
func (w *worker) passOn(ctx context.Context, by adopter) {
	first, err := w.open()
	if err != nil {
		return
	}
	var careless sync.WaitGroup
	defer careless.Wait()
	h, err := history.Take(w.book, handed, true, func() (transferable, error) { return first.Lock(ctx, handed) })
	if err != nil {
		_ = first.Close()
		return
	}
	holder := first
	for range 1 + w.rng.IntN(3) {
		sleep(ctx, w.upTo(w.conf.TTL/2))
		h.Look()
		detached := w.rng.IntN(2) == 0
		if detached {
			_ = h.FreePart(handed, func() error { _, err := h.Lease.Detach(); return err })
			sleep(ctx, w.upTo(w.conf.TTL/8))
		}
		heirs := make([]*redlock.Locker, 1+w.rng.IntN(2))
		got := make([]*history.Held[transferable], len(heirs))
		var g sync.WaitGroup
		for i := range heirs {
			if heirs[i], err = w.open(); err != nil {
				continue
			}
			former, after := h.Lease, w.upTo(2*time.Millisecond)
			g.Go(func() {
				sleep(ctx, after)
				got[i], _ = history.Adopt(w.book, handed, former.Token(), func() (transferable, error) { return by(ctx, heirs[i], former.Handle()) })
			})
		}
		early := w.rng.IntN(4) == 0 // the former holder ends while it is adopted
		if early {
			w.leave(ctx, &careless, holder, h, detached)
		}
		g.Wait()
		if !early {
			w.leave(ctx, &careless, holder, h, detached)
		}
		h = nil
		for i, next := range got {
			switch {
			case next != nil && h == nil:
				h, holder = next, heirs[i]
			case next != nil: // the checker says that this must not be
				_ = next.Free(context.Background())
				_ = heirs[i].Close()
			case heirs[i] != nil:
				_ = heirs[i].Close()
			}
		}
		if h == nil {
			return
		}
	}
	sleep(ctx, w.upTo(w.conf.TTL/2))
	_ = h.Free(context.Background())
	_ = holder.Close()
}

// leave lets a former holder end: it extends what it takes for its lease, and unlocks it or closes its Locker.
func (w *worker) leave(ctx context.Context, done *sync.WaitGroup, former *redlock.Locker, h *history.Held[transferable], detached bool) {
	after, extends, unlocks := w.upTo(w.conf.TTL/2), w.rng.IntN(2) == 0, w.rng.IntN(2) == 0
	done.Go(func() {
		sleep(ctx, after)
		h.Look()
		if extends {
			_ = h.Lease.Extend(context.Background())
		}
		switch {
		case detached:
		case unlocks:
			_ = h.Free(context.Background())
		default:
			_ = h.FreePart(handed, former.Close)
		}
		_ = former.Close()
	})
}

// upTo returns a random time.
func (w *worker) upTo(most time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(most)))
}
