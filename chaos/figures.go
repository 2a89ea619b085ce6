package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/d0720281/redlock/chaos/history"
)

// Figures sums up a run.
type Figures struct {
	Operations int // calls of Lock and TryLock, and releases
	Granted    int
	Refused    map[string]int // by reason
	Unknown    int            // calls that never returned
	Lost       map[string]int // leases that ended early, by reason
	Faults     map[string]int
	Looks      int
	Healthy    Availability // without a fault
	Hurt       Availability // during a fault
	Margins    history.Margins
	Took       time.Duration
}

// Availability sums up calls of TryLock for resources that no other client wants.
type Availability struct {
	Calls, Granted int
	P50, P99, Max  time.Duration // of the granted calls
}

func (a Availability) String() string {
	if a.Calls == 0 {
		return "no calls"
	}
	return fmt.Sprintf("%.3f %% of %d calls granted, p50 %v, p99 %v, at most %v", 100*float64(a.Granted)/float64(a.Calls), a.Calls,
		a.P50.Round(10*time.Microsecond), a.P99.Round(10*time.Microsecond), a.Max.Round(10*time.Microsecond))
}

// Measure counts the records of a history.
func Measure(h *history.History) Figures {
	f := Figures{Refused: make(map[string]int), Lost: make(map[string]int), Faults: make(map[string]int), Margins: h.Margins()}
	var from, to time.Duration
	var healthy, hurt []*history.Acquisition
	for _, a := range h.Done {
		if from == 0 {
			from = a.Call
		}
		to = max(to, a.Return, a.Freed)
		f.Operations++
		switch {
		case a.Return == 0:
			f.Unknown++
		case !a.Held:
			f.Refused[a.Why]++
		default:
			f.Granted++
			f.Operations++
			if a.Over > 0 {
				f.Lost[a.Why]++
			}
		}
		if strings.HasPrefix(a.Resource, "free ") && a.Return > 0 {
			if during(h.Faults, a) {
				hurt = append(hurt, a)
			} else {
				healthy = append(healthy, a)
			}
		}
	}
	for _, x := range h.Faults {
		f.Faults[x.Name]++
	}
	for _, round := range h.Rounds {
		f.Looks += len(round)
	}
	f.Healthy, f.Hurt, f.Took = available(healthy), available(hurt), to-from
	return f
}

// during reports whether a fault of a node overlaps a call.
func during(faults []history.Fault, a *history.Acquisition) bool {
	for _, f := range faults {
		if f.Node >= 0 && f.At <= a.Return && a.Call <= max(f.Healed, f.Voteless) {
			return true
		}
	}
	return false
}

func available(calls []*history.Acquisition) (a Availability) {
	var took []time.Duration
	for _, c := range calls {
		a.Calls++
		if c.Held {
			a.Granted++
			took = append(took, c.Return-c.Call)
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		a.P50, a.P99, a.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	return a
}

// String returns the figures in a few lines.
func (f Figures) String() string {
	var faults int
	for _, n := range f.Faults {
		faults += n
	}
	return fmt.Sprintf("%d operations in %v, %d grants, refused %v, unknown %d; leases that ended by themselves %v (contexts at least %v before, %d late)\n"+
		"%d faults of %d kinds, %d looks at nodes\nfree keys while all is well: %v\nfree keys under faults:      %v",
		f.Operations, f.Took.Round(time.Second/10), f.Granted, f.Refused, f.Unknown, f.Lost, f.Margins.Smallest, f.Margins.Late,
		faults, len(f.Faults), f.Looks, f.Healthy, f.Hurt)
}

// ungranted returns those of some workloads that were granted nothing.
func ungranted(h *history.History, work map[string]int) (list []string) {
	prefixes := map[string]string{"several": "part", "rival": "long", "hasty": "hot"} // of resources that are not named after the workload
	for name := range work {
		if !slices.ContainsFunc(h.Done, func(a *history.Acquisition) bool {
			return a.Held && strings.HasPrefix(a.Resource, cmp.Or(prefixes[name], name))
		}) {
			list = append(list, name)
		}
	}
	return list
}

// waitsOf says for how long callers waited for what was free.
func waitsOf(waits map[string][2]history.Wait) string {
	text := "the longest wait for what was free, without faults and under faults:"
	for _, name := range slices.Sorted(maps.Keys(waits)) {
		w := waits[name]
		text += fmt.Sprintf(" %s %v, %v;", name, w[0].Long.Round(time.Millisecond), w[1].Long.Round(time.Millisecond))
	}
	return strings.TrimSuffix(text, ";")
}
