package locktest

import (
	"context"
	"io"
	"log/slog"
)

// BadLogger returns a logger whose handler panics.
func BadLogger() *slog.Logger {
	return slog.New(badHandler{slog.NewTextHandler(io.Discard, nil)})
}

type badHandler struct{ slog.Handler }

func (badHandler) Handle(context.Context, slog.Record) error { panic("handler") }
func (h badHandler) WithAttrs([]slog.Attr) slog.Handler      { return h }
func (h badHandler) WithGroup(string) slog.Handler           { return h }

// SlowContext returns a context whose Err blocks until let is closed.
func SlowContext(ctx context.Context, let <-chan struct{}) context.Context {
	return slowContext{ctx, let}
}

type slowContext struct {
	context.Context
	let <-chan struct{}
}

func (c slowContext) Err() error { <-c.let; return c.Context.Err() }
