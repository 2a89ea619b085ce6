package masters_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// eachKind runs a test of Master on both kinds.
func eachKind(t *testing.T, test func(*testing.T, masters.Master)) {
	t.Run(masters.KindProcess, func(t *testing.T) { test(t, redistest.Masters(t, 1)[0]) })
	t.Run(masters.KindMini, func(t *testing.T) { test(t, redistest.Minis(t, 1)[0]) })
}

func TestMasterAnswers(t *testing.T) {
	eachKind(t, func(t *testing.T, m masters.Master) {
		if got := ask(t, m.Addr(), "PING"); got != "+PONG" {
			t.Errorf("got %q, want +PONG", got)
		}
		if got, want := m.Kind(), lastName(t); got != want {
			t.Errorf("got kind %q, want %q", got, want)
		}
		ask(t, m.Addr(), "SET k v PX 30")
		redistest.Eventually(t, patient, func() bool {
			return ask(t, m.Addr(), "GET k") == "$-1"
		}, "the key expires by real time")
	})
}

func TestKilledMasterComesBackEmpty(t *testing.T) {
	eachKind(t, func(t *testing.T, m masters.Master) {
		addr := m.Addr()
		w := dial(t, addr)
		w.send("SET k v")
		w.want("+OK")
		ok(t, m.Kill())
		w.wantBroken()
		wantRefused(t, addr)
		ok(t, m.Restart())
		if m.Addr() != addr {
			t.Errorf("got address %s after the restart, want %s", m.Addr(), addr)
		}
		if got := ask(t, addr, "GET k"); got != "$-1" {
			t.Errorf("got %q, want no key after a restart without persistence", got)
		}
	})
}

func TestRestartOfALiveMaster(t *testing.T) {
	eachKind(t, func(t *testing.T, m masters.Master) {
		ask(t, m.Addr(), "SET k v")
		ok(t, m.Pause())
		ok(t, m.Restart())
		if got := ask(t, m.Addr(), "GET k"); got != "$-1" {
			t.Errorf("got %q, want no key", got)
		}
	})
}

// A request whose client gave up during the pause still takes effect.
func TestPausedMasterCarriesOutRequestsLater(t *testing.T) {
	eachKind(t, func(t *testing.T, m masters.Master) {
		before := dial(t, m.Addr())
		before.send("PING")
		before.want("+PONG")
		ok(t, m.Pause())
		during := dial(t, m.Addr())
		during.send("SET during v")
		during.wantSilence()
		during.hangUp()
		before.send("SET before v")
		before.wantSilence()
		ok(t, m.Resume())
		before.want("+OK")
		wantKey(t, m.Addr(), "during", "v")
	})
}

func TestKillOfAPausedMasterDropsItsRequests(t *testing.T) {
	eachKind(t, func(t *testing.T, m masters.Master) {
		ok(t, m.Pause())
		w := dial(t, m.Addr())
		w.send("SET k v")
		w.wantSilence()
		ok(t, m.Kill())
		w.wantBroken()
		ok(t, m.Restart())
		if got := ask(t, m.Addr(), "GET k"); got != "$-1" {
			t.Errorf("got %q, want no key", got)
		}
	})
}

func TestCallsThatDoNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, m masters.Master) {
		ok(t, m.Resume())
		ok(t, m.Pause())
		ok(t, m.Pause())
		ok(t, m.Resume())
		ok(t, m.Resume())
		ask(t, m.Addr(), "PING")
		ok(t, m.Kill())
		ok(t, m.Kill())
		ok(t, m.Resume())
		if err := m.Pause(); !errors.Is(err, masters.ErrNotRunning) {
			t.Errorf("pause of a killed master: got %v, want ErrNotRunning", err)
		}
		ok(t, m.Close())
		ok(t, m.Close())
		ok(t, m.Kill())
		ok(t, m.Resume())
		if err := m.Pause(); !errors.Is(err, masters.ErrClosed) {
			t.Errorf("pause of a closed master: got %v, want ErrClosed", err)
		}
		if err := m.Restart(); !errors.Is(err, masters.ErrClosed) {
			t.Errorf("restart of a closed master: got %v, want ErrClosed", err)
		}
	})
}

func TestCloseOfAPausedMaster(t *testing.T) {
	eachKind(t, func(t *testing.T, m masters.Master) {
		ok(t, m.Pause())
		ok(t, m.Close())
		wantRefused(t, m.Addr())
	})
}

// Several goroutines inject faults while scripts run. The master works afterwards.
func TestMasterUnderConcurrentUse(t *testing.T) {
	eachKind(t, func(t *testing.T, m masters.Master) {
		wait := underTraffic(m.Addr(), func() {
			if err := m.Pause(); err != nil && !errors.Is(err, masters.ErrNotRunning) {
				t.Error(err)
			}
			for _, step := range []func() error{m.Resume, m.Kill, m.Restart} {
				if err := step(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond) // each state meets some traffic
			}
		})
		ok(t, m.Resume())
		wait()
		ok(t, m.Restart())
		if got := ask(t, m.Addr(), "PING"); got != "+PONG" {
			t.Errorf("got %q, want +PONG", got)
		}
	})
}

// underTraffic calls fault 30 times, from three goroutines, while four others run scripts at
// addr. When it returns these have been told to stop, and wait waits for them.
func underTraffic(addr string, fault func()) (wait func()) {
	stop := make(chan struct{})
	var traffic, faults sync.WaitGroup
	for range 4 {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					script(addr)
				}
			}
		})
	}
	for range 3 {
		faults.Go(func() {
			for range 10 {
				fault()
			}
		})
	}
	faults.Wait()
	close(stop)
	return traffic.Wait
}

// script runs a script and ignores the result.
func script(addr string) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		time.Sleep(time.Millisecond) // a refused dial must not spin
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 64)
	for range 20 {
		if _, err := conn.Write(encode("EVAL", "return redis.call('incr', KEYS[1])", "1", "k")); err != nil {
			return
		}
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}

func TestStart(t *testing.T) {
	start := func(t *testing.T, kind string) {
		list, got, err := masters.Start(t.Context(), 3)
		ok(t, err)
		if got != kind || len(list) != 3 {
			t.Errorf("got %d of kind %q, want 3 of kind %q", len(list), got, kind)
		}
		seen := map[string]bool{}
		for _, m := range list {
			if m.Kind() != kind || ask(t, m.Addr(), "PING") != "+PONG" || seen[m.Addr()] {
				t.Errorf("%s on %s: not another %s that answers", m.Kind(), m.Addr(), kind)
			}
			seen[m.Addr()] = true
			ok(t, m.Close())
		}
	}
	t.Run("with redis-server", func(t *testing.T) {
		redistest.Server(t)
		start(t, masters.KindProcess)
	})
	t.Run("without", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := masters.LookPath(); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("LookPath: got %v, want exec.ErrNotFound", err)
		}
		if _, err := masters.StartProcess(t.Context(), masters.ProcessConfig{}); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("StartProcess: got %v, want exec.ErrNotFound", err)
		}
		start(t, masters.KindMini)
	})
}

func lastName(t *testing.T) string {
	t.Helper()
	name := t.Name()
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return name[i+1:]
		}
	}
	return name
}

func wantRefused(t testing.TB, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patient)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial %s: got %v, want it refused", addr, err)
	}
}

func wantNoDir(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory of the master: got %v, want none", err)
	}
}
