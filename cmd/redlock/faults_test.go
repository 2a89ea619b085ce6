//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// Where redlock run cannot have a lock, doctor fails with the same code, and its first line says why. Two of three
// masters have a fault, or the list of masters is wrong.
func TestDoctorSaysWhatStopsALock(t *testing.T) {
	t.Parallel()
	redistest.Server(t)
	says := func(args ...any) func(*testing.T, *masters.Process) {
		return func(t *testing.T, m *masters.Process) {
			if err := redistest.Client(t, m.Addr()).Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name  string
		fault func(*testing.T, *masters.Process)                     // of the first two masters
		list  func(t *testing.T, c *cluster, well []string) []string // another list of masters, if not nil
		code  int
		says  string // a regular expression of the first line, whose line breaks are spaces
	}{
		{"down", func(t *testing.T, m *masters.Process) { must(t, m.Kill()) }, nil, exitNoQuorum, "connection refused"},
		{"hung", func(t *testing.T, m *masters.Process) { must(t, m.Pause()) }, nil, exitNoQuorum, "timeout"},
		{"back empty", func(t *testing.T, m *masters.Process) { must(t, m.Kill()); must(t, m.Restart()) }, nil, exitNoQuorum, "no vote for"},
		{"emptied", says("flushall"), nil, exitNoQuorum, "no vote for"},
		{"out of memory", says("config", "set", "maxmemory", "1"), nil, exitNoQuorum, "OOM"},
		{"no replica", says("config", "set", "min-replicas-to-write", "1"), nil, exitNoQuorum, "NOREPLICAS"},
		{"another password", says("config", "set", "requirepass", "new"), nil, exitConfig, "NOAUTH"},
		{"no right to write", says("acl", "setuser", "default", "-set"), nil, exitConfig, "can't run this command|no permissions to run the 'set' command"},
		{"no right to any key", says("acl", "setuser", "default", "resetkeys"), nil, exitConfig, "NOPERM"},
		{"no right to run scripts", says("acl", "setuser", "default", "-eval", "-evalsha"), nil, exitConfig, "NOPERM"},
		{"replicas", says("replicaof", "127.0.0.1", "1"), nil, exitNoQuorum, "role is slave"},
		{"full", func(t *testing.T, m *masters.Process) {
			client := redis.NewClient(&redis.Options{Addr: m.Addr(), PoolSize: 1, Protocol: 2, DisableIdentity: true})
			t.Cleanup(func() { _ = client.Close() })
			must(t, client.Do(t.Context(), "config", "set", "maxclients", "1").Err())
			must(t, client.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
		}, nil, exitNoQuorum, "max number of clients reached"},
		{"a script that does not end", func(t *testing.T, m *masters.Process) {
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
		}, nil, exitNoQuorum, "BUSY"},
		{"one server twice", nil, func(_ *testing.T, _ *cluster, well []string) []string {
			return []string{well[0], strings.Replace(well[0], "127.0.0.1", "localhost", 1), well[1]}
		}, exitConfig, "same server"},
		{"a master exchanged", nil, func(t *testing.T, c *cluster, well []string) []string {
			c.inUse(t)
			return []string{well[0], well[1], redistest.Addrs(redistest.Masters(t, 1))[0]}
		}, exitConfig, "has the list of masters"},
		{"two masters exchanged", nil, func(t *testing.T, c *cluster, well []string) []string {
			c.inUse(t)
			others := redistest.Addrs(redistest.Masters(t, 2))
			vouch(t, others, redlock.DefaultMaxTTL)
			return append(others, well[0])
		}, exitConfig, "has the list of masters"},
		{"a database that is not there", nil, func(_ *testing.T, _ *cluster, well []string) []string {
			return []string{"redis://" + well[0] + "/99", "redis://" + well[1] + "/99", well[2]}
		}, exitConfig, "DB index is out of range"},
		{"TLS where there is none", nil, func(_ *testing.T, _ *cluster, well []string) []string {
			return []string{"rediss://" + well[0], "rediss://" + well[1], well[2]}
		}, exitConfig, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
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
			code := func(args ...string) (int, string) {
				cmd := c.command("redlock", args...)
				out, err := cmd.CombinedOutput()
				if err != nil && !errors.As(err, new(*exec.ExitError)) {
					t.Fatal(err)
				}
				return cmd.ProcessState.ExitCode(), string(out)
			}
			got, out := code("doctor")
			first, _, _ := strings.Cut(out, "\n127.0.0.1")
			first = strings.Join(strings.Fields(first), " ")
			if got != test.code || !strings.HasPrefix(first, "no lock can be had: ") || !regexp.MustCompile(test.says).MatchString(first) {
				t.Errorf("doctor: got code %d and %s, want %d and %s in the first line", got, out, test.code, test.says)
			}
			if strings.HasPrefix(test.says, "no vote") {
				return // run waits for the end of the quarantine
			}
			if got, out := code("init", "--yes"); test.list != nil && got != test.code {
				t.Errorf("init: got code %d and %s, want %d: no mistake in the list is vouched for", got, out, test.code)
			}
			if got, out := code("run", "k", "-n", "--", "true"); got != test.code {
				t.Errorf("run: got code %d and %s, want %d", got, out, test.code)
			}
		})
	}
	t.Run("none", func(t *testing.T) { // the control
		c := newCluster(t, 3, redlock.DefaultMaxTTL)
		redistest.Eventually(t, 20*time.Second, func() bool {
			out, err := c.command("redlock", "doctor").CombinedOutput()
			return err == nil && !strings.Contains(string(out), "no lock can be had")
		}, "doctor finds nothing")
	})
}

// inUse has a client take a lock, and give it back.
func (c *cluster) inUse(t *testing.T) {
	t.Helper()
	cmd := c.command("redlock", "run", "in-use", "--", "true")
	cmd.Stderr = os.Stderr
	must(t, cmd.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
