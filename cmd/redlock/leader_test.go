//go:build unix

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/redistest"
)

// The leader of an election is the holder of its lock.
func TestStatusNamesTheLeader(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	l, err := redlock.New(redistest.Addrs(c.list))
	must(t, err)
	defer l.Close()
	e, err := election.New(l, "invoices", redlock.WithOwner("web-1"))
	must(t, err)
	leads := make(chan bool)
	go e.Run(t.Context(), func(ctx context.Context, _ *redlock.Lease) error { close(leads); <-ctx.Done(); return nil })
	<-leads
	look := func(want ...string) {
		t.Helper()
		out := ""
		redistest.Eventually(t, 20*time.Second, func() bool {
			_, out = c.look(t, "status", "invoices")
			for _, w := range want {
				if !strings.Contains(out, w) {
					return false
				}
			}
			return true
		}, "status tells the leader")
	}
	look("HELD", "web-1")
	must(t, c.list[1].Pause())
	must(t, c.list[2].Pause())
	look("UNKNOWN", "web-1", "timeout")
	must(t, c.list[1].Kill())
	must(t, c.list[2].Kill())
	look("UNKNOWN", "web-1", "connection refused")
}
