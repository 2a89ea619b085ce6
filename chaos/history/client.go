package history

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Lease has the methods of a lease that a history needs.
type Lease interface {
	Token() string
	Fence() int64
	Validity() time.Duration
	Context() context.Context
	Unlock(context.Context) error
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
	op := c.ops.Add(1)
	c.Sink(Record{Kind: Called, Client: c.Name, Op: op, Resource: resource, Waits: waits, At: c.Now()})
	lease, err := call()
	if err != nil {
		c.Sink(Record{Kind: Refused, Client: c.Name, Op: op, At: c.Now(), Why: c.Why(err)})
		return nil, err
	}
	h := &Held[L]{Lease: lease, client: c, op: op}
	c.Sink(Record{Kind: Granted, Client: c.Name, Op: op, At: c.Now(), Token: lease.Token(), Fence: lease.Fence()})
	h.Look()
	ctx := lease.Context()
	h.stop = context.AfterFunc(ctx, func() {
		at := c.Now()
		left := lease.Validity()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ended || context.Cause(ctx) == nil {
			return
		}
		c.Sink(Record{Kind: Over, Client: c.Name, Op: op, At: at, Until: at + left, Why: c.Why(context.Cause(ctx))})
	})
	return h, nil
}

// Held is a lease whose holder records what it sees of it.
type Held[L Lease] struct {
	Lease L

	client *Client
	op     uint64
	stop   func() bool

	mu    sync.Mutex
	ended bool // guarded by mu
}

// Look looks at the lease. It reads the time before the validity, so that the recorded end
// can only be too early.
func (h *Held[L]) Look() (left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.client.Now()
	left = h.Lease.Validity()
	if !h.ended {
		h.client.Sink(Record{Kind: Seen, Client: h.client.Name, Op: h.op, At: at, Until: at + left})
	}
	return left
}

// Free gives the lease back.
func (h *Held[L]) Free(ctx context.Context) error {
	h.mu.Lock()
	h.ended = true
	h.client.Sink(Record{Kind: Ended, Client: h.client.Name, Op: h.op, At: h.client.Now()})
	h.mu.Unlock()
	err := h.Lease.Unlock(ctx)
	h.stop()
	h.client.Sink(Record{Kind: Freed, Client: h.client.Name, Op: h.op, At: h.client.Now()})
	return err
}
