package chaos

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// awhile is how long a wrong client goes on.
const awhile = 100 * time.Millisecond

// holdWrongly holds what a wrong client has got, and gives it back.
func holdWrongly[L history.Ender](ctx context.Context, h *history.Held[L], err error) {
	if err == nil {
		sleep(ctx, awhile)
		h.Look()
		_ = h.Free(context.Background())
	}
}

// never stands for a call whose caller is never woken.
func never[L any](ctx context.Context) func() (none L, err error) {
	return func() (none L, err error) {
		<-ctx.Done()
		return none, ctx.Err()
	}
}

// neverWoken returns the work of a client that waits for n permits and is never woken.
func neverWoken(all int) func(*worker, context.Context) {
	return func(w *worker, ctx context.Context) {
		_, _ = history.TakePermits(w.book, poolOf(all), 1, all, true, never[*semaphore.Lease](ctx), parts)
	}
}

// The negative controls of the packages around a lock: one of three clients does its work wrongly, and
// the checker must find that.
func TestVirtualWrongClients(t *testing.T) {
	redistest.TakesSeconds(t)
	for _, test := range []struct {
		name, work, rule string
		round            func(*worker, context.Context)
	}{
		{"a semaphore that has a permit too many", "pool2", "permits", func(w *worker, ctx context.Context) {
			s, err := semaphore.New(w.locker, "pool2", 3)
			if err != nil {
				panic(err)
			}
			h, err := history.TakePermits(w.book, "pool2", 1, 2, true, func() (*semaphore.Lease, error) { return s.Acquire(ctx, 1) }, parts)
			holdWrongly(ctx, h, err)
		}},
		{"an Acquire that gets a permit too few", "pool9", "whole", func(w *worker, ctx context.Context) {
			h, err := history.TakePermits(w.book, "pool9", 3, 9, true, func() (*semaphore.Lease, error) { return w.permits[9].Acquire(ctx, 2) }, parts)
			holdWrongly(ctx, h, err)
		}},
		{"a part that is missing", "several", "whole", func(w *worker, ctx context.Context) {
			h, err := history.TakeAll(w.book, []string{"part0", "part1"}, nil, true, func() (*several.Lease, error) {
				return several.Lock(ctx, w.locker, several.Names{Write: []string{"part1"}})
			}, parts)
			holdWrongly(ctx, h, err)
		}},
		{"a part that is given back early", "several", "I1", func(w *worker, ctx context.Context) {
			h, err := history.TakeAll(w.book, []string{"part0", "part1"}, nil, true, func() (*several.Lease, error) {
				return several.Lock(ctx, w.locker, several.Names{Write: []string{"part0", "part1"}})
			}, parts)
			if err == nil {
				_ = h.Lease.Parts()[0].Unlock(ctx)
			}
			holdWrongly(ctx, h, err)
		}},
		{"a part that is locked in the wrong mode", "several", "I1", func(w *worker, ctx context.Context) {
			h, err := history.TakeAll(w.book, []string{"part0", "part1"}, nil, true, func() (*several.Lease, error) {
				return several.Lock(ctx, w.locker, several.Names{Write: []string{"part0"}, Read: []string{"part1"}})
			}, parts)
			holdWrongly(ctx, h, err)
		}},
		{"a leader that goes on after the loss", "election", "I1", func(w *worker, ctx context.Context) {
			e, err := election.New(w.locker, "election", redlock.WithoutRenewal())
			if err != nil {
				panic(err)
			}
			h, err := history.Take(w.book, "election", true, func() (*visit, error) { return visits(ctx, func() bool { return true }, e.Run) })
			if err == nil {
				sleep(ctx, w.conf.TTL)
			}
			holdWrongly(ctx, h, err)
		}},
		{"a job without the minimum hold", "job", "I1", func(w *worker, ctx context.Context) {
			locker, err := jobs.New(w.locker)
			if err != nil {
				panic(err)
			}
			w.runJob(ctx, locker)
		}},
		{"a caller that is never woken", "line", "I10", func(w *worker, ctx context.Context) {
			_, _ = history.Take(w.book, "line", true, never[*redlock.Lease](ctx))
		}},
		{"a campaign that is never woken", "election", "I10", func(w *worker, ctx context.Context) {
			_, _ = history.Take(w.book, "election", true, never[*redlock.Lease](ctx))
		}},
		{"a caller of several that is never woken", "several", "I10", func(w *worker, ctx context.Context) {
			_, _ = history.TakeAll(w.book, []string{"part0", "part1"}, []string{"part2"}, true, never[*several.Lease](ctx), parts)
		}},
		{"a caller of 2 permits that is never woken", "pool2", "I10", neverWoken(2)},
		{"a caller of 9 permits that is never woken", "pool9", "I10", neverWoken(9)},
		{"a caller of 100 permits that is never woken", "pool100", "I10", neverWoken(100)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := Plan{Tier: Virtual, Nodes: 5, TTL: virtualTTL, During: time.Second}
			var found []history.Violation
			for seed := range uint64(30) {
				_, found = play(t, p, p.Make(seed), seed, func(client int, conf *ClientConfig) {
					if conf.Work = map[string]int{test.work: 1}; test.rule == "I10" {
						conf.Pause *= 8 // what one caller waits for must be free for long
					}
					if client == 0 {
						conf.wrong = map[string]func(*worker, context.Context){test.work: test.round}
					}
				})
				if slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == test.rule }) {
					return
				}
			}
			t.Errorf("got %v, want a violation of %s", found, test.rule)
		})
	}
}

// Leases are passed on, with care and without, while a nemesis is at work.
//
// Source: ALGORITHM section 6, "Adopt".
func TestVirtualHanded(t *testing.T) {
	redistest.OnlyOnce(t, "TestVirtualSchedules passes leases on, too")
	p := Plan{Tier: Virtual, Nodes: 5, TTL: virtualTTL, During: 5 * time.Second}
	adopted, refused := 0, 0
	for seed := range uint64(redistest.Rounds(3, 15)) {
		seed += anySeed()
		r, found := play(t, p, p.Make(seed), seed, func(_ int, conf *ClientConfig) {
			conf.Work, conf.Pause = map[string]int{handed: 2}, 20*time.Millisecond
		})
		if len(found) > 0 {
			t.Errorf("seed %d: %v", seed, found)
		}
		for _, a := range r.History.Done {
			switch {
			case a.Former == "":
			case a.Held:
				adopted++
			default:
				refused++
			}
		}
	}
	if adopted < 10 || refused < 3 {
		t.Errorf("%d leases were adopted, and %d adoptions refused, want more", adopted, refused)
	}
	t.Logf("%d leases were adopted, %d adoptions refused", adopted, refused)
}

// borrowed is the former rule of an adoption: the adopter goes on with the keys of the former holder, which ends them
// by Unlock.
type borrowed struct {
	ctx    context.Context
	heir   *redlock.Locker
	handle redlock.Handle
	until  time.Time
}

func (b *borrowed) Token() string                   { return b.handle.String() }
func (b *borrowed) Fence() int64                    { return b.handle.Fence() }
func (b *borrowed) Handle() redlock.Handle          { return b.handle }
func (b *borrowed) Validity() time.Duration         { return time.Until(b.until) }
func (b *borrowed) Context() context.Context        { return b.ctx }
func (b *borrowed) Detach() (redlock.Handle, error) { return b.handle, nil }
func (b *borrowed) Extend(ctx context.Context) error {
	valid, err := b.heir.Extend(ctx, b.handle)
	b.until = time.Now().Add(valid)
	return err
}
func (b *borrowed) Unlock(ctx context.Context) error { return b.heir.Unlock(ctx, b.handle) }

// The negative controls of an adoption.
func TestVirtualWrongAdoptions(t *testing.T) {
	redistest.TakesSeconds(t)
	for _, test := range []struct {
		name, rule string
		by         adopter
	}{
		{"the former holder's Unlock ends the lease", "I1", func(ctx context.Context, heir *redlock.Locker, former redlock.Handle) (transferable, error) {
			b := &borrowed{ctx: ctx, heir: heir, handle: former}
			return b, b.Extend(ctx)
		}},
		{"another lease came first", "adopt", func(ctx context.Context, heir *redlock.Locker, former redlock.Handle) (transferable, error) {
			_ = heir.Unlock(ctx, former)
			sleep(ctx, awhile)
			return heir.Lock(ctx, handed)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := Plan{Tier: Virtual, Nodes: 5, TTL: virtualTTL, During: time.Second}
			var found []history.Violation
			for seed := range uint64(40) {
				_, found = play(t, p, p.Make(seed), seed, func(client int, conf *ClientConfig) {
					conf.Work, conf.Pause = map[string]int{handed: 2}, time.Millisecond
					if client == 0 {
						conf.wrong = map[string]func(*worker, context.Context){handed: func(w *worker, ctx context.Context) { w.passOn(ctx, test.by) }}
					}
				})
				if slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == test.rule }) {
					return
				}
			}
			t.Errorf("got %v, want a violation of %s", found, test.rule)
		})
	}
}
