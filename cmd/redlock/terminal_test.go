//go:build linux || darwin

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// screen is a terminal that runs a command.
type screen struct {
	t   testing.TB
	cmd *exec.Cmd
	pty *os.File

	mu   sync.Mutex
	text string // guarded by mu
	done chan struct{}
}

// onTerminal starts a command on a terminal of its own.
func (c *cluster) onTerminal(t testing.TB, env []string, name string, args ...string) *screen {
	t.Helper()
	s := &screen{t: t, cmd: c.command(name, args...), done: make(chan struct{})}
	s.cmd.Env = append(append(s.cmd.Env, "PS1=ready> ", "TERM=xterm", "ENV=", "HISTFILE="), env...)
	f, err := pty.Start(s.cmd)
	must(t, err)
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
func TestTheCommandHasTheTerminal(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	s := c.onTerminal(t, nil, "redlock", "run", "k", "-c",
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
		s = c.onTerminal(t, nil, "redlock", "run", "k", "-c", `read -r pid name state parent group session tty front rest </proc/$$/stat; echo in front: $((group == front))`)
		s.waits("in front: 1")
		s.code()
	}
	s = c.onTerminal(t, nil, "redlock", "run", "k", "-c", `echo here; sleep 20`)
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
func TestTheTerminalIsGivenBack(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	s := c.onTerminal(t, nil, "sh", "-c", `redlock run k -- true; redlock run k --ttl 5s -k 0 -- sh -c 'exit 2'; echo code $?; read x; echo "got <$x>"`)
	s.waits("code 2")
	s.types("it\n")
	s.waits("got <it>")
	if code := s.code(); code != 0 {
		t.Errorf("got code %d\n%s", code, s.shows())
	}
}

// A shell with job control: Ctrl-Z stops the command and redlock, fg continues both.
func TestJobControl(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs a shell with job control: ", err)
	}
	s := c.onTerminal(t, []string{"TERM=dumb"}, bash, "--norc", "--noprofile", "-i")
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
	s.types("redlock run k --ttl 3s -- beat " + file + "\n")
	redistest.Eventually(t, 10*time.Second, func() bool { return beating(file) }, "the command runs")
	s.types(ctrlZ)
	s.waits("Stopped                 redlock run k --ttl")
	time.Sleep(4 * time.Second) // the lock ends
	stopped := lastBeat(t, file)
	s.types("fg\n")
	s.waits("redlock: k: the lock was lost while the command ran: ")
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
func TestColours(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
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
		t.Run(test.name, func(t *redistest.T) {
			s := c.onTerminal(t, test.env, "redlock", args...)
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
	out, err := c.command("redlock", args...).Output()
	if err != nil || strings.ContainsAny(string(out), "\x1b\r") {
		t.Errorf("piped: got %q, %v; want plain text", out, err)
	}
}

// A redlock run that waits says on a terminal which holder is in its way, once, and with -q nothing.
func TestRunNamesTheHolder(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	free := filepath.Join(t.TempDir(), "free")
	holder := c.start(t, "deploy", "--owner", "ci-3:4711:make", "-c", "until test -e "+free+"; do sleep 0.05; done")
	redistest.Eventually(t, 10*time.Second, func() bool {
		return c.command("redlock", "status", "deploy", "--exit-status").Run() != nil
	}, "the lock is held")
	for args, want := range map[string]string{"status deploy": `: HELD by ci-3:4711:make for \d`, "list": `(?m)^deploy +ci-3:4711:make +HELD +[0-9.]+m?s +[0-9.]+m?s `} {
		if out, err := c.command("redlock", strings.Fields(args)...).Output(); err != nil || !regexp.MustCompile(want).Match(out) {
			t.Errorf("%s: got %v, %s; want it to match %s", args, err, out, want)
		}
	}
	const line = "redlock: waiting for deploy, held by ci-3:4711:make for "
	waiter := c.onTerminal(t, nil, "redlock", "run", "deploy", "--", "true")
	waiter.waits(line)
	for _, args := range []string{"run deploy -q -w 2s -- true", "run deploy -n -- true", "acquire deploy -q -w 2s"} {
		quiet := c.onTerminal(t, nil, "redlock", strings.Fields(args)...)
		if code := quiet.code(); code != exitConflict || quiet.shows() != "" {
			t.Errorf("%s: got code %d, %q; want %d and nothing said", args, code, quiet.shows(), exitConflict)
		}
	}
	loud := c.onTerminal(t, nil, "redlock", "acquire", "deploy")
	loud.waits(line)
	loud.types(ctrlC)
	if code := loud.code(); code != exitInterrupted {
		t.Errorf("got code %d, want %d", code, exitInterrupted)
	}
	must(t, os.WriteFile(free, nil, 0o600))
	if code := waiter.code(); code != 0 || !strings.HasPrefix(waiter.shows(), line) || strings.Count(waiter.shows(), "\n") != 1 {
		t.Errorf("got code %d, %q; want 0, and the holder named once", code, waiter.shows())
	}
	if code, rec := holder.wait(t); code != 0 {
		t.Errorf("got code %d, %+v of the holder, want 0", code, rec)
	}
}

// On a terminal redlock init does what it shows only if the user types yes.
func TestInitOnATerminal(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	for _, test := range []struct {
		prefix, typed string
		code          int
		says          string
	}{
		{"no:", "no\n", exitUsage, "nothing was done"},
		{"enter:", "\n", exitUsage, "nothing was done"},
		{"interrupt:", ctrlC, exitInterrupted, "redlock: interrupted"},
		{"quit:", "\x1c", exitInterrupted, "redlock: interrupted"},
		{"yes:", "yes\n", exitOK, "Masters that have a vote now"},
	} {
		s := c.onTerminal(t, nil, "redlock", "init", "--prefix", test.prefix)
		s.waits("You declare that no lock is held on them")
		s.waits("Type yes to declare that: ")
		s.types(test.typed)
		if code := s.code(); code != test.code {
			t.Errorf("%q: got code %d, want %d\n%s", test.typed, code, test.code, s.shows())
		}
		s.waits(test.says)
		out, _ := c.command("redlock", "status", "k", "--prefix", test.prefix).Output()
		if voted := strings.HasPrefix(string(out), "k: FREE"); voted != (test.code == exitOK) {
			t.Errorf("%q: got\n%s\nwant votes only after yes", test.typed, out)
		}
	}
}

// Help and findings are wrapped at the width of the terminal. On 80 by 24, doctor shows three masters at
// a glance.
func TestTextFitsTheTerminal(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	lines := func(rows, columns uint16, args ...string) []string {
		s := c.onTerminal(t, []string{"NO_COLOR=1"}, "sh", append([]string{"-c", `read go; exec redlock "$@"`, "sh"}, args...)...)
		s.resize(rows, columns)
		s.types("go\n")
		s.code()
		<-s.done
		return strings.Split(strings.TrimSpace(strings.TrimPrefix(s.shows(), "go\r\n")), "\r\n")
	}
	widest := func(lines []string) (n int) {
		for _, l := range lines {
			n = max(n, len([]rune(l)))
		}
		return n
	}
	for _, columns := range []uint16{60, 80, 100} {
		if got := lines(24, columns, "help", "list"); widest(got) > int(columns) || widest(got) <= int(columns)-15 {
			t.Errorf("got help of %d columns on a terminal of %d:\n%s", widest(got), columns, strings.Join(got, "\n"))
		}
	}
	if got := lines(24, 80, "doctor", "--wait", "20s"); len(got) != 5 || !strings.HasSuffix(got[0], ": 8 checks ok") || got[3] != "all masters: 1 check ok" {
		t.Errorf("got %q, want a line for each master, one for all, and the votes", got)
	}
	for _, m := range c.list {
		must(t, m.Kill())
	}
	for _, args := range [][]string{{"doctor"}, {"init", "--prefix", "fits:", "--yes"}} {
		if got := lines(24, 60, args...); widest(got) > 60 || len(got) > 23 {
			t.Errorf("%s: got %d lines of up to %d columns:\n%s", args[0], len(got), widest(got), strings.Join(got, "\n"))
		}
	}
}

// At a Tab, bash completes commands, flags and the end of a line with colons, without the package
// bash-completion and its functions.
func TestCompletionInBash(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash: ", err)
	}
	s := new(cluster).onTerminal(t, []string{"TERM=dumb"}, bash, "--norc", "--noprofile", "-i")
	s.waits("ready> ")
	s.types("bind 'set bell-style none'; complete -r; source <(redlock completion bash); type -t _init_completion _get_comp_words_by_ref; echo loaded\n")
	s.waits("\nloaded")
	for typed, want := range map[string]string{
		"redlock rel\t":                       "redlock release ",
		"redlock status stock:7 --exit\t":     "redlock status stock:7 --exit-status ",
		"redlock run a:1 --owner=x --at-le\t": "redlock run a:1 --owner=x --at-least ",
	} {
		s.types(typed)
		s.waits(want)
		s.types("\x15") // Ctrl-U empties the line
	}
	s.types("exit\n")
	s.code()
	if strings.Contains(s.shows(), "command not found") || strings.Contains(s.shows(), "function\r") {
		t.Errorf("got\n%s\nwant no error, and a bash without the package", s.shows())
	}
}

// On a terminal of 80 by 24 no line of any command is cut into two by the terminal, and no address by the
// command. All of demo is seen.
func TestEachCommandFitsTheTerminal(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	ready := filepath.Join(t.TempDir(), "ready")
	holder := c.start(t, "held", "--owner", "build-machine-12:4711:make", "--", "beat", ready)
	redistest.Eventually(t, 10*time.Second, func() bool { return beating(ready) }, "the lock is held")
	down := " --masters 127.0.0.1:1,127.0.0.1:2," + c.list[0].Addr()
	for _, args := range []string{
		"status held", "status free held", "status held --permits 2", "list", "doctor --locks", "break held", "init --yes",
		"run held -n -v -q -- true", "run held -w 2s -- true", "acquire held -n", "extend held x", "release held x", "demo",
		"status held" + down, "list" + down, "doctor --locks" + down, "break held --yes" + down, "init --yes" + down,
		"run k -w 3s -- true" + down, "run k -w 3s" + down + " -- true", "acquire k -w 3s" + down, "list one two three four five six", "nothing", "break held --yes",
	} {
		s := c.onTerminal(t, nil, "sh", append([]string{"-c", `read go; exec redlock "$@"`, "sh"}, strings.Fields(args)...)...)
		s.resize(24, 80)
		s.types("go\n")
		s.code()
		<-s.done
		text := escapes.ReplaceAllString(strings.TrimPrefix(s.shows(), "go\r\n"), "")
		lines := strings.Split(strings.TrimSpace(text), "\r\n")
		for _, line := range lines {
			if strings.HasPrefix(line, "time=") {
				continue // of -v: a line for each event, for logs
			}
			if n := len([]rune(line)); n > 80 {
				t.Errorf("redlock %s: got a line of %d columns: %s", args, n, line)
			}
			if brokenAddress.MatchString(line) {
				t.Errorf("redlock %s: got a broken address: %s", args, line)
			}
		}
		slow := strings.Count(text, "up, found down") // masters that answered late on a busy machine: demo shows their errors
		if len(lines) > 24+2*slow {
			t.Errorf("redlock %s: got %d lines:\n%s", args, len(lines), text)
		}
	}
	holder.signal(t, syscall.SIGKILL)
	_ = holder.cmd.Wait() // killed, or its lock is lost
}

var (
	escapes       = regexp.MustCompile("\x1b\\[[0-9;]*m")
	brokenAddress = regexp.MustCompile(`\b127(\.0){0,2}\.?$|\b127\.0\.0\.1:?$`)
)
