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
