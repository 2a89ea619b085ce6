package admin

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/node"
)

// inspectedAtOnce is how many resources List looks at together.
const inspectedAtOnce = 256

// List returns what [Inspect] returns for each resource of which some master has a key, sorted by
// name. It looks for the keys on all masters, by SCAN, in steps that delay no lock. The user needs
// the right to SCAN. A resource that is locked meanwhile may be missing, and a resource that is
// freed meanwhile may be in the result. With an empty key prefix, other programs' strings are
// resources, too.
//
// If too few masters answered to find every resource that a quorum holds, the last element of the
// sequence is a [*redlock.QuorumError] that matches [redlock.ErrNoQuorum]. The errors of single
// resources are those of Inspect.
func List(ctx context.Context, l *redlock.Locker) iter.Seq2[Inspection, error] {
	return ListMatching(ctx, l, func(string) bool { return true })
}

// ListMatching is [List] for the resources whose names match. match is called in order, once for each
// name, and the other resources are not looked at. A nil match gives [redlock.ErrConfig].
func ListMatching(ctx context.Context, l *redlock.Locker, match func(resource string) bool) iter.Seq2[Inspection, error] {
	return func(yield func(Inspection, error) bool) {
		if match == nil {
			yield(Inspection{}, configError("ListMatching", "match is nil"))
			return
		}
		names, missing := names(ctx, l)
		names = slices.DeleteFunc(names, func(name string) bool { return !match(name) })
		for some := range slices.Chunk(names, inspectedAtOnce) {
			found, errs := make([]Inspection, len(some)), make([]error, len(some))
			var looking sync.WaitGroup
			for i, name := range some {
				looking.Go(func() { found[i], errs[i] = Inspect(ctx, l, name) })
			}
			looking.Wait()
			for i, in := range found {
				taken := slices.ContainsFunc(in.Masters, func(m MasterLock) bool { return m.taken() })
				if errs[i] == nil && !taken {
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

// names returns the resources of which some node has a key, in order. The error names the nodes
// that did not tell, if a resource that a quorum holds may be missing.
func names(ctx context.Context, l *redlock.Locker) ([]string, error) {
	r, err := enter(ctx, l, "List")
	if err != nil {
		return nil, err
	}
	defer r.Leave()
	all := make(map[string]bool)
	found, errs := each(ctx, r, func(ctx context.Context, n *node.Node) ([]string, error) { return n.Keys(ctx) })
	nodes := r.Nodes.Nodes()
	e := r.quorumError("list", "", len(nodes)-r.Quorum+1, redlock.ErrNoQuorum)
	for i, keys := range found {
		if errs[i] != nil {
			e.Masters = append(e.Masters, &redlock.MasterError{Master: nodes[i].Addr(), Op: "list", Err: errs[i]})
			continue
		}
		e.Granted++
		for _, key := range keys {
			if name := strings.TrimPrefix(key, r.Prefix); inside.Of(l).CheckResource("", name) == nil {
				all[name] = true
			}
		}
	}
	list := slices.Sorted(maps.Keys(all))
	if e.Granted < e.Need {
		return list, withContext(ctx, e)
	}
	return list, nil
}
