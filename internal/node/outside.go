package node

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// outside is a call of code that the caller gave to the library: a Dialer, a TLS configuration, a
// provider of credentials. It has a goroutine of its own, because such code may not return when its
// context ends. If the code panics, the result is an error that names it.
type outside[T any] struct{ returned chan result[T] }

type result[T any] struct {
	value T
	err   error
}

func callOutside[T any](name string, f func() (T, error)) outside[T] {
	returned := make(chan result[T], 1)
	go func() {
		r := result[T]{err: fmt.Errorf("the %s ended its goroutine", name)}
		defer func() {
			if p := recover(); p != nil {
				r.err = panicError(fmt.Sprintf("the %s panicked: %v (%s)", name, p, panickedAt()))
			}
			returned <- r
		}()
		r.value, r.err = f()
	}()
	return outside[T]{returned}
}

// panicError is the error of outside code that panicked. It names the code.
type panicError string

func (e panicError) Error() string { return string(e) }

// panickedAt returns the line of the code that panicked, for a function that is deferred.
func panickedAt() string {
	var room [32]uintptr
	frames := runtime.CallersFrames(room[:runtime.Callers(0, room[:])])
	for panicking := false; ; {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicking = panicking || f.Function == "runtime.gopanic"
		case panicking:
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return "at an unknown place"
		}
	}
}

// lateReturn is how long outside code may take to return after its context has ended.
const lateReturn = 100 * time.Millisecond

// await returns the result. If the code has not returned soon after the end of ctx, ok is false.
func (o outside[T]) await(ctx context.Context) (r result[T], ok bool) {
	select {
	case r := <-o.returned:
		return r, true
	case <-ctx.Done():
	}
	late := time.NewTimer(lateReturn)
	defer late.Stop()
	select {
	case r := <-o.returned:
		return r, true
	case <-late.C:
		return r, false
	}
}

// leave hands a result that comes later to drop. Nothing waits for it.
func (o outside[T]) leave(drop func(T)) {
	go func() {
		if r := <-o.returned; r.err == nil {
			drop(r.value)
		}
	}()
}
