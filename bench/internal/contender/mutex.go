package contender

import (
	"context"
	"errors"
	"sync"
)

// mutexes is the floor for one process: a sync.Mutex for each key. Waiting for a mutex does
// not end with the context.
type mutexes struct{ keys sync.Map }

func dialMutex(context.Context, []string) (Locker, error) { return new(mutexes), nil }

func (m *mutexes) Lock(_ context.Context, key string) (Lease, error) {
	mu, ok := m.keys.Load(key)
	if !ok {
		mu, _ = m.keys.LoadOrStore(key, new(sync.Mutex))
	}
	held := mu.(*sync.Mutex)
	held.Lock()
	return (*mutexLease)(held), nil
}

func (m *mutexes) Close() error { return nil }

type mutexLease sync.Mutex

func (*mutexLease) Extend(context.Context) error { return errors.ErrUnsupported }

func (l *mutexLease) Unlock(context.Context) error {
	(*sync.Mutex)(l).Unlock()
	return nil
}
