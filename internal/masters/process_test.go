package masters_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// configured asks a master for a configuration value.
func configured(t *testing.T, addr, name string) string {
	t.Helper()
	got, err := redistest.Client(t, addr).ConfigGet(t.Context(), name).Result()
	ok(t, err)
	return got[name]
}

func TestProcessDefaults(t *testing.T) {
	p := server(t)
	for name, want := range map[string]string{
		"bind": "127.0.0.1", "save": "", "appendonly": "no", "protected-mode": "no",
	} {
		if got := configured(t, p.Addr(), name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	ok(t, redistest.Client(t, p.Addr()).Do(t.Context(), "debug", "sleep", "0").Err()) // permitted
}

func TestProcessConfig(t *testing.T) {
	redistest.Server(t)
	real, err := masters.LookPath()
	ok(t, err)
	// A binary that prints its environment; redis-server overwrites its own.
	dir := t.TempDir()
	binary := filepath.Join(dir, "server")
	script := fmt.Sprintf("#!/bin/sh\necho here >%s/seen\nexec %s \"$@\"\n", dir, real)
	ok(t, os.WriteFile(binary, []byte(script), 0o700))

	// A port that a master had until now.
	first := server(t)
	ok(t, first.Close())
	_, port, _ := net.SplitHostPort(first.Addr())
	want, _ := strconv.Atoi(port)

	p, err := masters.StartProcess(t.Context(), masters.ProcessConfig{
		Binary: binary,
		Port:   want,
		Args:   []string{"--maxclients", "77", "--protected-mode", "yes"},
	})
	ok(t, err)
	defer p.Close()
	if p.Addr() != first.Addr() {
		t.Errorf("got %s, want %s", p.Addr(), first.Addr())
	}
	if got := configured(t, p.Addr(), "maxclients"); got != "77" {
		t.Errorf("added argument: got %q, want 77", got)
	}
	if got := configured(t, p.Addr(), "protected-mode"); got != "yes" {
		t.Errorf("overridden argument: got %q, want yes", got)
	}
	if seen, err := os.ReadFile(filepath.Join(dir, "seen")); err != nil || string(seen) != "here\n" {
		t.Errorf("the binary that was given: got %q, %v, want it to have run", seen, err)
	}
}

func TestProcessWithAPasswordIsReady(t *testing.T) {
	p := redistest.Masters(t, 1, "--requirepass", "secret")[0]
	if got := ask(t, p.Addr(), "PING"); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("got %q, want -NOAUTH", got)
	}
}

func TestProcessKeepsItsDataIfTold(t *testing.T) {
	p := redistest.Masters(t, 1, "--appendonly", "yes")[0]
	ask(t, p.Addr(), "SET k v")
	ok(t, p.Kill())
	ok(t, p.Restart())
	wantKey(t, p.Addr(), "k", "v")
}

func TestProcessPid(t *testing.T) {
	p := server(t)
	first := p.Pid()
	ok(t, p.Restart())
	if second := p.Pid(); first == 0 || second == 0 || second == first {
		t.Errorf("got pid %d, then %d after a restart", first, second)
	}
	ok(t, p.Kill())
	if got := p.Pid(); got != 0 {
		t.Errorf("got pid %d of a killed master, want 0", got)
	}
	ok(t, p.Restart())
	w := dial(t, p.Addr())
	w.send("SHUTDOWN NOSAVE")
	w.wantBroken()
	redistest.Eventually(t, patient, func() bool { return p.Pid() == 0 }, "pid 0 after SHUTDOWN")
	if err := p.Pause(); !errors.Is(err, masters.ErrNotRunning) {
		t.Errorf("pause: got %v, want ErrNotRunning", err)
	}
	ok(t, p.Restart())
}

func TestCloseRemovesTheDirectory(t *testing.T) {
	for name, before := range map[string]func(*masters.Process) error{
		"running": func(*masters.Process) error { return nil },
		"paused":  (*masters.Process).Pause,
		"killed":  (*masters.Process).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			p := server(t)
			dir := configured(t, p.Addr(), "dir")
			ok(t, before(p))
			ok(t, p.Close())
			wantNoDir(t, dir)
		})
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	redistest.Server(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	taken, err := net.Listen("tcp", "127.0.0.1:0") // a port without a server that answers
	ok(t, err)
	defer taken.Close()
	other := redistest.Masters(t, 1)[0]
	dir := configured(t, other.Addr(), "dir")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	port := func(addr string) int {
		_, s, _ := net.SplitHostPort(addr)
		n, _ := strconv.Atoi(s)
		return n
	}
	for name, test := range map[string]struct {
		ctx  context.Context
		cfg  masters.ProcessConfig
		want string
	}{
		"unknown argument":        {t.Context(), masters.ProcessConfig{Args: []string{"--no-such-thing", "1"}}, "no-such-thing"},
		"no such binary":          {t.Context(), masters.ProcessConfig{Binary: filepath.Join(tmp, "none")}, "no such file"},
		"port of another server":  {t.Context(), masters.ProcessConfig{Port: port(other.Addr())}, "port is taken"},
		"port of a mute listener": {t.Context(), masters.ProcessConfig{Port: port(taken.Addr().String())}, "port is taken"},
		"context ended":           {ended, masters.ProcessConfig{}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := masters.StartProcess(test.ctx, test.cfg)
			if err == nil {
				p.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to tell of %q", err, test.want)
			}
			left, err := filepath.Glob(filepath.Join(tmp, "redlock-master-*"))
			ok(t, err)
			if len(left) != 1 || left[0] != dir {
				t.Errorf("got directories %v, want only the other master's %s", left, dir)
			}
		})
	}
}

func TestServerDiesWithItsParent(t *testing.T) {
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
