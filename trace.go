package redlock

import "context"

// Tracer is called at the start of each Lock, TryLock, Extend and Unlock, which is the op,
// and what it returns at the end of that call, in the call's own goroutine; a [Locker.Do]
// is a Lock and an Unlock. It is for spans: nothing else shows a call before it is over.
// What it does adds to the time of the call. Calls with bad arguments are not traced.
//
// The lease is nil for a Lock or TryLock that got none. A Tracer that returns nil is not
// told the end. A panic of either is recovered and logged, once, see [WithLogger]: the call
// goes on, and returns what it has. If the end does not return, as by runtime.Goexit, a
// lease that the call got is released, as nobody has it.
type Tracer func(ctx context.Context, op, resource string) (end func(lease *Lease, err error))

// WithTracer has t called around calls, see [Tracer]; by default nothing is. Package
// github.com/d0720281/redlock/otel has one for OpenTelemetry.
func WithTracer(t Tracer) Option { return option(func(c *config) { c.tracer = t }) }

// trace begins the trace of a call. What it returns is to be called when that is over.
func (c *config) trace(ctx context.Context, op, resource string) (end func(*Lease, error)) {
	if c.tracer == nil {
		return untraced
	}
	var its func(*Lease, error)
	c.guarded("Tracer", func() { its = c.tracer(ctx, op, resource) })
	if its == nil {
		return untraced
	}
	return func(le *Lease, err error) { c.guarded("end of Tracer", func() { its(le, err) }) }
}

func untraced(*Lease, error) {}
