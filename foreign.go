package redlock

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/d0720281/redlock/internal/lockorder"
)

// This file guards the calls of foreign code in the middle of the library's work: the Tracer,
// the Observer and the handler of the logger. A panic there is recovered, and ends neither the
// call nor the process. It is logged once for each callback.
//
// A panic of the function given to Do is not recovered: it goes to the caller of Do, after the
// lease was released. Package node calls the dialer, and makes its panic an error of the
// connection.

// foreign remembers the panics of foreign code.
type foreign struct {
	told sync.Map // the names of callbacks whose panic was logged
}

// guarded calls a callback and recovers its panic. what is its name in the log.
func (c *config) guarded(what string, call func()) {
	lockorder.MustBeFree()
	defer func() {
		if p := recover(); p != nil {
			c.panicked(what, p)
		}
	}()
	call()
}

// panicked logs the first panic of a callback.
func (c *config) panicked(what string, p any) {
	if _, told := c.foreign.told.LoadOrStore(what, true); !told {
		c.warn("a callback panicked; further panics of it are not logged", "callback", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// warn logs a warning for the operator.
func (c *config) warn(text string, attrs ...any) {
	lockorder.MustBeFree()
	c.guardedLogger().Warn("redlock: "+text, attrs...)
}

// inform logs what is no warning: something is well again, or could be better.
func (c *config) inform(text string, attrs ...any) {
	lockorder.MustBeFree()
	c.guardedLogger().Info("redlock: "+text, attrs...)
}

// guardedLogger returns the logger, whose handler's panics are recovered. They are not logged,
// because there is no other log.
func (c *config) guardedLogger() *slog.Logger {
	return slog.New(guardedHandler{c.logger().Handler()})
}

type guardedHandler struct{ slog.Handler }

func (h guardedHandler) Enabled(ctx context.Context, level slog.Level) (on bool) {
	defer func() { _ = recover() }()
	return h.Handler.Enabled(ctx, level)
}

func (h guardedHandler) Handle(ctx context.Context, r slog.Record) error {
	defer func() { _ = recover() }()
	return h.Handler.Handle(ctx, r)
}

func (h guardedHandler) WithAttrs(attrs []slog.Attr) (with slog.Handler) {
	defer func() {
		if recover() != nil {
			with = h
		}
	}()
	return guardedHandler{h.Handler.WithAttrs(attrs)}
}

func (h guardedHandler) WithGroup(name string) (with slog.Handler) {
	defer func() {
		if recover() != nil {
			with = h
		}
	}()
	return guardedHandler{h.Handler.WithGroup(name)}
}
