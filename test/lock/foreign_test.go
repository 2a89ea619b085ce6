package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/redlockdebug"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// Callbacks that panic, block, or end the goroutine.

// If the end function of a trace panics or ends the goroutine, the lease that its call would return is
// released. The panic goes to the caller.
func TestTracerEndsTheGoroutine(t *testing.T) {
	t.Run("Goexit", func(t *testing.T) { testTracerEnds(t, runtime.Goexit, nil) })
	t.Run("panic", func(t *testing.T) { testTracerEnds(t, func() { panic("oh no") }, "oh no") })
}

func testTracerEnds(t *testing.T, how func(), want any) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		end := true
		l := b.Locker(redlock.WithTracer(func(_ context.Context, op, _ string) func(*redlock.Lease, error) {
			return func(*redlock.Lease, error) {
				if end {
					how()
				}
			}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for name, call := range map[string]func(){
			"Lock":    func() { _, _ = l.Lock(ctx, "r") },
			"TryLock": func() { _, _ = l.TryLock(ctx, "r") },
			"Do": func() {
				_ = l.Do(ctx, "r", func(context.Context, *redlock.Lease) error { t.Error("fn was called"); return nil })
			},
		} {
			end = true
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() {
					if got := recover(); got != want {
						t.Errorf("%s: got the panic %v, want %v", name, got, want)
					}
				}()
				call()
				t.Errorf("%s returned", name)
			}()
			<-done
			synctest.Wait()
			end = false
			b.WantHolding("r")
			if s := l.Stats(); len(s.Leases) != 0 {
				t.Errorf("%s: got the leases %v, want none", name, s.Leases)
			}
			lease, err := l.TryLock(t.Context(), "r")
			if err != nil {
				t.Errorf("%s: the next TryLock: got %v, want a lease", name, err)
				continue
			}
			b.Unlock(lease)
		}
	})
}

// A panic of an observer ends nothing: the other events are delivered, also to other observers. The first
// one is logged.
func TestObserverPanics(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		called, told := make(map[redlock.EventKind]int), make(map[redlock.EventKind]int)
		logger, text := locktest.LogText()
		l := b.Locker(redlock.WithLogger(logger),
			redlock.WithObserver(func(e redlock.Event) { called[e.Kind]++; panic("oh no") }),
			redlock.WithObserver(func(e redlock.Event) { told[e.Kind]++ }))
		for range 3 {
			b.Unlock(b.Lock(l, "r"))
		}
		b.Nodes[0].Restart()
		lease := b.Lock(l, "r")
		b.Nodes[0].Kill()
		time.Sleep(time.Minute)
		b.Nodes[0].Heal()
		b.Unlock(lease)
		locktest.Must(t, l.Close())
		if called[redlock.EventAcquired] != 4 || called[redlock.EventReleased] != 4 || called[redlock.EventMasterDown] == 0 {
			t.Errorf("got the calls %v, want 4 leases acquired and released, and masters that went down", called)
		}
		if !maps.Equal(called, told) {
			t.Errorf("the observer behind it: got the calls %v, want %v", told, called)
		}
		if n := strings.Count(text(), "an observer panicked"); n != 1 {
			t.Errorf("got %d panics in the log, want 1:\n%s", n, text())
		}
	})
}

// A panic of the logger's handler ends nothing, whichever method panics.
func TestLoggerPanics(t *testing.T) {
	for name, logger := range map[string]*slog.Logger{"Handle": locktest.BadLogger(), "Enabled": slog.New(struct{ slog.Handler }{})} {
		t.Run(name, func(t *testing.T) { testLoggerPanics(t, redlock.WithLogger(logger)) })
	}
}

func testLoggerPanics(t *testing.T, logger redlock.Option) {
	locktest.InBubble(t, 4, func(t *testing.T, b *locktest.Bubble) { // an even number is worth a line
		l := b.Locker(logger)
		b.Nodes[2].RunClock(1, time.Hour) // this is worth a warning
		do := func() error {
			return l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error { return nil })
		}
		locktest.Must(t, do())
		b.All((*virtual.Node).Kill)
		if _, err := l.TryLock(t.Context(), "r"); err == nil {
			t.Error("got a lease without masters")
		}
		b.All((*virtual.Node).Heal)
		time.Sleep(time.Minute) // a quarantine, in case they count as restarted
		locktest.Must(t, do())
	})
}

// A dialer says nothing about the context of the caller, or with an error of this library about the lock.
func TestDialerSpeaksForOthers(t *testing.T) {
	for _, said := range []error{
		fmt.Errorf("tunnel: %w", context.Canceled), fmt.Errorf("tunnel: %w", redlock.ErrTaken), errors.Join(io.EOF, redlock.ErrClosed),
		&redlock.MasterError{Master: "b:1", Err: redlock.ErrMasterSetup}, fmt.Errorf("tunnel: %w", election.ErrNoLeader),
	} {
		locktest.InBubble(t, 1, func(t *testing.T, _ *locktest.Bubble) {
			dial := func(context.Context, string, string) (net.Conn, error) { return nil, said }
			l, err := redlock.NewFromOptions([]*redis.Options{{Addr: "a:1", Dialer: dial}}, redlock.WithLogger(nil))
			locktest.Must(t, err)
			defer l.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = l.Lock(ctx, "r")
			locktest.WantMatch(t, "Lock", err, []error{redlock.ErrNoQuorum, context.DeadlineExceeded},
				context.Canceled, redlock.ErrTaken, redlock.ErrClosed, redlock.ErrMasterSetup, election.ErrNoLeader)
			line, _, _ := strings.Cut(strings.TrimPrefix(said.Error(), "redlock: "), "\n")
			var verdict *redlock.QuorumError
			if text := fmt.Sprintf("%+v", err); !strings.Contains(text, line) {
				t.Errorf("got %s, want what the dialer says", text)
			} else if errors.As(err, &verdict); redlock.Reason(verdict.Masters[0]) != "other" {
				t.Errorf("got %q of the master, want other", redlock.Reason(verdict.Masters[0]))
			}
		})
	}
}

// A context whose Err blocks delays no other call: neither the holder's, which hands the lease over
// to its caller, nor calls for the same resource or another.
func TestContextThatBlocks(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		let := make(chan struct{})
		t.Cleanup(func() { close(let) })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := b.Lock(l, "r")
		got := make(chan error)
		for range 2 {
			go func() {
				lease, err := l.Lock(locktest.SlowContext(ctx, let), "r")
				if err == nil {
					err = lease.Unlock(locktest.SlowContext(ctx, let))
				}
				got <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		b.Unlock(first)
		b.Unlock(b.Lock(l, "another"))
		for range 2 {
			locktest.Must(t, <-got)
		}
		other, err := l.Lock(t.Context(), "r")
		locktest.Must(t, err)
		if s := l.Stats(); s.Waiting != 0 || s.Counts[redlock.EventAcquired] != 6 {
			t.Errorf("got %d waiting and %d leases, want 0 and 6", s.Waiting, s.Counts[redlock.EventAcquired])
		}
		locktest.WantSince(t, "all leases", began, 0)
		b.Unlock(other)
	})
}

// badContext is a context whose Err panics when it has ended.
type badContext struct{ context.Context }

func (c badContext) Err() error { panic("Err") }

// A caller whose context panics leaves nothing behind: no place in the line, no place among the attempts, no key.
func TestContextThatPanics(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		try := func(ctx context.Context, lock func(context.Context, string, ...redlock.LockOption) (*redlock.Lease, error)) {
			t.Helper()
			defer func() {
				if recover() == nil {
					t.Error("got no panic, want that of the context")
				}
			}()
			_, _ = lock(ctx, "r")
		}
		after := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			t.Cleanup(cancel)
			return badContext{ctx}
		}
		held := b.Lock(l, "r") // by this process
		done := make(chan error)
		go func() { try(after(time.Second), l.Lock); done <- nil }()
		time.Sleep(time.Millisecond)
		go func() {
			lease, err := l.Lock(t.Context(), "r")
			if err == nil {
				err = lease.Unlock(t.Context())
			}
			done <- err
		}()
		<-done
		b.Unlock(held)
		locktest.Must(t, <-done)

		b.All(func(n *virtual.Node) { n.Latency(20*time.Millisecond, 20*time.Millisecond) })
		for range 600 { // more attempts than may run at a time
			go func() { try(after(25*time.Millisecond), l.TryLock); done <- nil }() // during the attempt
		}
		for range 600 {
			<-done
		}
		time.Sleep(time.Second)
		b.WantHolding("r")
		if lines := door.Look(l).Lines(); lines != 0 {
			t.Errorf("got %d lines, want none", lines)
		}
		if asking, waiting := door.Look(l).Asking(); asking != 0 || waiting != 0 {
			t.Errorf("got %d attempts that ask and %d that wait to, want none", asking, waiting)
		}
		b.Unlock(b.Lock(l, "r"))
	})
}

// causes is an error that cannot be compared with others.
type causes []string

func (c causes) Error() string { return strings.Join(c, ", ") }

// The cause of a context can be of any type.
func TestIncomparableCause(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		l := b.WarmLocker()
		b.All((*virtual.Node).Hang)
		for name, call := range map[string]func(context.Context) error{
			"Inspect": func(ctx context.Context) error { _, err := admin.Inspect(ctx, l, "r"); return err },
			"Check":   func(ctx context.Context) error { _, err := admin.Check(ctx, l); return err },
			"Break":   func(ctx context.Context) error { _, err := admin.Break(ctx, l, "r"); return err },
			"Lock":    func(ctx context.Context) error { _, err := l.Lock(ctx, "r"); return err },
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Millisecond, func() { cancel(causes{"because"}) })
			err := call(ctx)
			var cause causes
			if !errors.Is(err, context.Canceled) || !errors.As(err, &cause) {
				t.Errorf("%s: got %v, want context.Canceled and the cause", name, err)
			}
		}
		b.All((*virtual.Node).Resume)
	})
}

// Each method of a receiver that is nil, or that no function of the library has made, panics, and says so. Those that
// package semaphore and jobs.Lock have by embedding panic for a nil pointer as any pointer does.
func TestNilReceivers(t *testing.T) {
	for _, receiver := range []any{
		(*redlock.Locker)(nil), new(redlock.Locker), (*redlock.Lease)(nil), new(redlock.Lease),
		(*several.Lease)(nil), new(several.Lease), (*election.Elector)(nil), new(election.Elector),
		(*semaphore.Semaphore)(nil), new(semaphore.Semaphore), (*semaphore.Lease)(nil), new(semaphore.Lease),
		(*jobs.Locker)(nil), new(jobs.Locker), (*jobs.Lock)(nil), new(jobs.Lock),
	} {
		v := reflect.ValueOf(receiver)
		for i := range v.NumMethod() {
			name, method := fmt.Sprintf("%T %t %s", receiver, v.IsNil(), v.Type().Method(i).Name), v.Method
			t.Run(name, func(t *testing.T) {
				defer func() {
					p := recover()
					text, _ := p.(string)
					_, pointer := p.(runtime.Error)
					embeds := strings.HasPrefix(name, "*semaphore.Lease true") || strings.HasPrefix(name, "*jobs.Lock true")
					if !strings.Contains(text, "was not made by New") && !strings.Contains(text, "no call has returned this") && !(embeds && pointer) {
						t.Errorf("got %v, want a panic that says what to do", p)
					}
				}()
				in, args := method(i).Type(), []reflect.Value(nil)
				for k := range in.NumIn() {
					switch of := in.In(k); {
					case of == reflect.TypeFor[context.Context]():
						args = append(args, reflect.ValueOf(t.Context()))
					case of.Kind() == reflect.String:
						args = append(args, reflect.ValueOf("r"))
					case of.Kind() == reflect.Int:
						args = append(args, reflect.ValueOf(1))
					case of.Kind() == reflect.Func:
						args = append(args, reflect.MakeFunc(of, func([]reflect.Value) []reflect.Value { panic("called") }))
					case of.Kind() != reflect.Slice:
						args = append(args, reflect.Zero(of))
					}
				}
				method(i).Call(args)
			})
		}
	}
}

// A pointer that is nil is refused like a nil interface. Where there is no error to return, the text of the panic says it.
func TestNilArguments(outer *testing.T) {
	t := redistest.Timed(outer)
	b := locktest.Start(t, 1)
	l := locktest.Open(t, b.Addrs)
	var locker *redlock.Locker
	var none context.Context
	lease := locktest.Lock(t, l, "r")
	nothing := func(context.Context, *several.Lease) error { panic("called") }
	for name, err := range map[string]error{
		"semaphore":   func() error { _, err := semaphore.New(locker, "s", 1); return err }(),
		"election":    func() error { _, err := election.New(new(redlock.Locker), "r"); return err }(),
		"jobs":        func() error { _, err := jobs.New(locker); return err }(),
		"several":     several.Do(t.Context(), locker, several.Names{Write: []string{"a"}}, nothing),
		"Do/context":  several.Do(none, l, several.Names{Write: []string{"a"}}, nothing),
		"Do/function": several.Do(t.Context(), l, several.Names{Write: []string{"a"}}, nil),
		"match": func() (err error) {
			for _, err = range admin.ListMatching(t.Context(), l, nil) {
			}
			return err
		}(),
		"zero": func() error { _, err := admin.Check(t.Context(), new(redlock.Locker)); return err }(),
	} {
		if !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
	}
	if err := fence.AddHeader(make(http.Header), (*redlock.Lease)(nil)); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("got %v, want ErrConfig", err)
	}
	if due := jobs.Due(nil, time.Now()); !due.IsZero() {
		t.Errorf("got a due time %v of no schedule", due)
	}
	for _, test := range []struct {
		want string
		call func()
	}{
		{"redlock: Within: ctx is nil", func() { lease.Within(none) }},
		{"redlock: the Locker was not made by New", func() { redlockdebug.Handler(nil) }},
		{"redlock: the Locker was not made by New", func() { redlockdebug.Var(new(redlock.Locker)) }},
	} {
		func() {
			defer func() {
				if got := recover(); got != test.want {
					t.Errorf("got a panic of %v, want %q", got, test.want)
				}
			}()
			test.call()
		}()
	}
	locktest.Must(t, lease.Unlock(t.Context()))
}
