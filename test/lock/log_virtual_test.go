package lock_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/redlocktest"
)

// lines is a log whose lines can be counted.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// with returns the lines that have a text.
func (l *lines) with(text string) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			list = append(list, line)
		}
	}
	return list
}

func (l *lines) option() redlock.Option {
	return redlock.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

func (l *lines) want(t *testing.T, text string, n int) {
	t.Helper()
	synctest.Wait()
	if list := l.with(text); len(list) != n {
		t.Errorf("got %d lines with %q, want %d:\n%s", len(list), text, n, strings.Join(list, ""))
	}
}

// Masters that come into quarantine one shortly after the other are what calls wait for once; the next quarantine
// is another line.
func TestVirtualLogOfOneQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, log := redlocktest.Start(t, 5), new(lines)
		l := cluster.Locker(log.option())
		if err := l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error { return nil }); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 2; n++ {
			for _, m := range cluster.Masters() {
				m.RestartEmpty()
			}
			for _, m := range cluster.Masters()[1:] {
				m.Hang()
			}
			locked := make(chan error)
			go func() { locked <- l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error { return nil }) }()
			for _, m := range cluster.Masters()[1:] { // each is found a moment later
				time.Sleep(300 * time.Millisecond)
				m.Heal()
			}
			if err := <-locked; err != nil {
				t.Fatal(err)
			}
			log.want(t, "masters in quarantine have no vote yet", n)
			time.Sleep(time.Minute)
		}
	})
}

// The end of an outage is one line, if calls and renewals have had it; and a lost lease has no validity.
func TestVirtualLogOfOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, log := redlocktest.Start(t, 3), new(lines)
		l, other := cluster.Locker(log.option()), cluster.Locker()
		if _, err := other.Lock(t.Context(), "others"); err != nil {
			t.Fatal(err)
		}
		held, err := l.Lock(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}
		short, err := l.Lock(t.Context(), "short", redlock.WithTTL(4*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 2; n++ {
			for _, m := range cluster.Masters()[:2] {
				m.Hang()
			}
			ctx, cancel := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			waiting.Go(func() { _, _ = l.Lock(ctx, "others") }) // a quorum answers that, before the next renewal
			time.Sleep(6 * time.Second)
			for _, m := range cluster.Masters()[:2] {
				m.Heal()
			}
			time.Sleep(time.Minute)
			if held.Err() != nil || short.Err() == nil {
				t.Fatalf("got %v, %v, want the second lease lost", held.Err(), short.Err())
			}
			cancel()
			waiting.Wait()
			log.want(t, "a quorum of the masters votes", n)
		}
		log.want(t, "lease lost", 1)
		log.want(t, "validity=-", 0)
	})
}

// During a change of the list a process has one line for each list that it finds, which is no warning, as the lists
// may stand beside each other.
func TestVirtualLogOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.Start(t, 5)
		open := func(n int) (*redlock.Locker, *lines) {
			log := new(lines)
			l, err := redlock.NewFromOptions(cluster.Options()[:n], redlock.WithClock(redlock.RuntimeClock()), log.option())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			return l, log
		}
		work := func(l *redlock.Locker) {
			t.Helper()
			if err := l.Do(t.Context(), "r", func(context.Context, *redlock.Lease) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		before, _ := open(3)
		work(before)
		for n := 4; n <= 5; n++ {
			after, log := open(n)
			work(after)
			time.Sleep(time.Minute)
			work(after)
			log.want(t, "has the list of masters", 1)
			log.want(t, "level=WARN", 0)
			before = after
		}
	})
}
