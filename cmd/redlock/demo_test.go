package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// small returns the demo in a size for tests: 60 attempts to sell one of 20 items.
func small(out *bytes.Buffer) *demo {
	return &demo{
		stock: 20, services: 3, workers: 5, rounds: 4, output: output{out: out},
		guard: byLibrary,
	}
}

// withoutServer makes the demo use in-process masters.
func withoutServer(t testing.TB) { t.Setenv("PATH", t.TempDir()) }

// wantSound checks that a small demo found nothing wrong and that both faults happened.
func wantSound(t testing.TB, got *shop, err error, kind string) {
	t.Helper()
	must(t, err)
	r := got.locked
	if r.done != 60 || r.sold != 20 || r.left != 0 || r.overlaps != 0 || r.fallen != 0 || len(r.waits) != 60 {
		t.Errorf("got %+v, want 60 attempts in order that sell 20", r)
	}
	if r.wall <= 0 {
		t.Errorf("got a run of %v, want it measured", r.wall)
	}
	if n := got.unlocked.done; n != 60 {
		t.Errorf("without the lock: got %d attempts, want 60", n)
	}
	if got.kind != kind {
		t.Errorf("got masters of kind %q, want %q", got.kind, kind)
	}
	for i, want := range []string{"healthy", "killed", "healthy", "paused", "healthy"} {
		if !strings.HasPrefix(got.fates[i], want) {
			t.Errorf("master %d: got %q, want %q", i+1, got.fates[i], want)
		}
	}
	if told := got.told[1]; !strings.HasPrefix(told, "down, found down by ") { // others may be late, or the run is over before
		t.Errorf("the master that was killed: got %q, want it found down", told)
	}
}

func TestDemo(outer *testing.T) {
	t := redistest.Timed(outer)
	for kind, prepare := range map[string]func(testing.TB){
		masters.KindMini:    withoutServer,
		masters.KindProcess: func(t testing.TB) { redistest.Server(t) },
	} {
		t.Run(kind, func(t *redistest.T) {
			prepare(t)
			var out bytes.Buffer
			got, err := small(&out).run(t.Context())
			wantSound(t, got, err, kind)
			wantText(t, &out, "5 masters on this machine: "+kind, "is killed", "is paused", "sold 20 (must be 20) ok",
				"The same without the lock: ", "All checks passed. To take along: ")
			if text := out.String(); !strings.HasSuffix(text, lesson+"\n") {
				t.Errorf("got %q at the end, want the lesson", text[max(0, len(text)-200):])
			}
			for _, m := range got.masters {
				if p, real := m.(*masters.Process); real && p.Pid() != 0 {
					t.Errorf("%s is still up", m.Addr())
				}
			}
		})
	}
}

// wantText checks that out begins with the first text and contains the others, whatever the blanks between words.
func wantText(t testing.TB, out *bytes.Buffer, texts ...string) {
	t.Helper()
	plain := strings.Join(strings.Fields(out.String()), " ")
	for i, s := range texts {
		if at := strings.Index(plain, s); at < 0 || i == 0 && at > 0 {
			t.Errorf("%q is not where it should be in:\n%s", s, out)
		}
	}
}

func TestCommandLine(t *testing.T) {
	withoutServer(t)
	t.Setenv("TERM", "xterm")
	var out, stderr bytes.Buffer
	if code := execute(t.Context(), []string{"demo"}, &out, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Fatalf("got code %d, %q; want success", code, &stderr)
	}
	wantText(t, &out, "5 masters", "attempts done 1200 of 1200 ok", "sold 200 (must be 200) ok")
	if i := bytes.IndexAny(out.Bytes(), "\x1b\r"); i >= 0 {
		t.Errorf("got %q, want nothing for terminals only", out.Bytes()[i:])
	}
}

// The checks must find a lock that excludes no holder.
func TestDemoWithABrokenLock(t *testing.T) {
	withoutServer(t)
	var out, stderr bytes.Buffer
	d := small(&out)
	d.guard = func(*redlock.Locker) locking { return withoutLock }
	got, err := d.run(t.Context())
	if code := finish(err, &stderr); code != exitFailed {
		t.Errorf("got code %d, want %d", code, exitFailed)
	}
	if r := got.locked; r.err != nil || r.overlaps == 0 || r.oversold() == 0 || r.fallen == 0 {
		t.Errorf("got %+v, want overlaps, oversold, and tokens that do not rise", r)
	}
	line := stderr.String()
	for _, s := range []string{"redlock: FAILED: ", "sold: ", "oversold: ", "overlapping holders: ", "fencing tokens strictly rising: no"} {
		if !strings.Contains(line, s) {
			t.Errorf("got %q, want %q in it", line, s)
		}
	}
	if strings.Count(line, "\n") != 1 || strings.Contains(out.String(), "passed") || !strings.Contains(out.String(), "WRONG") {
		t.Errorf("got %q and\n%s\nwant the failure on one line and no praise", line, &out)
	}
}

// spied calls a function before the 30th call of the library's lock.
func spied(before func() error) func(*redlock.Locker) locking {
	var n atomic.Int64
	return func(l *redlock.Locker) locking {
		return func(ctx context.Context) (lease, error) {
			if n.Add(1) == 30 {
				if err := before(); err != nil {
					return nil, err
				}
			}
			return byLibrary(l)(ctx)
		}
	}
}

func TestDemoWithALockThatFails(t *testing.T) {
	withoutServer(t)
	errBroken := errors.New("no luck")
	var out, stderr bytes.Buffer
	d := small(&out)
	d.guard = spied(func() error { return errBroken })
	got, err := d.run(t.Context())
	if !errors.Is(err, errBroken) || finish(err, &stderr) != exitFailed {
		t.Errorf("got %v, want %v", err, errBroken)
	}
	if got.unlocked != nil || got.locked.done >= 60 || got.locked.overlaps > 0 {
		t.Errorf("got %+v, want the run cut short", got.locked)
	}
	if line := stderr.String(); !strings.Contains(line, "attempts done: ") || !strings.Contains(line, "no luck") {
		t.Errorf("got %q, want what was wrong", line)
	}
}

func TestDemoInterrupted(t *testing.T) {
	withoutServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, stderr bytes.Buffer
	d := small(&out)
	d.guard = spied(func() error { cancel(); return nil })
	_, err := d.run(ctx)
	if code := finish(err, &stderr); code != exitInterrupted || !strings.HasPrefix(stderr.String(), "redlock: interrupted after ") {
		t.Errorf("got code %d, %q; want %d and how far it came", code, &stderr, exitInterrupted)
	}
	if _, err := small(&out).run(ctx); !errors.Is(err, errInterrupted) {
		t.Errorf("got %v, want %v also before the start", err, errInterrupted)
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"nonsense", `"nonsense" is no command`},
		{"--nonsense", "unknown flag: --nonsense"},
		{"help stauts", `"stauts" is no command or argument of redlock (did you mean status?`},
		{"demo --nonsense", "unknown flag: --nonsense (see redlock demo --help)"},
		{"demo more", `"more" is no command or argument of redlock demo`},
		{"run k --permits many -- true", `"many"`},
		{"acquire k --ttl 9999999999", "at most 292 years"},
		{"status k --output " + strings.Repeat("x", 300_000), `xxx": must be text or json`},
		{"run k --command=", "--command: its value is empty"},
		{"run k --owner= -- true", "--owner: its value is empty"},
		{"run k --result-file= -- true", "--result-file: its value is empty"},
		{"list --owner=", "--owner: its value is empty"},
		{"status k --user=", "--user: its value is empty"},
		{"status k --output=", "--output: its value is empty"},
		{"doctor --cacert=", "--cacert: its value is empty"},
		{"list --masters 127.0.0.1", "master 1: no port"},
		{"list --masters 127.0.0.1:x", "master 1: the port must be"},
		{"list --masters 127.0.0.1:1,127.0.0.1:1", "master 2 has the address of master 1"},
		{"list --masters redis://u:secret@127.0.0.1:x", "master 1: not a valid URL"},
		{"list --masters redis://u:a,secret/@127.0.0.1:1", "must be percent-encoded"},
		{"list --masters 127.0.0.1:1,redis://secret@127.0.0.1:2", "master 2: a user name without a password"},
		{"list -asecret", "unknown shorthand flag: 'a' (see redlock list --help)"},
		{"list --max-ttl redis://u:secret@127.0.0.1:1", "a wrong value (see redlock list --help)"},
		{"list --mastersredis://u:secret@127.0.0.1:1", "unknown flag, or a wrong value"},
		{"top redis://u:secret@127.0.0.1:1", "argument 1 is no command or argument of redlock top"},
		{"redis://u:secret@127.0.0.1:1 list", "argument 1 is no command or argument of redlock"},
		{"doctor --masters 127.0.0.1:1 127.0.0.1:2", `"127.0.0.1:2" is none of the masters`},
		{"doctor --masters 127.0.0.1:1 127.0.0.1:1 redis://u:secret@127.0.0.1:2", "argument 2 is none of the masters"},
	} {
		t.Run(test.args[:min(len(test.args), 80)], func(t *testing.T) {
			var out, stderr bytes.Buffer
			code := execute(t.Context(), strings.Fields(test.args), &out, &stderr)
			line := stderr.String()
			want := exitUsage
			if strings.Contains(test.args, "--masters ") && !strings.HasPrefix(test.args, "doctor") { // an error of the library
				want = exitConfig
			}
			if code != want || !strings.HasPrefix(line, "redlock: ") || !strings.Contains(line, test.want) || strings.Count(line, "\n") != 1 || len(line) > 5000 {
				t.Errorf("got code %d, %.999q; want %d and one line with %q", code, line, want, test.want)
			}
			if out.Len() > 0 || strings.Contains(line, "secret") {
				t.Errorf("got %q, %q; want no output and no password", &out, line)
			}
		})
	}
}
