package masters_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// eachKind runs a test of Master on both kinds.
func eachKind(outer *testing.T, test func(testing.TB, masters.Master)) {
	t := redistest.Timed(outer)
	t.Run(masters.KindProcess, func(t *redistest.T) { test(t, redistest.Masters(t, 1)[0]) })
	t.Run(masters.KindMini, func(t *redistest.T) { test(t, redistest.Minis(t, 1)[0]) })
}

func TestRestartedMasterIsEmpty(t *testing.T) {
	eachKind(t, func(t testing.TB, m masters.Master) {
		addr := m.Addr()
		for name, fault := range map[string]func(*wire){
			"killed": func(w *wire) {
				w.send("SET k v")
				w.want("+OK")
				ok(t, m.Kill())
				w.wantBroken()
				wantRefused(t, addr)
			},
			"paused": func(w *wire) {
				ok(t, m.Pause())
				w.send("SET k v")
				w.wantSilence()
			},
			"paused and killed": func(w *wire) {
				ok(t, m.Pause())
				w.send("SET k v")
				w.wantSilence()
				ok(t, m.Kill())
				w.wantBroken()
			},
		} {
			fault(dial(t, addr))
			ok(t, m.Restart())
			if got := ask(t, addr, "GET k"); m.Addr() != addr || got != "$-1" {
				t.Errorf("%s: got %q at %s, want no key at %s", name, got, m.Addr(), addr)
			}
		}
	})
}

// A request whose client gave up during the pause still takes effect.
func TestPausedMasterCarriesOutRequestsLater(t *testing.T) {
	eachKind(t, func(t testing.TB, m masters.Master) {
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

func TestStart(outer *testing.T) {
	t := redistest.Timed(outer)
	start := func(t testing.TB, kind string) {
		list, got, err := masters.Start(t.Context(), 3)
		ok(t, err)
		if got != kind || len(list) != 3 {
			t.Errorf("got %d of kind %q, want 3 of kind %q", len(list), got, kind)
		}
		seen := map[string]bool{}
		for _, m := range list {
			_, real := m.(*masters.Process)
			if real != (kind == masters.KindProcess) || ask(t, m.Addr(), "PING") != "+PONG" || seen[m.Addr()] {
				t.Errorf("%T on %s: not another %s that answers", m, m.Addr(), kind)
			}
			seen[m.Addr()] = true
			ok(t, m.Close())
		}
	}
	t.Run("with redis-server", func(t *redistest.T) {
		redistest.Server(t)
		start(t, masters.KindProcess)
	})
	t.Run("without", func(t *redistest.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := masters.StartProcess(t.Context(), masters.ProcessConfig{}); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("StartProcess: got %v, want exec.ErrNotFound", err)
		}
		start(t, masters.KindMini)
	})
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

func wantNoDir(t testing.TB, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory of the master: got %v, want none", err)
	}
}
