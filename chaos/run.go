package chaos

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/chaos/history"
)

// Run is a cluster, the records of its clients and the faults injected into it. Fields that
// [NewRun] does not set may stay zero.
type Run struct {
	Cluster  Cluster
	TTL      time.Duration // also MaxTTL
	Now      func() time.Duration
	History  *history.History
	Accesses []history.Access // to the store
	Repeat   string           // how to repeat it, if it was random

	mu sync.Mutex
}

// NewRun makes new masters vote, and begins a history.
func NewRun(ctx context.Context, c Cluster, ttl time.Duration, now func() time.Duration, opts ...redlock.Option) (*Run, error) {
	r := &Run{Cluster: c, TTL: ttl, Now: now, History: new(history.History)}
	l, err := redlock.NewFromOptions(c.Masters(), append(r.config("bootstrap", nil).options(), opts...)...)
	if err != nil {
		return nil, err
	}
	// The machine may be overloaded: repeat until all masters answer in time, or their quarantine is over.
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if err = admin.Bootstrap(ctx, l); err == nil || ctx.Err() != nil || time.Since(began) > 30*time.Second {
			break
		}
	}
	return r, errors.Join(err, l.Close())
}

func (r *Run) config(name string, work map[string]int) ClientConfig {
	conf := ClientConfig{Name: name, TTL: r.TTL, MaxTTL: r.TTL, Work: work}
	if r.Cluster.Tier() != Virtual {
		conf.Answer = r.TTL / 4 // a busy machine can keep all masters from answering for a tenth of the TTL
	}
	for _, m := range r.Cluster.Masters() {
		conf.Masters = append(conf.Masters, m.Addr)
	}
	return conf
}

// Client makes a client in this process.
func (r *Run) Client(conf ClientConfig, opts ...redlock.Option) (*Client, error) {
	return NewClient(conf, r.Cluster.Masters(), r.Now, r.History.Add, r.accessed, opts...)
}

// Child makes a client in a process of its own.
func (r *Run) Child(conf ClientConfig) (*Child, error) {
	return StartChild(conf, r.History.Add, r.accessed)
}

func (r *Run) accessed(a history.Access) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Accesses = append(r.Accesses, a)
}

// written returns the number of known writes to the fenced store.
func (r *Run) written() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.Accesses {
		if a.Write && a.Store == fenced.name {
			n++
		}
	}
	return n
}

// resources returns the resources to look at: some of those that the workloads lock, and a permit.
func resources(rng *rand.Rand, permits []string) []string {
	list := []string{"hot", handed, "line", "stock", "long0", "long1", "long2", "part0", "part1", "book", "election", "job"}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if list = list[:3]; len(permits) > 0 {
		list = append(list, permits[rng.IntN(len(permits))])
	}
	return list
}

// Watch looks at all nodes again and again until ctx ends.
func (r *Run) Watch(ctx context.Context, every time.Duration, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 77))
	for sleep(ctx, every) {
		round := r.Look(ctx, resources(rng, r.History.Permits()), false)
		if ctx.Err() == nil {
			r.mu.Lock()
			r.History.Rounds = append(r.History.Rounds, round)
			r.mu.Unlock()
		}
	}
}

// Look looks at all nodes once, at the same time if they are real.
func (r *Run) Look(ctx context.Context, resources []string, rest bool) []history.Look {
	nodes := r.Cluster.Nodes()
	round := make([]history.Look, len(nodes))
	var g errgroup.Group
	for i, n := range nodes {
		g.Go(func() error {
			round[i] = n.Look(ctx, redlock.DefaultKeyPrefix, resources, rest)
			return nil
		})
	}
	_ = g.Wait()
	return round
}

// Settle is called when all clients are gone. It looks until they have left nothing behind,
// or until the time is up, and adds the last look to the history.
func (r *Run) Settle(within time.Duration) {
	began := r.Now()
	for {
		time.Sleep(50 * time.Millisecond)
		round := r.Look(context.Background(), nil, true)
		dirty := false
		for _, l := range round {
			dirty = dirty || !l.Up || len(l.Rest) > 0 || len(l.Conns) > 0
		}
		if !dirty || r.Now()-began > within {
			r.History.Rounds = append(r.History.Rounds, round)
			return
		}
	}
}

// Rules returns the rules for the history of this run.
func (r *Run) Rules() history.Rules {
	rules := history.Rules{
		Nodes: len(r.Cluster.Nodes()), TTL: r.TTL, Drift: time.Duration(float64(r.TTL)*redlock.DefaultDrift) + 2*time.Millisecond,
		// The key of a holder that died ends, and a waiter that no master has called asks again.
		Served: r.TTL + 1500*time.Millisecond, Settled: r.TTL + 500*time.Millisecond,
		Woken: maps.Clone(woken),
	}
	rules.Woken[handed] = called + 2*r.TTL // an adoption that fails, and a lease that is not adopted, leave keys
	if r.Cluster.Tier() != Virtual {       // a busy machine may keep a process waiting; the figures tell for how long
		rules.Late, rules.Slow = 2*time.Second, 10*time.Second
	}
	return rules
}
