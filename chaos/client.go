package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// ClientConfig configures one client: a process, or a stand-in for one.
type ClientConfig struct {
	Name    string
	Masters []string // addresses, for a client in a process of its own
	TTL     time.Duration
	MaxTTL  time.Duration
	Answer  time.Duration // node timeout; 0 = the default
	Prefix  string
	Unsafe  bool // without the restart guard
	Still   bool // leases are not renewed
	Mute    bool // no master can call the client: it cannot subscribe
	Seed    uint64
	Work    map[string]int // number of goroutines by kind of work
	Pause   time.Duration  // mean pause after each piece of work. In virtual time a loop without pauses could run for ever at one instant
	Store   string         // address of the store of the stock workload

	wrong map[string]func(*worker, context.Context) // in place of those of works
}

func (c ClientConfig) options() []redlock.Option {
	opts := []redlock.Option{redlock.WithTTL(c.TTL), redlock.WithMaxTTL(c.MaxTTL), redlock.WithLogger(nil)}
	if c.Answer > 0 {
		opts = append(opts, redlock.WithMasterTimeout(c.Answer))
	}
	if c.Prefix != "" {
		opts = append(opts, redlock.WithKeyPrefix(c.Prefix))
	}
	if c.Unsafe {
		opts = append(opts, redlock.WithoutRestartGuard())
	}
	if c.Still {
		opts = append(opts, redlock.WithoutRenewal())
	}
	return opts
}

// Client works until ctx ends.
type Client struct {
	conf    ClientConfig
	open    func() (*redlock.Locker, error) // a further Locker, as of another process
	locker  *redlock.Locker
	permits map[int]*semaphore.Semaphore // by the number of their permits
	elector *election.Elector
	jobs    *jobs.Locker
	book    *history.Client
	store   *store
}

// NewClient returns a client of the listed masters. It sends its records to sink, and its
// accesses to the store of the stock workload to accesses.
func NewClient(conf ClientConfig, list []*redis.Options, now func() time.Duration, sink func(history.Record), accesses func(history.Access), opts ...redlock.Option) (*Client, error) {
	if len(conf.Masters) > 0 && len(conf.Masters) < len(list) {
		list = list[:len(conf.Masters)] // an older list
	}
	if conf.Mute {
		list = muted(list)
	}
	open := func() (*redlock.Locker, error) {
		return redlock.NewFromOptions(list, append(conf.options(), opts...)...)
	}
	l, err := open()
	if err != nil {
		return nil, err
	}
	c := &Client{conf: conf, open: open, locker: l, permits: make(map[int]*semaphore.Semaphore),
		book: &history.Client{Name: conf.Name, Sink: sink, Now: now, Why: redlock.Reason}}
	for _, all := range pools {
		if c.permits[all], err = semaphore.New(l, poolOf(all), all); err != nil {
			return nil, err
		}
	}
	if c.elector, err = election.New(l, "election"); err != nil {
		return nil, err
	}
	if c.jobs, err = jobs.New(l, redlock.WithMinHold(c.keep())); err != nil {
		return nil, err
	}
	if conf.Store != "" {
		c.store = newStore(conf.Store, conf.Name, now, accesses)
	}
	return c, nil
}

// Close ends the client.
func (c *Client) Close() error {
	if c.store != nil {
		_ = c.store.client.Close()
	}
	return c.locker.Close()
}

// Run works until ctx ends, and returns when all goroutines of the client have ended.
func (c *Client) Run(ctx context.Context) {
	var g sync.WaitGroup
	i := uint64(0)
	for _, name := range Workloads() {
		round := works[name]
		if wrong := c.conf.wrong[name]; wrong != nil {
			round = wrong
		}
		for range c.conf.Work[name] {
			i++
			w := &worker{c, rand.New(rand.NewPCG(c.conf.Seed, i)), int(i)}
			g.Go(func() {
				for ctx.Err() == nil {
					round(w, ctx)
					if c.conf.Pause > 0 {
						sleep(ctx, time.Duration(w.rng.Int64N(int64(2*c.conf.Pause))))
					}
				}
			})
		}
	}
	g.Wait()
}

// worker is one goroutine of a client.
type worker struct {
	*Client
	rng *rand.Rand
	id  int
}

// Workloads returns the names of all workloads, in a fixed order.
func Workloads() []string {
	return []string{"hot", "many", "long", "rival", "line", "stock", "free", "hasty", "several", "book", "election", "job", "handed", "pool2", "pool9", "pool100"}
}

// works has one round of each workload, by name.
var works = map[string]func(*worker, context.Context){
	// All clients want this single resource, by TryLock and by Lock.
	"hot": func(w *worker, ctx context.Context) {
		if w.rng.IntN(2) == 0 {
			w.with(ctx, "hot", w.wait(ctx), w.briefly)
			return
		}
		w.with(ctx, "hot", w.try, w.briefly)
		sleep(ctx, time.Duration(w.rng.IntN(int(20*time.Millisecond))))
	},
	// Many resources: two clients seldom want the same one.
	"many": func(w *worker, ctx context.Context) {
		w.with(ctx, fmt.Sprint("many", w.rng.IntN(200)), w.try, w.briefly)
		sleep(ctx, time.Duration(w.rng.IntN(int(2*time.Millisecond))))
	},
	// The holder keeps the lease for longer than the TTL, by renewal, and looks at it all the time.
	"long": func(w *worker, ctx context.Context) {
		w.with(ctx, fmt.Sprint("long", w.rng.IntN(3)), w.wait(ctx), func(ctx context.Context, h *held) {
			for until := time.Duration(w.rng.Int64N(int64(3 * w.conf.TTL))); until > 0 && ctx.Err() == nil; until -= 10 * time.Millisecond {
				sleep(ctx, 10*time.Millisecond)
				h.Look()
			}
		})
	},
	// A rival calls TryLock for a resource that others hold for long.
	"rival": func(w *worker, ctx context.Context) {
		w.with(ctx, fmt.Sprint("long", w.rng.IntN(3)), w.try, w.briefly)
	},
	// Goroutines queue for a lease, which is handed over inside the process and between processes.
	"line": func(w *worker, ctx context.Context) { w.with(ctx, "line", w.wait(ctx), w.briefly) },
	// A count in a store is read, then written.
	"stock": func(w *worker, ctx context.Context) {
		if w.store == nil {
			<-ctx.Done()
			return
		}
		w.with(ctx, "stock", w.wait(ctx), func(_ context.Context, h *held) { w.store.sell(h.Lease.Fence()) })
	},
	// Each client has a resource of its own. A refused or late grant means that nodes were
	// missing.
	"free": func(w *worker, ctx context.Context) {
		w.with(ctx, fmt.Sprint("free ", w.conf.Name, " ", w.id), w.try, func(context.Context, *held) {})
		sleep(ctx, time.Duration(w.rng.IntN(int(10*time.Millisecond))))
	},
	// The contexts of these calls end at any moment.
	"hasty": func(w *worker, ctx context.Context) {
		brief, cancel := context.WithTimeout(ctx, time.Duration(w.rng.IntN(int(8*time.Millisecond))))
		defer cancel()
		w.with(brief, "hot", w.wait(brief), func(context.Context, *held) {})
		sleep(ctx, time.Duration(w.rng.IntN(int(20*time.Millisecond))))
	},
	// Two or three of five resources at once, named in any order, some of them as a reader; or one
	// of them alone. Some holders give one of them back before the others.
	"several": func(w *worker, ctx context.Context) {
		var names several.Names
		for _, i := range w.rng.Perm(5)[:1+w.rng.IntN(3)] {
			list := &names.Write
			if w.rng.IntN(3) == 0 {
				list = &names.Read
			}
			*list = append(*list, fmt.Sprint("part", i))
		}
		if len(names.Write) == 1 && len(names.Read) == 0 {
			w.with(ctx, names.Write[0], w.wait(ctx), w.briefly)
			return
		}
		w.withAll(ctx, names, w.rng.IntN(3) > 0)
	},
	// Many read, and one in eight writes. Some writers go on as readers.
	"book": func(w *worker, ctx context.Context) {
		const name = "book"
		waits := w.rng.IntN(3) > 0
		if w.rng.IntN(8) > 0 {
			w.with(ctx, name, w.read(ctx, waits), w.briefly)
			return
		}
		get := w.try
		if waits {
			get = w.wait(ctx)
		}
		w.with(ctx, name, get, func(ctx context.Context, h *held) {
			w.briefly(ctx, h)
			if w.rng.IntN(2) == 0 {
				return
			}
			isOver := func(err error) bool { return errors.Is(err, redlock.ErrNotHeld) }
			if err := history.Downgrade(h, name, func() error { return h.Lease.Downgrade(context.Background()) }, isOver); err == nil {
				w.briefly(ctx, h)
			}
		})
	},
	// One process leads for a while. Some leaders resign before they return.
	"election": func(w *worker, ctx context.Context) {
		w.lead(ctx, w.elector.Leading)
	},
	// A job is due at the same time on all machines, whose clocks differ. It runs for less or for more
	// than the minimum hold.
	"job": func(w *worker, ctx context.Context) {
		w.runJob(ctx, w.jobs)
	},
	// A lease is passed from process to process, with care or without.
	"handed": func(w *worker, ctx context.Context) { w.passOn(ctx, adopt) },
	// One to three permits of a semaphore, or nearly all. Some holders keep them for long, and some give
	// one of them back before the others.
	"pool2":   func(w *worker, ctx context.Context) { w.withPermits(ctx, 2) },
	"pool9":   func(w *worker, ctx context.Context) { w.withPermits(ctx, 9) },
	"pool100": func(w *worker, ctx context.Context) { w.withPermits(ctx, 100) },
}

// pools are the numbers of permits of the semaphores.
var pools = []int{2, 9, 100}

func poolOf(permits int) string { return fmt.Sprint("pool", permits) }

// called is the time after which a caller has what is free, without faults and in virtual time: it is
// handed that, or a master calls it. A process that no master can call asks again after up to 200 ms. A
// trip to a master and back takes up to 12 ms. The turn of a process that does not come lasts 250 ms. A
// caller may get its permits one after the other. While a process that no master can call has the turn for a
// permit, the next process asks after up to 1.2 s (ALGORITHM section 10): without such a process 135 ms were
// seen, and with it 904 ms.
const (
	called = 240 * time.Millisecond
	vain   = 1200 * time.Millisecond
	trip   = 12 * time.Millisecond
)

// woken has the time for each family of resources, see [history.Rules].
var woken = map[string]time.Duration{
	"hot": called, "line": called, "long0": called, "long1": called, "long2": called, "stock": called, "book": called,
	"part0": called, "part1": called, "part2": called, "part3": called, "part4": called, "election": called,
	"pool2": called + vain + 2*trip, "pool9": called + vain + 9*trip, "pool100": called + vain + 100*trip,
}

// latest returns the longest of these times for some workloads.
func latest(work map[string]int) time.Duration {
	long := called
	for name := range work {
		long = max(long, woken[name])
	}
	return long
}

// keep is the minimum hold of the job. Nothing is renewed before that is over.
func (c *Client) keep() time.Duration { return c.conf.TTL / 4 }

type held = history.Held[*redlock.Lease]

type means func(resource string) (*held, error)

func (w *worker) try(resource string) (*held, error) {
	return history.Take(w.book, resource, false, func() (*redlock.Lease, error) {
		return w.locker.TryLock(context.Background(), resource)
	})
}

func (w *worker) wait(ctx context.Context) means {
	return func(resource string) (*held, error) {
		return history.Take(w.book, resource, true, func() (*redlock.Lease, error) { return w.locker.Lock(ctx, resource) })
	}
}

func (w *worker) read(ctx context.Context, waits bool) means {
	return func(resource string) (*held, error) {
		return history.TakeShared(w.book, resource, waits, func() (*redlock.Lease, error) {
			if waits {
				return w.locker.Lock(ctx, resource, redlock.Shared())
			}
			return w.locker.TryLock(context.Background(), resource, redlock.Shared())
		})
	}
}

// with does some work while it holds a resource.
func (w *worker) with(ctx context.Context, resource string, get means, do func(context.Context, *held)) {
	h, err := get(resource)
	if err != nil {
		if !errors.Is(err, redlock.ErrTaken) {
			sleep(ctx, time.Millisecond)
		}
		return
	}
	under(ctx, h, func(ctx context.Context) { do(ctx, h) })
}

// under does some work under a lease, and gives it back.
func under[L history.Ender](ctx context.Context, h *history.Held[L], do func(context.Context)) {
	inside, cancel := context.WithCancel(h.Lease.Context())
	stop := context.AfterFunc(ctx, cancel)
	do(inside)
	stop()
	cancel()
	_ = h.Free(context.Background()) // the lease is over, whatever the result
}

// withAll holds several resources for a moment.
func (w *worker) withAll(ctx context.Context, names several.Names, waits bool) {
	h, err := history.TakeAll(w.book, names.Write, names.Read, waits, func() (*several.Lease, error) {
		if waits {
			return several.Lock(ctx, w.locker, names)
		}
		return several.TryLock(ctx, w.locker, names)
	}, parts)
	hold(w, ctx, h, err, 2*time.Millisecond)
}

// withPermits holds permits.
func (w *worker) withPermits(ctx context.Context, all int) {
	n, long, waits := min(1+w.rng.IntN(3), all), 2*time.Millisecond, w.rng.IntN(3) > 0
	nearlyAll := w.rng.IntN(3+all/5) == 0 // the more, the longer it takes
	if nearlyAll {
		n = max(1, all-w.rng.IntN(3))
	}
	if nearlyAll || w.rng.IntN(4) == 0 {
		long = w.conf.TTL / 2
	}
	h, err := history.TakePermits(w.book, poolOf(all), n, all, waits, func() (*semaphore.Lease, error) {
		if waits {
			return w.permits[all].Acquire(ctx, n)
		}
		return w.permits[all].TryAcquire(ctx, n)
	}, parts)
	hold(w, ctx, h, err, long)
}

// wide is a lease on several resources.
type wide interface {
	history.Ender
	Parts() []*redlock.Lease
}

// parts returns the parts of a lease for the history.
func parts[L wide](l L) (list []history.Part) {
	for _, p := range l.Parts() {
		list = append(list, history.Part{Resource: p.Resource(), Token: p.Token(), Fence: p.Fence()})
	}
	return list
}

// hold holds resources for less than a time, and may give one of them back before the others.
func hold[L wide](w *worker, ctx context.Context, h *history.Held[L], err error, long time.Duration) {
	if err != nil {
		sleep(ctx, time.Millisecond)
		return
	}
	under(ctx, h, func(ctx context.Context) {
		sleep(ctx, time.Duration(w.rng.Int64N(int64(long))))
		h.Look()
		if parts := h.Lease.Parts(); len(parts) > 1 && w.rng.IntN(2) == 0 {
			part := parts[w.rng.IntN(len(parts))]
			_ = h.FreePart(part.Resource(), func() error { return part.Unlock(context.Background()) })
			sleep(ctx, time.Duration(w.rng.Int64N(int64(long))))
			h.Look()
		}
	})
}

// visit is the lease that a package lends to a function. The function returns when the visit ends.
type visit struct {
	*redlock.Lease
	leads func() bool // reports whether the process may take itself for the leader
	leave func()
	over  chan error // the result of the package
}

// visits calls run, and returns the lease that run calls its argument with.
func visits(ctx context.Context, leads func() bool, run func(ctx context.Context, use func(context.Context, *redlock.Lease) error) error) (*visit, error) {
	ctx, leave := context.WithCancel(ctx)
	left, got, over := make(chan struct{}), make(chan *redlock.Lease), make(chan error, 1)
	go func() {
		over <- run(ctx, func(_ context.Context, l *redlock.Lease) error {
			select {
			case got <- l:
				<-left
			case <-left: // a second term
			}
			return nil
		})
	}()
	select {
	case l := <-got:
		return &visit{l, leads, func() { close(left); leave() }, over}, nil
	case err := <-over:
		leave()
		return nil, cmp.Or(err, redlock.ErrTaken) // a job that runs elsewhere is no error
	}
}

// Validity returns the validity of the lease, or more while the process may take itself for the leader.
func (v *visit) Validity() time.Duration {
	if v.leads() {
		return max(1, v.Lease.Validity())
	}
	return v.Lease.Validity()
}

// Unlock ends the visit.
func (v *visit) Unlock(context.Context) error {
	v.leave()
	return <-v.over
}

// lead campaigns, and leads for a while.
func (w *worker) lead(ctx context.Context, leads func() bool) {
	h, err := history.Take(w.book, "election", true, func() (*visit, error) { return visits(ctx, leads, w.elector.Run) })
	if err != nil {
		return
	}
	under(ctx, h, func(ctx context.Context) {
		long := 10 * time.Millisecond
		if w.rng.IntN(4) == 0 {
			long = w.conf.TTL * 3 / 2
		}
		sleep(ctx, time.Duration(w.rng.Int64N(int64(long))))
		if w.rng.IntN(3) == 0 {
			w.elector.Resign()
			sleep(ctx, time.Duration(w.rng.IntN(int(10*time.Millisecond))))
		}
		h.Look()
	})
}

// runJob waits until the job is due, and runs it unless another machine does.
func (w *worker) runJob(ctx context.Context, locker *jobs.Locker) {
	keep := w.keep()
	due := 2*keep - w.book.Now()%(2*keep)
	sleep(ctx, due+time.Duration(w.rng.Int64N(int64(keep/2))))
	h, err := history.TakeKept(w.book, "job", keep, func() (*visit, error) {
		return visits(ctx, func() bool { return false }, func(ctx context.Context, run func(context.Context, *redlock.Lease) error) error {
			return locker.Run(ctx, "job", run)
		})
	})
	if err != nil {
		return
	}
	under(ctx, h, func(ctx context.Context) {
		if w.rng.IntN(2) == 0 {
			sleep(ctx, time.Duration(w.rng.Int64N(int64(2*keep))))
		}
		h.Look()
	})
	sleep(context.Background(), keep) // Close would end the minimum hold
}

// briefly is a critical section of at most 2 ms.
func (w *worker) briefly(ctx context.Context, h *held) {
	if w.rng.IntN(4) > 0 {
		sleep(ctx, time.Duration(w.rng.IntN(int(2*time.Millisecond))))
	}
	h.Look()
}
