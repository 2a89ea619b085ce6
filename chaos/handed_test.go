package chaos

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/redistest"
)

// Leases are passed on, with care and without, while a nemesis is at work.
//
// Source: ALGORITHM section 6, "Adopt".
func TestVirtualHanded(t *testing.T) {
	redistest.TakesSeconds(t)
	p := Plan{Tier: Virtual, Nodes: 5, TTL: virtualTTL, During: 5 * time.Second}
	adopted, refused := 0, 0
	for seed := range uint64(redistest.Rounds(6, 15)) {
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
	if adopted < 20 || refused < 5 {
		t.Errorf("%d leases were adopted, and %d adoptions refused, want more", adopted, refused)
	}
	t.Logf("%d leases were adopted, %d adoptions refused", adopted, refused)
}

// borrowed is the former rule of an adoption: the adopter goes on with the keys of the former holder, which ends them
// by Unlock.
type borrowed struct {
	ctx   context.Context
	heir  *redlock.Locker
	token string
	fence int64
	until time.Time
}

func (b *borrowed) Token() string            { return b.token }
func (b *borrowed) Fence() int64             { return b.fence }
func (b *borrowed) Validity() time.Duration  { return time.Until(b.until) }
func (b *borrowed) Context() context.Context { return b.ctx }
func (b *borrowed) Detach() error            { return nil }
func (b *borrowed) Extend(ctx context.Context) error {
	valid, _, err := b.heir.ExtendToken(ctx, handed, b.token)
	b.until = time.Now().Add(valid)
	return err
}
func (b *borrowed) Unlock(ctx context.Context) error {
	return b.heir.ReleaseToken(ctx, handed, b.token)
}

// The negative controls of an adoption.
func TestVirtualWrongAdoptions(t *testing.T) {
	redistest.TakesSeconds(t)
	for _, test := range []struct {
		name, rule string
		by         adopter
	}{
		{"the former holder's Unlock ends the lease", "I1", func(ctx context.Context, heir *redlock.Locker, former transferable, fence int64) (transferable, error) {
			b := &borrowed{ctx: ctx, heir: heir, token: former.Token(), fence: former.Fence()}
			return b, b.Extend(ctx)
		}},
		{"another lease came first", "adopt", func(ctx context.Context, heir *redlock.Locker, former transferable, _ int64) (transferable, error) {
			_ = heir.ReleaseToken(ctx, handed, former.Token())
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
