package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
		stock: 20, services: 3, workers: 5, rounds: 4, alone: 10, out: out,
		guard: func(l *redlock.Locker) mutex { return resourceLock{l} },
	}
}

// withoutServer makes the demo use in-process masters.
func withoutServer(t *testing.T) { t.Setenv("PATH", t.TempDir()) }

// wantSound checks that a small demo found nothing wrong and that both faults happened.
func wantSound(t *testing.T, got *outcome, err error, kind string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	r := got.locked
	if r.done != 60 || r.entries != 60 || r.sold != 20 || r.left != 0 || r.overlaps != 0 || r.fallen != 0 || len(r.waits) != 60 {
		t.Errorf("got %+v, want 60 attempts in order that sell 20", r)
	}
	if len(r.alone) != 10 || r.wall <= 0 {
		t.Errorf("got %d locks alone and %v, want them measured", len(r.alone), r.wall)
	}
	if n := got.unlocked.done; n != 60 {
		t.Errorf("without the lock: got %d attempts, want 60", n)
	}
	if got.fleet.kind != kind {
		t.Errorf("got masters of kind %q, want %q", got.fleet.kind, kind)
	}
	for i, want := range []struct{ fate, atEnd, told string }{
		{"healthy", "answers", ""}, // on a busy machine it may miss a master timeout
		{"killed", "refuses", "down"},
		{"healthy", "answers", ""},
		{"paused", "silent", ""}, // the run may be over before redlock notices
		{"healthy", "answers", ""},
	} {
		n := got.fleet.nodes[i]
		told := got.reports.about(n)
		if !strings.HasPrefix(n.fate, want.fate) || n.atEnd != want.atEnd || !strings.HasPrefix(told, want.told) {
			t.Errorf("master %d: got %q, %q, %q; want %q", i+1, n.fate, n.atEnd, told, want)
		}
	}
}

func TestDemoInProcess(t *testing.T) {
	withoutServer(t)
	var out bytes.Buffer
	got, err := small(&out).run(t.Context())
	wantSound(t, got, err, masters.KindMini)
	wantText(t, &out, "5 masters on this machine: in-process miniredis", "sold 20 (must be 20) ok",
		"The same without the lock: ", "All checks passed. To take along: ")
	if text := out.String(); !strings.HasSuffix(text, lesson+"\n") {
		t.Errorf("got %q at the end, want the lesson", text[max(0, len(text)-200):])
	}
}

func TestDemoWithServers(t *testing.T) {
	redistest.Server(t)
	var out bytes.Buffer
	got, err := small(&out).run(t.Context())
	wantSound(t, got, err, masters.KindProcess)
	wantText(t, &out, "5 masters on this machine: real redis-server processes", "is killed", "is paused")
	for _, m := range got.fleet.ours {
		if m.(*masters.Process).Pid() != 0 {
			t.Errorf("%s is still up", m.Addr())
		}
	}
}

// wantText checks that out begins with the first text and contains the others, ignoring the
// table's decoration of words.
func wantText(t *testing.T, out *bytes.Buffer, texts ...string) {
	t.Helper()
	plain := strings.Join(strings.Fields(strings.NewReplacer("│", " ", "\n", " ").Replace(out.String())), " ")
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
	args := "demo --stock 5 --services 2 --workers 3 --rounds 2"
	if code := execute(t.Context(), strings.Fields(args), &out, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Fatalf("got code %d, %q; want success", code, &stderr)
	}
	wantText(t, &out, "5 masters", "attempts done 12 of 12 ok", "sold 5 (must be 5) ok")
	if i := bytes.IndexAny(out.Bytes(), "\x1b\r"); i >= 0 {
		t.Errorf("got %q, want nothing for terminals only", out.Bytes()[i:])
	}
}

// The checks must find a lock that excludes no holder.
func TestDemoWithABrokenLock(t *testing.T) {
	withoutServer(t)
	var out, stderr bytes.Buffer
	d := small(&out)
	d.guard = func(*redlock.Locker) mutex { return noLock{} }
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

// spiedLock calls a function at each Lock of another lock.
type spiedLock struct {
	mutex
	before func() error
}

func (s spiedLock) Lock(ctx context.Context) (lease, error) {
	if err := s.before(); err != nil {
		return nil, err
	}
	return s.mutex.Lock(ctx)
}

func TestDemoWithALockThatFails(t *testing.T) {
	withoutServer(t)
	errBroken := errors.New("no luck")
	var n atomic.Int64
	var out, stderr bytes.Buffer
	d := small(&out)
	d.guard = func(l *redlock.Locker) mutex {
		return spiedLock{resourceLock{l}, func() error {
			if n.Add(1) == 30 {
				return errBroken
			}
			return nil
		}}
	}
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
	var n atomic.Int64
	var out, stderr bytes.Buffer
	d := small(&out)
	d.style.terminal = true
	d.guard = func(l *redlock.Locker) mutex {
		return spiedLock{resourceLock{l}, func() error {
			if n.Add(1) == 30 {
				cancel()
			}
			return nil
		}}
	}
	_, err := d.run(ctx)
	if code := finish(err, &stderr); code != exitInterrupted || !strings.HasPrefix(stderr.String(), "redlock: interrupted after ") {
		t.Errorf("got code %d, %q; want %d and how far it came", code, &stderr, exitInterrupted)
	}
	if _, err := small(&out).run(ctx); !errors.Is(err, errInterrupted) {
		t.Errorf("got %v, want %v also before the start", err, errInterrupted)
	}
}

func TestDemoOnGivenMasters(t *testing.T) {
	given, store := redistest.Minis(t, 3), redistest.Minis(t, 1)[0]
	addrs := redistest.Addrs(given)
	addrs[0] = "redis://:@" + addrs[0] + "/0"
	for _, test := range []struct {
		name, store, stockOn string
	}{
		{"stock on the first", "", given[0].Addr()},
		{"stock on a store", "redis://" + store.Addr(), store.Addr()},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			d := small(&out)
			d.masters, d.store = addrs, test.store
			got, err := d.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.locked.sold != 20 || len(got.fleet.ours) != 0 || got.fleet.store.Addr != test.stockOn {
				t.Errorf("got %d sold, %d masters started, stock on %s; want 20, none, %s",
					got.locked.sold, len(got.fleet.ours), got.fleet.store.Addr, test.stockOn)
			}
			for _, n := range got.fleet.nodes {
				if n.fate != "left alone" || n.atEnd != "answers" {
					t.Errorf("%s: got %q, %q; want it left alone", n.opts.Addr, n.fate, n.atEnd)
				}
			}
			left, err := redistest.Client(t, test.stockOn).Exists(t.Context(), got.fleet.stockKey).Result()
			if err != nil || left != 0 {
				t.Errorf("got %d, %v; want the stock key removed", left, err)
			}
			wantText(t, &out, "3 masters as given, which will be neither killed nor paused")
		})
	}
}

func TestDemoOnMastersThatAreDown(t *testing.T) {
	list := redistest.Minis(t, 3)
	args := []string{"demo", "--masters", strings.Join(redistest.Addrs(list), ",")}
	for _, m := range list[1:] {
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), firstWithin/10)
	defer cancel()
	l, err := redlock.New(redistest.Addrs(list))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := service{l, redistest.Client(t, list[0].Addr())}
	if err := firstLease(ctx, s); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Errorf("got %v, want %v", err, redlock.ErrNoQuorum)
	}
	if err := list[0].Kill(); err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	if code := execute(t.Context(), args, &out, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "the store cannot be used") {
		t.Errorf("got code %d, %q; want %d and the reason", code, &stderr, exitFailed)
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"nonsense", `"nonsense" is no command`},
		{"--nonsense", "unknown flag: --nonsense"},
		{"help stauts", `"stauts" is no command or argument of redlock (did you mean status?`},
		{"demo --nonsense", "unknown flag: --nonsense (see redlock demo --help)"},
		{"demo more", `"more" is no command or argument of redlock demo`},
		{"demo --stock many", `"many"`},
		{"demo --stock 0", "--stock 0: must be from 1"},
		{"demo --services -1", "--services -1: must be"},
		{"demo --workers 0", "--workers 0: must be"},
		{"demo --rounds 2000000", "--rounds 2000000: must be"},
		{"demo --workers 1000000 --services 1000000 --rounds 1000000", "make 1000000000000000000 attempts"},
		{"demo --masters 127.0.0.1", "--masters: must be host:port"},
		{"demo --masters 127.0.0.1:x", "--masters: must be host:port"},
		{"demo --masters 127.0.0.1:1,127.0.0.1:1", "master 2 has the address of master 1"},
		{"demo --masters 127.0.0.1:1 --store http://u:secret@127.0.0.1", "--store: must be host:port"},
	} {
		t.Run(test.args, func(t *testing.T) {
			var out, stderr bytes.Buffer
			code := execute(t.Context(), strings.Fields(test.args), &out, &stderr)
			line := stderr.String()
			want := exitUsage
			if strings.Contains(test.want, "master 2") { // an error of the library
				want = exitConfig
			}
			if code != want || !strings.HasPrefix(line, "redlock: ") || !strings.Contains(line, test.want) || strings.Count(line, "\n") != 1 {
				t.Errorf("got code %d, %q; want %d and one line with %q", code, line, want, test.want)
			}
			if out.Len() > 0 || strings.Contains(line, "secret") {
				t.Errorf("got %q, %q; want no output and no password", &out, line)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"", "--help", "help", "demo --help", "help demo", "help completion bash"} {
		var out, stderr bytes.Buffer
		if code := execute(t.Context(), strings.Fields(args), &out, &stderr); code != exitOK || stderr.Len() > 0 || !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%q: got code %d, %q, %q; want help", args, code, &out, &stderr)
		}
	}
}

// Visible only on a terminal: the bar, and lines above it.
func TestBar(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out, true, 100)
	for range 100 {
		b.add()
	}
	b.say("something happened")
	b.stop()
	if s := out.String(); !strings.Contains(s, "\x1b[") || !strings.Contains(s, "attempts") || !strings.Contains(s, "something happened") {
		t.Errorf("got %q, want a bar and a line", s)
	}
	for range 100 { // stopped before the first drawing
		newBar(new(bytes.Buffer), true, 1).stop()
	}
	if s := fmt.Sprint(styleOf(&out)); s != fmt.Sprint(style{}) {
		t.Errorf("got %s for a buffer, want nothing for terminals", s)
	}
}
