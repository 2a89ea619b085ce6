package redistest

import (
	"flag"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// T is a test that depends on real time: on servers, processes or timers. If it fails while the
// machine keeps the tests waiting for long, its TestMain runs it again, see [Again]. Only the last
// of three runs fails then. What fails on a steady machine fails at once, and so does a promise
// that was [Broken].
type T struct {
	*testing.T
	began  moment
	failed atomic.Bool
}

// Timed marks a test that depends on real time. Such a test takes no other way to masters.
func Timed(t *testing.T) *T {
	t.Helper()
	if machine.runs.Load() == 0 {
		t.Fatal("TestMain lacks redistest.Again")
	}
	timed := &T{T: t, began: machine.now()}
	machine.begun.Store(t.Name(), true)
	t.Cleanup(timed.verdict)
	return timed
}

// throughTimed fails a test that is not one of those. Benchmarks have no verdict.
func throughTimed(t testing.TB) {
	t.Helper()
	if _, plain := t.(*testing.T); plain {
		t.Fatal("a test with masters goes through redistest.Timed")
	}
}

// Run is [testing.T.Run]. A subtest has its own verdict, and is run again alone.
func (t *T) Run(name string, f func(t *T)) bool {
	return t.T.Run(name, func(t *testing.T) { f(Timed(t)) })
}

// Parallel is [testing.T.Parallel]. What the machine did before is not of interest.
func (t *T) Parallel() {
	t.T.Parallel()
	t.began = machine.now()
}

// Late returns how late timers have been since the test began, in all.
func (t *T) Late() time.Duration {
	late, _ := machine.since(t.began)
	return late
}

// The methods that fail a test leave it to the verdict whether it failed.

func (t *T) Fail()        { t.failed.Store(true) }
func (t *T) Failed() bool { return t.failed.Load() || t.T.Failed() }

func (t *T) FailNow() {
	t.Fail()
	t.T.SkipNow()
}

func (t *T) Error(args ...any) {
	t.Helper()
	t.Log(args...)
	t.Fail()
}

func (t *T) Errorf(format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	t.Fail()
}

func (t *T) Fatal(args ...any) {
	t.Helper()
	t.Log(args...)
	t.FailNow()
}

func (t *T) Fatalf(format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	t.FailNow()
}

// verdict decides what became of a test that has ended.
func (t *T) verdict() {
	if !t.failed.Load() {
		return
	}
	late, long := machine.since(t.began)
	if t.T.Failed() || !tooLate(late, long) || !machine.again(t.Name()) {
		t.T.Errorf("failed; timers were late for %v in %v", late, long)
		return
	}
	t.Skipf("the machine stood still: timers were late for %v in %v; the test is run again", late, long)
}

// Broken fails a test in which the library broke a promise, however busy the machine is: two
// holders, a fencing token that fell, too many permits.
func Broken(t testing.TB, v any) {
	t.Helper()
	if timed, ok := t.(*T); ok {
		t = timed.T
	}
	t.Errorf("a promise was broken: %v", v)
}

// Again is the [testing.M] of a package that has tests of type [T]. TestMain exits with the code of
// Run: package testing itself would exit with that of the last run.
func Again(m interface{ Run() int }) interface{ Run() int } { return again{m: m} }

// WithExamples is [Again] for a package with examples that use masters. They run after the tests, and all of them again if
// some fail while the machine keeps them waiting.
func WithExamples(m interface{ Run() int }) interface{ Run() int } { return again{m, true} }

type again struct {
	m        interface{ Run() int }
	examples bool
}

func (a again) Run() int {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { machine.watch(done) })
	defer watching.Wait()
	defer close(done)
	machine.runs.Store(3)
	flag.Parse()
	apart := a.examples && all()
	if apart {
		set("skip", "^Example")
	}
	code := a.m.Run()
	if apart {
		set("skip", "")
		code = max(code, a.runExamples())
	}
	for spoilt := machine.take(); len(spoilt) > 0; spoilt = machine.take() {
		machine.runs.Add(-1)
		for _, name := range spoilt {
			machine.begun.Delete(name)
			alone := "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
			set("run", alone)
			set("count", "1")
			set("bench", "")
			set("skip", "")
			code = max(code, a.m.Run())
			if _, ok := machine.begun.Load(name); !ok {
				code = max(code, 1) // it was not found
			}
		}
	}
	return code
}

// runExamples runs the examples alone, up to three times.
func (a again) runExamples() (code int) {
	set("run", "^Example")
	set("bench", "")
	for runs := 3; ; runs-- {
		began := machine.now()
		code = a.recovered()
		late, long := machine.since(began)
		if code == 0 || runs == 1 || !tooLate(late, long) {
			return code
		}
		fmt.Printf("the machine stood still: timers were late for %v in %v; the examples are run again\n", late, long)
	}
}

// recovered runs the tests; an example that panics fails.
func (a again) recovered() (code int) {
	defer func() {
		if v := recover(); v != nil {
			fmt.Printf("panic: %v\n%s", v, debug.Stack())
			code = 2
		}
	}()
	return a.m.Run()
}

// all reports whether the flags choose no tests.
func all() bool {
	for _, name := range []string{"run", "skip", "list", "fuzz"} {
		if f := flag.Lookup("test." + name); f == nil || f.Value.String() != "" {
			return false
		}
	}
	return true
}

func set(name, value string) { _ = flag.Set("test."+name, value) }

// machine holds the state of this machine, and the tests that it spoilt.
var machine watch

type watch struct {
	runs  atomic.Int32 // how often a test may still run; 0: there is no watch
	begun sync.Map     // names of tests

	mu     sync.Mutex
	last   moment   // guarded by mu
	spoilt []string // guarded by mu
}

// moment is a time, and how late timers have been until then, in all.
type moment struct {
	at   time.Time
	late time.Duration
}

const tick = 2 * time.Millisecond

// watch measures how late timers are: for so long goroutines wait, and processes as well.
func (w *watch) watch(done <-chan struct{}) {
	w.mu.Lock()
	w.last.at = time.Now()
	w.mu.Unlock()
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case <-timer.C:
			timer.Reset(tick)
		}
		w.mu.Lock()
		w.last = w.nowLocked()
		w.mu.Unlock()
	}
}

func (w *watch) now() moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nowLocked()
}

// nowLocked counts what a timer is late now, too. Less than a millisecond is usual.
func (w *watch) nowLocked() moment {
	now := moment{time.Now(), w.last.late}
	if late := now.at.Sub(w.last.at) - tick; late > time.Millisecond && !w.last.at.IsZero() {
		now.late += late
	}
	return now
}

// since returns how late timers have been, and how long ago that was.
func (w *watch) since(began moment) (late, long time.Duration) {
	now := w.now()
	return now.late - began.late, now.at.Sub(began.at)
}

// tooLate reports whether timers were late for more than 2 % of a time and 20 ms.
func tooLate(late, long time.Duration) bool { return late > long/50+20*time.Millisecond }

// again reports whether a test will be run again.
func (w *watch) again(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs.Load() == 1 {
		return false
	}
	w.spoilt = append(w.spoilt, name)
	return true
}

func (w *watch) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	spoilt := w.spoilt
	w.spoilt = nil
	return spoilt
}
