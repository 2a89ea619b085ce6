package redlocktest_test

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlocktest"
)

// master has the methods of a redlocktest.Master, for a real server, too.
type master interface {
	Addr() string
	Kill()
	Restart()
	RestartEmpty()
	Flush()
	Hang()
	Partition()
	LoseReplies()
	Latency(d time.Duration)
	Heal()
	MoveClock(d time.Duration)
	Token(resource string) string
}

// server is a redis-server behind a proxy, which does what a redlocktest.Master does.
type server struct {
	t testing.TB
	p *masters.Process
	*masters.Proxy
}

func (s server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Error(err)
	}
}

func (s server) Kill() { s.must(s.p.Kill()) }

func (s server) Restart() {
	s.Kill()
	s.must(s.p.Restart())
}

func (s server) RestartEmpty() {
	s.Flush()
	s.Restart()
}

func (s server) Flush() {
	s.must(redistest.Client(s.t, s.p.Addr()).FlushAll(s.t.Context()).Err())
}

func (s server) Hang()                     { s.must(s.p.Pause()) }
func (s server) Partition()                { s.must(s.Set(masters.Blackhole)) }
func (s server) LoseReplies()              { s.must(s.Set(masters.LoseReplies)) }
func (s server) Latency(d time.Duration)   { s.Proxy.Latency(d/2, d/2) }
func (s server) MoveClock(d time.Duration) { s.must(s.p.StepClock(d)) }

func (s server) Heal() {
	s.must(s.Set(masters.Pass))
	s.Proxy.Latency(0, 0)
	s.must(s.p.Resume())
}

func (s server) Token(resource string) string {
	if s.p.Pid() == 0 {
		return ""
	}
	value, err := redistest.Client(s.t, s.p.Addr()).Get(s.t.Context(), redlock.DefaultKeyPrefix+resource).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Error(err)
	}
	token, _, _ := strings.Cut(value, "|")
	return token
}

// On two of three masters each method has the same effect, on fakes and on real servers: whether another lock is
// granted, whether the key of a lease is still there, and what ends the fault.
func TestMethods(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.TakesSeconds(t)
	var heal = master.Heal
	effects := map[string]struct {
		do      func(master)
		answer  string // to TryLock
		keeps   bool   // the key of the lease
		end     func(master)
		without string // a reason not to look at the key of a real server: it does not answer
	}{
		"Kill":         {do: master.Kill, answer: "no quorum"},
		"Restart":      {do: master.Restart, answer: "quarantine", keeps: true},
		"RestartEmpty": {do: master.RestartEmpty, answer: "quarantine"},
		"Flush":        {do: master.Flush, answer: "quarantine"},
		"Hang":         {do: master.Hang, answer: "no quorum", keeps: true, end: heal, without: "it hangs"},
		"Partition":    {do: master.Partition, answer: "no quorum", keeps: true, end: heal},
		"LoseReplies":  {do: master.LoseReplies, answer: "no quorum", keeps: true, end: heal},
		"Latency":      {do: func(m master) { m.Latency(5 * time.Second) }, answer: "no quorum", keeps: true, end: heal},
		// Two clocks of three that agree are right: the local one is believed to have stood still.
		"MoveClock": {do: func(m master) { m.MoveClock(time.Hour) }, answer: "a lease"},
	}
	for name := range reflect.TypeFor[master]().Methods() {
		if _, ok := effects[name.Name]; !ok && !slices.Contains([]string{"Addr", "Heal", "Token"}, name.Name) {
			t.Errorf("nothing tries %s", name.Name)
		}
	}
	for _, backend := range []string{"fakes", "servers"} {
		for name, effect := range effects {
			t.Run(name+" of "+backend, func(t *redistest.T) {
				t.Parallel()
				var list []master
				var l *redlock.Locker
				if backend == "fakes" {
					c := redlocktest.Start(t, 3)
					for _, m := range c.Masters() {
						list = append(list, m)
					}
					l = c.Locker(patient)
				} else {
					list, l = servers(t, name == "MoveClock")
				}
				var lease *redlock.Lease
				redistest.Eventually(t, 30*time.Second, func() bool {
					if lease == nil || lease.Context().Err() != nil {
						lease = lock(t, l, "a")
					}
					return !slices.ContainsFunc(list, func(m master) bool { return m.Token("a") != lease.Token() })
				}, "a key on each master")
				for _, m := range list[1:] {
					effect.do(m)
				}
				if backend == "fakes" || effect.without == "" {
					for _, m := range list[1:] {
						if got := m.Token("a") == lease.Token(); got != effect.keeps {
							t.Errorf("the key is still there: got %t, want %t", got, effect.keeps)
						}
					}
				}
				wantAnswer(t, l, effect.answer)
				if effect.end != nil {
					for _, m := range list[1:] {
						effect.end(m)
					}
					wantAnswer(t, l, "a lease")
				}
			})
		}
	}
}

// servers starts three real masters with votes, which keep their data, and a Locker.
func servers(t testing.TB, clocks bool) (list []master, l *redlock.Locker) {
	t.Helper()
	var processes []*masters.Process
	if clocks {
		processes = redistest.Skewed(t, 3)
	} else {
		processes = redistest.Masters(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	}
	proxies := redistest.Proxied(t, processes)
	for i, p := range processes {
		list = append(list, server{t, p, proxies[i]})
	}
	l, err := redlock.New(redistest.Addrs(proxies), patient, redlock.WithLogger(slog.New(slog.DiscardHandler)))
	locktest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	redistest.Eventually(t, 30*time.Second, func() bool { return admin.Bootstrap(t.Context(), l) == nil }, "the masters have their votes")
	return list, l
}

// wantAnswer waits until TryLock has that outcome.
func wantAnswer(t testing.TB, l *redlock.Locker, want string) {
	t.Helper()
	var err error
	redistest.Eventually(t, time.Minute, func() bool {
		var lease *redlock.Lease
		lease, err = l.TryLock(t.Context(), "b")
		got := "no quorum"
		switch {
		case err == nil:
			got = "a lease"
			_ = lease.Unlock(t.Context())
		case errors.Is(err, redlock.ErrQuarantine):
			got = "quarantine"
		case !errors.Is(err, redlock.ErrNoQuorum):
			got = err.Error()
		}
		return got == want
	}, "answer to TryLock: "+want)
}

// docs/testing.md has a table of the methods, and names no other ones.
func TestPageHasTheMethods(t *testing.T) {
	text, err := os.ReadFile("../docs/testing.md")
	locktest.Must(t, err)
	var got, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `\\w+\\.(\\w+)\\(").FindAllStringSubmatch(string(text), -1) {
		got = append(got, m[1])
	}
	for _, of := range []reflect.Type{reflect.TypeFor[*redlocktest.Cluster](), reflect.TypeFor[*redlocktest.Master]()} {
		for m := range of.Methods() {
			want = append(want, m.Name)
		}
	}
	want = append(want, "Start")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got the methods %q, want %q", got, want)
	}
}

// A program that gives no clock gets that of the bubble.
func TestClockOfABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.Start(t, 3)
		l, err := redlock.NewFromOptions(c.Options())
		locktest.Must(t, err)
		defer l.Close()
		lease := lock(t, l, "a")
		time.Sleep(time.Minute)
		if _, err := c.Locker().TryLock(t.Context(), "a"); !errors.Is(err, redlock.ErrTaken) || lease.Err() != nil {
			t.Errorf("after a minute: got %v of another Locker and %v of the lease, want ErrTaken and none", err, lease.Err())
		}
		for _, m := range c.Masters() {
			m.Hang()
		}
		time.Sleep(time.Minute)
		if !errors.Is(lease.Err(), redlock.ErrLost) {
			t.Errorf("a minute after all masters hang: got %v, want ErrLost", lease.Err())
		}
		for _, m := range c.Masters() {
			m.Heal()
		}
	})
}

// What a program sets in the options has the same effect on fakes and on real servers: a lease, or an error.
func TestOptionsOfAMaster(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	real := redistest.Masters(t, 1)[0]
	for name, set := range map[string]func(*redis.Options){
		"the last database":             func(o *redis.Options) { o.DB = 15 },
		"a database that is not there":  func(o *redis.Options) { o.DB = 16 },
		"a database far off":            func(o *redis.Options) { o.DB = math.MaxInt },
		"a user that is not there":      func(o *redis.Options) { o.Username, o.Password = "web", "x" },
		"a password that is not needed": func(o *redis.Options) { o.Password = "x" },
		"the default user":              func(o *redis.Options) { o.Username, o.Password = "default", "x" },
		"a name of the client":          func(o *redis.Options) { o.ClientName = "web" },
		"a wrong name of the client":    func(o *redis.Options) { o.ClientName = "web 1" },
	} {
		var got [2]string
		for i, o := range []*redis.Options{redlocktest.Start(t, 1).Options()[0], {Addr: real.Addr()}} {
			set(o)
			l, err := redlock.NewFromOptions([]*redis.Options{o}, patient, redlock.WithLogger(nil), redlock.WithoutRestartGuard())
			if err == nil {
				_, err = l.TryLock(t.Context(), name)
				_ = l.Close()
			}
			got[i] = redlock.Reason(err)
		}
		if got[0] != got[1] {
			t.Errorf("%s: got %q on a fake, want %q as on a server", name, got[0], got[1])
		}
	}
}
