package chaos

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A schedule depends on its seed alone. Every fault occurs in some schedule. Safe schedules
// stay within the budget.
func TestPlans(t *testing.T) {
	costs := make(map[string]Cost)
	for _, f := range Faults() {
		costs[f.Name] = f.Cost
	}
	for _, tier := range []Tier{Virtual, Processes, Containers} {
		p := Plan{Tier: tier, Nodes: 5, Clients: 3, TTL: time.Second, During: time.Minute}
		seen := make(map[string]bool)
		most := 0
		for seed := range uint64(200) {
			s := p.Make(seed)
			var again Schedule
			if err := json.Unmarshal([]byte(p.Make(seed).String()), &again); err != nil || !slices.Equal(s, again) {
				t.Fatalf("%v, seed %d: got %v, %v, want %v once more, and from its text", tier, seed, again, err, s)
			}
			for _, step := range s {
				seen[step.Fault] = true
			}
			at := worst(p, costs, s)
			most = max(most, at)
			if at > 2 {
				t.Fatalf("%v, seed %d: got %d of 5 nodes without a vote, want 2 at most: %v", tier, seed, at, s)
			}
		}
		if most != 2 {
			t.Errorf("%v: got at most %d nodes without a vote, want the budget used", tier, most)
		}
		for _, f := range FaultsOf(tier) {
			if !seen[f.Name] {
				t.Errorf("%v: %s is never on the schedule", tier, f.Name)
			}
		}
		p.Havoc = true
		if at := worst(p, costs, p.Make(1)); at < 3 {
			t.Errorf("%v: got at most %d nodes without a vote in havoc mode, want more", tier, at)
		}
	}
}

// worst returns the largest number of nodes whose votes a schedule takes at once.
func worst(p Plan, costs map[string]Cost, s Schedule) (most int) {
	for _, now := range s {
		hurt := make(map[int]bool)
		for _, step := range s {
			if step.Node < 0 || costs[step.Fault] == Free {
				continue
			}
			until := step.At + step.For
			if costs[step.Fault] == Loss {
				until += p.Quarantine()
			}
			if step.At <= now.At && now.At < until {
				hurt[step.Node] = true
			}
		}
		most = max(most, len(hurt))
	}
	return most
}

// slowNode takes a second to kill, and cannot be restarted.
type slowNode struct {
	Node
	mu     sync.Mutex
	killed int
}

var errBroken = errors.New("broken")

func (n *slowNode) Kill() error {
	time.Sleep(time.Second)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.killed++
	return nil
}
func (n *slowNode) Restart(Data) error { return errBroken }

// A nemesis whose faults take longer than planned skips some and stays within the budget;
// and it reports errors.
func TestNemesisThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		nodes := []Node{new(slowNode), new(slowNode), new(slowNode), new(slowNode), new(slowNode)}
		n := &Nemesis{Plan: Plan{Nodes: 5, TTL: time.Second}, Nodes: nodes, Now: func() time.Duration { return time.Since(began) }}
		var s Schedule
		for i := range 5 {
			s = append(s, Step{At: time.Duration(i) * 100 * time.Millisecond, For: time.Millisecond, Fault: "SIGKILL, then restart empty", Node: i})
		}
		slices.Reverse(s)
		faults, err := n.Run(t.Context(), s)
		if !errors.Is(err, errBroken) || strings.Count(err.Error(), "broken") != 2 {
			t.Errorf("got %v, want the two faults that could not be healed", err)
		}
		if len(faults) != 2 || n.skipped != 3 {
			t.Errorf("got %d faults and %d left out, want 2 and 3", len(faults), n.skipped)
		}
		if took := time.Since(began); took < time.Second+n.Plan.Quarantine() {
			t.Errorf("it was over after %v, before the quarantines", took)
		}
		for _, f := range faults {
			if f.Voteless != f.Healed+n.Plan.Quarantine() || f.Healed < f.At+time.Second {
				t.Errorf("got %+v, want it to last a second, and a quarantine", f)
			}
		}
	})
}
