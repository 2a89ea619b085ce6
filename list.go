package redlock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// inspectedAtOnce is how many resources List looks at together.
const inspectedAtOnce = 64

// List returns what [Locker.Inspect] returns for each resource of which some master has a key, and for
// each permit of a [Semaphore], sorted by name. It looks for the keys on all masters, by SCAN, in steps that delay no lock. Resources that
// are locked or freed meanwhile may be missing or may have been freed by the time they are returned: use
// the result for people and for monitoring. The user needs the right to SCAN. With an empty key prefix,
// other programs' strings are resources, too.
//
// If too few masters of a group answered to find every resource that a quorum holds, the last element
// of the sequence is a [*QuorumError] that matches [ErrNoQuorum]. The errors of single resources are
// those of Inspect. If ctx is nil, the only element is an error that matches [ErrConfig].
func (l *Locker) List(ctx context.Context) iter.Seq2[Inspection, error] {
	return func(yield func(Inspection, error) bool) {
		if ctx == nil {
			yield(Inspection{}, configErrorf("List: ctx is nil"))
			return
		}
		names, missing := l.names(ctx)
		for some := range slices.Chunk(names, inspectedAtOnce) {
			found, errs := make([]Inspection, len(some)), make([]error, len(some))
			inParallel(len(some), func(i int) { found[i], errs[i] = l.inspectNamed(ctx, some[i]) })
			for i, in := range found {
				if errs[i] == nil && !in.exists() {
					continue // it has been freed since
				}
				if !yield(in, errs[i]) {
					return
				}
			}
		}
		if missing != nil {
			yield(Inspection{}, missing)
		}
	}
}

// exists reports whether some node has a key.
func (in *Inspection) exists() bool {
	return slices.ContainsFunc(in.Masters, func(n MasterLock) bool { return n.taken() || n.value != "" })
}

// inspectNamed is Inspect for a name that names has returned.
func (l *Locker) inspectNamed(ctx context.Context, name string) (Inspection, error) {
	if !l.calls.enter() {
		return Inspection{Resource: name}, ErrClosed
	}
	defer l.calls.leave()
	return l.look(ctx, name)
}

// names returns the resources and slots of which some node has a key, in order. The error says which nodes did not
// tell, if a resource that a quorum holds may be missing.
func (l *Locker) names(ctx context.Context) ([]string, error) {
	if !l.calls.enter() {
		return nil, ErrClosed
	}
	defer l.calls.leave()
	l.start()
	all := make(map[string]bool)
	var missing []error
	for _, p := range l.groups {
		found, errs := onEach(ctx, p, func(ctx context.Context, n *node.Node) ([]string, error) { return n.Keys(ctx) })
		e := p.quorumError("list", "", 0, ErrNoQuorum)
		for i, keys := range found {
			if errs[i] != nil {
				e.Masters = append(e.Masters, &MasterError{Master: p.nodes[i].Addr(), Op: "list", Err: errs[i]})
				continue
			}
			e.Granted++
			for _, key := range keys {
				r := strings.TrimPrefix(key, p.conf.keyPrefix)
				_, slot := wire.CutSlot(r)
				if (slot > 0 || p.conf.checkResource("List", r) == nil) && l.groupOf(r) == p {
					all[r] = true
				}
			}
		}
		if e.Need = len(p.nodes) - p.need + 1; e.Granted < e.Need {
			if ctx.Err() != nil {
				e.reasons = append(e.reasons, contextError(ctx))
			}
			missing = append(missing, e)
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		nameA, slotA := wire.CutSlot(a)
		nameB, slotB := wire.CutSlot(b)
		return cmp.Or(cmp.Compare(nameA, nameB), cmp.Compare(slotA, slotB))
	}), errors.Join(missing...)
}
