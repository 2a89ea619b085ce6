package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Rules has the parameters of a check.
type Rules struct {
	Nodes int // number of nodes
	TTL   time.Duration
	Drift time.Duration // allowance for drift, taken off the TTL

	// Late is by how much a lease's context may end after the lease: 0 in virtual time,
	// otherwise for how long the machine may keep a process waiting (I7).
	Late time.Duration

	// Woken is how long a caller may wait for what is free, without faults: by resource or semaphore,
	// or the first resource of those that are locked together. Under faults it is Served longer, as long
	// as a quorum has votes (I10). Slow is for how long the machine may keep a caller waiting, beside that.
	// Settled is how long abandoned keys may be left (I6, I11). 0: not checked.
	Woken           map[string]time.Duration
	Slow            time.Duration
	Served, Settled time.Duration
}

// Violation is a promise that was not kept.
type Violation struct {
	Rule     string // of ALGORITHM section 13: "I1" and so on; "lock" is porcupine's
	At       time.Duration
	Resource string
	Text     string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s at %v, %q: %s", v.Rule, v.At, v.Resource, v.Text)
}

// Check returns the violations in a history, by time. The run must be over.
func (h *History) Check(r Rules) []Violation {
	h.mu.Lock()
	found := slices.Clone(h.problems)
	h.mu.Unlock()
	byResource := make(map[string][]*Acquisition)
	for _, a := range h.Done {
		byResource[a.Resource] = append(byResource[a.Resource], a)
	}
	for resource, list := range byResource {
		held := slices.DeleteFunc(slices.Clone(list), func(a *Acquisition) bool { return !a.Held })
		slices.SortFunc(held, func(a, b *Acquisition) int {
			return cmp.Or(cmp.Compare(a.Return, b.Return), cmp.Compare(a.granted, b.granted))
		})
		found = append(found, adoptions(resource, list, held)...)
		found = append(found, overlaps(resource, held)...)
		found = append(found, fences(resource, held)...)
		found = append(found, h.nodes(resource, held, r)...)
		found = append(found, Linearizable(resource, held)...)
	}
	if r.Served > 0 && h.Healed > 0 {
		found = append(found, h.unserved(r)...)
	}
	found = append(found, h.tooMany()...)
	found = append(found, h.torn()...)
	found = append(found, h.deadlines(r)...)
	found = append(found, h.counters()...)
	if r.Settled > 0 && h.Healed > 0 {
		found = append(found, h.leftovers(r)...)
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return found
}

// adoptions is the promise of Adopt: of the calls that adopt a lease one at most succeeds, and only if no other
// holder was granted the resource since. It notes in the former lease when that was adopted. held is in the order
// of the grants.
func adoptions(resource string, list, held []*Acquisition) (found []Violation) {
	former := make(map[string]*Acquisition)
	for _, a := range held {
		if former[a.Token] == nil {
			former[a.Token] = a
		}
	}
	for _, a := range list {
		if b := former[a.Former]; b != nil && (b.adopting == 0 || a.Call < b.adopting) {
			b.adopting = a.Call
		}
	}
	for i, a := range held {
		if a.Former == "" {
			continue
		}
		b, wrong := former[a.Former], ""
		switch {
		case b == nil:
			wrong = "which no client was granted"
		case b.adopted > 0:
			wrong = "which another call adopted before"
		default:
			b.adopted = a.Return
			for _, c := range held[:i] {
				if c.Return > b.Return && !c.void() && c.Token != b.Token {
					wrong = fmt.Sprintf("fence %d, after %s was granted fence %d", b.Fence, c.Client, c.Fence)
				}
			}
		}
		if wrong != "" {
			found = append(found, Violation{"adopt", a.Return, resource, fmt.Sprintf("%s adopts, with fence %d, the lease %s, %s", a.Client, a.Fence, a.Former, wrong)})
		}
	}
	return found
}

// overlaps is I1: no client is granted a resource before every earlier holder either gave it up or
// had to know that its lease was over. Readers may hold it together. held is in the order of the
// grants.
func overlaps(resource string, held []*Acquisition) (found []Violation) {
	var writer, reader *Acquisition // the leases so far that are valid the longest
	for _, a := range held {
		if a.void() {
			continue
		}
		for _, last := range []*Acquisition{writer, reader} {
			if last == nil || last.Shared && a.Shared || !last.meets(a) {
				continue
			}
			what := "two holders"
			if last.Shared || a.Shared {
				what = "a writer and a reader"
			}
			found = append(found, Violation{"I1", a.Return, resource, fmt.Sprintf(
				"%s for %v: %s has fence %d until %v, and %s is granted fence %d",
				what, min(last.End(), a.End())-a.Return, last.Client, last.Fence, last.End(), a.Client, a.Fence)})
		}
		last := &writer
		if a.Shared {
			last = &reader
		}
		if *last == nil || a.End() >= (*last).End() {
			*last = a
		}
	}
	return found
}

// fences is I2: tokens of writers are unique. A writer gets a larger token than all that were
// granted before its call, and a larger token than any holder before it. A reader gets no smaller
// token than all that were granted before its call, and than any writer before it.
func fences(resource string, held []*Acquisition) (found []Violation) {
	seen := make(map[int64]*Acquisition)
	for _, a := range held {
		switch other := seen[a.Fence]; {
		case a.Fence <= 0:
			found = append(found, Violation{"I2", a.Return, resource, fmt.Sprintf("fence %d of %s is not positive", a.Fence, a.Client)})
		case a.Shared:
			continue
		case other != nil:
			found = append(found, Violation{"I2", a.Return, resource, fmt.Sprintf("fence %d twice, for %s and %s", a.Fence, other.Client, a.Client)})
		}
		seen[a.Fence] = a
	}
	calls := slices.Clone(held)
	slices.SortFunc(calls, func(a, b *Acquisition) int { return cmp.Compare(a.Call, b.Call) })
	earlier := make(map[*Acquisition]*Acquisition) // the largest token of an earlier holder that a conflicts with
	var before, writer *Acquisition
	for _, a := range held {
		if a.void() {
			continue
		}
		if earlier[a] = before; a.Shared {
			earlier[a] = writer
		}
		if before = larger(before, a); !a.Shared {
			writer = larger(writer, a)
		}
	}
	var largest *Acquisition
	granted := 0
	for _, a := range calls {
		for ; granted < len(held) && held[granted].Return < a.Call; granted++ {
			largest = larger(largest, held[granted])
		}
		last := larger(largest, earlier[a])
		if last != nil && (a.Fence < last.Fence || a.Fence == last.Fence && last.Shared && !a.Shared) {
			found = append(found, Violation{"I2", a.Return, resource, fmt.Sprintf("fence %d of %s after fence %d of %s",
				a.Fence, a.Client, last.Fence, last.Client)})
		}
	}
	return found
}

// larger returns the one of two acquisitions that has the larger token. Of equal ones it is a
// reader's.
func larger(a, b *Acquisition) *Acquisition {
	if a == nil || b != nil && (b.Fence > a.Fence || b.Fence == a.Fence && b.Shared) {
		return b
	}
	return a
}

// tooMany is the promise of package semaphore: no more permits of a semaphore are held at one
// instant than the largest number that a client gives it.
func (h *History) tooMany() (found []Violation) {
	bySemaphore, most := make(map[string][]*Acquisition), make(map[string]int)
	for _, a := range h.Done {
		if a.Semaphore != "" && a.Held && !a.void() {
			bySemaphore[a.Semaphore] = append(bySemaphore[a.Semaphore], a)
		}
		most[a.Semaphore] = max(most[a.Semaphore], a.Permits)
	}
	for name, held := range bySemaphore {
		slices.SortFunc(held, func(a, b *Acquisition) int {
			return cmp.Or(cmp.Compare(a.Return, b.Return), cmp.Compare(a.granted, b.granted))
		})
		var now []*Acquisition
		for _, a := range held {
			now = slices.DeleteFunc(now, func(b *Acquisition) bool { return !b.meets(a) })
			if now = append(now, a); len(now) > most[name] {
				found = append(found, Violation{"permits", a.Return, name, fmt.Sprintf("%d permits are held, of %d: %s has %s", len(now), most[name], a.Client, a.Resource)})
			}
		}
	}
	return found
}

// torn is the promise of calls for several resources: they get all of them, each once, or none.
func (h *History) torn() (found []Violation) {
	calls := make(map[call][]*Acquisition)
	for _, a := range h.Done {
		if a.Group > 0 {
			calls[call{a.Client, a.Group}] = append(calls[call{a.Client, a.Group}], a)
		}
	}
	for c, list := range calls {
		got, over := make(map[string]bool), false
		for _, a := range list {
			if a.Held {
				got[a.Resource] = true
			}
			over = over || a.Seen > 0 || a.Over > 0 || a.Return > 0 && !a.Held // the client did not die while it recorded the grant
		}
		if over && len(got) > 0 && len(got) < len(list) {
			found = append(found, Violation{"whole", list[0].Return, list[0].Resource, fmt.Sprintf("a call of %s for %d resources got only %d: %v",
				c.client, len(list), len(got), slices.Sorted(maps.Keys(got)))})
		}
	}
	return found
}

// deadlines is I7 and I8: contexts end before leases do, and no lease is valid for longer
// than a successful round makes it.
func (h *History) deadlines(r Rules) (found []Violation) {
	if m := h.Margins(); m.Smallest < -r.Late {
		a := m.worst
		found = append(found, Violation{"I7", a.Over, a.Resource, fmt.Sprintf("a context ended %v after its lease, which %s has had since %v", -m.Smallest, a.Client, a.Return)})
	}
	for _, a := range h.Done {
		if r.TTL > 0 && a.Held && a.Reach > r.TTL-r.Drift {
			found = append(found, Violation{"I8", a.Return, a.Resource, fmt.Sprintf("lease of %s with fence %d has %v left of a TTL of %v", a.Client, a.Fence, a.Reach, r.TTL)})
		}
	}
	return found
}
