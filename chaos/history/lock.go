package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A second check of the history as a whole: is there an order of grants and ends, each at a
// moment between its call and its return, in which one lock could have done all that? It
// shares no code with the other rules.

// lockOp is an operation of the model: a lock of readers and writers whose tokens rise.
type lockOp struct {
	end    bool
	shared bool
	fence  int64
	client string
}

// lockState has the writer that holds the lock, by fencing token, 0 for none; the number of
// readers; the largest token so far, and that of a writer.
type lockState struct{ holder, readers, largest, written int64 }

func lockModel(init lockState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return init },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(lockState), input.(lockOp)
			switch {
			case op.shared && op.end:
				return s.readers > 0, lockState{0, s.readers - 1, s.largest, s.written}
			case op.shared:
				return s.holder == 0 && op.fence >= s.written, lockState{0, s.readers + 1, max(s.largest, op.fence), s.written}
			case op.end:
				return s.holder == op.fence, lockState{0, 0, s.largest, s.written}
			}
			return s.holder == 0 && s.readers == 0 && op.fence > s.largest, lockState{op.fence, 0, op.fence, op.fence}
		},
		DescribeOperation: func(input, _ any) string {
			op := input.(lockOp)
			if op.end {
				return fmt.Sprintf("%s: end of %d", op.client, op.fence)
			}
			return fmt.Sprintf("%s: granted %d", op.client, op.fence)
		},
		DescribeState: func(state any) string {
			s := state.(lockState)
			return fmt.Sprintf("held by %d, %d readers, largest %d, of a writer %d", s.holder, s.readers, s.largest, s.written)
		},
	}
}

// patience limits the time to check one piece. piece is the least number of grants of a
// piece. A history is cut where nothing was held or under way: no order crosses that.
const (
	patience = 20 * time.Second
	piece    = 50
)

// Linearizable checks the acquisitions of one resource against the model of a lock.
// Refusals prove nothing, as a lock may refuse for many reasons. Calls without a return
// have no visible effect.
func Linearizable(resource string, held []*Acquisition) (found []Violation) {
	for _, p := range pieces(held) {
		result, _ := porcupine.CheckOperationsVerbose(lockModel(p.before), p.ops, patience)
		if result != porcupine.Ok {
			found = append(found, Violation{"lock", time.Duration(p.ops[0].Call), resource,
				fmt.Sprintf("%d grants and ends are not those of a lock: %v", len(p.ops), result)})
		}
	}
	return found
}

// Picture writes porcupine's page for the first piece of a resource that is not
// linearizable, and reports whether there is such a piece.
func (h *History) Picture(resource, file string) (bool, error) {
	var held []*Acquisition
	for _, a := range h.Done {
		if a.Resource == resource && a.Held {
			held = append(held, a)
		}
	}
	for _, p := range pieces(held) {
		model := lockModel(p.before)
		if result, info := porcupine.CheckOperationsVerbose(model, p.ops, patience); result != porcupine.Ok {
			return true, porcupine.VisualizePath(model, info, file)
		}
	}
	return false, nil
}

// part is a piece of a history, and the state of the lock before it.
type part struct {
	before lockState
	ops    []porcupine.Operation
}

func pieces(held []*Acquisition) (list []part) {
	held = slices.DeleteFunc(slices.Clone(held), (*Acquisition).void)
	slices.SortFunc(held, func(a, b *Acquisition) int {
		return cmp.Or(cmp.Compare(a.Return, b.Return), cmp.Compare(a.granted, b.granted))
	})
	clients := make(map[string]int)
	var p part
	var busy time.Duration // until then an operation is under way
	var largest, written int64
	for i, a := range held {
		// Nothing can come between a grant and its end, so the grant may count as late as
		// possible. A waiter that waited for long then does not prevent cuts.
		call := max(a.Call, min(a.Return, busy+1))
		if call > busy && len(p.ops) >= 2*piece {
			list = append(list, p)
			p = part{before: lockState{largest: largest, written: written}}
		}
		if _, known := clients[a.Client]; !known {
			clients[a.Client] = len(clients)
		}
		// A lease that was freed ends between the call of Unlock and its return; any other
		// lease ends at its very end.
		end := max(a.End(), a.Freed)
		if a.Ended == 0 || a.Freed == 0 {
			end = a.End()
		}
		p.ops = append(p.ops,
			porcupine.Operation{ClientId: clients[a.Client], Input: lockOp{false, a.Shared, a.Fence, a.Client}, Call: int64(call), Return: int64(a.Return)},
			porcupine.Operation{ClientId: clients[a.Client], Input: lockOp{true, a.Shared, a.Fence, a.Client}, Call: int64(a.End()), Return: int64(end)})
		busy = max(busy, a.Return, end)
		if largest = max(largest, a.Fence); !a.Shared {
			written = max(written, a.Fence)
		}
		if i == len(held)-1 {
			list = append(list, p)
		}
	}
	return list
}
