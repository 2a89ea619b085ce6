//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// Facts that a master does not tell are unknown, which is no failure. See also TestInfoForbidden of package admin.
func TestDoctorWhereInfoIsHidden(t *testing.T) {
	t.Parallel()
	list := redistest.Masters(t, 3, "--rename-command", "INFO", "")
	vouch(t, redistest.Addrs(list), redlock.DefaultMaxTTL)
	c := &cluster{list, []string{mastersEnv + "=" + strings.Join(redistest.Addrs(list), ",")}}
	for format, want := range map[string][]string{
		"text": {"\n  unknown  info         ", ": 5 checks ok\n", "\n3 of 3 masters have a vote; a quorum is 2\n"},
		"json": {`"worst": "unknown"`, `"level": "unknown"`, `"check": "info"`},
	} {
		code, out := c.look(t, "doctor", "-o", format, "--wait", "20s")
		if code != 0 || regexp.MustCompile(` (eviction|persistence)  |"(eviction|persistence)"`).MatchString(out) {
			t.Errorf("%s: got code %d and %s, want 0 and nothing of what no master has told", format, code, out)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: got %s, want %q in it", format, out, w)
			}
		}
	}
}

// A master that is well in every other way, but refuses to write, is a failure that says why and what to
// do. Where a quorum refuses, see TestDoctorSaysWhatStopsALock.
func TestDoctorWrites(t *testing.T) {
	t.Parallel()
	redistest.Server(t)
	set := func(name, value string) func(*testing.T, *masters.Process) {
		return func(t *testing.T, m *masters.Process) {
			must(t, redistest.Client(t, m.Addr()).ConfigSet(t.Context(), name, value).Err())
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
				must(t, err)
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
				must(t, os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700))
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
				code, out := c.look(t, append([]string{"doctor"}, args...)...)
				return code, strings.Join(strings.Fields(out), " ")
			}
			if code, out := doctor("--wait", "20s"); code != 0 || !strings.Contains(out, "3 of 3 masters have a vote") {
				t.Fatalf("got code %d, %s; want masters that are well", code, out)
			}
			test.fault(t, c.list[0])
			code, out := doctor()
			failure := "failure write no key can be written: " + test.says
			for _, want := range []string{failure, "-> " + test.hint, "2 of 3 masters have a vote"} {
				if code != exitFailed || !strings.Contains(out, want) {
					t.Errorf("a master refuses: got code %d, %s; want %d and %q", code, out, exitFailed, want)
				}
			}
			test.mend(t, c.list[0])
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
	must(t, c.list[2].Kill())
	node := redistest.Client(t, c.list[0].Addr())
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
		want := 0
		if args == "doctor --locks" {
			want = exitFailed // for the master that is down
		}
		for tries := 5; ; tries-- { // a busy machine may keep the key as it is between two looks
			code, out := c.look(t, strings.Fields(args)...)
			if code == want && strings.Contains(out, "changing hands") && !strings.Contains(out, "UNKNOWN") {
				break
			} else if tries == 1 {
				t.Errorf("%s: got code %d, %s; want %d and a lock that is changing hands", args, code, out, want)
				break
			}
		}
	}
	if code, _ := c.look(t, "status", "busy", "--exit-status"); code != exitConflict {
		t.Errorf("got code %d, want %d", code, exitConflict)
	}
	close(done)
	setting.Wait()
	if code, out := c.look(t, "list"); code != exitNoQuorum || !strings.Contains(out, "UNKNOWN") || !strings.Contains(out, "may have the key, too") {
		t.Errorf("a key that stays: got code %d, %s; want %d, and why that is unknown", code, out, exitNoQuorum)
	}
	must(t, c.list[1].Kill())
	if code, out := c.look(t, "top"); code != exitNoQuorum || !strings.Contains(out, " ci-3:4711:make?  UNKNOWN ") {
		t.Errorf("no quorum: got code %d, %s; want %d and the owner with a mark", code, out, exitNoQuorum)
	}
	holder.signal(t, syscall.SIGKILL)
	_ = holder.cmd.Wait() // killed
}
