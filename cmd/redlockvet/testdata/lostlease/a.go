package lostlease

import (
	"context"
	"errors"
	"log"
	"sync"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

func work(ctx context.Context) error { return ctx.Err() }

func early(ctx context.Context, l *redlock.Locker) error {
	lease, err := l.Lock(ctx, "a") // want `line 23 can be reached with the lease neither unlocked nor passed on: it is renewed for ever`
	if err != nil {
		return err
	}
	if err := work(lease.Context()); err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

func never(ctx context.Context, l *redlock.Locker) {
	lease, err := l.TryLock(ctx, "a") // want `can be reached with the lease`
	if err == nil {
		log.Print(lease.Fence())
	}
}

func dropped(ctx context.Context, l *redlock.Locker) error {
	l.Lock(ctx, "b")           // want `the lease is dropped: nothing can unlock it or see that it ends`
	_, err := l.Lock(ctx, "a") // want `the lease is dropped`
	return err
}

func aSwitch(ctx context.Context, l *redlock.Locker) error {
	lease, err := l.TryLock(ctx, "a") // want `can be reached with the lease`
	switch {
	case errors.Is(err, redlock.ErrTaken):
		return nil
	case err != nil:
		return err
	case lease.Fence() == 1:
		return errors.New("first")
	}
	return lease.Unlock(ctx)
}

func aLoop(ctx context.Context, l *redlock.Locker) error {
	for {
		lease, err := l.Lock(ctx, "a") // want `line 56 can be reached with the lease`
		if err != nil {
			return err
		}
		if work(lease.Context()) != nil {
			continue
		}
		if err := lease.Unlock(ctx); err != nil {
			return err
		}
	}
}

func aSelect(ctx context.Context, l *redlock.Locker, stop, more <-chan struct{}) error {
	lease, err := l.Lock(ctx, "a") // want `line 78 can be reached with the lease`
	if err != nil {
		return err
	}
	select {
	case <-lease.Context().Done():
		return lease.Err()
	case <-stop:
		return nil
	case <-more:
	}
	return lease.Unlock(ctx)
}

func anotherError(ctx context.Context, l *redlock.Locker) error {
	lease, err := l.Lock(ctx, "a") // want `line 91 can be reached with the lease`
	if err != nil {
		return err
	}
	err = lease.Extend(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

func others(ctx context.Context, l *redlock.Locker, s *semaphore.Semaphore, j *jobs.Locker) {
	a, err := several.Lock(ctx, l, several.Names{Write: []string{"a", "b"}}) // want `can be reached with the lease`
	log.Print(a.Err(), err)
	b, err := s.Acquire(ctx, 1) // want `can be reached with the lease`
	log.Print(b.Err(), err)
	c, err := j.Lock(ctx, "a") // want `can be reached with the lease`
	log.Print(c.Err(), err)
}

func aCondition(ctx context.Context, l *redlock.Locker, wanted bool) error {
	lease, err := l.TryLock(ctx, "a") // want `line \d+ can be reached with the lease`
	if err != nil || !wanted {
		return err
	}
	return lease.Unlock(ctx)
}

// From here on nothing is wrong.

func deferred(ctx context.Context, l *redlock.Locker) (err error) {
	lease, err := l.Lock(ctx, "a")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Unlock(ctx)) }()
	if work(lease.Context()) != nil {
		return errors.New("no")
	}
	return nil
}

func before(ctx context.Context, l *redlock.Locker) (err error) {
	var lease *redlock.Lease
	defer func() {
		if lease != nil {
			err = errors.Join(err, lease.Unlock(ctx))
		}
	}()
	lease, err = l.Lock(ctx, "a")
	if err != nil {
		return err
	}
	return work(lease.Context())
}

func returned(ctx context.Context, l *redlock.Locker) (*redlock.Lease, error) {
	lease, err := l.Lock(ctx, "a")
	return lease, err
}

func named(ctx context.Context, l *redlock.Locker) (lease *redlock.Lease, err error) {
	lease, err = l.Lock(ctx, "a")
	return
}

func detached(ctx context.Context, l *redlock.Locker) (redlock.Handle, error) {
	lease, err := l.Lock(ctx, "a")
	if err != nil {
		return redlock.Handle{}, err
	}
	return lease.Detach()
}

type keeper struct {
	mu    sync.Mutex
	lease *redlock.Lease
	all   map[string]*redlock.Lease
}

func (k *keeper) stored(ctx context.Context, l *redlock.Locker) (err error) {
	k.lease, err = l.Lock(ctx, "a")
	if err != nil {
		return err
	}
	lease, err := l.Lock(ctx, "b")
	if err != nil {
		return err
	}
	k.all["b"] = lease
	other, err := l.Lock(ctx, "c")
	if err != nil {
		return err
	}
	passed(other)
	return nil
}

func passed(*redlock.Lease) {}

func sent(ctx context.Context, l *redlock.Locker, to chan<- *redlock.Lease) error {
	lease, err := l.Lock(ctx, "a")
	if err != nil {
		return err
	}
	select {
	case to <- lease:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), lease.Unlock(ctx))
	}
}

func untilItEnds(ctx context.Context, l *redlock.Locker) error {
	lease, err := l.Lock(ctx, "a")
	if err != nil {
		return err
	}
	held, cancel := lease.Within(ctx)
	defer cancel()
	<-held.Done()
	return nil
}

func lost(ctx context.Context, l *redlock.Locker) error {
	lease, err := l.Lock(ctx, "a")
	if err != nil {
		return err
	}
	for {
		if lease.Err() != nil || lease.Context().Err() != nil {
			return lease.Err()
		}
		if work(lease.Context()) == nil {
			return lease.Unlock(ctx)
		}
	}
}

func kindsOfErrors(ctx context.Context, l *redlock.Locker) error {
	lease, err := l.TryLock(ctx, "a")
	if redlock.Reason(err) == "taken" {
		return nil
	}
	if err != nil {
		return err
	}
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	lease, err = l.TryLock(ctx, "a")
	taken := errors.Is(err, redlock.ErrTaken)
	if err != nil && !taken {
		return err
	}
	if taken {
		return nil
	}
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	return nil
}

func aTag(ctx context.Context, l *redlock.Locker) error {
	lease, err := l.TryLock(ctx, "a")
	switch err {
	case nil:
		return lease.Unlock(ctx)
	default:
		return err
	}
}

func conditions(ctx context.Context, l *redlock.Locker, more bool) (err error) {
	lease, err := l.TryLock(ctx, "a")
	if err == nil && more {
		return lease.Unlock(ctx)
	} else if !(err != nil) {
		return errors.Join(lease.Unlock(ctx), errors.New("no more"))
	}
	return err
}

func fatal(ctx context.Context, l *redlock.Locker) error {
	lease, err := l.Lock(ctx, "a")
	if err != nil {
		log.Panic(err)
	}
	if work(lease.Context()) != nil {
		log.Fatal("no")
	}
	return lease.Unlock(ctx)
}

func closes(ctx context.Context) error {
	l, err := redlock.New([]string{"10.0.0.1:6379"})
	if err != nil {
		return err
	}
	defer l.Close() // ends all leases
	lease, err := l.Lock(ctx, "a")
	if err != nil {
		return err
	}
	go func() { _, _ = l.Lock(ctx, "a") }()
	return work(lease.Context())
}
