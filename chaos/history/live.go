package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Wait is the longest time for which a caller waited for what was free.
type Wait struct {
	Long, At time.Duration
	Client   string
}

// unserved is I10: no caller waits for long for what is free, whether it is granted that or gives up.
func (h *History) unserved(r Rules) (found []Violation) {
	for name, waits := range h.Waits(r) {
		for i, most := range []time.Duration{r.Woken[name] + r.Slow, r.Woken[name] + r.Slow + r.Served} {
			if w := waits[i]; w.Long > most {
				found = append(found, Violation{"I10", w.At, name, fmt.Sprintf("%s waited for %v for what was free %s, want at most %v",
					w.Client, w.Long, []string{"without a fault", "while a quorum had votes"}[i], most)})
				break
			}
		}
	}
	return found
}

// span is a period in which the clocks of waiting callers stand still.
type span struct{ from, to time.Duration }

// Waits returns the longest wait for what was free: without faults, and then all while a quorum had
// votes. Resources that are locked together count as one, under the first of their names.
//
// A semaphore is free if it has a permit for each caller that waits, or enough for the caller that
// wants the most and no caller is granted any. Of resources, none must be held that a caller waits for.
// What a client had when it was stopped or killed counts as held until it has expired.
func (h *History) Waits(r Rules) map[string][2]Wait {
	var faults, votes []span
	for _, f := range h.Faults {
		faults = append(faults, span{f.At, max(f.Healed, f.Voteless) + r.Served})
		if f.Node >= 0 {
			votes = append(votes, span{f.At, max(f.Healed, f.Voteless)})
		}
	}
	if len(h.Faults) == 0 { // no nemesis: the time of the faults is not known
		faults, votes = []span{{0, h.Healed + r.Served}}, slices.Repeat([]span{{0, h.Healed}}, r.Nodes)
	}
	still := [2][]span{atLeast(1, faults), atLeast(r.Nodes-r.Nodes/2, votes)}
	lives := h.lives()
	name := h.families()
	families, waits := make(map[string][]*Acquisition), make(map[string][2]Wait)
	for _, a := range h.Done {
		families[name(a)] = append(families[name(a)], a)
	}
	for name, list := range families {
		if slices.ContainsFunc(list, func(a *Acquisition) bool { return a.Waits }) {
			waits[name] = longest(list, lives, still, r)
		}
	}
	return waits
}

// life is what befell a client, until it died or the history ends.
type life struct {
	faults []Fault
	end    time.Duration
}

func (h *History) lives() map[string]life {
	lives := make(map[string]life)
	last, end := make(map[string]time.Duration), time.Duration(0)
	for _, a := range h.Done {
		last[a.Client] = max(last[a.Client], a.Call, a.Return, a.Seen, a.Over, a.Ended, a.Freed)
		end = max(end, last[a.Client])
	}
	for client, seen := range last {
		l := life{h.faultsOf(client), end}
		if i := slices.IndexFunc(l.faults, func(f Fault) bool { return f.Healed >= seen }); i >= 0 {
			l = life{l.faults[:i+1], max(seen, l.faults[i].At)} // later faults are those of its successors
		}
		lives[client] = l
	}
	return lives
}

// families returns a function that names the family of an acquisition.
func (h *History) families() func(*Acquisition) string {
	root := make(map[string]string) // a smaller resource of the family
	find := func(name string) string {
		for root[name] != "" {
			name = root[name]
		}
		return name
	}
	first := make(map[call]string)
	for _, a := range h.Done {
		if a.Semaphore != "" || a.Group == 0 {
			continue
		}
		c := call{a.Client, a.Group}
		one, other := find(cmp.Or(first[c], a.Resource)), find(a.Resource)
		if first[c] = one; one != other {
			root[max(one, other)] = min(one, other)
		}
	}
	return func(a *Acquisition) string { return cmp.Or(a.Semaphore, find(a.Resource)) }
}

// atLeast returns when at least n of some spans are open, in order and apart.
func atLeast(n int, spans []span) (list []span) {
	type edge struct {
		at time.Duration
		by int
	}
	var edges []edge
	for _, s := range spans {
		edges = append(edges, edge{s.from, 1}, edge{s.to, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.by, a.by)) })
	open := 0
	for _, e := range edges {
		if open += e.by; open == n && e.by > 0 {
			list = append(list, span{from: e.at})
		} else if open == n-1 && e.by < 0 {
			list[len(list)-1].to = e.at
		}
	}
	return list
}

// runs returns how far a clock runs that stands still in some spans.
func runs(from, to time.Duration, still []span) time.Duration {
	long := to - from
	for _, s := range still {
		long -= max(0, min(to, s.to)-max(from, s.from))
	}
	return long
}

// caller is a call that waits.
type caller struct {
	client string
	since  time.Duration
	wants  []string // resources, or as many strings as permits
}

// call identifies a call for several resources.
type call struct {
	client string
	group  uint64
}

// change is what becomes different at one moment: a caller begins or ceases to wait, or a resource is
// taken or given back.
type change struct {
	at       time.Duration
	caller   *caller
	waits    bool
	granted  bool
	resource string
	taken    int
}

const everything = "*" // a resource that stands for all permits

// longest sweeps over the calls of one family.
func longest(list []*Acquisition, lives map[string]life, still [2][]span, r Rules) (worst [2]Wait) {
	var changes []change
	calls := make(map[call]*caller)
	permits := 0
	for _, a := range list {
		permits = max(permits, a.Permits)
		resource, life := a.Resource, lives[a.Client]
		if a.Semaphore != "" {
			resource = everything
		}
		gone := cmp.Or(a.Freed, max(a.Until, a.Over+a.Left)+r.Drift)
		for _, f := range life.faults {
			if expired := f.Healed + r.TTL; f.Healed >= a.Call && (a.Return == 0 || a.Return > f.At) {
				changes = append(changes, change{at: max(a.Call, f.At), resource: resource, taken: 1},
					change{at: min(expired, cmp.Or(a.Return, expired)), resource: resource, taken: -1})
			} else if a.Freed == 0 && f.Healed >= a.Return && f.At <= gone {
				gone = max(gone, expired)
			}
		}
		if a.Held {
			changes = append(changes, change{at: a.Return, resource: a.Resource, taken: 1, granted: true}, change{at: max(a.Return, gone), resource: a.Resource, taken: -1})
		}
		switch c := calls[call{a.Client, a.Group}]; {
		case !a.Waits:
		case a.Group > 0 && c != nil:
			c.wants = append(c.wants, a.Resource)
		default:
			c = &caller{a.Client, a.Call, []string{a.Resource}}
			calls[call{a.Client, a.Group}] = c
			changes = append(changes, change{at: a.Call, caller: c, waits: true}, change{at: cmp.Or(a.Return, life.end), caller: c})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })

	held, waiting := make(map[string]int), make(map[*caller]bool)
	free := func() (one, all bool) { // for one caller, for all
		most, sum := 0, 0
		for c := range waiting {
			most, sum = max(most, len(c.wants)), sum+len(c.wants)
			if permits == 0 && slices.ContainsFunc(c.wants, func(r string) bool { return held[r] > 0 }) {
				return false, false
			}
		}
		if permits == 0 {
			return true, len(waiting) == 1
		}
		left := permits - len(held)
		return most <= left && held[everything] == 0, sum <= left && held[everything] == 0
	}
	var one, all bool // since the instant before
	var oneSince, allSince time.Duration
	for len(changes) > 0 {
		at, granted := changes[0].at, false
		since := oneSince
		if all {
			since = min(since, allSince)
		}
		for c := range waiting {
			if one {
				c.wait(max(since, c.since), at, still, &worst)
			}
		}
		for ; len(changes) > 0 && changes[0].at == at; changes = changes[1:] {
			x := changes[0]
			switch {
			case x.caller != nil && x.waits:
				waiting[x.caller] = true
			case x.caller != nil:
				delete(waiting, x.caller)
			default:
				if held[x.resource] += x.taken; held[x.resource] == 0 {
					delete(held, x.resource)
				}
				granted = granted || x.granted
			}
		}
		nowOne, nowAll := free()
		if nowOne && !one || granted {
			oneSince = at
		}
		if nowAll && !all {
			allSince = at
		}
		one, all = nowOne, nowAll
	}
	return worst
}

// wait notes that a caller has waited for what was free.
func (c *caller) wait(from, to time.Duration, still [2][]span, worst *[2]Wait) {
	if to-from <= min(worst[0].Long, worst[1].Long) {
		return
	}
	for i := range worst {
		if to-from <= worst[i].Long {
			continue
		}
		if long := runs(from, to, still[i]); long > worst[i].Long {
			worst[i] = Wait{long, to, c.client}
		}
	}
}
