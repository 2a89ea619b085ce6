package droppederror

import (
	"context"
	"database/sql"
	"log"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

func work(context.Context, *redlock.Lease) error { return nil }

func with(ctx context.Context, l *redlock.Locker, s *semaphore.Semaphore, lease *redlock.Lease, all *several.Lease, db *sql.DB, rdb *redis.Client) {
	lease.Unlock(ctx)                                                          // want `the error of Unlock is dropped: ErrLost means that another holder may have worked at the same time`
	defer lease.Unlock(ctx)                                                    // want `the error of Unlock is dropped`
	go lease.Unlock(ctx)                                                       // want `the error of Unlock is dropped`
	(all.Unlock(ctx))                                                          // want `the error of Unlock is dropped`
	l.Do(ctx, "a", work)                                                       // want `the error of Do is dropped`
	s.Do(ctx, 1, func(context.Context, *semaphore.Lease) error { return nil }) // want `the error of Do is dropped`

	one, _ := l.Lock(ctx, "a")      // want `the error of Lock is dropped: with an error there is no lease, and the work goes on without the lock`
	some, _ := s.TryAcquire(ctx, 1) // want `the error of TryAcquire is dropped`
	defer func() { _, _ = one, some }()

	fence.Tx(ctx, db, fence.PostgreSQL, lease, func(*sql.Tx) error { return nil }) // want `the error of Tx is dropped: ErrFenced means that the store was not written`
	fence.Set(ctx, rdb, "a", 1, lease)                                             // want `the error of Set is dropped`
}

type other struct{}

func (other) Unlock(context.Context) error { return nil }

func without(ctx context.Context, l *redlock.Locker, j *jobs.Locker, lease *redlock.Lease, lock *jobs.Lock) error {
	_ = lease.Unlock(ctx)
	one, err := l.TryLock(ctx, "a")
	defer func() { _, _ = one, err }()
	defer func() {
		if err := lease.Unlock(ctx); err != nil {
			log.Print(err)
		}
	}()
	go func() { _ = l.Do(ctx, "a", work) }()
	j.Run(ctx, "a", work)
	lock.Unlock(ctx)
	other{}.Unlock(ctx)
	var mu sync.Mutex
	mu.Lock()
	defer mu.Unlock()
	var once sync.Once
	once.Do(func() {})
	return l.Do(ctx, "a", work)
}
