//go:build linux || darwin

package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/d0720281/redlock"
)

// frame is the last whole picture on a terminal, without colours, by line.
func (s *screen) frame() []string {
	pictures := strings.Split(s.shows(), toTheTop)
	for i := len(pictures) - 1; i > 0; i-- {
		if text, _, whole := strings.Cut(pictures[i], toScreenEnd); whole {
			text = regexp.MustCompile(`\x1b\[[0-9;]*[mK]`).ReplaceAllString(text, "")
			return strings.Split(text, "\r\n")
		}
	}
	return nil
}

// awaits waits for a picture with a line that matches a pattern.
func (s *screen) awaits(pattern string) []string {
	s.t.Helper()
	line := regexp.MustCompile(pattern)
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		lines := s.frame()
		for _, l := range lines {
			if line.MatchString(l) {
				return lines
			}
		}
		if time.Since(began) > 15*time.Second {
			s.t.Fatalf("no line matches %q in:\n%s", pattern, strings.Join(lines, "\n"))
		}
	}
}

// pressesUntil types a key again and again until a picture has a text.
func (s *screen) pressesUntil(key, text string) {
	s.t.Helper()
	for began := time.Now(); !strings.Contains(strings.Join(s.frame(), "\n"), text); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 15*time.Second {
			s.t.Fatalf("no picture has %q:\n%s", text, strings.Join(s.frame(), "\n"))
		}
		s.types(key)
	}
}

// A terminal of 80 by 24 shows masters, locks, holders and waiters in place, and heeds keys.
func TestTopOnATerminal(t *testing.T) {
	list := newMasters(t, 3, redlock.DefaultMaxTTL)
	hold := []string{"run", "--owner", "a-fleet"}
	for i := range 30 {
		hold = append(hold, fmt.Sprintf("many:%02d", i))
	}
	holder := exec.Command("redlock", append(hold, "--", "sleep", "100")...)
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
	s := onTerminal(t, nil, "redlock", "top", "--interval", "1m")
	if err := pty.Setsize(s.pty, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	fits := func(lines []string) {
		t.Helper()
		if len(lines) != 24 {
			t.Errorf("got %d lines, want 24:\n%s", len(lines), strings.Join(lines, "\n"))
		}
		for _, l := range lines {
			if n := len([]rune(l)); n >= 80 {
				t.Errorf("got a line of %d characters, want less than 80: %q", n, l)
			}
		}
	}
	s.pressesUntil(" ", "30 locks, 1-17") // the holder and the size come a moment later
	waiter := exec.Command("redlock", "run", "many:29", "-w", "30s", "--", "true")
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waiter.Process.Kill(); _ = waiter.Wait() }()
	fits(s.awaits(`^many:00 +HELD +[0-9.]+s +a-fleet$`))
	for range 40 {
		s.types("\x1b[B")
	}
	fits(s.awaits(`^many:29 `))
	s.types("w\x1b[5~\x1b[5~")
	s.pressesUntil(" ", " 1  a-fleet") // the waiter takes a moment to get in line
	if lines := s.awaits(`^many:29 +HELD +[0-9.]+s +1  a-fleet$`); !strings.HasPrefix(lines[6], "many:29 ") {
		t.Errorf("got %q as the first lock, want that with a waiter", lines[6])
	}
	if err := list[0].Restart(); err != nil {
		t.Fatal(err)
	}
	s.pressesUntil("r", " no ")
	s.awaits(`^127.0.0.1:[0-9]+ +[0-9.µm]+s  no +[0-9.]+s  no vote for`)
	s.awaits(`2 of 3 masters vote  quorum`)
	s.types("+")
	s.awaits(`every 30s`)
	if !strings.Contains(s.shows(), "\x1b[32m") || !strings.Contains(s.shows(), otherScreen) {
		t.Errorf("got no colours, or not the other screen: %q", s.shows()[:300])
	}
	s.types("q")
	s.waits(firstScreen)
	if code := s.code(); code != 0 {
		t.Errorf("got code %d, want 0", code)
	}
	plain := onTerminal(t, []string{"NO_COLOR=1"}, "redlock", "top")
	plain.awaits(`^many:`)
	plain.types(ctrlC)
	if code := plain.code(); code != 0 || strings.Contains(plain.shows(), "\x1b[3") {
		t.Errorf("NO_COLOR: got code %d, want 0 and no colours", code)
	}
}
