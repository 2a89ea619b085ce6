package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
)

// listed returns the names and verdicts of a List, and its last error.
func listed(t *testing.T, l *redlock.Locker) (list []string, last error) {
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
func TestList(t *testing.T) {
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
	var none context.Context
	var refused []error
	for _, err := range admin.List(none, l) {
		refused = append(refused, err)
	}
	if len(refused) != 1 || !errors.Is(refused[0], redlock.ErrConfig) {
		t.Errorf("nil context: got %v, want ErrConfig once", refused)
	}
	_ = l.Close() // too few masters confirm the releases
	if got, err := listed(t, l); len(got) != 0 || !errors.Is(err, redlock.ErrClosed) {
		t.Errorf("closed: got %q, %v; want ErrClosed", got, err)
	}
}
