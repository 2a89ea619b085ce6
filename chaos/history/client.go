package history

import (
	"context"
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
	return TakeAll(c, []string{resource}, waits, call, func(lease L) []Part {
		return []Part{{resource, lease.Token(), lease.Fence()}}
	})
}

// Held is a lease whose holder records what it sees of it. A lease on several resources is recorded as
// one for each of them.
type Held[L Ender] struct {
	Lease L

	client *Client
	ops    []uint64
	stop   func() bool

	mu    sync.Mutex
	ended bool // guarded by mu
}

// TakeAll calls call to acquire the resources, and records the outcome for each. parts returns the
// parts of the lease, which must be those resources.
func TakeAll[L Ender](c *Client, resources []string, waits bool, call func() (L, error), parts func(L) []Part) (*Held[L], error) {
	h := &Held[L]{client: c}
	ops := make(map[string]uint64)
	for _, r := range resources {
		op := c.ops.Add(1)
		h.ops, ops[r] = append(h.ops, op), op
		c.Sink(Record{Kind: Called, Client: c.Name, Op: op, Resource: r, Waits: waits, At: c.Now()})
	}
	lease, err := call()
	if err != nil {
		h.record(Record{Kind: Refused, At: c.Now(), Why: c.Why(err)})
		return nil, err
	}
	h.Lease = lease
	for _, p := range parts(lease) {
		c.Sink(Record{Kind: Granted, Client: c.Name, Op: ops[p.Resource], At: c.Now(), Token: p.Token, Fence: p.Fence})
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

// Free gives the lease back.
func (h *Held[L]) Free(ctx context.Context) error {
	h.mu.Lock()
	h.ended = true
	h.record(Record{Kind: Ended, At: h.client.Now()})
	h.mu.Unlock()
	err := h.Lease.Unlock(ctx)
	h.stop()
	h.record(Record{Kind: Freed, At: h.client.Now()})
	return err
}
