//go:build linux || darwin

package main

import (
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/d0720281/redlock"
)

// A terminal shows always the same lines, with the present state, until the user ends it.
func TestWatchOnATerminal(t *testing.T) {
	list := newMasters(t, 3, redlock.DefaultMaxTTL)
	for _, test := range []struct {
		name    string
		env     []string
		colours bool
	}{
		{"with colours", nil, true},
		{"without", []string{"NO_COLOR=1"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := onTerminal(t, test.env, "redlock", "watch", "k", "other", "--interval", "100ms")
			s.waits("every 100ms, Ctrl-C ends it\r\n")
			s.waits("  other\r\n\x1b[3A\r\x1b[J") // three lines up
			token, err := exec.Command("redlock", "acquire", "k", "--ttl", "5s").Output()
			if err != nil {
				t.Fatal(err)
			}
			s.waits("  k  token " + string(token[:8]))
			s.waits("  expires in ")
			if err := exec.Command("redlock", "release", "k", strings.TrimSpace(string(token))).Run(); err != nil {
				t.Fatal(err)
			}
			before := len(s.shows())
			for !regexp.MustCompile(`FREE(\x1b\[0m)? {9}k\r\n`).MatchString(s.shows()[before:]) {
				s.waits("\x1b[J")
			}
			if got := regexp.MustCompile(`\x1b\[[0-9;]*m`).MatchString(s.shows()); got != test.colours {
				t.Errorf("got colours %v, want %v in %q", got, test.colours, s.shows())
			}
			s.types(ctrlC)
			if code := s.code(); code != 0 {
				t.Errorf("got code %d, want 0\n%q", code, s.shows())
			}
		})
	}
	s := onTerminal(t, nil, "redlock", "watch", "a-key-that-is-longer-than-the-line", "b", "c", "d", "--interval", "100ms")
	if err := pty.Setsize(s.pty, &pty.Winsize{Rows: 5, Cols: 30}); err != nil {
		t.Fatal(err)
	}
	s.waits("\x1b[4A") // no more lines than fit, as soon as the size is known
	all := s.shows()
	s.waits("a-key-that-is-lo\r\n")
	if err := list[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(s.pty, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	s.waits("a-key-that-is-longer-than-the-line  (1 of 3 masters down)\r\n")
	s.waits("\x1b[5A")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.code(); code != 0 {
		t.Errorf("got code %d, want 0\n%q", code, all)
	}
}

// A terminal that can only print gets one line for each change.
func TestWatchOnADumbTerminal(t *testing.T) {
	newMasters(t, 3, redlock.DefaultMaxTTL)
	s := onTerminal(t, []string{"TERM=dumb"}, "redlock", "watch", "k", "--interval", "100ms")
	s.waits(" FREE k\r\n")
	s.types(ctrlC)
	if code := s.code(); code != 0 || strings.Contains(s.shows(), "\x1b") {
		t.Errorf("got code %d, %q; want 0 and plain lines", code, s.shows())
	}
}
