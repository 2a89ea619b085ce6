package redlock

import "context"

// Tracer is called at the start of each Lock, TryLock, Extend and Unlock, whose name is op. The
// function that it returns is called at the end of that call. Both run in the call's own
// goroutine, and add to the time of the call. A [Locker.Do] is a Lock and an Unlock. A Tracer
// is for spans: unlike an [Observer], it also sees the start of a call. Calls with wrong
// arguments are not traced.
//
// lease is nil for a Lock or TryLock that got none. A Tracer may return nil. A panic of the
// Tracer or of end is recovered and logged once (see [WithLogger]), and does not change the
// result of the call. If end exits the goroutine by runtime.Goexit, the lease of the call is
// released, because no caller gets it.
type Tracer func(ctx context.Context, op, resource string) (end func(lease *Lease, err error))

// WithTracer sets the [Tracer]. By default there is none. Package
// github.com/d0720281/redlock/otel has one for OpenTelemetry.
func WithTracer(t Tracer) Option { return option(func(c *config) { c.tracer = t }) }

// trace begins the trace of a call. The caller calls end when the call is over.
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
