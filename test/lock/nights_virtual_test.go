package lock_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlocktest"
)

var update = flag.Bool("update", false, "write testdata/nights.txt anew")

// What the log of a service says of a night in which something happens to its masters: each line once, with how often it
// was written. The service holds leases, locks another resource each second, and has a caller that waits for a third
// one. testdata/nights.txt has the lines, so that a change of the log is seen and read.
func TestVirtualNights(t *testing.T) {
	redistest.TakesSeconds(t)
	minute := func() { time.Sleep(time.Minute) }
	each := func(masters []*redlocktest.Master, do func(*redlocktest.Master)) {
		for _, m := range masters {
			do(m)
		}
	}
	var told strings.Builder
	for _, night := range []struct {
		name   string
		leases int
		do     func(masters []*redlocktest.Master)
	}{
		{"nothing happens", 10, func([]*redlocktest.Master) { minute() }},
		{"a master is down for a minute", 10, func(m []*redlocktest.Master) { m[0].Kill(); minute(); m[0].Restart() }},
		{"a master hangs for a minute", 10, func(m []*redlocktest.Master) { m[0].Hang(); minute(); m[0].Heal() }},
		{"a master is emptied", 10, func(m []*redlocktest.Master) { m[0].Flush(); minute() }},
		{"two masters are down for a minute", 10, func(m []*redlocktest.Master) {
			each(m[:2], (*redlocktest.Master).Kill)
			minute()
			each(m[:2], (*redlocktest.Master).Restart)
		}},
		{"two masters hang for three seconds", 10, func(m []*redlocktest.Master) {
			each(m[:2], (*redlocktest.Master).Hang)
			time.Sleep(3 * time.Second)
			each(m[:2], (*redlocktest.Master).Heal)
		}},
		{"all masters restart empty at once", 10, func(m []*redlocktest.Master) {
			each(m, (*redlocktest.Master).Kill)
			time.Sleep(3 * time.Second)
			each(m, (*redlocktest.Master).RestartEmpty)
		}},
		{"the clock of a master is put forward by a minute, and back", 10, func(m []*redlocktest.Master) {
			m[0].MoveClock(time.Minute)
			minute()
			m[0].MoveClock(-time.Minute)
		}},
		{"a rolling upgrade, with 100 leases", 100, func(m []*redlocktest.Master) {
			each(m, func(m *redlocktest.Master) {
				m.Kill()
				time.Sleep(time.Second)
				m.RestartEmpty()
				time.Sleep(30 * time.Second)
			})
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster, log := redlocktest.Start(t, 3), new(lines)
			l, other := cluster.Locker(log.option()), cluster.Locker()
			wanted, err := other.Lock(t.Context(), "wanted")
			must(t, err)
			var held []*redlock.Lease
			for i := range night.leases {
				lease, err := l.Lock(t.Context(), fmt.Sprint("held", i))
				must(t, err)
				held = append(held, lease)
			}
			ctx, stop := context.WithCancel(t.Context())
			var service sync.WaitGroup
			service.Go(func() { // it gets the lock where the holder loses it
				if lease, err := l.Lock(ctx, "wanted"); err == nil {
					<-ctx.Done()
					_ = lease.Unlock(context.Background())
				}
			})
			service.Go(func() {
				for ; ctx.Err() == nil; time.Sleep(time.Second) {
					_ = l.Do(ctx, "each second", func(context.Context, *redlock.Lease) error { return nil })
				}
			})
			time.Sleep(time.Second)
			night.do(cluster.Masters())
			minute()
			stop()
			service.Wait()
			_ = wanted.Unlock(t.Context())
			runtime.KeepAlive(held) // or the log tells of leases that were dropped
			fmt.Fprintf(&told, "# %s\n%s\n", night.name, log.counted())
		})
	}
	const file = "testdata/nights.txt"
	if *update {
		must(t, os.WriteFile(file, []byte(told.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if told.String() != string(want) {
		t.Errorf("the log has changed: run this test with -update, and read what git diff shows. Got\n%s", &told)
	}
}

// counted returns the messages of the log, each with its level and how often it was written, in the order in which they
// came first.
func (l *lines) counted() string {
	var order []string
	times := make(map[string]int)
	for _, line := range l.with("level=") {
		_, line, _ = strings.Cut(line, "level=")
		level, line, _ := strings.Cut(line, " msg=\"redlock: ")
		text, _, _ := strings.Cut(line, "\"")
		if text = fmt.Sprintf("%-5s %s", level, text); !slices.Contains(order, text) {
			order = append(order, text)
		}
		times[text]++
	}
	var b strings.Builder
	for _, text := range order {
		fmt.Fprintf(&b, "%3d %s\n", times[text], text)
	}
	return b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
