package docs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/redlocktest"
	"github.com/d0720281/redlock/semaphore"
)

// docs/recipes.md has the same functions.

func sellOne(ctx context.Context, locker *redlock.Locker, store *redis.Client, item string) error {
	return locker.Do(ctx, "stock:"+item, func(ctx context.Context, lease *redlock.Lease) error {
		text, err := fence.Get(ctx, store, item, lease)
		if err != nil {
			return err
		}
		left, err := strconv.Atoi(text)
		if err != nil || left == 0 {
			return errors.Join(err, errors.New("sold out"))
		}
		return fence.Set(ctx, store, item, left-1, lease)
	})
}

func nightly(ctx context.Context, locks *jobs.Locker, due time.Time, work func(context.Context) error) error {
	return locks.Run(ctx, "nightly", func(ctx context.Context, _ *redlock.Lease) error {
		return work(ctx)
	}, jobs.At(due))
}

func lead(ctx context.Context, locker *redlock.Locker, work func(context.Context) error) error {
	elector, err := election.New(locker, "dispatcher")
	if err != nil {
		return err
	}
	return elector.Run(ctx, func(ctx context.Context, _ *redlock.Lease) error {
		return work(ctx)
	})
}

func cached(ctx context.Context, locker *redlock.Locker, cache *redis.Client, key string, compute func(context.Context) (string, error)) (value string, err error) {
	if value, err = cache.Get(ctx, key).Result(); !errors.Is(err, redis.Nil) {
		return value, err
	}
	err = locker.Do(ctx, "fill:"+key, func(ctx context.Context, _ *redlock.Lease) (err error) {
		if value, err = cache.Get(ctx, key).Result(); !errors.Is(err, redis.Nil) {
			return err // another process has filled it
		}
		if value, err = compute(ctx); err != nil {
			return err
		}
		return cache.Set(ctx, key, value, time.Hour).Err()
	})
	return value, err
}

func newRate(locker *redlock.Locker, perSecond int) (*semaphore.Semaphore, error) {
	return semaphore.New(locker, "mail", perSecond, redlock.WithMinHold(time.Second))
}

func send(ctx context.Context, rate *semaphore.Semaphore, mail func(context.Context) error) error {
	return rate.Do(ctx, 1, func(ctx context.Context, _ *semaphore.Lease) error {
		return mail(ctx)
	})
}

func spread(lockers []*redlock.Locker, resource string) *redlock.Locker {
	var highest [sha256.Size]byte
	chosen := lockers[0]
	for i, locker := range lockers {
		if h := sha256.Sum256(fmt.Appendf(nil, "%d %s", i, resource)); bytes.Compare(h[:], highest[:]) > 0 {
			chosen, highest = locker, h
		}
	}
	return chosen
}

// inReal gives the Lockers of two processes on the same masters, in real time.
func inReal(t testing.TB) (a, b *redlock.Locker) {
	masters := redlocktest.Start(t, 3)
	opts := []redlock.Option{redlock.WithMasterTimeout(redlock.DefaultTTL / 4), redlock.WithLogger(slog.New(slog.DiscardHandler))}
	return masters.Locker(opts...), masters.Locker(opts...)
}

// Two processes sell all items, and none twice.
func TestRecipeStock(outer *testing.T) {
	t := redistest.Timed(outer)
	a, b := inReal(t)
	store := redistest.Client(t, redistest.Minis(t, 1)[0].Addr())
	first, err := a.Lock(t.Context(), "stock:apple")
	locktest.Must(t, err)
	locktest.Must(t, errors.Join(fence.Set(t.Context(), store, "apple", 10, first), first.Unlock(t.Context())))
	var sold atomic.Int32
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			if sellOne(t.Context(), []*redlock.Locker{a, b}[i%2], store, "apple") == nil {
				sold.Add(1)
			}
		})
	}
	all.Wait()
	if got := sold.Load(); got != 10 {
		t.Errorf("got %d items sold, want 10", got)
	}
}

// Two machines call at the same due time, and one does the work.
func TestRecipeCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		var runs atomic.Int32
		var all sync.WaitGroup
		for range 2 {
			locks, err := jobs.New(masters.Locker())
			locktest.Must(t, err)
			all.Go(func() {
				if err := nightly(t.Context(), locks, time.Now(), func(context.Context) error { runs.Add(1); return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := runs.Load(); got != 1 {
			t.Errorf("got %d runs, want 1", got)
		}
	})
}

// One of two processes works. When it stops, the other one does.
func TestRecipeLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		var all sync.WaitGroup
		var working, terms atomic.Int32
		for range 2 {
			ctx, stop := context.WithCancel(t.Context())
			locker := masters.Locker()
			all.Go(func() {
				err := lead(ctx, locker, func(ctx context.Context) error {
					if working.Add(1) != 1 {
						t.Error("got two leaders")
					}
					terms.Add(1)
					time.Sleep(time.Minute) // the work
					working.Add(-1)
					stop()
					<-ctx.Done()
					return nil
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want context.Canceled", err)
				}
			})
		}
		all.Wait()
		if got := terms.Load(); got != 2 {
			t.Errorf("got %d terms, want 2", got)
		}
	})
}

// Many callers of two processes miss a value, and it is computed once.
func TestRecipeCache(outer *testing.T) {
	t := redistest.Timed(outer)
	a, b := inReal(t)
	cache := redistest.Client(t, redistest.Minis(t, 1)[0].Addr())
	var computed atomic.Int32
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			got, err := cached(t.Context(), []*redlock.Locker{a, b}[i%2], cache, "page", func(context.Context) (string, error) {
				computed.Add(1)
				return "text", nil
			})
			if err != nil || got != "text" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	all.Wait()
	if got := computed.Load(); got != 1 {
		t.Errorf("computed %d times, want once", got)
	}
}

// Two processes send ten mails, three a second at most.
func TestRecipeRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		var mu sync.Mutex
		var sent []time.Time
		var all sync.WaitGroup
		for range 2 {
			rate, err := newRate(masters.Locker(), 3)
			locktest.Must(t, err)
			for range 5 {
				all.Go(func() {
					err := send(t.Context(), rate, func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						sent = append(sent, time.Now())
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		for i := range sent {
			if i >= 3 && sent[i].Sub(sent[i-3]) < time.Second {
				t.Errorf("got mails %d and %d within %v, want a second between them", i-3, i, sent[i].Sub(sent[i-3]))
			}
		}
		if len(sent) != 10 {
			t.Errorf("got %d mails, want 10", len(sent))
		}
	})
}

// Two groups of three masters share the resources. A group that loses its masters stops its own alone.
func TestRecipeSpread(outer *testing.T) {
	t := redistest.Timed(outer)
	nodes := redistest.Masters(t, 6)
	var lockers []*redlock.Locker
	for group := range slices.Chunk(redistest.Addrs(nodes), 3) {
		locker := locktest.Open(t, group, redlock.WithKeyPrefix("2-groups:"))
		locktest.Must(t, admin.Bootstrap(t.Context(), locker))
		lockers = append(lockers, locker)
	}
	var of [2]int
	for i := range 200 {
		resource := fmt.Sprint("item-", i)
		chosen := spread(lockers, resource)
		if chosen != spread(lockers, resource) {
			t.Fatalf("%s has no fixed group", resource)
		}
		of[slices.Index(lockers, chosen)]++
	}
	if of[0] < 60 || of[1] < 60 {
		t.Errorf("got %v resources in the groups, want about as many in each", of)
	}
	locktest.Must(t, errors.Join(nodes[0].Kill(), nodes[1].Kill()))
	for i := range 20 {
		resource := fmt.Sprint("item-", i)
		chosen := spread(lockers, resource)
		lease, err := chosen.TryLock(t.Context(), resource)
		if down := chosen == lockers[0]; down != errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("%s: got %v with its masters down: %t", resource, err, down)
		}
		if err == nil {
			locktest.Must(t, lease.Unlock(t.Context()))
		}
	}
}

// Each block of Go in docs/recipes.md is run by a test: those here, or those of integrations.
func TestRecipesRun(t *testing.T) {
	run, err := os.ReadFile("test/docs/recipes_test.go")
	locktest.Must(t, err)
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(textOf(t, "docs/recipes.md"), -1)
	if len(blocks) != 8 {
		t.Errorf("got %d blocks, want 8", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(run)+textOf(t, "integrations/adapters_test.go"), "\n\n"+b[1]) {
			t.Errorf("no test runs this:\n%s", b[1])
		}
	}
}
