package masters_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// configured asks a master for a configuration value.
func configured(t testing.TB, addr, name string) string {
	t.Helper()
	got, err := redistest.Client(t, addr).ConfigGet(t.Context(), name).Result()
	ok(t, err)
	return got[name]
}

func TestCloseRemovesTheDirectory(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, before := range []func(*masters.Process) error{(*masters.Process).Resume, (*masters.Process).Pause, (*masters.Process).Kill} {
		p := server(t)
		dir := configured(t, p.Addr(), "dir")
		ok(t, before(p))
		ok(t, p.Close())
		wantNoDir(t, dir)
	}
}

func TestFailedStartLeavesNothing(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.Server(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx  context.Context
		cfg  masters.ProcessConfig
		want string
	}{
		{t.Context(), masters.ProcessConfig{Args: []string{"--no-such-thing", "1"}}, "no-such-thing"},
		{t.Context(), masters.ProcessConfig{Binary: filepath.Join(tmp, "none")}, "no such file"},
		{ended, masters.ProcessConfig{}, "context canceled"},
	} {
		p, err := masters.StartProcess(test.ctx, test.cfg)
		if err == nil {
			p.Close()
			t.Fatalf("started, want it to tell of %q", test.want)
		}
		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want it to tell of %q", err, test.want)
		}
		if left, _ := filepath.Glob(filepath.Join(tmp, "redlock-master-*")); len(left) != 0 {
			t.Errorf("%s: got directories %v, want none", test.want, left)
		}
	}
}

func TestServerDiesWithItsParent(outer *testing.T) {
	t := redistest.Timed(outer)
	if runtime.GOOS != "linux" {
		t.Skip("needs the parent-death signal of Linux")
	}
	redistest.Server(t)
	t.Setenv("TMPDIR", t.TempDir()) // the killed child cannot clean up
	exe, err := os.Executable()
	ok(t, err)
	parent := exec.Command(exe)
	parent.Env = append(os.Environ(), orphanEnv+"=1")
	stdin, err := parent.StdinPipe()
	ok(t, err)
	defer stdin.Close()
	stdout, err := parent.StdoutPipe()
	ok(t, err)
	ok(t, parent.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	addr := strings.TrimSpace(line)
	if err == nil {
		_, _, err = net.SplitHostPort(addr)
	}
	if err == nil && ask(t, addr, "PING") != "+PONG" {
		err = errors.New("no answer")
	}
	killed := parent.Process.Kill()
	_ = parent.Wait()
	ok(t, errors.Join(err, killed))
	redistest.Eventually(t, patient, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, "the server of a killed process is gone")
}
