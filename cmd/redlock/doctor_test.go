//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// Facts that a master does not tell are unknown, which is no failure: the command INFO was
// renamed, or the user has no permission for it.
func TestDoctorWhereInfoIsHidden(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		acl  []any
	}{
		{"renamed", []string{"--rename-command", "INFO", ""}, nil},
		{"forbidden", nil, []any{"acl", "setuser", "default", "-info"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			addrs := redistest.Addrs(redistest.Masters(t, 3, test.args...))
			if test.acl != nil {
				for _, a := range addrs {
					if err := redistest.Client(t, a).Do(t.Context(), test.acl...).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			vouch(t, addrs, redlock.DefaultMaxTTL)
			for format, want := range map[string][]string{
				"text": {"\n  unknown  info         ", ": 5 checks ok\n", "\n3 of 3 masters have a vote; a quorum is 2\n"},
				"json": {`"worst": "unknown"`, `"level": "unknown"`, `"check": "info"`},
			} {
				out, err := exec.Command("redlock", "doctor", "--masters", strings.Join(addrs, ","), "-o", format, "--wait", "20s").Output()
				if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
					t.Errorf("%s: got code %d and %s, want 0", format, failed.ExitCode(), failed.Stderr)
				} else if err != nil {
					t.Fatal(err)
				}
				for _, w := range want {
					if !strings.Contains(string(out), w) {
						t.Errorf("%s: got %s, want %q in it", format, out, w)
					}
				}
				for _, unwanted := range []string{" eviction  ", " persistence  ", `"eviction"`, `"persistence"`} {
					if strings.Contains(string(out), unwanted) {
						t.Errorf("%s: got %s, want nothing about %s, which no master has told", format, out, unwanted)
					}
				}
			}
		})
	}
}

// A master that is well in every other way, but refuses to write, is a failure that says why and what to
// do. Where a quorum refuses, redlock run and doctor end with the same code.
func TestDoctorWrites(t *testing.T) {
	t.Parallel()
	redistest.Server(t)
	set := func(name, value string) func(*testing.T, *masters.Process) {
		return func(t *testing.T, m *masters.Process) {
			if err := redistest.Client(t, m.Addr()).ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name  string
		fault func(*testing.T, *masters.Process)
		mend  func(*testing.T, *masters.Process)
		says  string // of a server
		hint  string
		warns string // before the server refuses; "" for no warning
		warn  func(*testing.T, *masters.Process)
	}{
		{
			"out of memory", set("maxmemory", "1"), set("maxmemory", "0"), "OOM command not allowed", "maxmemory is reached", "% of maxmemory is used",
			func(t *testing.T, m *masters.Process) {
				used := redistest.Client(t, m.Addr()).InfoMap(t.Context(), "memory").Item("Memory", "used_memory")
				n, err := strconv.Atoi(used)
				if err != nil {
					t.Fatal(err)
				}
				set("maxmemory", strconv.Itoa(n+n/20))(t, m)
			},
		},
		{
			"no replica", set("min-replicas-to-write", "1"), set("min-replicas-to-write", "0"), "NOREPLICAS", "masters of locks need no replicas", "", nil,
		},
		{
			"no snapshot", func(t *testing.T, m *masters.Process) {
				set("save", "3600 1")(t, m)
				client := redistest.Client(t, m.Addr())
				dir := client.ConfigGet(t.Context(), "dir").Val()["dir"]
				if err := os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700); err != nil {
					t.Fatal(err)
				}
				redistest.Eventually(t, 20*time.Second, func() bool {
					_ = client.BgSave(t.Context()).Err() // one may be under way
					return client.InfoMap(t.Context(), "persistence").Item("Persistence", "rdb_last_bgsave_status") == "err"
				}, "a snapshot fails")
			}, set("save", ""), "MISCONF", "look at the disk", "the last snapshot has failed", func(*testing.T, *masters.Process) {},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, redlock.DefaultMaxTTL)
			doctor := func(args ...string) (int, string) {
				cmd := c.command("redlock", append([]string{"doctor"}, args...)...)
				out, err := cmd.CombinedOutput()
				if err != nil && !errors.As(err, new(*exec.ExitError)) {
					t.Fatal(err)
				}
				return cmd.ProcessState.ExitCode(), strings.Join(strings.Fields(string(out)), " ")
			}
			if code, out := doctor("--wait", "20s"); code != 0 || !strings.Contains(out, "3 of 3 masters have a vote") {
				t.Fatalf("got code %d, %s; want masters that are well", code, out)
			}
			for i, want := range []int{exitFailed, exitNoQuorum} { // masters refuse
				test.fault(t, c.list[i])
				code, out := doctor()
				votes := fmt.Sprintf("%d of 3 masters have a vote", 2-i)
				if code != want || !strings.Contains(out, "failure write no key can be written: "+test.says) || !strings.Contains(out, "-> "+test.hint) || !strings.Contains(out, votes) {
					t.Errorf("%d masters refuse: got code %d, %s; want %d, %q, %q and %q", i+1, code, out, want, test.says, test.hint, votes)
				}
				run, _ := c.start(t, "k", "-n", "--", "true").wait(t)
				if (run == 0) != (want == exitFailed) {
					t.Errorf("%d masters refuse: got code %d of run", i+1, run)
				}
			}
			for _, m := range c.list[:2] {
				test.mend(t, m)
			}
			if test.warn != nil {
				test.warn(t, c.list[0])
			}
			if code, out := doctor("--wait", "20s"); (code == exitFailed) != (test.warns != "") || !strings.Contains(out, test.warns) || !strings.Contains(out, "3 of 3 masters have a vote") {
				t.Errorf("got code %d, %s; want %q", code, out, test.warns)
			}
			if out, err := c.command("redlock", "list").CombinedOutput(); err != nil || string(out) != "no locks\n" {
				t.Errorf("list: got %s, %v; want no trace of doctor", out, err)
			}
		})
	}
}

// With a master down a lock that is taken and given back all the time is changing hands, and no error. A
// key that one master keeps is not. Without a quorum the owner is what one master knows.
func TestListWithAMasterDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	ready := filepath.Join(t.TempDir(), "ready")
	holder := c.start(t, "held", "--owner", "ci-3:4711:make", "--", "beat", ready)
	redistest.Eventually(t, 10*time.Second, func() bool { return beating(ready) }, "the lock is held")
	if err := c.list[2].Kill(); err != nil {
		t.Fatal(err)
	}
	node := redistest.Client(t, c.list[0].Addr())
	look := func(args ...string) (int, string) {
		cmd := c.command("redlock", args...)
		out, err := cmd.CombinedOutput()
		if err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	done := make(chan struct{})
	var setting sync.WaitGroup
	setting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := node.Set(t.Context(), redlock.DefaultKeyPrefix+"busy", fmt.Sprintf("holder%d|0", i), 20*time.Second).Err(); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	redistest.Eventually(t, 10*time.Second, func() bool { return node.Exists(t.Context(), redlock.DefaultKeyPrefix+"busy").Val() == 1 }, "the lock changes hands")
	for _, args := range []string{"list", "doctor --locks", "status busy", "top"} {
		code, out := look(strings.Fields(args)...)
		want := 0
		if args == "doctor --locks" {
			want = exitFailed // for the master that is down
		}
		if code != want || !strings.Contains(out, "changing hands") || strings.Contains(out, "UNKNOWN") {
			t.Errorf("%s: got code %d, %s; want %d and a lock that is changing hands", args, code, out, want)
		}
	}
	if code, _ := look("status", "busy", "--exit-status"); code != exitConflict {
		t.Errorf("got code %d, want %d", code, exitConflict)
	}
	close(done)
	setting.Wait()
	if code, out := look("list"); code != exitNoQuorum || !strings.Contains(out, "UNKNOWN") {
		t.Errorf("a key that stays: got code %d, %s; want %d", code, out, exitNoQuorum)
	}
	if err := c.list[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if code, out := look("top"); code != exitNoQuorum || !strings.Contains(out, " ci-3:4711:make?  UNKNOWN ") {
		t.Errorf("no quorum: got code %d, %s; want %d and the owner with a mark", code, out, exitNoQuorum)
	}
	holder.signal(t, syscall.SIGKILL)
	_ = holder.cmd.Wait() // killed
}

// A list of ten thousand locks is complete. How long it takes is in the log of the test: 2 s at most on a
// machine that does nothing else.
func TestListOfManyLocks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	const many = 10_000
	for _, m := range c.list {
		pipe := redistest.Client(t, m.Addr()).Pipeline()
		for i := range many {
			pipe.Set(t.Context(), fmt.Sprintf("%slock:%05d", redlock.DefaultKeyPrefix, i), fmt.Sprintf("holder-%d|0", i), time.Minute)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	cmd := c.command("redlock", "list")
	out, err := cmd.CombinedOutput()
	t.Logf("%d locks in %v, processor time %v and %v of the system", many, time.Since(began), cmd.ProcessState.UserTime(), cmd.ProcessState.SystemTime())
	if n := strings.Count(string(out), " HELD "); n != many || err != nil {
		t.Errorf("got %d locks, %v; want %d", n, err, many)
	}
	began = time.Now()
	out, err = c.command("redlock", "list", "lock:0000?").CombinedOutput()
	t.Logf("10 of them in %v", time.Since(began))
	if n := strings.Count(string(out), " HELD "); n != 10 || err != nil {
		t.Errorf("got %d locks, %v; want 10", n, err)
	}
}
