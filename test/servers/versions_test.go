package servers_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// former is the revision whose client has to go together with the present one: the last tag, once there is one.
const former = "b683664"

// formerClient is the main program of a process with the former client. It takes and releases the lock of one resource
// until its standard input ends, and writes what it sees, a record a line.
const formerClient = `package main

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
)

// now is the Now of package chaos.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

func main() {
	l, err := redlock.New(os.Args[2:], redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithMasterTimeout(100*time.Millisecond))
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	c := &history.Client{Name: os.Args[1], Now: now, Why: redlock.Reason, Sink: func(r history.Record) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r)
	}}
	for ctx.Err() == nil {
		h, err := history.Take(c, "r", true, func() (*redlock.Lease, error) { return l.Lock(ctx, "r") })
		if err != nil {
			continue
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		h.Look()
		_ = h.Free(context.Background())
	}
	_ = l.Close()
}
`

// buildFormer builds the former client in a copy of its tree.
func buildFormer(t testing.TB) string {
	dir := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "-C", "../..", "archive", former)
	extract := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	var err error
	extract.Stdin, err = archive.StdoutPipe()
	locktest.Must(t, err)
	if err := errors.Join(extract.Start(), archive.Run(), extract.Wait()); err != nil {
		t.Skipf("no tree of %s: %v", former, err)
	}
	locktest.Must(t, errors.Join(os.Mkdir(filepath.Join(dir, "formerclient"), 0o700),
		os.WriteFile(filepath.Join(dir, "formerclient", "main.go"), []byte(formerClient), 0o600)))
	program := filepath.Join(dir, "client")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./formerclient")
	build.Dir, build.Env = dir, append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build in the tree of %s: %v: %s", former, err, said)
	}
	return program
}

// Processes with the former client and Lockers of the present one take the same lock, while masters are killed,
// restarted empty and paused, one at a time. No two hold it at the same moment, and fencing tokens rise.
func TestFormerClientBesideThePresentOne(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.Server(t)
	redistest.OnlyOnce(t, "it compiles a former revision")
	if runtime.GOOS != "linux" {
		t.Skip("no clock that processes share")
	}
	program := buildFormer(t)
	nodes := redistest.Masters(t, 3)
	addrs := redistest.Addrs(nodes)
	var h history.History
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, name := range []string{"former 1", "former 2"} {
		p := exec.Command(program, append([]string{name}, addrs...)...)
		p.Stderr = io.Discard // warnings of masters that are down
		in, err := p.StdinPipe()
		locktest.Must(t, err)
		out, err := p.StdoutPipe()
		locktest.Must(t, err)
		locktest.Must(t, p.Start())
		context.AfterFunc(ctx, func() { _ = in.Close() })
		running.Go(func() {
			var err error
			for lines := json.NewDecoder(out); err == nil; {
				var r history.Record
				if err = lines.Decode(&r); err == nil {
					h.Add(r)
				}
			}
			if ended := p.Wait(); err != io.EOF || ended != nil {
				t.Errorf("%s: got %v and %v, want the end of its output", name, err, ended)
			}
		})
	}
	for _, name := range []string{"present 1", "present 2"} {
		l, err := redlock.New(addrs, redlock.WithTTL(time.Second), redlock.WithMaxTTL(time.Second), redlock.WithMasterTimeout(100*time.Millisecond), redlock.WithLogger(nil))
		locktest.Must(t, err)
		c := &history.Client{Name: name, Now: chaos.Now, Why: redlock.Reason, Sink: h.Add}
		running.Go(func() {
			for ctx.Err() == nil {
				held, err := history.Take(c, "r", true, func() (*redlock.Lease, error) { return l.Lock(ctx, "r") })
				if err != nil {
					continue
				}
				time.Sleep(rand.N(10 * time.Millisecond))
				held.Look()
				_ = held.Free(context.Background())
			}
			locktest.Must(t, l.Close())
		})
	}

	faults := 0
	duration := 5 * time.Second
	if redistest.Long() {
		duration = 5 * time.Minute
	}
	for begin := time.Now(); time.Since(begin) < duration; faults++ {
		time.Sleep(1500 * time.Millisecond) // more than a quarantine
		m := nodes[rand.N(len(nodes))]
		if faults%2 == 0 {
			locktest.Must(t, errors.Join(m.Kill(), m.Restart()))
			continue
		}
		locktest.Must(t, m.Pause())
		time.Sleep(rand.N(1500 * time.Millisecond))
		locktest.Must(t, m.Resume())
	}
	stop()
	running.Wait()

	holds := make(map[string]int)
	for _, a := range h.Done {
		if a.Held {
			holds[a.Client]++
		}
	}
	t.Logf("%d calls, %d faults, leases: %v", len(h.Done), faults, holds)
	if len(holds) != 4 {
		t.Errorf("got leases of %v, want some of all four clients", holds)
	}
	for _, v := range h.Check(history.Rules{TTL: time.Second, Drift: 12 * time.Millisecond, Late: time.Second}) {
		t.Error(v)
	}
}
