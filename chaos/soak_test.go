package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// The flags of a run by hand. Without them a soak takes a few seconds.
var (
	soakFor      = flag.Duration("soak", 0, "how long the nemesis is at work in TestSoak")
	soakSeed     = flag.Uint64("seed", 0, "seed of the schedule of TestSoak; 0: any")
	soakHavoc    = flag.Bool("havoc", false, "TestSoak without regard to the budget of faults")
	soakSchedule = flag.String("schedule", "", "schedule for TestSoak as JSON, or @file; instead of one drawn by the seed")
	soakClients  = flag.Int("clients", 3, "client processes of TestSoak")
	reportFile   = flag.String("report", "", "file for the report of TestSoakProcesses; that of TestSoakContainers lies beside it")
)

// A random schedule of faults on real servers. The clients are processes, which are stopped
// and killed, too.
//
// Source: ALGORITHM section 13; SCENARIOS row 65.
func TestSoakProcesses(outer *testing.T) {
	t := redistest.Timed(outer)
	soaks(t, Processes)
}

// soaks is one run by hand, or one run in each mode.
func soaks(t *redistest.T, tier Tier) {
	if *soakFor == 0 {
		redistest.OnlyLong(t)
	}
	modes := []bool{false, true}
	if *soakFor > 0 {
		modes = []bool{*soakHavoc}
	}
	for _, havoc := range modes {
		t.Run(map[bool]string{false: "safe", true: "havoc"}[havoc], func(t *redistest.T) { soak(t, tier, havoc) })
	}
}

// anySeed returns the seed of a run for which no seed was given.
func anySeed() uint64 {
	if *soakSeed != 0 {
		return *soakSeed
	}
	return rand.Uint64N(1 << 32)
}

func soak(t testing.TB, tier Tier, havoc bool) {
	long := *soakFor
	if long == 0 {
		long = 8 * time.Second
	}
	if !sharedClock {
		t.Skip("needs a clock that processes share: Linux")
	}
	seed := anySeed()
	repeat := fmt.Sprintf("go test ./chaos -run '%s' -soak %v -seed %d -clients %d -timeout 0", t.Name(), long, seed, *soakClients)
	if havoc {
		repeat += " -havoc"
	}
	t.Logf("seed %d; repeat with: %s", seed, repeat)
	var r *Run
	if tier == Processes {
		r = processes(t, 5, ProcessOptions{Clock: true})
	} else {
		r = inContainers(t, 5)
	}
	r.unequal(seed)
	plan := Plan{Tier: tier, Nodes: 5, Clients: *soakClients, TTL: r.TTL, During: long, Havoc: havoc}
	s := schedule(t, plan, seed)
	r.Repeat = fmt.Sprintf("%s -schedule '%s'", repeat, s)
	redistest.Server(t)
	shop := redistest.Masters(t, 1)[0]

	people := &people{r: r, list: make([]*Child, *soakClients), born: make([]int, *soakClients)}
	conf := func(i int) ClientConfig {
		c := r.config(fmt.Sprint("client ", i), map[string]int{"hot": 2, "many": 4, "long": 1, "line": 4, "stock": 2, "free": 2, "hasty": 1, "several": 2, "book": 3, "election": 1, "job": 1, "handed": 1, "pool2": 2, "pool9": 2, "pool100": 1})
		c.Seed, c.Store, c.Mute = seed+uint64(i), shop.Addr(), isMute(seed, i)
		return c
	}
	for i := range people.list {
		locktest.Must(t, people.start(i, conf(i)))
	}
	watching, stopWatching := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { r.Watch(watching, 50*time.Millisecond, seed) })
	time.Sleep(min(3*time.Second, long/3)) // no faults yet, to compare with

	n := &Nemesis{Plan: plan, Nodes: r.Cluster.Nodes(), Now: r.Now, Client: func(ctx context.Context, i int, fault string, long time.Duration) error {
		return people.suffer(ctx, i, fault, long, conf(i))
	}}
	faults, err := n.Run(t.Context(), s)
	if err != nil {
		t.Errorf("the nemesis: %v", err)
	}
	r.History.Faults, r.History.Healed = faults, r.Now()
	tail := min(3*time.Second, long/3)
	if long >= time.Minute {
		tail = r.Rules().Served + r.Rules().Slow + latest(conf(0).Work) + time.Second // long enough to notice a waiter that is not served
	}
	time.Sleep(tail) // no faults any more
	if err := people.stop(); err != nil {
		t.Error(err)
	}
	stopWatching()
	watch.Wait()
	time.Sleep(r.Rules().Settled)
	r.Settle(15 * time.Second)

	found := r.History.Check(r.Rules())
	shopped := of(r.Accesses, fenced)
	stale, lost := history.Stale(shopped), history.Lost(shopped)
	found = append(found, stale...)
	for _, w := range lost {
		found = append(found, history.Violation{Rule: "store", At: w.Call, Resource: "stock", Text: fmt.Sprintf("an update was lost: %+v", w)})
	}
	if list := ungranted(r.History, conf(0).Work); len(list) > 0 && long >= time.Minute { // a busy machine may need longer than the default soak
		t.Errorf("got no grant of %v", list)
	}
	excused := 0
	if havoc {
		found, excused = unexplained(found, faults, r.TTL)
	}
	figures := Measure(r.History)
	if figures.Granted < 100 {
		t.Errorf("got %d grants, want many", figures.Granted)
	}
	reads, writes := refused(shopped)
	t.Logf("%v\nfenced store: %d reads and writes, %d reads and %d writes refused, %d updates lost; fenced at the write only: %d lost; open store: %d lost; %d steps skipped, %d violations that the faults explain", figures,
		len(shopped), reads, writes, len(lost), len(history.Lost(of(r.Accesses, writesFenced))), len(history.Lost(of(r.Accesses, open))), n.skipped, excused)
	t.Log(waitsOf(r.History.Waits(r.Rules())))
	tell(t, found)
	if t.Failed() {
		t.Logf("repeat with: %s", r.Repeat)
	}
	if file := *reportFile; file != "" {
		if tier == Containers { // beside that of the processes
			ext := filepath.Ext(file)
			file = strings.TrimSuffix(file, ext) + "-containers" + ext
		}
		if err := Report(file, t.Name(), repeat, r.History, found); err != nil {
			t.Error(err)
		}
	}
}

func schedule(t testing.TB, p Plan, seed uint64) (s Schedule) {
	text := *soakSchedule
	if text == "" {
		return p.Make(seed)
	}
	if file, ok := strings.CutPrefix(text, "@"); ok {
		data, err := os.ReadFile(file)
		locktest.Must(t, err)
		text = string(data)
	}
	locktest.Must(t, json.Unmarshal([]byte(text), &s))
	return s
}

// unexplained removes the violations that may happen when more nodes are hurt than the
// budget allows. Exclusion may break where clocks of nodes were stepped while a lease was
// held (ALGORITHM section 9, "J >= g+q-N"), and for no other reason: the guard covers
// restarts, losses of data and silence. Tokens may fall after such a break, as counters are
// lost and start from those clocks.
func unexplained(found []history.Violation, faults []history.Fault, ttl time.Duration) (left []history.Violation, explained int) {
	for _, v := range found {
		clock := false
		for _, f := range faults {
			clock = clock || strings.HasPrefix(f.Name, "clock") && f.At <= v.At && v.At <= f.Voteless+ttl
		}
		switch v.Rule {
		case "I1", "I2", "I3", "I5", "lock", "store":
			if clock {
				explained++
				continue
			}
		}
		left = append(left, v)
	}
	return left, explained
}

func of(accesses []history.Access, r register) (list []history.Access) {
	for _, a := range accesses {
		if a.Store == r.name {
			list = append(list, a)
		}
	}
	return list
}

func refused(accesses []history.Access) (reads, writes int) {
	for _, a := range accesses {
		switch {
		case a.Accepted:
		case a.Write:
			writes++
		default:
			reads++
		}
	}
	return reads, writes
}

// people are the client processes.
type people struct {
	r    *Run
	mu   sync.Mutex
	list []*Child // guarded by mu
	born []int    // guarded by mu; number of processes so far in each place
}

func (p *people) start(i int, conf ClientConfig) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.born[i]++
	conf.Name = fmt.Sprintf("client %d.%d", i, p.born[i])
	conf.Seed += uint64(100 * p.born[i])
	c, err := p.r.Child(conf)
	p.list[i] = c
	return err
}

func (p *people) at(i int) *Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list[i]
}

// suffer injects a fault into a client, and returns when it is over.
func (p *people) suffer(ctx context.Context, i int, fault string, long time.Duration, again ClientConfig) error {
	c := p.at(i)
	switch fault {
	case clientStopped:
		if err := c.pause(); err != nil {
			return err
		}
		sleep(ctx, long)
		return c.resume()
	case clientKilled:
		if err := c.Kill(); err != nil {
			return err
		}
		return p.start(i, again)
	case clientGC:
		err := c.Tell(fmt.Sprint("gc ", long))
		sleep(ctx, long)
		return err
	case clientStalled:
		err := c.Tell(fmt.Sprint("stall ", long/4))
		sleep(ctx, long/2)
		return err
	}
	return fmt.Errorf("chaos: no fault of clients is called %q", fault)
}

func (p *people) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := make([]error, len(p.list))
	var g sync.WaitGroup
	for i, c := range p.list {
		g.Go(func() { errs[i] = c.Stop() })
	}
	g.Wait()
	return errors.Join(errs...)
}
