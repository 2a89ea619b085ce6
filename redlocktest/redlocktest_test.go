package redlocktest_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlocktest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // unless -parallel is given: most tests wait
	goleak.VerifyTestMain(redistest.Again(m))
}

// inBoth runs a test in a bubble and in real time.
func inBoth(t *redistest.T, f func(t testing.TB)) {
	t.T.Run("in a bubble", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t) }) })
	t.Run("in real time", func(t *redistest.T) { f(t) })
}

// patient is for real time, on a machine with other things to do.
var patient = redlock.WithMasterTimeout(redlock.DefaultTTL / 4)

func lock(t testing.TB, l *redlock.Locker, resource string) *redlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := l.Lock(ctx, resource)
	if err != nil {
		t.Fatalf("Lock: got %v, want a lease", err)
	}
	return lease
}

// lockOnAll is for what needs the key on each master, as it is but where one was too slow.
func lockOnAll(t testing.TB, c *redlocktest.Cluster, l *redlock.Locker, resource string) *redlock.Lease {
	t.Helper()
	for range 20 {
		lease := lock(t, l, resource)
		for lease.Context().Err() == nil {
			if len(holding(c, resource)) == len(c.Masters()) {
				return lease
			}
			time.Sleep(time.Millisecond)
		}
	}
	t.Fatal("got no lease with a key on each master, want one")
	return nil
}

func holding(c *redlocktest.Cluster, resource string) (list []int) {
	for i, m := range c.Masters() {
		if m.Token(resource) != "" {
			list = append(list, i)
		}
	}
	return list
}

// The first lock on new masters waits for nothing, and is on all of them.
func TestFirstLock(outer *testing.T) {
	t := redistest.Timed(outer)
	inBoth(t, func(t testing.TB) {
		for n := 1; n <= 5; n++ {
			c := redlocktest.Start(t, n)
			locker := c.Locker(patient)
			lease, err := locker.TryLock(t.Context(), "a")
			if err != nil {
				t.Fatalf("TryLock on %d masters: got %v, want a lease", n, err)
			}
			if _, err := locker.Lock(t.Context(), "b", redlock.Shared()); err != nil {
				t.Fatal(err)
			}
			redistest.Eventually(t, 30*time.Second, func() bool { return len(holding(c, "a")) == n }, fmt.Sprintf("a key on each of %d masters", n))
			if got := c.Holder("a"); got != lease.Token() {
				t.Errorf("holder: got %q, want %q", got, lease.Token())
			}
			if got := c.Holder("b"); got != "" {
				t.Errorf("holder of a resource that is read: got %q, want none", got)
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock: got %v, want no error", err)
			}
			redistest.Eventually(t, 30*time.Second, func() bool { return len(holding(c, "a")) == 0 }, "no key")
		}
	})
}

// Keys end by the master's clock, whichever way that is moved.
func TestMoveClock(outer *testing.T) {
	t := redistest.Timed(outer)
	inBoth(t, func(t testing.TB) {
		c := redlocktest.Start(t, 3)
		lockOnAll(t, c, c.Locker(redlock.WithoutRenewal()), "a")
		c.Masters()[0].MoveClock(time.Minute)
		c.Masters()[1].MoveClock(-time.Minute)
		if got := holding(c, "a"); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("got keys on %v, want on 1 and 2: by the clock of 0 a minute has gone by", got)
		}
		report, err := admin.Check(t.Context(), c.Locker(patient))
		if report.Voting != 1 {
			t.Errorf("got %d masters with a vote (%v), want the one whose clock was left alone", report.Voting, err)
		}
	})
}

// Latency adds to each round trip.
func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.Start(t, 3)
		l := c.Locker()
		if err := lock(t, l, "warm").Unlock(t.Context()); err != nil { // connections, scripts
			t.Fatal(err)
		}
		synctest.Wait() // for the master that was not needed
		for _, m := range c.Masters() {
			m.Latency(30*time.Millisecond + 1)
		}
		began := time.Now()
		lock(t, l, "a")
		if got, want := time.Since(began), 30*time.Millisecond+1; got != want {
			t.Errorf("got a lock after %v, want %v", got, want)
		}
	})
}

// A program that makes its own Locker, with a prefix of its own.
func TestOptions(outer *testing.T) {
	t := redistest.Timed(outer)
	inBoth(t, func(t testing.TB) {
		c := redlocktest.Start(t, 3)
		l, err := redlock.NewFromOptions(c.Options(), patient, redlock.WithKeyPrefix("own:"))
		locktest.Must(t, err)
		defer l.Close()
		if err := admin.Bootstrap(t.Context(), l); err != nil {
			t.Fatalf("Bootstrap: got %v, want no error", err)
		}
		if _, err := l.TryLock(t.Context(), "a"); err != nil {
			t.Errorf("TryLock: got %v, want a lease", err)
		}
	})
}

// recorder stands in for a test that fails, so that the test with it does not fail.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()                           {}
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any)                 { r.failures = append(r.failures, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record is how a test of its own would have failed, clean-up included.
func record(t testing.TB, f func(t testing.TB)) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		f(r)
	}()
	<-done
	return r.failures
}

func TestMisuse(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.TakesSeconds(t)
	killed := func(t testing.TB) *redlocktest.Master {
		m := redlocktest.Start(t, 3).Masters()[1]
		m.Kill()
		return m
	}
	const down = "of master 1, which was killed: Restart or RestartEmpty brings it back"
	for _, test := range []struct {
		name string
		do   func(t testing.TB)
		want string
	}{
		{"no masters", func(t testing.TB) { redlocktest.Start(t, 0) }, "Start(t, 0): there must be from 1 to 254 masters"},
		{"kill twice", func(t testing.TB) { killed(t).Kill() }, "Kill " + down},
		{"flush after kill", func(t testing.TB) { killed(t).Flush() }, "Flush " + down},
		{"hang after kill", func(t testing.TB) { killed(t).Hang() }, "Hang " + down},
		{"partition after kill", func(t testing.TB) { killed(t).Partition() }, "Partition " + down},
		{"lost replies after kill", func(t testing.TB) { killed(t).LoseReplies() }, "LoseReplies " + down},
		{"latency after kill", func(t testing.TB) { killed(t).Latency(1) }, "Latency " + down},
		{"clock after kill", func(t testing.TB) { killed(t).MoveClock(1) }, "MoveClock " + down},
		{"heal after kill", func(t testing.TB) { killed(t).Heal() }, "Heal " + down},
		{"a clock before 1970", func(t testing.TB) { redlocktest.Start(t, 1).Masters()[0].MoveClock(math.MinInt64) }, "of master 0: leads to the year 17"},
		{"a clock too far ahead", func(t testing.TB) { redlocktest.Start(t, 1).Masters()[0].MoveClock(math.MaxInt64) }, "of master 0: leads to the year 2"},
		{"negative latency", func(t testing.TB) { redlocktest.Start(t, 1).Masters()[0].Latency(-1) }, "Latency(-1ns) of master 0: must not be negative"},
		{"options that cannot work", func(t testing.TB) { redlocktest.Start(t, 1).Locker(redlock.WithTTL(1)) }, "Locker: redlock: "},
		{"an option that is nil", func(t testing.TB) { redlocktest.Start(t, 1).Locker(redlock.WithLogger(nil), nil) }, "Locker: option 2 is nil"},
		{"a Locker that stays open", func(t testing.TB) { stayOpen(t) }, "close every Locker before"},
		{"nothing", func(t testing.TB) { killed(t).Restart() }, ""},
	} {
		t.Run(test.name, func(t *redistest.T) {
			got := record(t, test.do)
			switch {
			case test.want == "" && len(got) > 0:
				t.Errorf("got failures %q, want none", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("got failures %q, want one with %q", got, test.want)
			}
		})
	}
}

// stayOpen leaves a Locker open for longer than the masters live.
func stayOpen(t testing.TB) {
	var l *redlock.Locker
	t.Cleanup(func() { _ = l.Close() })
	c := redlocktest.Start(t, 1)
	l, err := redlock.NewFromOptions(c.Options())
	if err != nil {
		t.Errorf("NewFromOptions: %v", err)
		return
	}
	_, _ = l.TryLock(context.Background(), "a")
}

// Masters that were made outside of a bubble do not live in its time.
func TestMisuseAcrossBubbles(t *testing.T) {
	got := record(t, func(outside testing.TB) {
		c := redlocktest.Start(outside, 1)
		synctest.Test(t, func(t *testing.T) {
			l := c.Locker()
			defer l.Close()
			if _, err := l.TryLock(t.Context(), "a"); err == nil {
				t.Error("got a lease, want an error")
			}
		})
	})
	if len(got) == 0 || !strings.Contains(got[0], "Start was called outside of it") {
		t.Errorf("got failures %q, want a failure that says that Start was called outside of the bubble", got)
	}
}

// Whatever is wrong with the masters in the end, a test in a bubble comes to its end, which
// it does not if anything is left waiting.
func TestEndsWithFaults(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.TakesSeconds(t)
	for name, fault := range map[string]func(*redlocktest.Master){
		"killed":  (*redlocktest.Master).Kill,
		"hung":    (*redlocktest.Master).Hang,
		"cut off": (*redlocktest.Master).Partition,
		"deaf":    (*redlocktest.Master).LoseReplies,
		"slow":    func(m *redlocktest.Master) { m.Latency(time.Hour) },
	} {
		t.Run(name, func(t *redistest.T) {
			inBoth(t, func(t testing.TB) {
				c := redlocktest.Start(t, 3)
				l := c.Locker()
				lock(t, l, "a")
				for _, m := range c.Masters() {
					fault(m)
				}
				_, _ = l.TryLock(t.Context(), "b")
				_, _ = c.Locker().TryLock(t.Context(), "c") // which has never been connected
			})
		})
	}
}

// The test in the package comment is a test that runs.
func TestPackageComment(t *testing.T) {
	const name = "TestMailerStopsWhenTheLockIsLost"
	parsed, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	locktest.Must(t, err)
	example, err := os.ReadFile("example_test.go")
	locktest.Must(t, err)
	_, rest, _ := bytes.Cut(example, []byte("\nfunc "+name))
	body, _, found := bytes.Cut(rest, []byte("\n}\n"))
	if !found {
		t.Fatalf("example_test.go has no %s", name)
	}
	want := "\tfunc " + name + strings.ReplaceAll(string(body), "\n", "\n\t") + "\n\t}\n"
	want = strings.ReplaceAll(want, "\t\n", "\n")
	if got := parsed.Doc.Text(); !strings.Contains(got, want) {
		t.Errorf("the package comment lacks this:\n%s\nit is:\n%s", want, got)
	}
}
