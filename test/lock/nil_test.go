package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/telemetry"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/redlockdebug"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
	"github.com/d0720281/redlock/sharded"
)

// Each method with an error result returns ErrConfig if its receiver is nil, or was made by no function of the library.
func TestNilReceivers(t *testing.T) {
	for _, receiver := range []any{
		(*redlock.Locker)(nil), new(redlock.Locker), (*redlock.Lease)(nil), new(redlock.Lease),
		(*several.Lease)(nil), new(several.Lease), (*sharded.Locker)(nil), new(sharded.Locker), (*election.Elector)(nil), new(election.Elector),
		(*semaphore.Semaphore)(nil), new(semaphore.Semaphore), (*semaphore.Lease)(nil), new(semaphore.Lease), (*jobs.Locker)(nil), new(jobs.Locker), new(jobs.Lock),
	} {
		v := reflect.ValueOf(receiver)
		for i := range v.NumMethod() {
			name, method := fmt.Sprintf("%T %t %s", receiver, v.IsNil(), v.Type().Method(i).Name), v.Method(i)
			last := method.Type().NumOut() - 1
			switch {
			case last < 0 || method.Type().Out(last) != reflect.TypeFor[error]():
				continue
			case name == "*sharded.Locker false Close", name == "*election.Elector false IsLeader", name == "*election.Elector false Healthy":
				continue
			}
			var args []reflect.Value
			for k := range method.Type().NumIn() {
				switch in := method.Type().In(k); {
				case in == reflect.TypeFor[context.Context]():
					args = append(args, reflect.ValueOf(t.Context()))
				case in == reflect.TypeFor[time.Time]():
					args = append(args, reflect.ValueOf(time.Now()))
				case in.Kind() == reflect.String:
					args = append(args, reflect.ValueOf("r"))
				case in.Kind() == reflect.Func:
					args = append(args, reflect.MakeFunc(in, func([]reflect.Value) []reflect.Value { panic("called") }))
				case in.Kind() != reflect.Slice:
					args = append(args, reflect.Zero(in))
				}
			}
			t.Run(name, func(t *testing.T) {
				if err, _ := method.Call(args)[last].Interface().(error); !errors.Is(err, redlock.ErrConfig) {
					t.Errorf("got %v, want ErrConfig", err)
				}
			})
		}
	}
}

// A pointer that is nil is refused like a nil interface. Where there is no error to return, the text of the panic says it.
func TestNilArguments(t *testing.T) {
	b := locktest.Start(t, 1)
	l := locktest.Open(t, b.Addrs)
	var locker *redlock.Locker
	var none context.Context
	lease := locktest.Lock(t, l, "r")
	both, err := several.Lock(t.Context(), l, several.Names{Write: []string{"a", "b"}})
	locktest.Must(t, err)
	nothing := func(context.Context, *several.Lease) error { panic("called") }
	for name, err := range map[string]error{
		"semaphore":         func() error { _, err := semaphore.New(locker, "s", 1); return err }(),
		"semaphore/sharded": func() error { _, err := semaphore.New((*sharded.Locker)(nil), "s", 1); return err }(),
		"several":           several.Do(t.Context(), locker, several.Names{Write: []string{"a"}}, nothing),
		"several/sharded":   several.Do(t.Context(), (*sharded.Locker)(nil), several.Names{Write: []string{"a"}}, nothing),
		"During/context":    both.During(none, nothing),
		"During/function":   both.During(t.Context(), nil),
		"During/both":       both.Err(), // as it was
		"match": func() (err error) {
			for _, err = range admin.ListMatching(t.Context(), l, nil) {
			}
			return err
		}(),
		"Observe": func() (err error) {
			for _, err = range new(election.Elector).Observe(t.Context()) {
			}
			return err
		}(),
		"zero": func() error { _, err := admin.Check(t.Context(), new(redlock.Locker)); return err }(),
	} {
		if (name == "During/both") != (err == nil) || err != nil && !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
	}
	if err := fence.AddHeader(make(http.Header), (*redlock.Lease)(nil)); !errors.Is(err, fence.ErrArgument) {
		t.Errorf("got %v, want ErrArgument", err)
	}
	if due := jobs.Due(nil, time.Now()); !due.IsZero() {
		t.Errorf("got a due time %v of no schedule", due)
	}
	for _, test := range []struct {
		want string
		call func()
	}{
		{"redlock: Within: ctx is nil", func() { lease.Within(none) }},
		{"redlockdebug: the Locker is nil, or was not made by New", func() { redlockdebug.Handler(nil) }},
		{"redlockdebug: the Locker is nil, or was not made by New", func() { redlockdebug.Var(new(redlock.Locker)) }},
		{"redlock: Watch: the Locker is nil, or was not made by New", func() { new(telemetry.Watched).Add(nil) }},
		{"redlock: Watch: the Locker is nil, or was not made by New", func() { new(telemetry.Watched).Add(new(redlock.Locker)) }},
		{"cannot create context from nil parent", func() { both.Within(none) }},
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
	locktest.Must(t, errors.Join(both.Unlock(t.Context()), lease.Unlock(t.Context())))
}
