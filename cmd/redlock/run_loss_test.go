//go:build unix

package main

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

const shortTTL = time.Second

// shortFlags are the flags for that TTL, with masters that no other test uses.
var shortFlags = []string{"--ttl", "1s", "--max-ttl", "1s"}

// The promise of redlock run: when a majority of the masters is killed or hangs, the command
// and all its children are dead before the lock ends. All of them ignore SIGTERM, so that only
// the SIGKILL at the end of the validity helps.
func TestTheCommandIsDeadBeforeTheLockIs(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.Server(t)
	const perRound = 5
	rounds := redistest.Rounds(3, 6)
	byFault := 0 // of all runs; a machine that is too slow for the renewals ends others before
	for round := range rounds {
		fault, name := (*masters.Process).Kill, "killed"
		if round%2 == 1 {
			fault, name = (*masters.Process).Pause, "paused"
		}
		t.Run(fmt.Sprintf("%d %s", round, name), func(t *redistest.T) {
			c := newCluster(t, 3, shortTTL)
			dir := t.TempDir()
			c.env = append(c.env, latenessEnv+"="+dir)
			file := func(i int, whose string) string { return filepath.Join(dir, fmt.Sprint(whose, i)) }
			start := func(i int) *process {
				args := append([]string{fmt.Sprint("key", i)}, shortFlags...)
				return c.start(t, append(args, "-v", "--", "beat", "-deaf", "-fork", file(i, "grandchild"), file(i, "child"))...)
			}
			runs := make([]*process, perRound)
			for i := range runs {
				runs[i] = start(i)
			}
			for i := range runs {
				redistest.Eventually(t, time.Minute, func() bool {
					if runs[i].ended() { // on a machine that is too slow for the renewals
						runs[i] = start(i)
					}
					return beating(file(i, "child")) && beating(file(i, "grandchild"))
				}, "all processes are at work")
			}
			time.Sleep(time.Duration(round) * shortTTL / 7) // at different times between two renewals
			late := worstDelay(t)
			broken := time.Now()
			var failed sync.WaitGroup
			for _, m := range c.list[:2] {
				failed.Go(func() {
					if err := fault(m); err != nil {
						t.Error(err)
					}
				})
			}
			failed.Wait()
			allBroken := time.Now() // a renewal may have begun meanwhile
			for i, p := range runs {
				code, rec := p.wait(t)
				if code != exitLost || rec.Outcome != outcomeLost || rec.Command.Signal != "SIGKILL" || rec.Command.ExitCode != 137 {
					t.Fatalf("run %d: got code %d, %+v, %+v, %s; want %d by SIGKILL", i, code, rec, rec.Command, p.all(), exitLost)
				}
				until := rec.ValidUntil
				for whose, died := range map[string]time.Time{ // redlock itself sees the end of the child when the kernel has done with it
					"child": lastBeat(t, file(i, "child")), "grandchild": lastBeat(t, file(i, "grandchild")),
				} {
					allowed := late() + delayOf(t, dir, p.cmd.Process.Pid)
					if !died.Before(until.Add(allowed)) {
						t.Errorf("run %d: %s was alive %v after the end of the lock at %v, on a machine that was up to %v late:\n%s", i, whose, died.Sub(until), until, allowed, p.all())
					}
					if early := until.Sub(died); early > shortTTL/3+allowed && rec.Command.Ended.After(broken) {
						t.Errorf("run %d: %s died %v before the end of the lock: it must have been something else", i, whose, early)
					}
				}
				if until.After(allBroken.Add(shortTTL)) {
					t.Errorf("run %d: the lock ended %v after the masters were lost, want less than a TTL", i, until.Sub(broken))
				}
				if rec.Command.Ended.After(broken) {
					byFault++
					if said := p.all(); !strings.Contains(said, "command ran: lease lost: ") || !strings.Contains(said, "last renewal: ") {
						t.Errorf("run %d: got %s, want what the masters answered", i, said)
					}
				}
				t.Logf("run %d: dead %v before the end, %v after the masters", i, until.Sub(rec.Command.Ended), rec.Command.Ended.Sub(broken))
			}
		})
	}
	if byFault < rounds*perRound/2 {
		t.Errorf("%d of %d locks were lost because of the masters, want most of them", byFault, rounds*perRound)
	}
}

// worstDelay measures by how much at most this machine has run timers late since the call. A
// SIGKILL in time is no use if the kernel has no time to execute it.
func worstDelay(t testing.TB) (most func() time.Duration) {
	var worst atomic.Int64
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go watchDelays(done, func(late time.Duration) { worst.Store(int64(late)) })
	return func() time.Duration { return time.Duration(worst.Load()) }
}

// delayOf returns the worst delay of a redlock that has ended.
func delayOf(t testing.TB, dir string, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, delayFile(pid)))
	must(t, err)
	late, err := time.ParseDuration(string(text))
	must(t, err)
	return late
}

// A command that obeys the signal ends in time. Its own exit code is reported beside that of the
// loss. That the masters come back before it has ended changes nothing.
func TestALossIsAskedFirst(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, 6*time.Second)
	dir := t.TempDir()
	ready, asked := filepath.Join(dir, "ready"), filepath.Join(dir, "asked")
	p := c.start(t, "k", "--ttl", "6s", "--max-ttl", "6s", "-k", "2s", "-s", "usr1", "-c",
		`trap 'touch `+asked+`; sleep 1.2; exit 5' USR1; touch `+ready+`; while :; do sleep 0.02; done`)
	redistest.Eventually(t, 10*time.Second, exists(ready), "the command runs")
	for _, m := range c.list[:2] {
		must(t, m.Pause())
	}
	redistest.Eventually(t, 10*time.Second, exists(asked), "the command is asked to end")
	for _, m := range c.list[:2] {
		must(t, m.Resume())
	}
	code, rec := p.wait(t)
	if code != exitLost || rec.Command.ExitCode != 5 || rec.Command.Signal != "" || !rec.Command.Ended.Before(rec.ValidUntil) {
		t.Errorf("got code %d, %+v, %+v; want %d and 5 of the command", code, rec, rec.Command, exitLost)
	}
	if left := rec.ValidUntil.Sub(rec.Command.Ended); left < 2*time.Second {
		t.Errorf("%v of the lock were left, want it renewed meanwhile", left)
	}
	if want := "redlock: k: the lock was lost while the command ran: it could not be renewed in time\n"; !strings.HasSuffix(p.all(), want) { // after the shell's message about the signal
		t.Errorf("got %q, want %q", p.all(), want)
	}
}

// Masters that come back empty report the loss at once: there is no time to ask the command to end.
func TestALossThatTheMastersTellIsAtOnce(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	dir := t.TempDir()
	c.env = append(c.env, latenessEnv+"="+dir)
	file := filepath.Join(dir, "beat")
	p := c.start(t, "k", "--", "beat", file)
	redistest.Eventually(t, 10*time.Second, func() bool { return beating(file) }, "the command runs")
	late := worstDelay(t)
	began := time.Now()
	for _, m := range c.list {
		must(t, redistest.Client(t, m.Addr()).FlushAll(t.Context()).Err())
	}
	code, rec := p.wait(t)
	if code != exitLost || rec.Command.Signal != "SIGKILL" || time.Since(began) > 6*time.Second {
		t.Errorf("got code %d, %+v after %v; want %d after a third of the TTL", code, rec.Command, time.Since(began), exitLost)
	}
	allowed := 100*time.Millisecond + late() + delayOf(t, dir, p.cmd.Process.Pid)
	if after := lastBeat(t, file).Sub(rec.ValidUntil); after > allowed {
		t.Errorf("the command was alive %v after the loss was told, want %v at most", after, allowed)
	}
}

// After redlock was stopped past the end of the lock, the command does not go on: the help
// says that redlock can do no more.
func TestStoppedTooLong(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, shortTTL)
	dir := t.TempDir()
	c.env = append(c.env, latenessEnv+"="+dir)
	file := filepath.Join(dir, "beat")
	p := c.start(t, append(append([]string{"k"}, shortFlags...), "--", "beat", file)...)
	redistest.Eventually(t, 10*time.Second, func() bool { return beating(file) }, "the command runs")
	late := worstDelay(t)
	stopped := time.Now()
	p.signal(t, syscall.SIGSTOP)
	time.Sleep(shortTTL * 3 / 2) // the lock ends
	p.signal(t, syscall.SIGCONT)
	continued := time.Now()
	code, rec := p.wait(t)
	if code != exitLost || rec.Command.Signal != "SIGKILL" {
		t.Errorf("got code %d, %+v; want %d", code, rec.Command, exitLost)
	}
	own := max(0, delayOf(t, dir, p.cmd.Process.Pid)-continued.Sub(stopped)) // the stop is a delay, too
	allowed := 200*time.Millisecond + late() + own
	if after := lastBeat(t, file).Sub(continued); after > allowed {
		t.Errorf("the command was alive %v after redlock went on, want %v at most", after, allowed)
	}
}

// When redlock is killed, the command dies with it.
func TestTheCommandDiesWithRedlock(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs Linux: elsewhere the command is left running")
	}
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	for range 3 {
		file := filepath.Join(t.TempDir(), "beat")
		p := c.start(t, "k", "-w", "20s", "--ttl", "1s", "--", "beat", "-deaf", file)
		redistest.Eventually(t, 10*time.Second, func() bool { return beating(file) }, "the command runs")
		time.Sleep(20 * time.Millisecond) // meanwhile Go's scheduler moves goroutines, and threads come and go
		before := time.Now()
		p.signal(t, syscall.SIGKILL)
		if err := p.cmd.Wait(); err == nil {
			t.Fatal("redlock was not killed")
		}
		time.Sleep(time.Second) // a command that is alive goes on writing
		if late := lastBeat(t, file).Sub(before); late > 500*time.Millisecond {
			t.Errorf("the command was alive %v after redlock was killed", late)
		}
	}
}

func TestAtMost(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	for _, test := range []struct {
		name, script string
		atMost, kill string
		command      int
		least        time.Duration
	}{
		{"a command that heeds the signal", `sleep 60`, "300ms", "3s", 143, 300 * time.Millisecond},
		{"a command that then ends well", `trap 'exit 0' TERM; while :; do sleep 0.02; done`, "2s", "3s", 0, 2 * time.Second},
		{"a command that does not", `trap '' TERM; while :; do sleep 0.02; done`, "2s", "500ms", 137, 2500 * time.Millisecond},
		{"a command that has ended before", `exit 3`, "20s", "3s", 3, 0},
	} {
		t.Run(test.name, func(t *redistest.T) {
			p := c.start(t, "k", "--at-most", test.atMost, "-k", test.kill, "-c", test.script)
			code, rec := p.wait(t)
			want, outcome := exitTimedOut, outcomeTimedOut
			if test.command == 3 {
				want, outcome = 3, outcomeDone
			}
			if code != want || rec.Outcome != outcome || rec.Command.ExitCode != test.command || !rec.Released {
				t.Errorf("got code %d, %+v, %+v; want %d, %s and %d of the command", code, rec, rec.Command, want, outcome, test.command)
			}
			if ran := rec.Command.Ended.Sub(rec.Command.Started); ran < test.least {
				t.Errorf("it ran for %v, want %v at least", ran, test.least)
			}
		})
	}
}

func TestAtLeast(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	const least = 6 * time.Second
	began := time.Now()
	p := c.start(t, "k", "--ttl", "1500ms", "--at-least", "6s", "-v", "--", "false")
	redistest.Eventually(t, 10*time.Second, p.has("holding the lock on"), "the command has ended")
	time.Sleep(1700 * time.Millisecond) // the lock is renewed meanwhile
	if code, _ := c.start(t, "k", "-n", "--", "true").wait(t); code != exitConflict {
		t.Errorf("got code %d from another redlock, want %d", code, exitConflict)
	}
	code, rec := p.wait(t)
	if took := time.Since(began); code != 1 || took < least || took > least+5*time.Second || !rec.Released {
		t.Errorf("got code %d after %v, %+v; want 1 after %v", code, took, rec, least)
	}
	if rec.Command.Ended.Sub(rec.Command.Started) > least/2 {
		t.Errorf("got %+v, want a command that ends at once", rec.Command)
	}
}

// If the command ends by itself, its background processes go on.
func TestTheRestOfAGroup(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	file := filepath.Join(t.TempDir(), "beat")
	p := c.start(t, "k", "-c", `beat `+file+` & echo $! > `+file+`.pid; until test -s `+file+`; do sleep 0.01; done`)
	if code, _ := p.wait(t); code != 0 {
		t.Fatalf("got code %d", code)
	}
	ended := time.Now()
	redistest.Eventually(t, 5*time.Second, func() bool { return lastBeat(t, file).After(ended) }, "the rest goes on")
	must(t, syscall.Kill(numberIn(t, file+".pid"), syscall.SIGKILL))
}

// If redlock had to end the command, it kills the background processes, even if the command ended at once.
func TestNothingIsLeftOfACommandThatWasEnded(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	file := filepath.Join(t.TempDir(), "beat")
	p := c.start(t, "k", "--at-most", "2s", "-c", `trap 'exit 0' TERM; beat -deaf `+file+` & echo $! > `+file+`.pid; while :; do sleep 0.02; done`)
	redistest.Eventually(t, 10*time.Second, func() bool { return beating(file) }, "the rest runs")
	pid := numberIn(t, file+".pid")
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	code, rec := p.wait(t)
	if code != exitTimedOut || rec.Command.ExitCode != 0 {
		t.Errorf("got code %d, %+v; want %d and 0 of the command", code, rec.Command, exitTimedOut)
	}
	redistest.Eventually(t, time.Second, gone(pid), "the rest has been killed")
}

func init() {
	moveGroup = func() {
		group, err := syscall.Getpgid(os.Getppid())
		if err := cmp.Or(err, syscall.Setpgid(0, group)); err != nil {
			log.Fatal(err)
		}
	}
}

// A command that has moved to another process group is ended, too.
func TestACommandInAnotherGroup(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	for _, more := range [][]string{nil, {"-fork", filepath.Join(t.TempDir(), "other")}} { // which stays in the group
		file := filepath.Join(t.TempDir(), "beat")
		args := []string{"k", "--at-most", "3s", "-k", "100ms", "--", "beat", "-stray", "-deaf"}
		p := c.start(t, append(append(args, more...), file)...)
		if code, rec := p.wait(t); code != exitTimedOut || rec.Command.Signal != "SIGKILL" || !beating(file) {
			t.Errorf("%q: got code %d, %+v, %s; want %d and SIGKILL", more, code, rec.Command, p.all(), exitTimedOut)
		}
	}
}

// Behind "2>&1 | head -1" no process reads the output any more. Neither redlock, which logs, nor the
// command, which writes, leaves processes behind that work without the lock.
func TestNothingReadsTheOutput(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	for _, test := range []struct {
		name, script string
		end          bool // the test takes the lock away
		code         int
	}{
		{"redlock logs", `wait`, true, exitLost},
		{"the command writes", `while echo more; do sleep 0.02; done`, false, exitSignalled + int(syscall.SIGPIPE)},
		{"the command ends", `until test -e "$1"; do sleep 0.02; done; exit 3`, false, 3},
	} {
		t.Run(test.name, func(t *redistest.T) {
			dir := t.TempDir()
			file, result := filepath.Join(dir, "beat"), filepath.Join(dir, "result")
			p := &process{file: result, cmd: c.command("redlock", "run", "-v", test.name, "--result-file", result, "--", "sh", "-c",
				`beat -deaf `+file+` & echo $! >`+file+`.pid; `+test.script, "sh", filepath.Join(dir, "go"))}
			reader, writer, err := os.Pipe()
			must(t, err)
			p.cmd.Stdout, p.cmd.Stderr = writer, writer
			must(t, errors.Join(p.cmd.Start(), writer.Close()))
			pid := numberIn(t, file+".pid")
			defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
			redistest.Eventually(t, 10*time.Second, func() bool { return beating(file) }, "the rest runs")
			if _, err := reader.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			must(t, errors.Join(reader.Close(), os.WriteFile(filepath.Join(dir, "go"), nil, 0o600)))
			if test.end {
				if out, err := c.command("redlock", "break", test.name, "--yes").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			if code, rec := p.wait(t); code != test.code {
				t.Errorf("got code %d, %+v; want %d", code, rec, test.code)
			}
			if test.code == 3 { // the command has ended by itself
				return
			}
			redistest.Eventually(t, time.Second, gone(pid), "nothing is left of the command")
		})
	}
}
