package redlockotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/telemetry"
	"github.com/d0720281/redlock/internal/wire"
)

// Tracer returns a tracer, for [redlock.WithTracer], that makes the spans of the package comment.
// It panics if an option or its provider is nil.
func Tracer(opts ...Option) redlock.Tracer {
	c, err := newConfig(opts)
	if err != nil {
		panic(err)
	}
	tracer := c.tracers.Tracer(scope)
	return func(ctx context.Context, op, resource string) func(*redlock.Lease, error) {
		_, span := tracer.Start(ctx, "redlock."+op, trace.WithSpanKind(trace.SpanKindClient))
		if c.resource {
			span.SetAttributes(resourceKey.String(wire.Printable(resource))) // OTLP has UTF-8 alone
		}
		return func(lease *redlock.Lease, err error) {
			defer span.End()
			if !span.IsRecording() {
				return
			}
			if lease != nil && err == nil {
				span.SetAttributes(fenceKey.Int64(lease.Fence()))
				if op != "Unlock" {
					span.SetAttributes(validityKey.Float64(lease.Validity().Seconds()))
				}
			}
			c.outcome(span, op, err)
		}
	}
}

// outcomes has the outcomes of successful calls.
var outcomes = map[string]string{
	"Lock": telemetry.Granted, "LockAny": telemetry.Granted, "TryLock": telemetry.Granted, "Extend": telemetry.Renewed, "Unlock": "released", "Downgrade": "downgraded",
}

// outcome records how a call ended. The text of the error is recorded only with WithResource, as
// it contains the name of the resource.
func (c *config) outcome(span trace.Span, op string, err error) {
	if err == nil {
		span.SetAttributes(outcomeKey.String(outcomes[op]))
		return
	}
	reason := redlock.Reason(err)
	span.SetAttributes(outcomeKey.String(reason))
	if op != "TryLock" || !errors.Is(err, redlock.ErrTaken) {
		text := reason
		if c.resource {
			text = wire.Printable(err.Error())
		}
		span.SetStatus(codes.Error, text)
		span.SetAttributes(errorKey.String(reason))
	}
	var verdict *redlock.QuorumError
	if errors.As(err, &verdict) {
		for _, n := range verdict.Masters {
			attrs := append(server(n.Master), requestKey.String(n.Op), errorKey.String(redlock.Reason(n)))
			span.AddEvent("redlock.master", trace.WithAttributes(attrs...))
		}
	}
}
