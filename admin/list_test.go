package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// listed returns the names and verdicts of a List, and its last error.
func listed(t testing.TB, l *redlock.Locker) (list []string, last error) {
	t.Helper()
	for in, err := range admin.List(t.Context(), l) {
		if err != nil {
			last = err
		}
		if in.Resource != "" {
			list = append(list, fmt.Sprint(in.Resource, " ", in.Verdict))
		}
	}
	return list, last
}

// List finds every resource that some node has a key of, among many other keys, and no key of the
// library's own.
func TestList(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs, redlock.WithKeyPrefix("a*:"))
	locktest.Must(t, admin.Bootstrap(t.Context(), l))
	for i := range 2000 { // more than one SCAN returns
		locktest.Must(t, c.Nodes[0].Set(t.Context(), fmt.Sprint("a:", i), "x", time.Minute).Err())
	}
	if got, err := listed(t, l); len(got) != 0 || err != nil {
		t.Errorf("got %q, %v; want nothing", got, err)
	}
	var want []string
	for i := range 100 {
		locktest.Lock(t, l, fmt.Sprintf("r%02d", i))
		want = append(want, fmt.Sprintf("r%02d HELD", i))
	}
	locktest.Must(t, c.Nodes[2].Set(t.Context(), "a*:only here", "another|1", time.Minute).Err())
	locktest.Must(t, c.Nodes[2].HSet(t.Context(), "a*:a hash", "k", "v").Err())
	want = slices.Insert(want, 0, "only here MINORITY")
	got, err := listed(t, l)
	if !slices.Equal(got, want) || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	locktest.Must(t, c.Procs[0].Kill())
	if got, err = listed(t, l); len(got) != len(want) || got[1] != want[1] || got[0] != "only here UNKNOWN" || !errors.Is(err, redlock.ErrNoQuorum) {
		t.Errorf("with one master down: got %q, %v; want %q, and that the first is not known", got, err, want)
	}
	locktest.Must(t, c.Procs[1].Kill())
	got, err = listed(t, l)
	var failed *redlock.QuorumError
	if !errors.As(err, &failed) || !errors.Is(err, redlock.ErrNoQuorum) || failed.Need != 2 || len(got) == 0 {
		t.Errorf("with two masters down: got %d resources, %v; want ErrNoQuorum", len(got), err)
	}
	for range admin.List(t.Context(), l) {
		break
	}
}

func TestBadArguments(outer *testing.T) {
	t := redistest.Timed(outer)
	l := locktest.Open(t, []string{"127.0.0.1:1"})
	var none context.Context
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func(ctx context.Context, resource string) error{
		"Check": func(ctx context.Context, _ string) error { _, err := admin.Check(ctx, l); return err },
		"Inspect": func(ctx context.Context, resource string) error {
			_, err := admin.Inspect(ctx, l, resource)
			return err
		},
		"Break": func(ctx context.Context, resource string) error { _, err := admin.Break(ctx, l, resource); return err },
		"List": func(ctx context.Context, _ string) (err error) {
			for _, e := range admin.List(ctx, l) {
				err = errors.Join(err, e)
			}
			return err
		},
	} {
		t.Run(name, func(t *redistest.T) {
			locktest.WantMatch(t, "nil context", call(none, "x"), []error{redlock.ErrConfig})
			if name == "Inspect" || name == "Break" {
				for _, resource := range []string{"", "x~fence", "x~guard"} {
					err := call(t.Context(), resource)
					locktest.WantMatch(t, resource, err, []error{redlock.ErrConfig})
					if want := "redlock: invalid configuration: " + name + ": "; !strings.HasPrefix(fmt.Sprint(err), want) {
						t.Errorf("got %v, want %q in front", err, want)
					}
				}
			}
			if err := call(ended, "x"); !errors.Is(err, context.Canceled) && !errors.Is(err, redlock.ErrNoQuorum) {
				t.Errorf("got %v of a context that has ended", err)
			}
		})
		defer func() {
			locktest.WantMatch(t, name+" of a closed Locker", call(t.Context(), "x"), []error{redlock.ErrClosed})
		}()
	}
	locktest.Must(t, l.Close())
}
