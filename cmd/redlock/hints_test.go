//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// noState has the rows of the tables of what-to-do.md that are about no state of a master, or that lead to another row.
var noState = map[string]string{
	"`ErrQuarantine`, \"no vote\", after":       "leads to \"Masters are back empty\"",
	"\"no vote\" for minutes or hours":          "ends with that lease",
	"`ErrMasterSetup`, exit code 78":            "row \"has the list of masters\"",
	"`ErrNoQuorum`, exit code 69":               "leads to \"Nothing is granted\"",
	"\"leads this client to the server\"":       "leads to \"Nothing is granted\"",
	"`OOM`, `MISCONF`":                          "leads to \"A master refuses to write\"",
	"`EventMasterDown`":                         "row \"timeout\"",
	"`EventMasterClockStepped`":                 "section \"A clock was stepped\"",
	"`ErrLost`":                                 "is over",
	"a holder does not let go":                  "script break",
	"`ErrTaken`":                                "is none",
	"`certificate` in":                          "TestCertificatesThatEnd, and \"Changes\"",
	"`could not be renewed in time`":            "is over",
	"`key gone from too many masters`":          "is over",
	"`lock was broken`":                         "is over",
	"`the server closed the new connection at":  "has several reasons: TestTLSAndUser",
	"`the CredentialsProvider has not answered": "is of a program",
	"`no key can be written`":                   "leads to \"A master refuses to write\"",
	"all is well":                               "is no fault",
	"alert | what to do":                        "is a head",
	"`RedlockResource`":                         "is of one lock",
	"`RedlockWarning`":                          "leads to doctor",
	"`RedlockStandstill`":                       "is of a client",
	"`RedlockNoLeader`":                         "is of an election",
	"`RedlockAbandoned`":                        "is of a program",
	"`RedlockMasterForgets`":                    "is over",
	"`local clock had stood still`":             "is over",
	"`list of masters` or":                      "leads to \"Nothing is granted\"",
	"\"a call waits for a lease of its own":     "is of a program",
	"\"replies waited":                          "is of a client",
	"`RedlockEventsDropped`":                    "is of a program",
	"`RedlockMetricsAbsent`":                    "is of a program",
}

// A real master is brought into each state of what-to-do.md. What the page says is done by machine: commands stand there
// as they are. Then the state has ended.
func TestHints(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.Server(t)
	text, err := os.ReadFile("../../docs/what-to-do.md")
	must(t, err)
	var rows []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| ") && !strings.Contains(line, "| then |") && !strings.Contains(line, "| go to |") && !strings.Contains(line, "| look for |") {
			rows = append(rows, strings.TrimPrefix(line, "| "))
		}
	}
	set := func(name, value string) func(testing.TB, *cluster) {
		return func(t testing.TB, c *cluster) { must(t, c.client(t).ConfigSet(t.Context(), name, value).Err()) }
	}
	user := func(args ...any) func(testing.TB, *cluster) {
		return func(t testing.TB, c *cluster) {
			for _, m := range c.list {
				do(t, m, aclLine(t))
			}
			must(t, c.client(t).Do(t.Context(), append([]any{"acl", "setuser", "redlock"}, args...)...).Err())
			c.env = append(c.env, "REDLOCK_USER=redlock", passwordEnv+"=secret")
		}
	}
	var program *redis.Client
	var tried []string
	restart := func(t testing.TB, c *cluster) { must(t, errors.Join(c.list[0].Kill(), c.list[0].Restart())) }
	for _, test := range []struct {
		name   string
		row    string // the beginning of a row of the page; "" for a section
		skewed bool   // the masters' clocks can be moved
		fault  func(testing.TB, *cluster)
		says   string                     // what doctor finds, a regular expression
		hint   string                     // what doctor says, too
		follow func(testing.TB, *cluster) // before the commands in the row
		warns  string                     // what doctor finds afterwards
	}{
		{name: "out of memory", row: "`OOM` |", fault: set("maxmemory", "1"), says: "no key can be written: OOM", hint: "maxmemory is reached"},
		{name: "nearly out of memory", row: "`OOM` |", fault: func(t testing.TB, c *cluster) {
			n, err := strconv.Atoi(c.client(t).InfoMap(t.Context(), "memory").Item("Memory", "used_memory"))
			must(t, err)
			set("maxmemory", strconv.Itoa(n+n/20))(t, c)
		}, says: "warning write .*% of maxmemory is used", hint: "raise maxmemory"},
		{name: "no append-only file", row: "`MISCONF Errors writing to the AOF", fault: func(t testing.TB, c *cluster) {
			dir := c.client(t).ConfigGet(t.Context(), "dir").Val()["dir"]
			must(t, os.Mkdir(filepath.Join(dir, "appendonlydir"), 0o700))
			must(t, os.Symlink("/dev/full", filepath.Join(dir, "appendonlydir", "temp-appendonly.aof.incr")))
			must(t, os.Symlink("/dev/full", filepath.Join(dir, "appendonly.aof"))) // before Redis 7
			must(t, c.client(t).ConfigSet(t.Context(), "appendonly", "yes").Err())
			redistest.Eventually(t, 20*time.Second, func() bool {
				err := c.client(t).Set(t.Context(), "x", "y", time.Second).Err()
				return err != nil && strings.Contains(err.Error(), "AOF")
			}, "the disk is full")
		}, says: "no key can be written: MISCONF Errors writing to the AOF", hint: "CONFIG SET appendonly no"},
		{name: "no snapshot", row: "`MISCONF Redis is configured to save", fault: func(t testing.TB, c *cluster) {
			set("save", "3600 1")(t, c)
			dir := c.client(t).ConfigGet(t.Context(), "dir").Val()["dir"]
			must(t, os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700))
			redistest.Eventually(t, 20*time.Second, func() bool {
				_ = c.client(t).BgSave(t.Context()).Err() // one may be under way
				return c.client(t).InfoMap(t.Context(), "persistence").Item("Persistence", "rdb_last_bgsave_status") == "err"
			}, "a snapshot fails")
		}, says: "no key can be written: MISCONF", hint: `CONFIG SET save ""`, warns: "the last snapshot has failed"},
		{name: "no replica", row: "`NOREPLICAS`", fault: set("min-replicas-to-write", "1"), says: "no key can be written: NOREPLICAS", hint: "min-replicas-to-write 0"},
		{name: "busy", row: "`BUSY`", fault: func(t testing.TB, c *cluster) { busy(t, c.list[0]) }, says: "BUSY", hint: "SCRIPT KILL"},
		{name: "down", row: "`connection refused`", fault: func(t testing.TB, c *cluster) { must(t, c.list[0].Kill()) },
			says: "connection refused", follow: func(t testing.TB, c *cluster) { must(t, c.list[0].Restart()) }},
		{name: "hung", row: "`timeout: no connection`", fault: func(t testing.TB, c *cluster) { must(t, c.list[0].Pause()) },
			says: "timeout", follow: restart},
		{name: "full", row: "`max number of clients reached`", fault: func(t testing.TB, c *cluster) { program = full(t, c.list[0]) },
			says: "max number of clients", hint: "maxclients", follow: func(t testing.TB, _ *cluster) { must(t, program.Close()) }},
		{name: "back empty", row: "`no vote for ...`", fault: restart, says: "no vote for"},
		{name: "a right is missing", row: "`NOPERM`", fault: user("-set"), says: "NOPERM|no permissions|can't run this command", hint: "docs/operations.md",
			follow: func(t testing.TB, c *cluster) { do(t, c.list[0], aclLine(t)) }},
		{name: "no password", row: "`NOPERM`", fault: func(t testing.TB, c *cluster) {
			for _, m := range c.list {
				do(t, m, "CONFIG SET requirepass new")
			}
		}, says: "NOAUTH", hint: "$" + passwordEnv, follow: func(_ testing.TB, c *cluster) { c.env = append(c.env, passwordEnv+"=new") }},
		{name: "the new password on one master", row: "`WRONGPASS` after", fault: user("resetpass", ">new"), says: "WRONGPASS"},
		{name: "a replica", row: "`its role is slave`", fault: func(t testing.TB, c *cluster) {
			must(t, c.client(t).Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
		}, says: "its role is slave", hint: "independent", follow: func(t testing.TB, c *cluster) {
			list := redistest.Addrs(append(redistest.Masters(t, 1), c.list[1:]...))
			c.env = []string{mastersEnv + "=" + strings.Join(list, ",")}
		}},
		{name: "two lists", row: "`no vote: client ... has the list", fault: func(t testing.TB, c *cluster) {
			c.inUse(t)
			c.env = append(c.env, mastersEnv+"="+strings.Join(redistest.Addrs(append(redistest.Masters(t, 2), c.list[0])), ","))
		}, says: "has the list of masters", follow: func(_ testing.TB, c *cluster) { c.env = c.env[:1] }},
		{name: "two servers behind an address", row: "`... leads this client to the server", fault: func(t testing.TB, c *cluster) {
			c.inUse(t)
			for _, m := range c.list[1:] { // as another client says all the time
				must(t, redistest.Client(t, m.Addr()).HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "servers", "9999999999999 "+c.list[0].Addr()+" 0123456789abcdef\tweb-2").Err())
			}
		}, says: "server no vote: .* leads this client to the server with run id [0-9a-f]+..., and client web-2 to", hint: "end the other server", follow: func(t testing.TB, c *cluster) {
			for _, m := range c.list[1:] {
				must(t, redistest.Client(t, m.Addr()).HDel(t.Context(), redlock.DefaultKeyPrefix+"~guard", "servers").Err())
			}
		}},
		{name: "a later version", row: "`clients with version", fault: func(t testing.TB, c *cluster) {
			must(t, c.client(t).HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "protocol", fmt.Sprint("2 ", time.Now().Add(time.Hour).UnixMilli())).Err())
		}, says: "no vote: clients with version 2 of the protocol are in use", hint: "upgrade this client", follow: func(t testing.TB, c *cluster) {
			must(t, c.client(t).HSet(t.Context(), redlock.DefaultKeyPrefix+"~guard", "protocol", "2 1").Err()) // none of them is left
		}},
		{name: "a clock", skewed: true, fault: func(t testing.TB, c *cluster) { must(t, c.list[0].StepClock(time.Minute)) },
			says: "1m0s from the median", hint: "set the clock", follow: func(t testing.TB, c *cluster) { must(t, c.list[0].StepClock(-time.Minute)) }},
		{name: "one of two clocks", skewed: true, fault: func(t testing.TB, c *cluster) {
			must(t, errors.Join(c.list[0].StepClock(time.Minute), c.list[2].Kill()))
		}, says: "no lock can be had: the clocks differ, and no master can tell which is right: 127.0.0.1:[0-9]+ is 1m0(.0[0-9])?s from this machine's clock, 127.0.0.1:[0-9]+ is -?[0-9]+m?s from",
			hint: "set the one that is wrong", follow: func(t testing.TB, c *cluster) {
				must(t, errors.Join(c.list[0].StepClock(-time.Minute), c.list[2].Restart()))
			}},
	} {
		tried = append(tried, test.row)
		t.Run(test.name, func(t *redistest.T) {
			t.Parallel()
			c := &cluster{}
			if test.skewed {
				c.list = redistest.Skewed(t, 3)
				vouch(t, redistest.Addrs(c.list), redlock.DefaultMaxTTL)
				c.env = []string{mastersEnv + "=" + strings.Join(redistest.Addrs(c.list), ",")}
			} else {
				c = newCluster(t, 3, redlock.DefaultMaxTTL)
			}
			test.fault(t, c)
			var shown string
			doctor := func(args ...string) (int, string) {
				code, out := c.look(t, append([]string{"doctor"}, args...)...)
				return code, strings.Join(strings.Fields(out), " ")
			}
			found := regexp.MustCompile(test.says)
			redistest.Eventually(t, 20*time.Second, func() bool { // on a busy machine a master may be late
				var code int
				code, shown = doctor()
				return code != exitOK && found.MatchString(shown) && strings.Contains(shown, test.hint)
			}, "doctor finds "+test.says+" and says "+test.hint)
			var commands [][]string
			if test.row != "" {
				i := slices.IndexFunc(rows, func(r string) bool { return strings.HasPrefix(r, test.row) })
				if i < 0 {
					t.Fatalf("the page has no row %s", test.row)
				}
				commands = inBackticks.FindAllStringSubmatch(rows[i], -1)
			}
			if test.follow != nil {
				test.follow(t, c)
			}
			for _, m := range commands {
				do(t, c.list[0], strings.ReplaceAll(m[1], "OLD", "secret"))
			}
			code, after := doctor("--wait", "20s")
			if found.MatchString(after) || (code == exitOK) != (test.warns == "") || !strings.Contains(after, test.warns) || !strings.Contains(after, "3 of 3 masters have a vote") {
				t.Errorf("got code %d, %s; before the hint was followed: %s", code, after, shown)
			}
		})
	}
	for _, row := range rows {
		known := slices.ContainsFunc(tried, func(r string) bool { return r != "" && strings.HasPrefix(row, r) })
		for begin := range noState {
			known = known || strings.HasPrefix(row, begin)
		}
		if !known {
			t.Errorf("the page has a row that is not tried: %s", row)
		}
	}
}

// The right that top lacks comes first on the line about locks that may be missing: with the ACL line there is none to SCAN.
func TestTopWithoutARight(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	for _, m := range c.list {
		do(t, m, aclLine(t))
	}
	c.env = append(c.env, "REDLOCK_USER=redlock", passwordEnv+"=secret")
	right := regexp.MustCompile(`(?m)^locks may be missing: NOPERM .*scan`)
	redistest.Eventually(t, 20*time.Second, func() bool { _, out := c.look(t, "top"); return right.MatchString(out) }, "top names the right to SCAN first")
}

// inBackticks matches a command in a row of the page.
var inBackticks = regexp.MustCompile("`((?:CONFIG SET|ACL SETUSER|SCRIPT KILL)[^`]*)`")

func (c *cluster) client(t testing.TB) *redis.Client { return redistest.Client(t, c.list[0].Addr()) }

// do sends a command line to a master.
func do(t testing.TB, m *masters.Process, line string) {
	t.Helper()
	var args []any
	for _, word := range strings.Fields(line) {
		args = append(args, strings.Trim(word, `"`))
	}
	redistest.Eventually(t, 10*time.Second, func() bool { return redistest.Client(t, m.Addr()).Do(t.Context(), args...).Err() == nil }, line)
}

// aclLine returns the line of operations.md.
func aclLine(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	must(t, err)
	return regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(string(text))
}
