package servers_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// Each option of the library is run on real masters: while two of three are well, refuse, hang or want another password,
// with a Locker that was connected before and with a new one, and when they are well again.
func TestOptionsInEachState(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.Server(t)
	noTrace := func(context.Context, string, string) func(*redlock.Lease, error) { return nil }
	options := map[string]func(addrs []string) redlock.Option{
		"Shared":              func([]string) redlock.Option { return redlock.Shared() },
		"WithDrift":           func([]string) redlock.Option { return redlock.WithDrift(0.1) },
		"WithGrace":           func([]string) redlock.Option { return redlock.WithGrace(time.Second) },
		"WithKeyPrefix":       func([]string) redlock.Option { return redlock.WithKeyPrefix("own:") },
		"WithLogger":          func([]string) redlock.Option { return redlock.WithLogger(slog.New(slog.DiscardHandler)) },
		"WithMasterTimeout":   func([]string) redlock.Option { return redlock.WithMasterTimeout(300 * time.Millisecond) },
		"WithMaxHold":         func([]string) redlock.Option { return redlock.WithMaxHold(time.Minute) },
		"WithMaxTTL":          func([]string) redlock.Option { return redlock.WithMaxTTL(20 * time.Second) },
		"WithMinHold":         func([]string) redlock.Option { return redlock.WithMinHold(100 * time.Millisecond) },
		"WithObserver":        func([]string) redlock.Option { return redlock.WithObserver(func(redlock.Event) {}) },
		"WithOwner":           func([]string) redlock.Option { return redlock.WithOwner("label") },
		"WithQuarantineWait":  func([]string) redlock.Option { return redlock.WithQuarantineWait(time.Second) },
		"WithReentry":         func([]string) redlock.Option { return redlock.WithReentry() },
		"WithTTL":             func([]string) redlock.Option { return redlock.WithTTL(5 * time.Second) },
		"WithTracer":          func([]string) redlock.Option { return redlock.WithTracer(noTrace) },
		"WithTrustedDisk":     func([]string) redlock.Option { return redlock.WithTrustedDisk() },
		"WithoutRenewal":      func([]string) redlock.Option { return redlock.WithoutRenewal() },
		"WithoutRestartGuard": func([]string) redlock.Option { return redlock.WithoutRestartGuard() },
	}
	for _, name := range exportedOptions(t) {
		if options[name] == nil {
			t.Errorf("%s is not run here", name)
		}
	}
	says := func(args ...any) func(testing.TB, *masters.Process) {
		return func(t testing.TB, p *masters.Process) {
			locktest.Must(t, redistest.Client(t, p.Addr()).Do(t.Context(), args...).Err())
		}
	}
	asAdmin := func(t testing.TB, p *masters.Process, args ...any) {
		c := redis.NewClient(&redis.Options{Addr: p.Addr(), Username: "admin", Password: "any"})
		locktest.Must(t, errors.Join(c.Do(t.Context(), args...).Err(), c.Close()))
	}
	for _, state := range []struct {
		name       string
		fault, end func(testing.TB, *masters.Process)
		want       error
	}{
		{"well", func(testing.TB, *masters.Process) {}, func(testing.TB, *masters.Process) {}, nil},
		{"refusing", says("config", "set", "maxmemory", "1"), says("config", "set", "maxmemory", "0"), redlock.ErrNoQuorum},
		{
			"hanging", func(t testing.TB, p *masters.Process) { locktest.Must(t, p.Pause()) },
			func(t testing.TB, p *masters.Process) { locktest.Must(t, p.Resume()) }, redlock.ErrNoQuorum,
		},
		{
			"wrong", func(t testing.TB, p *masters.Process) {
				says("acl", "setuser", "admin", "on", "nopass", "~*", "&*", "+@all")(t, p)
				asAdmin(t, p, "config", "set", "requirepass", "another")
				asAdmin(t, p, "client", "kill", "type", "normal")
			}, func(t testing.TB, p *masters.Process) { asAdmin(t, p, "config", "set", "requirepass", "") }, redlock.ErrMasterSetup,
		},
	} {
		t.Run(state.name, func(t *redistest.T) {
			t.Parallel()
			c := locktest.StartNew(t, 3)
			lockers := make(map[string]*redlock.Locker)
			open := func(name string) *redlock.Locker {
				return locktest.Open(t, c.Addrs, redlock.WithLogger(nil), redlock.WithKeyPrefix(name+":"), options[name](c.Addrs))
			}
			for name := range options {
				l := open(name)
				if err := admin.Bootstrap(t.Context(), l); err != nil && name != "WithoutRestartGuard" { // which has no markers
					t.Fatal(err)
				}
				lockers[name] = l
			}
			for _, p := range c.Procs[:2] {
				state.fault(t, p)
			}
			var running sync.WaitGroup
			for name, connected := range lockers {
				running.Go(func() {
					for what, l := range map[string]*redlock.Locker{"connected": connected, "new": open(name)} {
						began := time.Now()
						lease, err := l.TryLock(t.Context(), what)
						if took := time.Since(began); !errors.Is(err, state.want) || took > 5*time.Second {
							t.Errorf("%s, %s: got %v after %v, want %v", name, what, err, took, state.want)
						}
						if lease != nil {
							locktest.Must(t, lease.Unlock(t.Context()))
						}
						if what == "new" {
							locktest.Must(t, l.Close())
						}
					}
				})
			}
			running.Wait()
			for _, p := range c.Procs[:2] {
				state.end(t, p)
			}
			for name, l := range lockers {
				running.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					lease, err := l.Lock(ctx, "again")
					for errors.Is(err, redlock.ErrMasterSetup) && ctx.Err() == nil { // until the Locker has asked them again
						time.Sleep(100 * time.Millisecond)
						lease, err = l.Lock(ctx, "again")
					}
					if err != nil {
						t.Errorf("%s: got %v when the masters are well again", name, err)
						return
					}
					if err := lease.Unlock(ctx); err != nil {
						t.Errorf("%s: unlock: got %v", name, err)
					}
					locktest.Must(t, l.Close())
				})
			}
			running.Wait()
		})
	}
}

// exportedOptions returns the names of the functions of the root package that return an option.
func exportedOptions(t testing.TB) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../*.go")
	locktest.Must(t, err)
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		locktest.Must(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !fn.Name.IsExported() || fn.Type.Results == nil || strings.HasSuffix(file, "_test.go") {
				continue
			}
			if result := fmt.Sprint(fn.Type.Results.List[0].Type); result == "Option" || result == "LockOption" {
				names = append(names, fn.Name.Name)
			}
		}
	}
	if len(names) < 15 {
		t.Errorf("got the options %v, want more", names)
	}
	return names
}
