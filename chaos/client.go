package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
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
	locker  *redlock.Locker
	permits *semaphore.Semaphore
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
	l, err := redlock.NewFromOptions(list, append(conf.options(), opts...)...)
	if err != nil {
		return nil, err
	}
	permits, err := semaphore.New(l, "pool", poolPermits)
	if err != nil {
		return nil, err
	}
	c := &Client{conf: conf, locker: l, permits: permits, book: &history.Client{Name: conf.Name, Sink: sink, Now: now, Why: redlock.Reason}}
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
		for range c.conf.Work[name] {
			i++
			w := &worker{c, rand.New(rand.NewPCG(c.conf.Seed, i)), int(i)}
			g.Go(func() {
				for ctx.Err() == nil {
					works[name](w, ctx)
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
	return []string{"hot", "many", "long", "rival", "line", "stock", "free", "hasty", "several", "book", "pool"}
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
	// of them alone.
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
	// One, two or all permits of a semaphore.
	"pool": func(w *worker, ctx context.Context) {
		w.withPermits(ctx, 1+w.rng.IntN(w.rng.IntN(poolPermits)+1), w.rng.IntN(3) > 0)
	},
}

// poolPermits is the number of permits of the workload "pool".
const poolPermits = 3

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
	holdBriefly(w, ctx, h, err)
}

// withPermits holds permits for a moment.
func (w *worker) withPermits(ctx context.Context, n int, waits bool) {
	h, err := history.TakePermits(w.book, "pool", n, poolPermits, waits, func() (*semaphore.Lease, error) {
		if waits {
			return w.permits.Acquire(ctx, n)
		}
		return w.permits.TryAcquire(ctx, n)
	}, func(l *semaphore.Lease) []history.Part { return parts(l.Lease) })
	holdBriefly(w, ctx, h, err)
}

// parts returns the parts of a lease for the history.
func parts(l *several.Lease) (list []history.Part) {
	for _, p := range l.Parts() {
		list = append(list, history.Part{Resource: p.Resource(), Token: p.Token(), Fence: p.Fence()})
	}
	return list
}

func holdBriefly[L history.Ender](w *worker, ctx context.Context, h *history.Held[L], err error) {
	if err != nil {
		sleep(ctx, time.Millisecond)
		return
	}
	under(ctx, h, func(ctx context.Context) {
		sleep(ctx, time.Duration(w.rng.IntN(int(2*time.Millisecond))))
		h.Look()
	})
}

// briefly is a critical section of at most 2 ms.
func (w *worker) briefly(ctx context.Context, h *held) {
	if w.rng.IntN(4) > 0 {
		sleep(ctx, time.Duration(w.rng.IntN(int(2*time.Millisecond))))
	}
	h.Look()
}
