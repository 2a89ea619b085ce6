// Package redistest starts Redis masters for tests, and skips tests that cannot
// have them.
package redistest

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/d0720281/redlock/internal/masters"
)

// requireEnv names, separated by commas, what must not be missing. CI sets it to
// "server,docker", so that a broken set-up fails instead of passing by skips.
const requireEnv = "REDLOCK_REQUIRE"

// Server skips the test with -short or without redis-server on the PATH. If REDLOCK_REQUIRE
// asks for "server", it skips no test, and fails a test that lacks redis-server.
func Server(t testing.TB) {
	t.Helper()
	throughTimed(t)
	NotShort(t, "server")
	if _, err := masters.LookPath(); err != nil {
		Missing(t, "server", "needs redis-server on the PATH: "+err.Error())
	}
}

// IsRedisBefore reports whether the redis-server on the PATH is Redis and older than that.
func IsRedisBefore(t testing.TB, major, minor int) bool {
	t.Helper()
	Server(t)
	binary, err := masters.LookPath()
	if err != nil {
		t.Fatal(err)
	}
	return masters.IsRedisBefore(binary, major, minor)
}

// longEnv runs more than go test ./... does by itself: "once" what takes long, as CI does; "yes" all tests at full length, too,
// as each night and make chaos do.
const longEnv = "REDLOCK_LONG"

// once is the value of longEnv with which tests that take long run, at the length they have by default.
const once = "once"

// Long reports whether tests run at full length: with REDLOCK_LONG=yes, and not with -short.
func Long() bool { return Once() && os.Getenv(longEnv) != once }

// Once reports whether tests that take long run: with REDLOCK_LONG=once or yes, and not with -short.
func Once() bool { return os.Getenv(longEnv) != "" && !testing.Short() }

// Rounds returns how often a test repeats what is random, or how large it is: few by default, many if it is [Long].
func Rounds(few, many int) int {
	if Long() {
		return many
	}
	return few
}

// OnlyLong skips a test that takes minutes, unless tests are [Long].
func OnlyLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("takes minutes: " + longEnv + "=yes runs it")
	}
}

// OnlyOnce skips a test unless tests that take long run. Why says what takes so long, or which faster test shows the same.
func OnlyOnce(t testing.TB, why string) {
	t.Helper()
	if !Once() {
		t.Skip("takes long: " + longEnv + "=" + once + " runs it; " + why)
	}
}

// Missing ends a test that lacks what ("server", "docker"), for the reason given:
// it is skipped, or failed if REDLOCK_REQUIRE asks for what.
func Missing(t testing.TB, what, reason string) {
	t.Helper()
	if required(what) {
		t.Fatalf("%s (%s asks for %q)", reason, requireEnv, what)
	}
	t.Skip(reason)
}

// NotShort skips a test that starts what ("server", "docker") if tests are short, unless
// REDLOCK_REQUIRE asks for what.
func NotShort(t testing.TB, what string) {
	t.Helper()
	if testing.Short() && !required(what) {
		t.Skip("starts a " + what + ": not with -short")
	}
}

// TakesSeconds skips a test that takes seconds if tests are short.
func TakesSeconds(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds: not with -short")
	}
}

func required(what string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(requireEnv), ","), func(name string) bool {
		return strings.TrimSpace(name) == what
	})
}

// Masters starts n real masters, each with args added, and closes them when the
// test ends. It skips as [Server] does.
func Masters(t testing.TB, n int, args ...string) []*masters.Process {
	t.Helper()
	Server(t)
	return start(t, n, func() (*masters.Process, error) {
		return masters.StartProcess(t.Context(), masters.ProcessConfig{Args: args})
	})
}

// Skewed starts n real masters whose wall clocks can be moved, and closes them when the
// test ends. It skips as [Server] does, and where that cannot be done.
func Skewed(t testing.TB, n int) []*masters.Process {
	t.Helper()
	Server(t)
	return start(t, n, func() (*masters.Process, error) {
		p, err := masters.StartProcess(t.Context(), masters.ProcessConfig{Skew: true})
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			t.Skip(err)
		case errors.Is(err, masters.ErrNoCompiler):
			Missing(t, "server", err.Error())
		}
		return p, err
	})
}

// Minis starts n in-process masters and closes them when the test ends.
func Minis(t testing.TB, n int) []*masters.Mini {
	t.Helper()
	return start(t, n, masters.StartMini)
}

func start[M masters.Master](t testing.TB, n int, one func() (M, error)) []M {
	t.Helper()
	throughTimed(t)
	list := make([]M, n)
	for i := range list {
		m, err := one()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Errorf("close %s: %v", m.Addr(), err)
			}
		})
		list[i] = m
	}
	return list
}

// Addrs returns the addresses of masters or proxies.
func Addrs[A interface{ Addr() string }](list []A) []string {
	addrs := make([]string, len(list))
	for i, a := range list {
		addrs[i] = a.Addr()
	}
	return addrs
}

// Proxied puts a fault proxy in front of each master and closes it when the test
// ends.
func Proxied[A interface{ Addr() string }](t testing.TB, list []A) []*masters.Proxy {
	t.Helper()
	proxies := make([]*masters.Proxy, len(list))
	for i, a := range list {
		p, err := masters.NewProxy(a.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		proxies[i] = p
	}
	return proxies
}

// Client returns a client to look at one master with: it tries everything once,
// waits at most a second for it, heeds contexts, and is closed when the test ends.
func Client(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr:                  addr,
		DialTimeout:           time.Second,
		ReadTimeout:           time.Second,
		WriteTimeout:          time.Second,
		ContextTimeoutEnabled: true,
		MaxRetries:            -1,
		DialerRetries:         1,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close client of %s: %v", addr, err)
		}
	})
	return c
}

// Eventually waits until cond holds, asking every few milliseconds, and fails the
// test with what if it does not within that time.
func Eventually(t testing.TB, within time.Duration, cond func() bool, what string) {
	t.Helper()
	timeout := time.After(within)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !cond() {
		select {
		case <-poll.C:
		case <-timeout:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
