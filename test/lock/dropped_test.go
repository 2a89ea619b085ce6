package lock_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// A lease whose Lease was dropped without Unlock is renewed until Close: the log has its resource and its age, once.
// Leases that are held, and those that were unlocked, are not in it.
func TestDroppedLease(t *testing.T) {
	t.Parallel()
	c := locktest.Start(t, 3)
	said := new(locktest.Records)
	l := locktest.Open(t, c.Addrs, redlock.WithTTL(3*time.Second), redlock.WithMasterTimeout(750*time.Millisecond), redlock.WithLogger(slog.New(said)))
	held := locktest.Lock(t, l, "held")
	ctx := locktest.Lock(t, l, "dropped").Context()
	locktest.Unlock(t, locktest.Lock(t, l, "unlocked"))
	redistest.Eventually(t, 10*time.Second, func() bool {
		runtime.GC()
		return len(said.With("dropped without Unlock")) > 0
	}, "the log has the lease")
	for range 3 { // renewals
		runtime.GC()
		time.Sleep(1100 * time.Millisecond)
	}
	lines := said.With("dropped without Unlock")
	if text := fmt.Sprint(lines); len(lines) != 1 || lines[0]["resource"] != "dropped" || lines[0]["held"].(time.Duration) <= 0 || !strings.Contains(text, "WARN") {
		t.Errorf("got %v, want one warning with the resource and how long it was held", text)
	}
	if ctx.Err() != nil || held.Err() != nil {
		t.Errorf("got %v, %v, want both leases to go on", ctx.Err(), held.Err())
	}
	locktest.Unlock(t, held)
}

// The parts of a lease on several resources, and the permits of a semaphore, are told alike.
func TestDroppedParts(t *testing.T) {
	t.Parallel()
	c := locktest.Start(t, 3)
	said := new(locktest.Records)
	l := locktest.Open(t, c.Addrs, redlock.WithTTL(3*time.Second), redlock.WithMasterTimeout(750*time.Millisecond), redlock.WithLogger(slog.New(said)))
	both, err := several.Lock(t.Context(), l, several.Names{Write: []string{"a", "b"}})
	locktest.Must(t, err)
	ctx := both.Context()
	permits, err := semaphore.New(l, "permits", 2)
	locktest.Must(t, err)
	if _, err := permits.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 25*time.Second, func() bool {
		runtime.GC()
		lines := said.With("dropped without Unlock") // the log has the first at once, and the last with how many more
		return len(lines) >= 3 || strings.Contains(fmt.Sprint(lines), "more:1")
	}, "the log has both parts and the permit")
	if ctx.Err() != nil {
		t.Errorf("the context of the lease: got %v, want none", ctx.Err())
	}
}
