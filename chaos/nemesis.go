package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/d0720281/redlock/chaos/history"
)

// Step is one fault of a schedule: on a node, or on a client if Node is -1.
type Step struct {
	At     time.Duration `json:"at"`
	For    time.Duration `json:"for"`
	Fault  string        `json:"fault"`
	Node   int           `json:"node"`
	Client int           `json:"client,omitempty"`
}

// Schedule has the steps of a nemesis in their order.
type Schedule []Step

// String returns the schedule on one line, for a command that repeats it.
func (s Schedule) String() string {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(line)
}

// Plan describes the run for which a schedule is made.
type Plan struct {
	Tier    Tier
	Nodes   int
	Clients int // processes that can be stopped and killed; 0: no faults of clients
	TTL     time.Duration
	During  time.Duration
	Havoc   bool // ignore the budget
	Without []string
}

// Quarantine returns how long a node that lost data has no vote, with MaxTTL = TTL, and
// half a second more for a client to notice.
func (p Plan) Quarantine() time.Duration { return p.TTL*102/100 + 600*time.Millisecond }

// The faults of clients.
const (
	clientStopped = "client stopped past its lease"
	clientKilled  = "client killed"
	clientGC      = "client collects garbage"
	clientStalled = "client's scheduler stalls"
)

// ClientFaults are the faults of a client that is a process.
var ClientFaults = []string{clientStopped, clientKilled, clientGC, clientStalled}

// Make draws a schedule. The same seed and plan give the same schedule.
//
// In safe mode the schedule stays within the budget: at every moment at most N - q nodes
// are without a vote, or may be: down, hung, cut off, refusing, or in the quarantine after
// a loss of data or a step of the clock. Within that, faults overlap.
func (p Plan) Make(seed uint64) (s Schedule) {
	rng := rand.New(rand.NewPCG(seed, 0))
	faults := slices.DeleteFunc(FaultsOf(p.Tier), func(f Fault) bool { return slices.Contains(p.Without, f.Name) })
	until := make([]time.Duration, p.Nodes) // when a node has recovered
	client := make([]time.Duration, p.Clients)
	for at := 200 * time.Millisecond; at < p.During; at += time.Duration(rng.Int64N(int64(400 * time.Millisecond))) {
		long := 50*time.Millisecond + time.Duration(rng.Int64N(int64(p.TTL*3/2)))
		if p.Clients > 0 && rng.IntN(6) == 0 {
			if c := rng.IntN(p.Clients); client[c] <= at {
				s = append(s, Step{at, long + p.TTL/2, ClientFaults[rng.IntN(len(ClientFaults))], -1, c})
				client[c] = at + long + p.TTL/2
			}
			continue
		}
		f, n := faults[rng.IntN(len(faults))], rng.IntN(p.Nodes)
		if f.Once {
			long = 0
		}
		ends := at + long
		switch f.Cost {
		case Loss:
			ends += p.Quarantine()
		}
		if !p.Havoc {
			down := 0
			for _, u := range until {
				if u > at {
					down++
				}
			}
			if until[n] > at || f.Cost != Free && down >= (p.Nodes-1)/2 {
				continue
			}
		} else if until[n] > at+p.Quarantine() {
			continue // even then a node has one fault at a time
		}
		if f.Cost != Free || !p.Havoc {
			until[n] = max(until[n], ends)
		}
		s = append(s, Step{at, long, f.Name, n, 0})
	}
	return s
}

// budget keeps a nemesis within its plan if faults take longer than planned.
type budget struct {
	limit int
	mu    sync.Mutex
	hurt  map[int]bool // guarded by mu; nodes with a fault, with its cost
}

// take reserves a node if the budget allows it.
func (b *budget) take(node int, costs bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, taken := b.hurt[node]; taken {
		return false
	}
	n := 0
	for _, c := range b.hurt {
		if c {
			n++
		}
	}
	if costs && n >= b.limit {
		return false
	}
	b.hurt[node] = costs
	return true
}

func (b *budget) give(node int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.hurt, node)
}

// Nemesis executes schedules.
type Nemesis struct {
	Plan   Plan
	Nodes  []Node
	Now    func() time.Duration
	Client func(ctx context.Context, i int, fault string, long time.Duration) error

	mu      sync.Mutex
	faults  []history.Fault // guarded by mu
	skipped int             // guarded by mu; too late, or not possible here
	errs    []error         // guarded by mu
}

// Run executes a schedule. It returns when every fault is healed and every quarantine is
// over. If ctx ends, the remaining steps are skipped.
func (n *Nemesis) Run(ctx context.Context, s Schedule) ([]history.Fault, error) {
	limit := (n.Plan.Nodes - 1) / 2
	if n.Plan.Havoc {
		limit = n.Plan.Nodes
	}
	b := &budget{limit: limit, hurt: make(map[int]bool)}
	byName := make(map[string]Fault)
	for _, f := range Faults() {
		byName[f.Name] = f
	}
	s = slices.Clone(s)
	slices.SortStableFunc(s, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	var running sync.WaitGroup
	began := n.Now()
	for _, step := range s {
		if !sleep(ctx, began+step.At-n.Now()) {
			break
		}
		running.Go(func() {
			if step.Node < 0 {
				n.onClient(ctx, step)
				return
			}
			n.onNode(ctx, byName[step.Fault], step, b)
		})
	}
	running.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults, errors.Join(n.errs...)
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (n *Nemesis) onClient(ctx context.Context, step Step) {
	if n.Client == nil {
		return
	}
	f := history.Fault{Name: step.Fault, On: fmt.Sprint("client ", step.Client), Node: -1, At: n.Now()}
	err := n.Client(ctx, step.Client, step.Fault, step.For)
	f.Healed = n.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, f)
	if err != nil {
		n.errs = append(n.errs, fmt.Errorf("%s: %w", step.Fault, err))
	}
}

func (n *Nemesis) onNode(ctx context.Context, fault Fault, step Step, b *budget) {
	if !b.take(step.Node, fault.Cost != Free) {
		n.mu.Lock()
		n.skipped++
		n.mu.Unlock()
		return
	}
	defer b.give(step.Node)
	f, err := n.Inflict(ctx, fault, step.Node, step.For)
	switch {
	case errors.Is(err, ErrUnable), err != nil && n.Plan.Havoc: // there another fault may be in the way
		n.mu.Lock()
		n.skipped++
		n.mu.Unlock()
		return
	case err != nil:
		n.mu.Lock()
		n.errs = append(n.errs, fmt.Errorf("%s on node %d at %v: %w", fault.Name, step.Node, f.At, err))
		n.mu.Unlock()
	}
	sleep(context.Background(), f.Voteless-n.Now())
}

// Inflict injects a fault into a node and heals it after a while, or when ctx ends.
func (n *Nemesis) Inflict(ctx context.Context, fault Fault, node int, long time.Duration) (history.Fault, error) {
	f := history.Fault{Name: fault.Name, On: fmt.Sprint("node ", node), Node: node, At: n.Now()}
	const during = time.Hour // until the real end is known, for the looks
	f.Voteless = f.At + during
	n.mu.Lock()
	n.faults = append(n.faults, f)
	at := len(n.faults) - 1
	n.mu.Unlock()
	heal, err := fault.Act(n.Nodes[node])
	if err == nil {
		sleep(ctx, long)
	}
	if heal != nil {
		err = errors.Join(err, heal())
	}
	f.Healed = n.Now()
	f.Voteless = f.Healed
	if fault.Cost == Loss {
		f.Voteless += n.Plan.Quarantine()
	}
	n.mu.Lock()
	n.faults[at] = f
	n.mu.Unlock()
	return f, err
}
