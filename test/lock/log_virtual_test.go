package lock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// logged returns an option for a log, and the lines of it that have a text.
func logged() (redlock.Option, func(text string) []string) {
	logger, whole := locktest.LogText()
	return redlock.WithLogger(logger), func(text string) (list []string) {
		for line := range strings.Lines(whole()) {
			if strings.Contains(line, text) {
				list = append(list, line)
			}
		}
		return list
	}
}

// What the log of a service says of a night in which something happens to its masters: testdata/nights.txt has each
// line of the log, with the least and the most times that the log has it. The two differ where goroutines are ready
// at one moment and run in any order.
func TestVirtualNights(t *testing.T) {
	redistest.TakesSeconds(t)
	file, err := os.ReadFile("testdata/nights.txt")
	locktest.Must(t, err)
	for _, night := range locktest.Nights() {
		_, text, found := strings.Cut("\n"+string(file), "\n# "+night.Name+"\n")
		text, _, _ = strings.Cut(text, "\n#")
		if !found {
			t.Errorf("testdata/nights.txt has no night %q", night.Name)
		}
		want := make(map[string][2]int)
		for line := range strings.Lines(text) {
			var least, most int
			if n, _ := fmt.Sscanf(line, "%d-%d ", &least, &most); n == 2 {
				_, message, _ := strings.Cut(strings.TrimSpace(line), " ")
				want[message] = [2]int{least, most}
			}
		}
		synctest.Test(t, func(t *testing.T) {
			option, log := logged()
			night.Live(t, time.Minute, func() {}, option)
			got := make(map[string]int)
			for _, line := range log("level=") {
				_, line, _ = strings.Cut(line, "level=")
				level, line, _ := strings.Cut(line, " msg=\"redlock: ")
				message, _, _ := strings.Cut(line, "\"")
				got[level+" "+message]++
			}
			delete(got, "INFO a call waits for another holder") // by chance: calls that wait for 10 s
			for message := range got {
				if _, known := want[message]; !known {
					want[message] = [2]int{}
				}
			}
			for message, times := range want {
				if n := got[message]; n < times[0] || n > times[1] {
					t.Errorf("%s: the log says %d times, the file %d to %d: %s", night.Name, n, times[0], times[1], message)
				}
			}
		})
	}
}

// Level Debug has an attempt of a call that waits if it found out something new, and observers have each.
func TestDebugOfAWaitingCall(t *testing.T) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		holder, said, attempts := b.WarmLocker(), new(locktest.Records), 0
		waiter := b.WarmLocker(redlock.WithLogger(slog.New(said)), redlock.WithObserver(func(ev redlock.Event) {
			if ev.Kind == redlock.EventTaken {
				attempts++
			}
		}))
		first := b.Lock(holder, "r", redlock.WithOwner("first"))
		next := b.WarmLocker(redlock.WithOwner("second"))
		go func() { _, _ = next.Lock(t.Context(), "r") }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = waiter.Lock(ctx, "r") }()
		time.Sleep(30 * time.Second)
		b.Unlock(first)
		time.Sleep(30 * time.Second)
		cancel()
		synctest.Wait()
		if lines := said.With("taken by another holder"); len(lines) != 2 || attempts < 20 {
			t.Errorf("%d lines and %d events, want one line for each holder: %v", len(lines), attempts, lines)
		}
	})
}

// A lease whose Lease was dropped without Unlock is renewed until Close: the log has its resource and its age, once.
// Leases that are held, and those that were unlocked, are not in it.
func TestDroppedLease(outer *testing.T) {
	t := redistest.Timed(outer)
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
func TestDroppedParts(outer *testing.T) {
	t := redistest.Timed(outer)
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

// An even number of masters is told of once, when the Locker is made, and by Check.
//
// Source: ALGORITHM section 1, "N".
func TestEvenNumberOfMasters(t *testing.T) {
	for n, want := range map[int]string{
		1: "", 2: "2 masters grant locks with 0 of them down, as 1 do", 3: "", 4: "4 masters grant locks with 1 of them down, as 3 do", 5: "",
	} {
		locktest.Subtest(t, fmt.Sprint(n), n, func(t *testing.T, b *locktest.Bubble) {
			var log bytes.Buffer
			l := b.WarmLocker(redlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			r, err := admin.Check(t.Context(), l)
			locktest.Must(t, err)
			locktest.Must(t, l.Close())
			if got, once := log.String(), want != ""; strings.Contains(got, "odd number") != once || strings.Count(got, want) < 1 || once && strings.Count(got, want) != 1 {
				t.Errorf("got the log %q, want %q once", got, want)
			}
			f := r.Findings[0]
			level := admin.LevelOK
			if n%2 == 0 || n == 1 {
				level = admin.LevelNotice
			}
			if f.Check != "count" || f.Level != level || !strings.Contains(f.Text, want) {
				t.Errorf("got %+v, want level %v and %q", f, level, want)
			}
		})
	}
}
