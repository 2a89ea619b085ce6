// Package users has the ways in which services were seen to use locks of other libraries, with the calls of this one.
package users

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/several"
)

var (
	masters []string
	locker  *redlock.Locker
	stock   = map[string]int{}
)

func save(context.Context, string, int) error { return nil }

// A handler makes its own client of the masters.
func order(w http.ResponseWriter, r *http.Request) {
	l, err := redlock.New(masters) // want `each request makes a Locker`
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// A service leaves the lock behind where the stock is too small.
func sell(ctx context.Context) error {
	for item, n := range stock {
		lease, err := locker.Lock(ctx, "goods_"+item) // want `lease`
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("sold out")
		}
		stock[item]--
		if err := lease.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A helper hides the error of Unlock.
func lockDo(ctx context.Context, key string, fn func()) {
	lease, err := locker.Lock(ctx, key)
	if err != nil {
		log.Println("lock", key, err)
		return
	}
	defer lease.Unlock(ctx) // want `error of Unlock is dropped`
	fn()
}

// The same with a blank: the reader sees that it is meant.
func rank(ctx context.Context, user string) error {
	lease, err := locker.Lock(ctx, "rank_"+user, redlock.WithTTL(time.Second))
	if err != nil {
		return err
	}
	defer func() { _ = lease.Unlock(ctx) }()
	return save(ctx, user, 1)
}

// A method that is to take a lock for its caller drops the lease: the lock ends with the process.
func acquireForVideo(ctx context.Context, id string) error {
	_, err := locker.Lock(ctx, id, redlock.WithTTL(10*time.Second)) // want `lease is dropped`
	return err
}

// A queue is locked without a look at the error.
func readQueue(ctx context.Context, id int) int {
	lease, _ := locker.Lock(ctx, fmt.Sprint("queue-", id)) // want `error of Lock is dropped`
	n := stock[fmt.Sprint(id)]
	lease.Unlock(ctx) // want `error of Unlock is dropped`
	return n
}

// A proxy of modules reports the error of Unlock unless there is another.
func stash(ctx context.Context, module string) (err error) {
	lockCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lease, err := locker.Lock(lockCtx, module)
	if err != nil {
		return err
	}
	defer func() {
		if unlockErr := lease.Unlock(ctx); err == nil && unlockErr != nil {
			err = unlockErr
		}
	}()
	return save(ctx, module, 1)
}

// A task of a queue that only logs.
func count(ctx context.Context, counter string) error {
	lease, err := locker.TryLock(ctx, counter)
	if errors.Is(err, redlock.ErrTaken) {
		fmt.Println("another worker has it")
		return nil
	}
	if err != nil {
		return err
	}
	stock[counter]++
	if err := lease.Unlock(ctx); err != nil {
		log.Println("unlock failed:", err)
	}
	return nil
}

// One lock after the other, given back if one is taken.
func lockMany(ctx context.Context, keys []string) (held []*redlock.Lease, err error) {
	for _, key := range keys {
		lease, err := locker.TryLock(ctx, key)
		if err != nil {
			unlockMany(ctx, held)
			return nil, err
		}
		held = append(held, lease)
	}
	return held, nil
}

func unlockMany(ctx context.Context, held []*redlock.Lease) {
	for _, lease := range held {
		_ = lease.Unlock(ctx)
	}
}

// A leader keeps its lease in a field, and gives it up with the process.
type tracker struct {
	lease  *redlock.Lease
	leader bool
}

func (t *tracker) elect(ctx context.Context) {
	lease, err := locker.TryLock(ctx, "leader")
	if err != nil {
		t.leader = false
		return
	}
	t.lease, t.leader = lease, true
}

// The lock is ahead of the work, and the work has the context of the request: it goes on after a loss.
func apply(ctx context.Context, code string) error {
	return locker.Do(ctx, code, func(context.Context, *redlock.Lease) error {
		return save(ctx, code, 1) // want `ctx is from outside of the function under the lease`
	})
}

func lobby(ctx context.Context, ids []string, fn func(context.Context) error) error {
	lease, err := several.Lock(ctx, locker, several.Names{Write: ids})
	if err != nil {
		return err
	}
	return lease.During(ctx, func(ctx context.Context, _ *several.Lease) error { return fn(ctx) })
}

// The work of a job has a time of its own, and goes on after a loss. The checks do not see that: such a context can also be meant
// for what has to be done at the end.
func job(parent context.Context) error {
	return locker.Do(parent, "ranking", func(ctx context.Context, _ *redlock.Lease) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return save(ctx, "top", 10)
	})
}
