package redlock

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/d0720281/redlock/internal/lockorder"
)

// This file is about code of others that the library calls in the middle of its own work: the
// Tracer, the Observer and the handler of the logger. A panic there is recovered, and ends
// neither the call nor the process. It is logged, once for each of the callbacks.
//
// What a caller wants to be called, as by Do, is another matter: its panic is the caller's to
// have. The lease is released on the way. A dialer is called by package node, where a panic is
// an error of the connection.

// foreign calls code of others.
type foreign struct {
	told sync.Map // the names of callbacks whose panic was logged
}

// guarded calls a callback, which is named for the log.
func (c *config) guarded(what string, call func()) {
	lockorder.MustBeFree()
	defer func() {
		if p := recover(); p != nil {
			c.panicked(what, p)
		}
	}()
	call()
}

// panicked notes a panic. It is called while that is being recovered.
func (c *config) panicked(what string, p any) {
	if _, told := c.foreign.told.LoadOrStore(what, true); !told {
		c.warn("a callback panicked, which is not logged again for this one", "callback", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// warn tells the operator, unless the handler panics.
func (c *config) warn(text string, attrs ...any) {
	lockorder.MustBeFree()
	c.guardedLogger().Warn("redlock: "+text, attrs...)
}
