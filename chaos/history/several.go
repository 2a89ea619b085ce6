package history

import (
	"context"
	"sync"
	"time"
)

// MultiLease has the methods of a lease on several resources that a history needs.
type MultiLease interface {
	Validity() time.Duration
	Context() context.Context
	Unlock(context.Context) error
}

// Part is what a history needs of one resource of a lease on several.
type Part struct {
	Resource, Token string
	Fence           int64
}

// HeldAll is a lease on several resources whose holder records what it sees of it, for each resource
// as if that were a lease of its own.
type HeldAll[M MultiLease] struct {
	Lease M

	client *Client
	ops    []uint64
	stop   func() bool

	mu    sync.Mutex
	ended bool // guarded by mu
}

// TakeAll calls call to acquire the resources, and records the outcome for each. parts returns the
// parts of the lease, which must be those resources.
func TakeAll[M MultiLease](c *Client, resources []string, waits bool, call func() (M, error), parts func(M) []Part) (*HeldAll[M], error) {
	h := &HeldAll[M]{client: c}
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
		if !h.ended {
			h.record(Record{Kind: Over, At: at, Until: at + left, Why: c.Why(context.Cause(ctx))})
		}
	})
	return h, nil
}

// record records the same of all resources.
func (h *HeldAll[M]) record(r Record) {
	for _, op := range h.ops {
		r.Client, r.Op = h.client.Name, op
		h.client.Sink(r)
	}
}

// Look looks at the lease, as [Held.Look] does.
func (h *HeldAll[M]) Look() (left time.Duration) {
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
func (h *HeldAll[M]) Free(ctx context.Context) error {
	h.mu.Lock()
	h.ended = true
	h.record(Record{Kind: Ended, At: h.client.Now()})
	h.mu.Unlock()
	err := h.Lease.Unlock(ctx)
	h.stop()
	h.record(Record{Kind: Freed, At: h.client.Now()})
	return err
}
