package history

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Lease has the methods of a lease that a history needs.
type Lease interface {
	Ender
	Token() string
	Fence() int64
}

// Ender has those methods that a lease on several resources has, too.
type Ender interface {
	Validity() time.Duration
	Context() context.Context
	Unlock(context.Context) error
}

// Part has the token and the fencing token of one resource of a lease.
type Part struct {
	Resource, Token string
	Fence           int64
}

// Client records what one client sees. All fields must be set, and Sink and Now must be
// safe for concurrent use.
type Client struct {
	Name string
	Sink func(Record)
	Now  func() time.Duration
	Why  func(error) string // returns a short name for the meaning of an error, see [Expired]

	ops atomic.Uint64
}

// Take calls call to acquire the resource, and records the outcome.
func Take[L Lease](c *Client, resource string, waits bool, call func() (L, error)) (*Held[L], error) {
	return take(c, []Record{{Resource: resource, Waits: waits}}, call, partOf[L](resource))
}

// TakeShared is Take for a lease that readers share.
func TakeShared[L Lease](c *Client, resource string, waits bool, call func() (L, error)) (*Held[L], error) {
	return take(c, []Record{{Resource: resource, Waits: waits, Shared: true}}, call, partOf[L](resource))
}

// TakeKept is Take for a lease with a minimum hold: the resource stays taken for so long after the
// grant, also if the lease is given back earlier.
func TakeKept[L Lease](c *Client, resource string, keep time.Duration, call func() (L, error)) (*Held[L], error) {
	return take(c, []Record{{Resource: resource, Keep: keep}}, call, partOf[L](resource))
}

// Adopt is Take for a call that adopts the lease with a token.
func Adopt[L Lease](c *Client, resource, token string, call func() (L, error)) (*Held[L], error) {
	return take(c, []Record{{Resource: resource, Former: token}}, call, partOf[L](resource))
}

func partOf[L Lease](resource string) func(L) []Part {
	return func(lease L) []Part { return []Part{{resource, lease.Token(), lease.Fence()}} }
}

// Held is a lease whose holder records what it sees of it. A lease on several resources is recorded
// as one for each of them.
type Held[L Ender] struct {
	Lease L

	client *Client
	ops    []uint64
	names  []string // of the resources, one for each of ops
	stop   func() bool

	mu    sync.Mutex
	ended bool // guarded by mu
}

// TakeAll calls call to acquire some resources as a writer and others as a reader, and records the
// outcome for each. parts returns the parts of the lease, which must be those resources.
func TakeAll[L Ender](c *Client, write, read []string, waits bool, call func() (L, error), parts func(L) []Part) (*Held[L], error) {
	var calls []Record
	for _, name := range write {
		calls = append(calls, Record{Resource: name, Waits: waits})
	}
	for _, name := range read {
		calls = append(calls, Record{Resource: name, Waits: waits, Shared: true})
	}
	return take(c, calls, call, parts)
}

// TakePermits calls call to acquire n of all permits of a semaphore, and records the outcome for
// each. parts returns the permits of the lease, which each have a resource of their own.
func TakePermits[L Ender](c *Client, semaphore string, n, all int, waits bool, call func() (L, error), parts func(L) []Part) (*Held[L], error) {
	return take(c, slices.Repeat([]Record{{Resource: semaphore, Waits: waits, Permits: all}}, n), call, parts)
}

func take[L Ender](c *Client, calls []Record, call func() (L, error), parts func(L) []Part) (*Held[L], error) {
	h := &Held[L]{client: c}
	ops := h.called(calls)
	lease, err := call()
	if err != nil {
		h.record(Record{Kind: Refused, At: c.Now(), Why: c.Why(err)})
		return nil, err
	}
	h.Lease = lease
	for i, p := range parts(lease) {
		if calls[0].Permits == 0 {
			i = slices.IndexFunc(calls, func(r Record) bool { return r.Resource == p.Resource })
		}
		h.names[i] = p.Resource
		h.granted(ops[i], p)
	}
	h.Look()
	ctx := lease.Context()
	h.stop = context.AfterFunc(ctx, func() {
		at := c.Now()
		left := lease.Validity()
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.ended && context.Cause(ctx) != nil {
			h.record(Record{Kind: Over, At: at, Until: at + left, Why: c.Why(context.Cause(ctx))})
		}
	})
	return h, nil
}

// called records the calls for some resources, and returns their numbers.
func (h *Held[L]) called(calls []Record) []uint64 {
	c := h.client
	h.ops, h.names = nil, nil
	for _, r := range calls {
		r.Kind, r.Client, r.Op, r.At = Called, c.Name, c.ops.Add(1), c.Now()
		h.ops, h.names = append(h.ops, r.Op), append(h.names, r.Resource)
		if len(calls) > 1 {
			r.Group = h.ops[0]
		}
		c.Sink(r)
	}
	return h.ops
}

func (h *Held[L]) granted(op uint64, p Part) {
	h.client.Sink(Record{Kind: Granted, Client: h.client.Name, Op: op, Resource: p.Resource, At: h.client.Now(), Token: p.Token, Fence: p.Fence})
}

// Downgrade calls call to make an exclusive lease that of a reader, and records that: the exclusive
// lease has ended when call begins, and the shared one is granted when call returns, whatever it
// returns but an error that is over.
func Downgrade[L Lease](h *Held[L], resource string, call func() error, isOver func(error) bool) error {
	h.mu.Lock()
	now := h.client.Now()
	h.record(Record{Kind: Ended, At: now})
	h.record(Record{Kind: Freed, At: now})
	ops := h.called([]Record{{Resource: resource, Shared: true}})
	h.mu.Unlock()
	err := call()
	h.mu.Lock()
	if err != nil && isOver(err) {
		h.record(Record{Kind: Refused, At: h.client.Now(), Why: h.client.Why(err)})
		h.ended = true
		h.mu.Unlock()
		return err
	}
	h.granted(ops[0], Part{resource, h.Lease.Token(), h.Lease.Fence()})
	h.mu.Unlock()
	h.Look()
	return err
}

// record records the same of all resources.
func (h *Held[L]) record(r Record) {
	for _, op := range h.ops {
		r.Client, r.Op = h.client.Name, op
		h.client.Sink(r)
	}
}

// Look looks at the lease. It reads the time before the validity, so that the recorded end
// can only be too early.
func (h *Held[L]) Look() (left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.client.Now()
	left = h.Lease.Validity()
	if !h.ended {
		h.record(Record{Kind: Seen, At: at, Until: at + left})
	}
	return left
}

// FreePart calls unlock, which gives one resource of the lease back.
func (h *Held[L]) FreePart(resource string, unlock func() error) error {
	h.mu.Lock()
	i := slices.Index(h.names, resource)
	r := Record{Kind: Ended, Client: h.client.Name, Op: h.ops[i], At: h.client.Now()}
	h.ops, h.names = slices.Delete(h.ops, i, i+1), slices.Delete(h.names, i, i+1)
	h.client.Sink(r)
	h.mu.Unlock()
	err := unlock()
	r.Kind, r.At = Freed, h.client.Now()
	h.client.Sink(r)
	return err
}

// Free gives the lease back.
func (h *Held[L]) Free(ctx context.Context) error {
	h.mu.Lock()
	over := h.ended // as its Downgrade found out
	h.ended = true
	if !over {
		h.record(Record{Kind: Ended, At: h.client.Now()})
	}
	h.mu.Unlock()
	err := h.Lease.Unlock(ctx)
	h.stop()
	if !over {
		h.record(Record{Kind: Freed, At: h.client.Now()})
	}
	return err
}
