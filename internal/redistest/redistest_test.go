package redistest_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(caseEnv); strings.HasPrefix(name, "example") {
		os.Exit(redistest.WithExamples(examples(name)).Run())
	}
	goleak.VerifyTestMain(redistest.Again(m))
}

// fakeTB notes how a test that uses it ends.
type fakeTB struct {
	testing.TB // nil: what is not listed here must not be called
	ended      string
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Skip(args ...any) {
	f.ended = "skip: " + fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.ended = "fatal: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// ending runs test and returns how it ended: "", "skip: ..." or "fatal: ...".
func ending(test func(testing.TB)) string {
	var f fakeTB
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(&f)
	}()
	<-done
	return f.ended
}

func TestRequire(outer *testing.T) {
	t := redistest.Timed(outer)
	noDocker := func(t testing.TB) { redistest.Missing(t, "docker", "no engine") }
	for _, test := range []struct {
		name, require, want string
		present             bool
		needs               func(testing.TB)
	}{
		{"server is there", "", "", true, redistest.Server},
		{"server is there and required", "server", "", true, redistest.Server},
		{"no server", "", "skip: needs redis-server on the PATH: ", false, redistest.Server},
		{"no server though required", "docker, server", "fatal: needs redis-server on the PATH: ", false, redistest.Server},
		{"no server, another thing required", "docker,servers", "skip: ", false, redistest.Server},
		{"no masters without a server", "", "skip: ", false, func(t testing.TB) { redistest.Masters(t, 1) }},
		{"no docker", "server", "skip: no engine", true, noDocker},
		{"no docker though required", "server,docker", "fatal: no engine", true, noDocker},
		{"short", "docker", "skip: starts a server: ", true, redistest.Server},
		{"short, no server", "", "skip: starts a server: ", false, redistest.Server},
		{"short, no server though required", "server", "fatal: ", false, redistest.Server},
		{"short, though required", "server", "", true, redistest.Server},
	} {
		t.Run(test.name, func(t *redistest.T) {
			short := flag.Lookup("test.short").Value
			was := short.String()
			t.Cleanup(func() { _ = short.Set(was) })
			if err := short.Set(strconv.FormatBool(strings.HasPrefix(test.name, "short"))); err != nil {
				t.Fatal(err)
			}
			if test.present {
				if _, err := masters.LookPath(); err != nil {
					t.Skip("needs redis-server on the PATH: ", err)
				}
			} else {
				t.Setenv("PATH", t.TempDir())
			}
			t.Setenv("REDLOCK_REQUIRE", test.require)
			got := ending(test.needs)
			if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestMastersAreClosedWithTheirTest(outer *testing.T) {
	t := redistest.Timed(outer)
	var list []*masters.Process
	t.Run("user", func(t *redistest.T) {
		list = redistest.Masters(t, 2, "--maxclients", "77")
		for _, addr := range redistest.Addrs(list) {
			got, err := redistest.Client(t, addr).ConfigGet(t.Context(), "maxclients").Result()
			if err != nil || got["maxclients"] != "77" {
				t.Errorf("%s: got %v, %v; want its argument in force", addr, got, err)
			}
		}
	})
	for _, p := range list {
		if p.Pid() != 0 {
			t.Errorf("%s is still up", p.Addr())
		}
	}
}

func TestProxied(outer *testing.T) {
	t := redistest.Timed(outer)
	minis := redistest.Minis(t, 2)
	proxies := redistest.Proxied(t, minis)
	for i, addr := range redistest.Addrs(proxies) {
		if err := redistest.Client(t, addr).Set(t.Context(), "k", i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := redistest.Client(t, minis[i].Addr()).Get(t.Context(), "k").Int()
		if err != nil || got != i {
			t.Errorf("proxy %d: got %d, %v in its master", i, got, err)
		}
	}
}

func TestEventually(outer *testing.T) {
	t := redistest.Timed(outer)
	asked := 0
	redistest.Eventually(t, time.Minute, func() bool { asked++; return asked == 3 }, "asked three times")
	got := ending(func(t testing.TB) {
		redistest.Eventually(t, 10*time.Millisecond, func() bool { return false }, "pigs fly")
	})
	if !strings.HasPrefix(got, "fatal: ") || !strings.Contains(got, "pigs fly") {
		t.Errorf("got %q, want a failure that says what", got)
	}
}
