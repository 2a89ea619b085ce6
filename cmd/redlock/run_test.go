//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// cluster has masters that have votes, and runs commands that use them. The zero value has none.
type cluster struct {
	list []*masters.Process
	env  []string // of its commands, beside that of the tests
}

// newCluster starts n masters and vouches for them.
func newCluster(t testing.TB, n int, maxTTL time.Duration) *cluster {
	t.Helper()
	list := redistest.Masters(t, n)
	vouch(t, redistest.Addrs(list), maxTTL)
	return &cluster{list, []string{mastersEnv + "=" + strings.Join(redistest.Addrs(list), ",")}}
}

// command returns a command that uses the masters.
func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), c.env...)
	return cmd
}

// look runs redlock, and returns its exit code and what it printed.
func (c *cluster) look(t testing.TB, args ...string) (code int, out string) {
	t.Helper()
	cmd := c.command("redlock", args...)
	text, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

func vouch(t testing.TB, addrs []string, maxTTL time.Duration) {
	t.Helper()
	l, err := redlock.New(addrs, redlock.WithTTL(maxTTL), redlock.WithMaxTTL(maxTTL), redlock.WithMasterTimeout(maxTTL/4))
	must(t, err)
	redistest.Eventually(t, 20*time.Second, func() bool { return admin.Bootstrap(t.Context(), l) == nil }, "the masters have their votes")
	must(t, l.Close())
}

// The scripts in testdata/script have command lines and their expected results. They share
// masters, so each has its own KEY.
func TestScripts(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	fresh, lateFresh := redistest.Masters(t, 3), redistest.Masters(t, 3)
	cluster := redistest.Masters(t, 1, "--cluster-enabled", "yes")[0]
	host, port, _ := strings.Cut(redistest.Masters(t, 1)[0].Addr(), ":") // its own: a first replica gives a master another identity
	replica := redistest.Masters(t, 1, "--replicaof", host+" "+port)[0]
	secret := redistest.Masters(t, 1, "--requirepass", "s3cret")[0]
	vouch(t, []string{"redis://:s3cret@" + secret.Addr()}, redlock.DefaultMaxTTL)
	testscript.RunT(scriptT{t}, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv(mastersEnv, strings.Join(redistest.Addrs(c.list), ","))
			env.Setenv("FIRST_MASTER", c.list[0].Addr())
			env.Setenv("SECRET_MASTER", secret.Addr())
			env.Setenv("CLUSTER_NODE", cluster.Addr())
			env.Setenv("REPLICA", replica.Addr())
			env.Setenv("FIRST_FRESH", fresh[0].Addr())
			env.Setenv("FRESH_MASTERS", strings.Join(redistest.Addrs(fresh), ",")) // no client has seen them yet
			env.Setenv("FRESH_MASTERS_2", strings.Join(redistest.Addrs(lateFresh), ","))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":      scriptCode,
			"await":     scriptAwait,
			"awaitfree": scriptAwaitFree,
			"forget": func(ts *testscript.TestScript, _ bool, args []string) { // deletes a key on the last master
				node := redis.NewClient(&redis.Options{Addr: c.list[len(c.list)-1].Addr()})
				ts.Check(errors.Join(node.Del(t.Context(), args[0]).Err(), node.Close()))
			},
			"foreign": func(ts *testscript.TestScript, _ bool, args []string) { // sets a key as another library does
				for _, m := range c.list {
					node := redis.NewClient(&redis.Options{Addr: m.Addr()})
					ts.Check(errors.Join(node.Set(t.Context(), redlock.DefaultKeyPrefix+args[0], args[1], 10*time.Second).Err(), node.Close()))
				}
			},
		},
	})
}

// scriptT has each script be a subtest.
type scriptT struct{ *redistest.T }

func (t scriptT) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *redistest.T) { f(scriptT{t}) })
}

func (scriptT) Verbose() bool { return testing.Verbose() }

// scriptCode runs a command that must end with a code: code 75 redlock run ... On a busy machine too few
// masters may be in time for the one look of redlock status: it is repeated then.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	looks := len(args) > 2 && args[2] == "status" && want != exitNoQuorum
	var got int
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		err = ts.Exec(args[1], args[2:]...)
		got = 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			got = exit.ExitCode()
		} else {
			ts.Check(err)
		}
		if !looks || got != exitNoQuorum || time.Since(began) > 10*time.Second {
			break
		}
	}
	if (got == want) == neg {
		ts.Fatalf("got exit code %d, want %d", got, want)
	}
}

// scriptAwait waits for a file.
func scriptAwait(ts *testscript.TestScript, _ bool, args []string) {
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(3 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
	ts.Fatalf("%s does not appear", args[0])
}

var heldWord = regexp.MustCompile(`\b(HELD|SHARED)\b`)

// scriptAwaitFree waits until locks that were given back are free, as redlock status with args has it. A
// master that was late for the release keeps the key until the TTL is over, but a quorum does not.
func scriptAwaitFree(ts *testscript.TestScript, _ bool, args []string) {
	for began := time.Now(); ts.Exec("redlock", append([]string{"status", "--exit-status"}, args...)...) != nil; time.Sleep(50 * time.Millisecond) {
		if shown := ts.ReadFile("stdout"); heldWord.MatchString(shown) || time.Since(began) > 20*time.Second {
			ts.Fatalf("got %s, want free locks", shown)
		}
	}
}

// process is redlock run in a process of its own.
type process struct {
	cmd  *exec.Cmd
	file string // the result file
	said string // the file with its output
}

// start starts redlock run with args.
func (c *cluster) start(t testing.TB, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{file: filepath.Join(dir, "result"), said: filepath.Join(dir, "said")}
	out, err := os.Create(p.said)
	must(t, err)
	defer out.Close()
	p.cmd = c.command("redlock", append([]string{"run", "--result-file", p.file}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does: the tests' own group may have no session with a terminal
	must(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// wait returns the exit code, and what is in the result file.
func (p *process) wait(t testing.TB) (int, record) {
	t.Helper()
	stuck := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer stuck.Stop()
	if err := p.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	code := p.cmd.ProcessState.ExitCode()
	var rec record
	text, err := os.ReadFile(p.file)
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	if err != nil || rec.ExitCode != code {
		t.Errorf("got exit code %d in the result file, %v; want %d", rec.ExitCode, err, code)
	}
	return code, rec
}

// ended reports whether the result file is there.
func (p *process) ended() bool {
	_, err := os.Stat(p.file)
	return err == nil
}

// has reports whether the output contains text.
func (p *process) has(text string) func() bool {
	return func() bool { return strings.Contains(p.all(), text) }
}

func (p *process) all() string {
	text, _ := os.ReadFile(p.said) // empty if it cannot be read
	return string(text)
}

func (p *process) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	must(t, p.cmd.Process.Signal(sig))
}

func exists(file string) func() bool {
	return func() bool {
		_, err := os.Stat(file)
		return err == nil
	}
}

// numberIn reads a number that a script has written.
func numberIn(t testing.TB, file string) (n int) {
	t.Helper()
	redistest.Eventually(t, 10*time.Second, func() bool {
		text, err := os.ReadFile(file)
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	}, "the command runs")
	return n
}

// gone reports whether no process has that number, or only a dead one.
func gone(pid int) func() bool {
	return func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return syscall.Kill(pid, 0) != nil
		}
		return strings.Contains(string(stat), ") Z ")
	}
}

// heedHangups lets the processes that a test starts get SIGHUP, even if nohup has started the test:
// they would ignore the signal, too.
func heedHangups(t testing.TB) {
	t.Helper()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
}

// A signal goes to the whole group. What is left of it when the command has ended, because it does not heed the
// signal, is ended before another holder gets the lock.
func TestSignalsAreForwarded(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	heedHangups(t)
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2} {
		t.Run(signalName(sig), func(t *redistest.T) {
			dir := t.TempDir()
			rest, deaf := filepath.Join(dir, "rest"), filepath.Join(dir, "deaf")
			p := c.start(t, sig.String(), "-k", "200ms", "-c", `trap 'exit 7' `+strconv.Itoa(int(sig))+`; sh -c 'trap "" HUP INT QUIT USR1 USR2; exec beat `+rest+`' & beat -deaf `+deaf+` & wait`)
			redistest.Eventually(t, 30*time.Second, func() bool { return beating(rest) && beating(deaf) }, "the command runs")
			next := c.start(t, sig.String(), "--", "true")
			p.signal(t, sig)
			code, rec := p.wait(t)
			if code != 7 || rec.Outcome != outcomeDone || strings.Contains(p.all(), "redlock: ") {
				t.Errorf("got code %d, %+v, %q; want 7 and nothing said", code, rec, p.all())
			}
			code, rec = next.wait(t)
			time.Sleep(100 * time.Millisecond) // a process that is alive beats
			for _, file := range []string{rest, deaf} {
				if last := lastBeat(t, file); code != 0 || !last.Before(rec.Acquired) {
					t.Errorf("%s was alive %v after the next holder had the lock; code %d", filepath.Base(file), last.Sub(rec.Acquired), code)
				}
			}
		})
	}
}

func TestSignalsEndTheWaiting(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	heedHangups(t)
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	ready := filepath.Join(t.TempDir(), "ready")
	holder := c.start(t, "k", "--ttl", "3s", "--", "beat", ready)
	redistest.Eventually(t, 10*time.Second, exists(ready), "a redlock holds the lock")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1} {
		p := c.start(t, "k", "-v", "--", "true")
		redistest.Eventually(t, 10*time.Second, p.has("redlock: waiting for k, held by "), "a redlock waits")
		p.signal(t, sig)
		code, rec := p.wait(t)
		if code != exitSignalled+int(sig) || rec.Outcome != outcomeSignal || rec.Command != nil {
			t.Errorf("%v: got code %d, %+v; want %d and no command", sig, code, rec, exitSignalled+int(sig))
		}
	}
	holder.signal(t, syscall.SIGKILL)
	_ = holder.cmd.Wait()                           // killed
	p := c.start(t, "k", "-w", "20s", "--", "true") // the attempts that gave up have left nothing behind
	if code, rec := p.wait(t); code != 0 || rec.Acquired.Sub(rec.Asked) > 5*time.Second {
		t.Errorf("got code %d, %+v; want the lock after a TTL", code, rec)
	}
}
