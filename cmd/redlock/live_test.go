//go:build linux || darwin

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/redistest"
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

// pressesUntil types a key again and again until a picture matches a pattern.
func (s *screen) pressesUntil(key, pattern string) {
	s.t.Helper()
	text := regexp.MustCompile(pattern)
	for began := time.Now(); !text.MatchString(strings.Join(s.frame(), "\n")); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 15*time.Second {
			s.t.Fatalf("no picture matches %q:\n%s", pattern, strings.Join(s.frame(), "\n"))
		}
		s.types(key)
	}
}

// resize makes the terminal so large.
func (s *screen) resize(rows, columns uint16) {
	s.t.Helper()
	must(s.t, pty.Setsize(s.pty, &pty.Winsize{Rows: rows, Cols: columns}))
}

// A terminal of 80 by 24 shows masters, locks, holders and waiters in place, and heeds keys.
func TestTopOnATerminal(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	hold := []string{"run", "--owner", "a-fleet"}
	for i := range 30 {
		hold = append(hold, fmt.Sprintf("many:%02d", i))
	}
	holder := c.command("redlock", append(hold, "--", "sleep", "100")...)
	must(t, holder.Start())
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
	s := c.onTerminal(t, nil, "redlock", "top", "--interval", "1m")
	s.resize(24, 80)
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
	waiter := c.command("redlock", "run", "many:29", "-w", "30s", "--", "true")
	must(t, waiter.Start())
	defer func() { _ = waiter.Process.Kill(); _ = waiter.Wait() }()
	fits(s.awaits(`^many:00 +a-fleet +HELD +[0-9.]+s `))
	for range 40 {
		s.types("\x1b[B")
	}
	fits(s.awaits(`^many:29 `))
	s.types("w\x1b[5~\x1b[5~")
	s.pressesUntil(" ", `(?m)^KEY .*\nmany:29 +a-fleet +HELD +[0-9.]+s +[0-9.]+m?s +1 `) // first, once the waiter is in line
	must(t, c.list[0].Restart())
	s.pressesUntil("r", " no ")
	s.awaits(`^    no vote for [0-9.]+m?s: it is new, or may have lost keys$`)
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
	plain := c.onTerminal(t, []string{"NO_COLOR=1"}, "redlock", "top")
	plain.awaits(`^many:`)
	plain.types(ctrlC)
	if code := plain.code(); code != 0 || strings.Contains(plain.shows(), "\x1b[3") {
		t.Errorf("NO_COLOR: got code %d, want 0 and no colours", code)
	}
}

// watch is a top of some locks, whether they are held or not.
func TestWatchOnATerminal(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	s := c.onTerminal(t, nil, "redlock", "watch", "k", "other", "--interval", "100ms")
	for i, want := range []string{"redlock watch  ", "KEY ", "k ", "other "} {
		if lines := s.awaits(`^k +FREE`); !strings.HasPrefix(lines[i], want) {
			t.Errorf("got %q in line %d, want %q", lines[i], i, want)
		}
	}
	handle, err := c.command("redlock", "acquire", "k", "--ttl", "5s").Output()
	must(t, err)
	s.awaits(`^k +[^ ]+:acquire +HELD +[0-9.]+m?s `)
	must(t, c.command("redlock", "release", strings.TrimSpace(string(handle))).Run())
	s.awaits(`^k +FREE`)
	if !regexp.MustCompile(`\x1b\[[0-9;]*m`).MatchString(s.shows()) {
		t.Errorf("got no colours in %q", s.shows())
	}
	s.types(ctrlC)
	if code := s.code(); code != 0 {
		t.Errorf("got code %d, want 0\n%q", code, s.shows())
	}
	s = c.onTerminal(t, nil, "redlock", "watch", "a-key-that-is-longer-than-the-line", "b", "c", "d", "--interval", "100ms")
	s.resize(5, 30)
	s.awaits(`^a-key-that-… +FREE`)
	s.pressesUntil("j", `(?m)^d +FREE`)
	if lines := s.frame(); len(lines) != 5 {
		t.Errorf("got %d lines, want 5:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	must(t, c.list[0].Kill())
	s.resize(40, 120)
	s.awaits(`^redlock watch  .*  2 of 3 masters vote  quorum  4 locks$`)
	s.awaits(`^a-key-that-is-longer-than-the-line  +FREE`)
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	if code := s.code(); code != 0 {
		t.Errorf("got code %d, want 0\n%q", code, s.shows())
	}
}

// A terminal that can only print gets one line for each change.
func TestWatchOnADumbTerminal(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	s := c.onTerminal(t, []string{"TERM=dumb"}, "redlock", "watch", "k", "--interval", "100ms")
	s.waits(" k: FREE\r\n")
	s.types(ctrlC)
	if code := s.code(); code != 0 || strings.Contains(s.shows(), "\x1b") {
		t.Errorf("got code %d, %q; want 0 and plain lines", code, s.shows())
	}
}

// On 80 columns the owner of a lock is whole: the token is cut first, the fencing token is whole or not there,
// and then the key is cut.
func TestLockTableOn80Columns(t *testing.T) {
	owner := "ip-10-0-12-34.eu-west-1.internal:471123:make"
	held := lock{name: keyName("team:service:environment:deploy"), Verdict: admin.VerdictHeld, Owner: owner, Fence: 1795571116404684, Token: "Xp3k9QzA", Held: 192000, freeIn: 7900 * time.Millisecond, Waiting: 12}
	shared := lock{name: keyName("prices"), Verdict: admin.VerdictShared, Readers: []reader{{Token: "Xp3k9QzA", Owner: "one"}, {Token: "aaaaaaaa"}}}
	crowd := lock{name: keyName("prices"), Verdict: admin.VerdictShared, Readers: slices.Repeat([]reader{{Owner: "web-1"}}, 16)}
	for _, test := range []struct {
		name   string
		width  int
		locks  []lock
		want   []string
		absent string
	}{
		{"a long owner", 79, []lock{held}, []string{"team:servic…  " + owner + "  HELD      7.9s"}, " 12"},
		{"no room for a part of the token", 133, []lock{held}, []string{"team:service:environment:deploy  " + owner + "  HELD      7.9s  3m12s       12  1795571116404684"}, "…"},
		{"room for a part of the token", 134, []lock{held}, []string{"team:service:environment:deploy  " + owner + "  HELD      7.9s  3m12s       12  1795571116404684  Xp3k…"}, "Q"},
		{"room for all", 157, []lock{held}, []string{"team:service:environment:deploy  " + owner + "  HELD      7.9s  3m12s       12  1795571116404684  Xp3k9QzA"}, "…"},
		{"no terminal", 0, []lock{held}, []string{"team:service:environment:deploy  " + owner + "  HELD      7.9s  3m12s       12  1795571116404684  Xp3k9QzA"}, "…"},
		{"readers", 79, []lock{shared}, []string{"prices  2 readers: one, aaaaaaaa  SHARED"}, "…"},
		{"many readers", 79, []lock{crowd, held}, []string{"prices        16 readers: web-1, web-1, web-1…              SHARED", "team:servic…  " + owner + "  HELD "}, "1795"},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := new(output).lockTable("key", test.locks, test.width)
			for i, want := range test.want {
				if got := lines[i+1]; !strings.HasPrefix(got, want) || strings.Contains(got, test.absent) || test.width > 0 && len([]rune(got)) > test.width {
					t.Errorf("got %q, want %q at the beginning, no %q, and at most %d columns", got, want, test.absent, test.width)
				}
			}
		})
	}
}
