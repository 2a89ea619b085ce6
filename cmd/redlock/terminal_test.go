//go:build linux || darwin

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// screen is a terminal that runs a command.
type screen struct {
	t   *testing.T
	cmd *exec.Cmd
	pty *os.File

	mu   sync.Mutex
	text string // guarded by mu
	done chan struct{}
}

// onTerminal starts a command on a terminal of its own.
func onTerminal(t *testing.T, env []string, name string, args ...string) *screen {
	t.Helper()
	s := &screen{t: t, cmd: exec.Command(name, args...), done: make(chan struct{})}
	s.cmd.Env = append(append(os.Environ(), "PS1=ready> ", "TERM=xterm", "ENV=", "HISTFILE="), env...)
	f, err := pty.Start(s.cmd)
	if err != nil {
		t.Fatal(err)
	}
	s.pty = f
	go func() {
		defer close(s.done)
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			s.mu.Lock()
			s.text += string(buf[:n])
			s.mu.Unlock()
			if err != nil { // EIO when no process has the terminal any more
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = f.Close()
		<-s.done
	})
	return s
}

func (s *screen) shows() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// types sends the user's input.
func (s *screen) types(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.pty, keys); err != nil {
		s.t.Fatal(err)
	}
}

// interrupts types Ctrl-C, and again each second until the terminal is closed: dash loses an
// interrupt that comes between its vfork and the exec of a program.
func (s *screen) interrupts() {
	s.types(ctrlC)
	go func() {
		for {
			select {
			case <-s.done:
				return
			case <-time.After(time.Second):
				_, _ = io.WriteString(s.pty, ctrlC) // the terminal may be closed by now
			}
		}
	}()
}

// waits until the screen shows text.
func (s *screen) waits(text string) {
	s.t.Helper()
	for began := time.Now(); !strings.Contains(s.shows(), text); time.Sleep(3 * time.Millisecond) {
		if time.Since(began) > 15*time.Second {
			s.t.Fatalf("%q does not appear in:\n%q", text, s.shows())
		}
	}
}

// code returns the exit code of the command.
func (s *screen) code() int {
	s.t.Helper()
	stuck := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer stuck.Stop()
	if err := s.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// The command has the terminal: it can read, and gets Ctrl-C itself, once.
func TestTheCommandHasTheTerminal(t *testing.T) {
	newMasters(t, 3, redlock.DefaultMaxTTL)
	s := onTerminal(t, nil, "redlock", "run", "k", "-c",
		`n=0; trap 'n=$((n+1)); echo interrupted $n' INT; read x; echo "read <$x>"; until read y; do :; done; echo "then <$y> after $n"; exit 4`)
	s.types("one\n")
	s.waits("read <one>")
	s.types(ctrlC)
	s.waits("interrupted 1")
	s.types("two\n")
	s.waits("then <two> after 1")
	if code := s.code(); code != 4 {
		t.Errorf("got code %d, want 4\n%s", code, s.shows())
	}
	if runtime.GOOS == "linux" { // from the start, and not only when it wants to read
		s = onTerminal(t, nil, "redlock", "run", "k", "-c", `read -r pid name state parent group session tty front rest </proc/$$/stat; echo in front: $((group == front))`)
		s.waits("in front: 1")
		s.code()
	}
	s = onTerminal(t, nil, "redlock", "run", "k", "-c", `echo here; sleep 20`)
	s.waits("here")
	s.interrupts()
	if code := s.code(); code != 130 {
		t.Errorf("Ctrl-C: got code %d, want 130\n%s", code, s.shows())
	}
	if strings.Contains(s.shows(), "redlock") {
		t.Errorf("got %q, want nothing said", s.shows())
	}
}

// Afterwards the shell that called redlock gets the terminal back.
func TestTheTerminalIsGivenBack(t *testing.T) {
	newMasters(t, 3, redlock.DefaultMaxTTL)
	s := onTerminal(t, nil, "sh", "-c", `redlock run k -- true; redlock run k --ttl 200ms -k 0 -- sh -c 'exit 2'; echo code $?; read x; echo "got <$x>"`)
	s.waits("code 2")
	s.types("it\n")
	s.waits("got <it>")
	if code := s.code(); code != 0 {
		t.Errorf("got code %d\n%s", code, s.shows())
	}
}

// A shell with job control: Ctrl-Z stops the command and redlock, fg continues both.
func TestJobControl(t *testing.T) {
	newMasters(t, 3, redlock.DefaultMaxTTL)
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs a shell with job control: ", err)
	}
	s := onTerminal(t, []string{"TERM=dumb"}, bash, "--norc", "--noprofile", "-i")
	s.waits("ready> ")

	s.types(`redlock run k -c 'echo up; read x; echo "read <$x>"; exit 6'` + "\n")
	s.waits("\nup")
	s.types(ctrlZ)
	s.waits("Stopped")
	s.types("echo back; jobs\n")
	s.waits("\nback")
	s.types("fg\n")
	s.types("line\n")
	s.waits("read <line>")
	s.types("echo code $?\n")
	s.waits("\ncode 6")

	// In the background the command does not take the terminal away, and is stopped when it
	// wants to read.
	s.types(`redlock run k -c 'read x; echo "later <$x>"' &` + "\n")
	s.types("echo still mine\n")
	s.waits("\nstill mine")
	s.types("jobs; while jobs | grep -q Running; do sleep 0.05; done; echo is stopped\n")
	s.waits("\nis stopped")
	s.types("fg\n")
	s.types("line\n")
	s.waits("later <line>")

	// A command that was stopped for too long is killed, and does not continue.
	file := filepath.Join(t.TempDir(), "beat")
	s.types("redlock run k --ttl 400ms -- beat " + file + "\n")
	redistest.Eventually(t, 10*time.Second, func() bool { return beating(file) }, "the command runs")
	s.types(ctrlZ)
	s.waits("Stopped                 redlock run k --ttl")
	time.Sleep(600 * time.Millisecond) // the lock ends
	stopped := lastBeat(t, file)
	s.types("fg\n")
	s.waits("redlock: the lock was lost while the command ran: ")
	s.types("echo code $?\n")
	s.waits("\ncode 76")
	if late := lastBeat(t, file); late != stopped {
		t.Errorf("the command went on for %v", late.Sub(stopped))
	}
	s.types("exit 0\n")
	if code := s.code(); code != 0 {
		t.Errorf("got code %d\n%s", code, s.shows())
	}
}

// Colours are for terminals, and for users who want them.
func TestColours(t *testing.T) {
	newMasters(t, 3, redlock.DefaultMaxTTL)
	args := []string{"status", "k"}
	for _, test := range []struct {
		name string
		env  []string
		want bool
	}{
		{"a terminal", nil, true},
		{"NO_COLOR", []string{"NO_COLOR=1"}, false},
		{"a dumb terminal", []string{"TERM=dumb"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := onTerminal(t, test.env, "redlock", args...)
			if code := s.code(); code != 0 {
				t.Fatalf("got code %d\n%s", code, s.shows())
			}
			s.waits("k: ")
			s.waits("FREE")
			if got := strings.Contains(s.shows(), "\x1b["); got != test.want {
				t.Errorf("got colours %v, want %v in %q", got, test.want, s.shows())
			}
		})
	}
	out, err := exec.Command("redlock", args...).Output()
	if err != nil || strings.ContainsAny(string(out), "\x1b\r") {
		t.Errorf("piped: got %q, %v; want plain text", out, err)
	}
}
