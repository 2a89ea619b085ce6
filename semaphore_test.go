package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// slotsOf returns the slots of a lease.
func slotsOf(m *redlock.MultiLease) (slots []int) {
	for _, p := range m.Parts() {
		slots = append(slots, p.Slot)
	}
	return slots
}

// reachAll waits until Lockers have reached all masters. Until then they may ask different masters to choose.
func reachAll(t *testing.T, lockers ...*redlock.Locker) {
	t.Helper()
	for _, l := range lockers {
		must(t, l.Do(t.Context(), "reach", func(context.Context, *redlock.Lease) error { return nil }))
		redistest.Eventually(t, 5*time.Second, func() bool {
			return !slices.ContainsFunc(l.Stats().Masters, func(n redlock.MasterStats) bool { return n.State != redlock.MasterUp })
		}, "all masters are reached")
	}
}

// permitStore is a store of a semaphore's holders. It checks that there are at most as many as the
// semaphore has permits, and that the tokens of each slot rise.
type permitStore struct {
	most int

	mu      sync.Mutex
	held    map[int]bool
	fences  map[int]int64
	busiest int
	wrong   []string
}

func (s *permitStore) take(m *redlock.MultiLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range m.Parts() {
		switch {
		case p.Slot < 1 || p.Slot > s.most:
			s.wrong = append(s.wrong, fmt.Sprintf("slot %d of %d", p.Slot, s.most))
		case s.held[p.Slot]:
			s.wrong = append(s.wrong, fmt.Sprintf("slot %d has two holders", p.Slot))
		case p.Fence <= s.fences[p.Slot]:
			s.wrong = append(s.wrong, fmt.Sprintf("slot %d: token %d after %d", p.Slot, p.Fence, s.fences[p.Slot]))
		}
		s.held[p.Slot], s.fences[p.Slot] = true, p.Fence
	}
	s.busiest = max(s.busiest, len(s.held))
}

func (s *permitStore) leave(m *redlock.MultiLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range m.Parts() {
		delete(s.held, p.Slot)
	}
}

// Callers of several Lockers want one, two or all permits, while one master is killed and one hangs.
// Never are more permits held than there are, each slot has one holder at a time and tokens that rise,
// and all callers get their turns.
//
// Source: ALGORITHM section 14; section 15, I1 and I16.
func TestSemaphoreTakesTurns(t *testing.T) {
	const lockers, callers, turns, permits = 3, 6, 12, 4
	c := start(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	store := permitStore{most: permits, held: make(map[int]bool), fences: make(map[int]int64)}
	var done sync.WaitGroup
	var handed atomic.Int64
	for i := range lockers {
		l := open(t, c.addrs, redlock.WithObserver(redlock.Observer{Acquired: func(e redlock.Event) {
			if e.HandedOver {
				handed.Add(1)
			}
		}}))
		for k := range callers {
			done.Go(func() {
				s := l.Semaphore("s", permits)
				wants := map[int]int{0: permits, 1: 2}[k]
				for turn := range turns {
					if i == 0 && k == 2 && turn == turns/3 {
						if err := errors.Join(c.procs[0].Kill(), c.procs[1].Pause()); err != nil {
							t.Error(err)
						}
					}
					m, err := s.Acquire(ctx, max(wants, 1))
					if err != nil {
						t.Errorf("Locker %d, caller %d: %v", i, k, err)
						return
					}
					store.take(m)
					time.Sleep(time.Millisecond)
					store.leave(m)
					if err := m.Unlock(ctx); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
	}
	done.Wait()
	if len(store.wrong) > 0 {
		t.Errorf("%d faults: %s", len(store.wrong), strings.Join(store.wrong[:min(5, len(store.wrong))], "; "))
	}
	if store.busiest != permits {
		t.Errorf("at most %d of %d permits were held at once", store.busiest, permits)
	}
	if handed.Load() == 0 {
		t.Error("no permit was handed over inside a process")
	}
}

// A semaphore gives out its permits, each with a slot of its own, and no more. A lock of the same name is
// none of its business.
//
// Source: ALGORITHM section 14.
func TestSemaphore(t *testing.T) {
	c := start(t, 3)
	one, two := open(t, c.addrs), open(t, c.addrs, redlock.WithOwner("two"))
	ctx := t.Context()
	lock, err := one.TryLock(ctx, "s")
	must(t, err)
	reachAll(t, one, two)
	first, err := one.Semaphore("s", 3).TryAcquire(ctx, 2)
	must(t, err)
	second, err := two.Semaphore("s", 3).TryAcquire(ctx, 1)
	must(t, err)
	all := slices.Sorted(slices.Values(append(slotsOf(first), slotsOf(second)...)))
	if !slices.Equal(all, []int{1, 2, 3}) {
		t.Errorf("got slots %v", all)
	}
	for _, p := range append(first.Parts(), second.Parts()...) {
		if p.Resource != "s" || p.Fence == 0 || p.Token == "" {
			t.Errorf("got part %+v", p)
		}
	}
	_, err = two.Semaphore("s", 3).TryAcquire(ctx, 1)
	wantMatch(t, "TryAcquire of a fourth permit", err, []error{redlock.ErrNotAcquired, redlock.ErrTaken})
	if q := (*redlock.QuorumError)(nil); !errors.As(err, &q) || q.Resource != "s" || strings.Contains(err.Error(), "~") {
		t.Errorf("got the error %v", err)
	}
	for _, ls := range one.Stats().Leases {
		if ls.Resource != "s" || ls.Mode == redlock.Permit != (ls.Slot > 0) {
			t.Errorf("got %+v", ls)
		}
	}
	must(t, first.Extend(ctx))
	must(t, second.Unlock(ctx))
	third, err := one.Semaphore("s", 3).TryAcquire(ctx, 1)
	must(t, err)
	must(t, errors.Join(first.Unlock(ctx), third.Unlock(ctx), lock.Unlock(ctx)))
	if err := first.Unlock(ctx); !errors.Is(err, redlock.ErrNotHeld) {
		t.Errorf("a second Unlock: got %v", err)
	}
	whole, err := two.Semaphore("s", 3).TryAcquire(ctx, 3)
	must(t, err)
	must(t, whole.Unlock(ctx))
	for i := range c.procs {
		redistest.Eventually(t, 5*time.Second, func() bool { return len(c.holding(i, "s~slots~1", "s~slots~2", "s~slots~3")) == 0 }, "no slot is left")
	}
}

// Wrong arguments get a typed error, and no master is asked.
func TestSemaphoreArguments(t *testing.T) {
	l, err := redlock.New([]string{"127.0.0.1:1"})
	must(t, err)
	defer l.Close()
	var none context.Context
	ctx := t.Context()
	for name, acquire := range map[string]func() (*redlock.MultiLease, error){
		"nil context":      func() (*redlock.MultiLease, error) { return l.Semaphore("s", 3).Acquire(none, 1) },
		"no name":          func() (*redlock.MultiLease, error) { return l.Semaphore("", 3).Acquire(ctx, 1) },
		"reserved name":    func() (*redlock.MultiLease, error) { return l.Semaphore("s~slots~4", 3).Acquire(ctx, 1) },
		"no permits":       func() (*redlock.MultiLease, error) { return l.Semaphore("s", 0).Acquire(ctx, 1) },
		"too many permits": func() (*redlock.MultiLease, error) { return l.Semaphore("s", redlock.MaxPermits+1).Acquire(ctx, 1) },
		"none wanted":      func() (*redlock.MultiLease, error) { return l.Semaphore("s", 3).TryAcquire(ctx, 0) },
		"negative":         func() (*redlock.MultiLease, error) { return l.Semaphore("s", 3).TryAcquire(ctx, -1) },
		"more than it has": func() (*redlock.MultiLease, error) { return l.Semaphore("s", 3).TryAcquire(ctx, 4) },
		"more than a lease": func() (*redlock.MultiLease, error) {
			return l.Semaphore("s", 100).TryAcquire(ctx, redlock.MaxResources+1)
		},
		"with re-entry": func() (*redlock.MultiLease, error) { return l.Semaphore("s", 3).Acquire(ctx, 1, redlock.WithReentry()) },
		"a lock on a slot": func() (*redlock.MultiLease, error) {
			_, err := l.Lock(ctx, "s~slots~3")
			return nil, err
		},
		"a function that is nil": func() (*redlock.MultiLease, error) { return nil, l.Semaphore("s", 3).Do(ctx, 1, nil) },
	} {
		if _, err := acquire(); !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if s := l.Stats(); s.Masters[0].State != redlock.MasterUntried {
		t.Error("a master was asked")
	}
}

// A caller cannot acquire permits under a lease of the same semaphore: it could wait for itself.
func TestSemaphoreReentry(t *testing.T) {
	c := start(t, 3)
	s := open(t, c.addrs).Semaphore("s", 3)
	must(t, s.Do(t.Context(), 1, func(ctx context.Context, lease *redlock.MultiLease) error {
		if _, err := s.TryAcquire(ctx, 1); !errors.Is(err, redlock.ErrReentry) {
			t.Errorf("got %v", err)
		}
		return nil
	}))
	lease, err := s.TryAcquire(t.Context(), 1)
	must(t, err)
	must(t, lease.Unlock(t.Context()))
	after, err := s.TryAcquire(lease.Context(), 1)
	wantMatch(t, "with the context of a lease that is over", err, []error{context.Canceled})
	if after != nil {
		t.Error("got a lease")
	}
}

// Where clients differ about the number of permits, one is told, once.
func TestPermitsDiffer(t *testing.T) {
	c := start(t, 3)
	told := make(chan redlock.Event, 10)
	one, other := open(t, c.addrs, redlock.WithObserver(redlock.Observer{PermitsDiffer: func(e redlock.Event) { told <- e }})), open(t, c.addrs)
	reachAll(t, one, other)
	few, many := one.Semaphore("s", 1), other.Semaphore("s", 2)
	ctx := t.Context()
	var held *redlock.MultiLease
	for held == nil || slotsOf(held)[0] != 2 {
		next, err := many.TryAcquire(ctx, 1)
		must(t, err)
		if held != nil {
			must(t, held.Unlock(ctx))
		}
		held = next
	}
	for range 2 {
		m, err := few.TryAcquire(ctx, 1)
		must(t, err)
		must(t, m.Unlock(ctx))
	}
	if e := <-told; e.Resource != "s" || e.Mode != redlock.Permit || e.Err == nil {
		t.Errorf("got %+v", e)
	}
	must(t, held.Unlock(ctx))
	if len(told) > 0 {
		t.Errorf("told twice: %+v", <-told)
	}
}

// Inspect shows the holders of the permits, List has them, and Break takes one away.
func TestSemaphoreInspect(t *testing.T) {
	c := start(t, 3)
	l, looks := open(t, c.addrs, redlock.WithOwner("web 1")), open(t, c.addrs)
	ctx := t.Context()
	two, err := l.Semaphore("s", 4).TryAcquire(ctx, 2)
	must(t, err)
	s := looks.Semaphore("s", 4)
	in, err := s.Inspect(ctx)
	must(t, err)
	if in.Name != "s" || in.Permits != 4 || in.Free != 2 || len(in.Slots) != 4 {
		t.Errorf("got %+v", in)
	}
	for i, slot := range in.Slots {
		held := slices.Contains(slotsOf(two), i+1)
		if slot.Resource != "s" || slot.Slot != i+1 || (slot.Verdict == redlock.VerdictHeld) != held || held && slot.Owner != "web 1" {
			t.Errorf("slot %d: got %+v", i+1, slot)
		}
	}
	few, err := looks.Semaphore("s", 1).Inspect(ctx)
	must(t, err)
	if behind := len(few.Slots) - 1; behind != 2-len(slices.DeleteFunc(slotsOf(two), func(s int) bool { return s > 1 })) {
		t.Errorf("got %d slots behind that of a semaphore with one permit", behind)
	}
	var listed []int
	for in, err := range looks.List(ctx) {
		must(t, err)
		if in.Resource != "s" || in.Token != two.Parts()[0].Token {
			t.Errorf("listed: got %+v", in)
		}
		listed = append(listed, in.Slot)
	}
	if !slices.Equal(listed, slotsOf(two)) {
		t.Errorf("listed: got slots %v, want %v", listed, slotsOf(two))
	}
	if _, err := s.Break(ctx, 0); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("Break of slot 0: got %v", err)
	}
	broken, err := s.Break(ctx, slotsOf(two)[1])
	must(t, err)
	if broken.Slot != slotsOf(two)[1] || broken.Token != two.Parts()[1].Token {
		t.Errorf("Break: got %+v", broken)
	}
	<-two.Context().Done()
	if err := context.Cause(two.Context()); !errors.Is(err, redlock.ErrLost) || !errors.Is(err, redlock.ErrBroken) {
		t.Errorf("after Break: got %v", err)
	}
	if err := two.Unlock(ctx); !errors.Is(err, redlock.ErrNotHeld) {
		t.Errorf("Unlock: got %v", err)
	}
	all, err := s.Acquire(ctx, 4)
	must(t, err)
	must(t, all.Unlock(ctx))
}
