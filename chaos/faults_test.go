package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// The TTLs of the tests on real servers leave a busy machine the time for several renewals.
const (
	virtualTTL   = time.Second
	processTTL   = 2 * time.Second
	containerTTL = 3 * time.Second
)

// breath is the pause of clients beside which other tests run: without pauses a few of them take all processors.
const breath = 250 * time.Millisecond

// processes starts a run on servers on this machine.
func processes(t testing.TB, n int, opts ProcessOptions) *Run {
	t.Helper()
	redistest.Server(t)
	c, err := StartProcesses(t.Context(), n, opts)
	if errors.Is(err, masters.ErrNoCompiler) || errors.Is(err, errors.ErrUnsupported) {
		opts.Clock = false
		c, err = StartProcesses(t.Context(), n, opts)
	}
	return begin(t, c, err, processTTL)
}

// unequal puts the masters at distances, for every other seed.
func (r *Run) unequal(seed uint64) {
	if seed%2 == 1 {
		Apart(r.Cluster, 3*time.Millisecond)
	}
}

// isMute reports whether no master can call a client: one of three, for six of eight seeds.
func isMute(seed uint64, client int) bool { return seed/2%4 == uint64(client) }

func begin(t testing.TB, c Cluster, err error, ttl time.Duration) *Run {
	t.Helper()
	locktest.Must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := NewRun(t.Context(), c, ttl, Now)
	locktest.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, r)
		}
	})
	return r
}

// check checks the history of a run.
func check(t testing.TB, r *Run) {
	t.Helper()
	tell(t, r.History.Check(r.Rules()))
}

// tell fails a test because of violations. Those of I6, I7, I10 and I11 are about how long something takes: a busy
// machine excuses them.
func tell(t testing.TB, found []history.Violation) {
	t.Helper()
	told := 0
	for _, v := range found {
		switch timely := slices.Contains([]string{"I6", "I7", "I10", "I11"}, v.Rule); {
		case told == 10:
			t.Logf("and more, %d in all", len(found))
			return
		case timely:
			t.Error(v)
		default:
			redistest.Broken(t, v)
			told++
		}
	}
}

// keep writes the report and the history of a run that failed, and how to repeat it.
func keep(t testing.TB, r *Run) {
	found := r.History.Check(r.Rules())
	dir, err := os.MkdirTemp("", "redlock-chaos-failed-")
	if err != nil {
		t.Error(err)
		return
	}
	for _, v := range found {
		if v.Rule == "lock" {
			if _, err := r.History.Picture(v.Resource, filepath.Join(dir, "lock.html")); err != nil {
				t.Error(err)
			}
			break
		}
	}
	data, err := json.MarshalIndent(struct {
		Test, Repeat string
		Found        []history.Violation
		Faults       []history.Fault
		Healed       time.Duration
		Done         []*history.Acquisition
		Rounds       [][]history.Look
	}{t.Name(), r.Repeat, found, r.History.Faults, r.History.Healed, r.History.Done, r.History.Rounds}, "", " ")
	if err := errors.Join(err, Report(filepath.Join(dir, "report.txt"), t.Name(), r.Repeat, r.History, found), os.WriteFile(filepath.Join(dir, "history.json"), data, 0o600)); err != nil {
		t.Error(err)
	}
	t.Logf("the run that failed, its faults and its history: %s", dir)
}

// withstands wants a lease to survive a fault.
func withstands(t testing.TB, r *Run, f Fault) {
	t.Helper()
	r.History = new(history.History)
	unable, lost := inflict(t, r, f)
	time.Sleep(r.Rules().Settled)
	r.Settle(12 * time.Second)
	check(t, r)
	t.Log(Measure(r.History))
	switch {
	case unable != nil && r.Cluster.Tier() == Virtual:
		t.Error(unable)
	case unable != nil:
		t.Skip(unable)
	case lost != nil:
		t.Errorf("the lease did not survive: %v", lost)
	}
}

// inflict injects a fault into a minority in mid-lease: into two nodes if it costs their
// votes, into one if it may cost keys. No rival gets the resource, and afterwards everything
// works again. It returns why the fault cannot be injected here, if it cannot, and why the lease
// was lost, if it was.
func inflict(t testing.TB, r *Run, f Fault) (unable, lost error) {
	ctx := t.Context()
	pause := breath
	if r.Cluster.Tier() == Virtual {
		pause = 80 * time.Millisecond
	}
	holder, err := r.Client(r.config("holder", nil))
	locktest.Must(t, err)
	w := &worker{Client: holder}
	defer func() { _ = holder.Close() }()
	rivals, stopRivals := context.WithCancel(ctx)
	defer stopRivals()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var g, watch sync.WaitGroup
	for i := range 2 {
		conf := r.config(fmt.Sprint("rival ", i), map[string]int{"hot": 2, "free": 1, "line": 2, "hasty": 1, "several": 1, "book": 1, "election": 1, "job": 1, "pool2": 1})
		conf.Pause = pause
		c, err := r.Client(conf)
		locktest.Must(t, err)
		defer func() {
			if err := c.Close(); err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
				t.Error(err)
			}
		}()
		g.Go(func() { c.Run(rivals) })
	}
	h, err := w.wait(ctx)("hot")
	locktest.Must(t, err)
	watch.Go(func() { r.Watch(watching, 40*time.Millisecond, 1) })
	// A lease that a bare majority granted, as two clients asked at once, does not survive the
	// loss of another node.
	nodes := r.Cluster.Nodes()
	redistest.Eventually(t, time.Minute, func() bool {
		if err := h.Lease.Extend(ctx); errors.Is(err, redlock.ErrNotHeld) { // the machine was too slow
			_ = h.Free(ctx)
			if h, err = w.wait(ctx)("hot"); err != nil {
				t.Fatal(err)
			}
		}
		return !slices.ContainsFunc(r.Look(ctx, []string{"hot"}, false)[:len(nodes)], func(l history.Look) bool { return l.Keys["hot"].ID != h.Lease.Token() })
	}, "all masters have the holder's key")

	n := &Nemesis{Plan: Plan{Nodes: len(nodes), TTL: r.TTL}, Nodes: nodes, Now: r.Now}
	hit := []int{1}
	if f.Cost != Loss {
		hit = []int{1, 3}
	}
	var faults sync.WaitGroup
	var not sync.Map // the errors of nodes that cannot do what the fault needs
	for _, node := range hit {
		if err := nodes[node].Mark(); err != nil {
			t.Error(err)
		}
		h.Look()
		faults.Go(func() {
			if _, err := n.Inflict(ctx, f, node, r.TTL*3/4); errors.Is(err, ErrUnable) {
				not.Store(node, err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	for range 15 {
		time.Sleep(r.TTL / 20) // the faults last for 15 of these
		h.Look()
	}
	faults.Wait()
	not.Range(func(_, err any) bool { unable = err.(error); return false })
	if left := h.Look(); left <= 0 {
		lost = fmt.Errorf("%v left, %v", left, context.Cause(h.Lease.Context()))
	}
	fence := h.Lease.Fence()
	freed := r.Now()
	err = h.Free(ctx)
	if errors.Is(err, redlock.ErrNoQuorum) { // the machine was too slow for a master timeout: the releases are repeated
		err = h.Free(ctx)
	}
	if lost == nil {
		lost = err
	}
	r.History.Faults = n.faults
	for _, f := range n.faults {
		sleep(ctx, f.Voteless-r.Now())
	}
	r.History.Healed = r.Now()
	sleep(ctx, 300*time.Millisecond)
	later := func(a history.Acquisition) bool {
		return a.Resource == "hot" && a.Held && a.Client != "holder" && a.Return > freed && a.Fence > fence
	}
	// A waiter whose call was lost with a connection asks again by timer, and a busy machine is slow.
	for by := r.Now() + 30*time.Second; r.Now() < by && !slices.ContainsFunc(r.History.So(), later); {
		sleep(ctx, 50*time.Millisecond)
	}
	stopRivals()
	g.Wait()
	stopWatching()
	watch.Wait()
	if err := holder.Close(); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(r.History.So(), later) {
		t.Error("no rival got the resource after the holder")
	}
	return unable, lost
}

// Every fault, in mid-lease, on real servers: by default those that may cost keys, and those that
// fakes do not have. TestVirtualSchedules draws the others.
//
// Source: ALGORITHM section 13; SCENARIOS rows 1, 3, 7 to 9, 12, 14, 17, 19, 29, 31 to
// 33, 40, 53 and 54.
func TestProcessFaults(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.Server(t)
	oldRDB := Fault{Name: "SIGKILL, then restart with an old RDB", Cost: Loss, Act: killed(Stale)}
	for _, f := range append(FaultsOf(Processes), oldRDB) {
		if f.Cost != Loss && f.Tiers&Virtual != 0 && !redistest.Long() {
			continue
		}
		t.Run(strings.ReplaceAll(f.Name, ",", ""), func(t *redistest.T) {
			t.Parallel()
			r := processes(t, 5, ProcessOptions{Clock: strings.Contains(f.Name, "clock"), RDB: f.Name == oldRDB.Name})
			withstands(t, r, f)
		})
	}
}
