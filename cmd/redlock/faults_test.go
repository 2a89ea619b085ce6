//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// Where redlock run cannot have a lock, doctor fails with the same code, and its first line says why; the first line of
// top says NO QUORUM. Two of three masters have a fault, or the list of masters is wrong.
func TestDoctorSaysWhatStopsALock(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.Server(t)
	says := func(args ...any) func(testing.TB, *masters.Process) {
		return func(t testing.TB, m *masters.Process) {
			must(t, redistest.Client(t, m.Addr()).Do(t.Context(), args...).Err())
		}
	}
	for _, test := range []struct {
		name  string
		fault func(testing.TB, *masters.Process)                     // of the first two masters
		list  func(t testing.TB, c *cluster, well []string) []string // another list of masters, if not nil
		code  int
		says  string // a regular expression of the first line, whose line breaks are spaces
	}{
		{"down", func(t testing.TB, m *masters.Process) { must(t, m.Kill()) }, nil, exitNoQuorum, "connection refused"},
		{"hung", func(t testing.TB, m *masters.Process) { must(t, m.Pause()) }, nil, exitNoQuorum, "timeout"},
		{"back empty", func(t testing.TB, m *masters.Process) { must(t, m.Kill()); must(t, m.Restart()) }, nil, exitNoQuorum, "no vote for"},
		{"emptied", says("flushall"), nil, exitNoQuorum, "no vote for"},
		{"out of memory", says("config", "set", "maxmemory", "1"), nil, exitNoQuorum, "OOM"},
		{"no replica", says("config", "set", "min-replicas-to-write", "1"), nil, exitNoQuorum, "NOREPLICAS"},
		{"another password", says("config", "set", "requirepass", "new"), nil, exitConfig, "NOAUTH"},
		{"no right to write", says("acl", "setuser", "default", "-set"), nil, exitConfig, "can't run this command|no permissions to run the 'set' command"},
		{"no right to the marker", says("acl", "setuser", "default", "-hset"), nil, exitConfig, "can't run this command|'hset' command"},
		{"no right to any key", says("acl", "setuser", "default", "resetkeys"), nil, exitConfig, "NOPERM"},
		{"no right to run scripts", says("acl", "setuser", "default", "-eval", "-evalsha"), nil, exitConfig, "NOPERM"},
		{"replicas", says("replicaof", "127.0.0.1", "1"), nil, exitNoQuorum, "role is slave"},
		{"full", func(t testing.TB, m *masters.Process) { full(t, m) }, nil, exitNoQuorum, "max number of clients reached"},
		{"a script that does not end", busy, nil, exitNoQuorum, "BUSY"},
		{"one server twice", nil, func(_ testing.TB, _ *cluster, well []string) []string {
			return []string{well[0], strings.Replace(well[0], "127.0.0.1", "localhost", 1), well[1]}
		}, exitConfig, "same server"},
		{"a master exchanged", nil, func(t testing.TB, c *cluster, well []string) []string {
			c.inUse(t)
			return []string{well[0], well[1], redistest.Addrs(redistest.Masters(t, 1))[0]}
		}, exitConfig, "has the list of masters"},
		{"two masters exchanged", nil, func(t testing.TB, c *cluster, well []string) []string {
			c.inUse(t)
			others := redistest.Addrs(redistest.Masters(t, 2))
			vouch(t, others, redlock.DefaultMaxTTL)
			return append(others, well[0])
		}, exitConfig, "has the list of masters"},
		{"a database that is not there", nil, func(_ testing.TB, _ *cluster, well []string) []string {
			return []string{"redis://" + well[0] + "/99", "redis://" + well[1] + "/99", well[2]}
		}, exitConfig, "DB index is out of range"},
		{"TLS where there is none", nil, func(_ testing.TB, _ *cluster, well []string) []string {
			return []string{"rediss://" + well[0], "rediss://" + well[1], well[2]}
		}, exitConfig, ""},
	} {
		t.Run(test.name, func(t *redistest.T) {
			t.Parallel()
			c := newCluster(t, 3, redlock.DefaultMaxTTL)
			if test.fault != nil {
				for _, m := range c.list[:2] {
					test.fault(t, m)
				}
			}
			if test.list != nil {
				c.env = []string{mastersEnv + "=" + strings.Join(test.list(t, c, redistest.Addrs(c.list)), ",")}
			}
			got, out := c.look(t, "doctor")
			first, _, _ := strings.Cut(out, "\n127.0.0.1")
			first = strings.Join(strings.Fields(first), " ")
			if got != test.code || !strings.HasPrefix(first, "no lock can be had: ") || !regexp.MustCompile(test.says).MatchString(first) {
				t.Errorf("doctor: got code %d and %s, want %d and %s in the first line", got, out, test.code, test.says)
			}
			if _, out := c.look(t, "top"); !strings.Contains(out, "NO QUORUM") {
				t.Errorf("top: got %s, want NO QUORUM", out)
			}
			if strings.HasPrefix(test.says, "no vote") {
				return // run waits for the end of the quarantine
			}
			if got, out := c.look(t, "init", "--yes"); test.list != nil && got != test.code {
				t.Errorf("init: got code %d and %s, want %d: no mistake in the list is vouched for", got, out, test.code)
			}
			for tries := 5; ; tries-- {
				// A name of its own: the key of a former try may be on a slow master still.
				got, out := c.look(t, "run", fmt.Sprint("k", tries), "-n", "--", "true")
				if got == test.code {
					break
				}
				// On a busy machine a master that refuses the list may answer after a quorum of others: too late for the
				// grant, and perhaps in time for the command.
				late := test.list != nil && (got == 0 || got == exitLost && strings.Contains(out, "list of masters"))
				if !late || tries == 1 {
					t.Errorf("run: got code %d and %s, want %d", got, out, test.code)
					break
				}
			}
		})
	}
	t.Run("none", func(t *redistest.T) { // the control
		c := newCluster(t, 3, redlock.DefaultMaxTTL)
		redistest.Eventually(t, 20*time.Second, func() bool {
			out, err := c.command("redlock", "doctor").CombinedOutput()
			return err == nil && !strings.Contains(string(out), "no lock can be had")
		}, "doctor finds nothing")
	})
}

// full has a program that takes the only connection of a master.
func full(t testing.TB, m *masters.Process) (program *redis.Client) {
	program = redis.NewClient(&redis.Options{Addr: m.Addr(), PoolSize: 1, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = program.Close() })
	must(t, program.Do(t.Context(), "config", "set", "maxclients", "1").Err())
	must(t, program.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
	return program
}

// busy has a program that runs a script without an end on a master.
func busy(t testing.TB, m *masters.Process) {
	client := redistest.Client(t, m.Addr())
	must(t, client.ConfigSet(t.Context(), "lua-time-limit", "1").Err())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = client.Eval(ctx, "while true do end", nil).Err() }()
	t.Cleanup(func() {
		cancel()
		redistest.Eventually(t, 20*time.Second, func() bool {
			err := redistest.Client(t, m.Addr()).ScriptKill(context.Background()).Err()
			return err == nil || strings.Contains(err.Error(), "NOTBUSY")
		}, "the script has ended")
		<-done
	})
	redistest.Eventually(t, 20*time.Second, func() bool {
		err := redistest.Client(t, m.Addr()).Ping(t.Context()).Err()
		return err != nil && strings.Contains(err.Error(), "BUSY")
	}, "the server is busy")
}

// inUse has clients take a lock, and give it back, until each master knows their list: a quorum is enough for a lock.
func (c *cluster) inUse(t testing.TB) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, func() bool {
		cmd := c.command("redlock", "run", "in-use", "--", "true")
		cmd.Stderr = os.Stderr
		must(t, cmd.Run())
		return !slices.ContainsFunc(c.list, func(m *masters.Process) bool {
			return redistest.Client(t, m.Addr()).HGet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "lists").Val() == ""
		})
	}, "each master knows the list")
}
