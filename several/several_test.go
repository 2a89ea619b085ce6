package several_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/several"
)

var six = []string{"a", "b", "c", "d", "e", "f"}

// subset returns some of six names, in any order, a few of them to be read.
func subset(rng *rand.Rand) (names several.Names) {
	for _, i := range rng.Perm(len(six))[:1+rng.IntN(3)] {
		if rng.IntN(4) == 0 {
			names.Read = append(names.Read, six[i])
		} else {
			names.Write = append(names.Write, six[i])
		}
	}
	return names
}

// rooms checks who is where: writers alone, readers together.
type rooms struct {
	inside [6]atomic.Int64 // a writer counts 1000
	wrong  atomic.Int64
}

func (r *rooms) enter(names several.Names) (leave func()) {
	add := func(list []string, n, most int64) {
		for _, name := range list {
			if got := r.inside[name[0]-'a'].Add(n); n > 0 && got > most {
				r.wrong.Add(1)
			}
		}
	}
	add(names.Write, 1000, 1000)
	add(names.Read, 1, 999)
	return func() { add(names.Write, -1000, 0); add(names.Read, -1, 0) }
}

// Callers of three Lockers that name subsets of six resources in any order are all served, while a master is
// killed and one hangs. No writer is beside another holder.
func TestEveryCallerIsServed(outer *testing.T) {
	t := redistest.Timed(outer)
	procs := redistest.Masters(t, 5)
	addrs := redistest.Addrs(procs)
	locktest.Bootstrap(t, addrs)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var r rooms
	var g sync.WaitGroup
	for i := range 3 {
		l := locktest.Open(t, addrs)
		for k := range 3 {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			g.Go(func() {
				for turn := range 20 {
					if i == 0 && k == 0 && turn == 6 {
						if err := errors.Join(procs[0].Kill(), procs[1].Pause()); err != nil {
							t.Error(err)
						}
					}
					names := subset(rng)
					lease, err := several.Lock(ctx, l, names)
					if err != nil {
						t.Errorf("Locker %d, caller %d: %v", i, k, err)
						return
					}
					leave := r.enter(names)
					time.Sleep(time.Millisecond)
					leave()
					if err := lease.Unlock(ctx); err != nil && !errors.Is(err, redlock.ErrNoQuorum) { // the quorum is all that are left, and may be late
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
	}
	g.Wait()
	if n := r.wrong.Load(); n > 0 {
		t.Errorf("%d times a writer was beside another holder", n)
	}
}

// Control: the check of TestEveryCallerIsServed sees a writer beside a reader, a reader beside a
// writer, and two writers.
func TestRoomsControl(t *testing.T) {
	var r rooms
	a, b := several.Names{Write: []string{"a"}}, several.Names{Read: []string{"a"}}
	defer r.enter(b)()
	defer r.enter(b)()
	if r.wrong.Load() != 0 {
		t.Error("two readers were taken for wrong")
	}
	defer r.enter(a)()
	defer r.enter(a)()
	if r.wrong.Load() != 2 {
		t.Errorf("got %d problems, want 2", r.wrong.Load())
	}
	var other rooms
	defer other.enter(a)()
	defer other.enter(b)()
	if other.wrong.Load() != 1 {
		t.Errorf("a reader beside a writer: got %d problems, want 1", other.wrong.Load())
	}
}

// Arguments that cannot work are refused before any master is asked.
func TestArguments(outer *testing.T) {
	t := redistest.Timed(outer)
	l := locktest.Open(t, []string{"127.0.0.1:1"}, redlock.WithLogger(nil))
	many := make([]string, several.MaxNames+1)
	for i := range many {
		many[i] = string(rune('a' + i))
	}
	var none context.Context
	for name, err := range map[string]error{
		"no names":              try(t.Context(), l, several.Names{}),
		"too many":              try(t.Context(), l, several.Names{Write: many}),
		"an empty name":         try(t.Context(), l, several.Names{Write: []string{"a"}, Read: []string{"b", ""}}),
		"a key of the library":  try(t.Context(), l, several.Names{Read: []string{"a", "b~fence"}}),
		"in both lists":         try(t.Context(), l, several.Names{Write: []string{"a"}, Read: []string{"b", "a"}}),
		"a permit":              several.Do(t.Context(), l, several.Names{Write: []string{"a", "s~1"}}, func(context.Context, *several.Lease) error { return nil }),
		"no context":            try(none, l, several.Names{Write: []string{"a"}}),
		"no Locker":             try(t.Context(), nil, several.Names{Write: []string{"a"}}),
		"Do without a function": several.Do(t.Context(), l, several.Names{Write: []string{"a"}}, nil),
	} {
		if !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
		if text := fmt.Sprint(err); !strings.HasPrefix(text, "redlock: invalid configuration: several: ") || strings.Contains(text, "CheckResource") {
			t.Errorf("%s: got %v, want it from this package", name, err)
		}
	}
	if state := l.Stats().Masters[0].State; state != redlock.MasterUntried {
		t.Errorf("got a master that is %v, want none to have been asked", state)
	}
}

// A call of Unlock with a wrong argument ends nothing.
func TestUnlockWithoutAContext(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		lease, err := several.TryLock(t.Context(), b.Locker(), several.Names{Write: []string{"a", "b"}})
		locktest.Must(t, err)
		var none context.Context
		if err := lease.Unlock(none); !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("Unlock: got %v, want ErrConfig", err)
		}
		if err := lease.Err(); err != nil {
			t.Errorf("afterwards: got %v, want the lease held", err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: got %v, want no error", err)
		}
	})
}

// If the parts have too little validity left, and the masters do not extend them, TryLock gives them back.
func TestTryLockGivesBack(outer *testing.T) {
	t := redistest.Timed(outer)
	procs := locktest.Masters(t, 3)
	addrs, ttl := redistest.Addrs(procs), redlock.WithTTL(2*time.Second)
	// The process stands still, while two of three masters hang, when it has locked "b".
	l := locktest.Open(t, addrs, ttl, redlock.WithTracer(func(_ context.Context, op, resource string) func(*redlock.Lease, error) {
		return func(_ *redlock.Lease, err error) {
			if op == "TryLock" && resource == "b" && err == nil {
				locktest.Must(t, errors.Join(procs[0].Pause(), procs[1].Pause()))
				time.Sleep(1200 * time.Millisecond)
			}
		}
	}))
	if err := try(t.Context(), l, several.Names{Write: []string{"a", "b"}}); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Fatalf("TryLock: got %v, want ErrNoQuorum", err)
	}
	locktest.Must(t, errors.Join(procs[0].Resume(), procs[1].Resume()))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	lease, err := several.Lock(ctx, locktest.Open(t, addrs, ttl), several.Names{Write: []string{"a", "b"}})
	locktest.Must(t, err)
	locktest.Must(t, lease.Unlock(t.Context()))
}

func try(ctx context.Context, l *redlock.Locker, names several.Names, opts ...redlock.LockOption) error {
	_, err := several.TryLock(ctx, l, names, opts...)
	return err
}
