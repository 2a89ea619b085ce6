package history

import (
	"fmt"
	"testing"
	"time"
)

// op is a call that waits, in milliseconds: when it is called, granted and given back; 0 for never.
func op(client, resource string, called, granted, freed int) *Acquisition {
	return &Acquisition{Client: client, Resource: resource, Waits: true, Held: granted > 0, Call: time.Duration(called) * ms,
		Return: time.Duration(granted) * ms, Until: time.Duration(granted+90) * ms, Freed: time.Duration(freed) * ms}
}

// permit is op for permits of a semaphore.
func permit(client string, all int, called, granted, freed int, numbers ...int) (list []*Acquisition) {
	for _, n := range numbers {
		a := op(client, fmt.Sprint("s~", n), called, granted, freed)
		a.Semaphore, a.Permits, a.Group = "s", all, uint64(called)
		list = append(list, a)
	}
	return list
}

// together makes one call of several.
func together(list ...*Acquisition) []*Acquisition {
	for _, a := range list {
		a.Group = uint64(a.Call)
	}
	return list
}

func TestWaits(t *testing.T) {
	fault := func(node, from, to int) Fault {
		return Fault{Node: node, At: time.Duration(from) * ms, Healed: time.Duration(to) * ms}
	}
	of := func(client string, from, to int) Fault {
		f := fault(-1, from, to)
		f.On = client
		return f
	}
	one := []*Acquisition{op("a", "r", 100, 100, 140), op("b", "r", 105, 145, 146)}
	for name, test := range map[string]struct {
		name   string
		calls  [][]*Acquisition
		faults []Fault
		want   [2]int // without faults, while a quorum has votes
	}{
		"from the end of the holder":                {"r", [][]*Acquisition{one}, nil, [2]int{5, 5}},
		"under a fault of one node":                 {"r", [][]*Acquisition{one}, []Fault{fault(0, 130, 131)}, [2]int{0, 5}},
		"a while after such a fault":                {"r", [][]*Acquisition{one}, []Fault{fault(0, 112, 113)}, [2]int{2, 5}},
		"fewer than a quorum have votes":            {"r", [][]*Acquisition{one}, []Fault{fault(0, 130, 143), fault(1, 130, 142)}, [2]int{0, 3}},
		"refused in the end":                        {"r", [][]*Acquisition{{refused(op("a", "r", 100, 123, 0))}}, nil, [2]int{23, 23}},
		"the holder died":                           {"r", [][]*Acquisition{{op("a", "r", 100, 100, 0), op("b", "r", 105, 240, 241)}}, []Fault{of("a", 120, 130)}, [2]int{10, 10}},
		"the lease of the holder ran out":           {"r", [][]*Acquisition{{op("a", "r", 100, 100, 0), op("b", "r", 105, 199, 200)}}, nil, [2]int{7, 7}},
		"the caller is stopped":                     {"r", [][]*Acquisition{{op("a", "r", 100, 100, 140), op("b", "r", 105, 204, 205)}}, []Fault{of("b", 130, 200)}, [2]int{0, 0}},
		"the caller was stopped long ago":           {"r", [][]*Acquisition{{op("a", "r", 100, 100, 140), op("b", "r", 105, 310, 311)}}, []Fault{of("b", 130, 200)}, [2]int{10, 10}},
		"another caller died":                       {"r", [][]*Acquisition{{op("a", "r", 100, 0, 0), op("b", "r", 105, 233, 234)}}, []Fault{of("a", 110, 130)}, [2]int{10, 10}},
		"another caller died, and its life is over": {"r", [][]*Acquisition{{op("a", "r", 100, 0, 0), op("b", "r", 105, 240, 241)}}, []Fault{of("a", 106, 130)}, [2]int{10, 10}},
		"another caller was stopped, and gave up":   {"r", [][]*Acquisition{{refused(op("a", "r", 100, 160, 0)), op("b", "r", 105, 170, 171)}}, []Fault{of("a", 101, 150)}, [2]int{1, 10}},
		"the successor of a caller that died":       {"r", [][]*Acquisition{{op("a", "r", 100, 0, 0), op("b", "r", 305, 320, 321)}}, []Fault{of("a", 101, 130), of("a", 300, 310)}, [2]int{1, 15}},
		"a caller waits to the end":                 {"r", [][]*Acquisition{{op("a", "r", 100, 0, 0), refused(op("b", "r", 150, 150, 0))}}, nil, [2]int{50, 50}},
		"the callers are served in turn":            {"r", [][]*Acquisition{{op("a", "r", 100, 103, 104), op("b", "r", 100, 108, 109)}}, nil, [2]int{4, 4}},
		"a permit is left":                          {"s", [][]*Acquisition{permit("a", 2, 100, 100, 140, 1), permit("b", 2, 105, 125, 126, 2)}, nil, [2]int{20, 20}},
		"no permit is left":                         {"s", [][]*Acquisition{permit("a", 2, 100, 100, 140, 1, 2), permit("b", 2, 105, 145, 146, 2)}, nil, [2]int{5, 5}},
		"too few permits are left":                  {"s", [][]*Acquisition{permit("a", 3, 100, 100, 140, 1, 2), permit("b", 3, 105, 145, 146, 2, 3)}, nil, [2]int{5, 5}},
		"a part is given back":                      {"s", [][]*Acquisition{permit("a", 2, 100, 100, 140, 1), permit("c", 2, 101, 101, 130, 2), permit("b", 2, 105, 145, 146, 2)}, nil, [2]int{15, 15}},
		"others get the permits": {"s", [][]*Acquisition{permit("a", 2, 100, 100, 160, 1), permit("b", 2, 105, 130, 131, 2), permit("c", 2, 106, 110, 112, 2),
			permit("d", 2, 106, 115, 117, 2)}, nil, [2]int{13, 13}},
		"others get one of two permits": {"s", [][]*Acquisition{permit("a", 3, 100, 100, 160, 1), permit("b", 3, 105, 130, 131, 2), permit("c", 3, 105, 112, 150, 3),
			permit("d", 3, 105, 155, 156, 2)}, nil, [2]int{24, 24}},
		"no caller gets the only permit": {"s", [][]*Acquisition{permit("a", 2, 100, 100, 160, 1), permit("b", 2, 105, 125, 170, 2), permit("c", 2, 105, 171, 172, 2)}, nil, [2]int{20, 20}},
		"others get permits, and there are enough": {"s", [][]*Acquisition{permit("a", 9, 100, 100, 160, 1), permit("b", 9, 105, 140, 141, 2), permit("c", 9, 106, 110, 112, 3),
			permit("d", 9, 106, 115, 117, 4)}, nil, [2]int{35, 35}},
		"a caller of permits died":         {"s", [][]*Acquisition{permit("a", 9, 100, 0, 0, 1), permit("b", 9, 105, 233, 234, 2)}, []Fault{of("a", 108, 130)}, [2]int{8, 8}},
		"all resources of a call are free": {"x", [][]*Acquisition{together(op("a", "x", 100, 120, 121), op("a", "y", 100, 120, 121))}, nil, [2]int{20, 20}},
		"others get other resources": {"x", [][]*Acquisition{together(op("a", "x", 90, 90, 91), op("a", "y", 90, 90, 91), op("a", "z", 90, 90, 91)),
			{op("b", "y", 105, 140, 141), op("c", "z", 105, 142, 143), op("d", "x", 110, 110, 112)}}, nil, [2]int{30, 30}},
		"another client has one of them": {"x", [][]*Acquisition{{op("b", "y", 90, 90, 118)}, together(op("a", "x", 100, 120, 121), op("a", "y", 100, 120, 121)),
			{op("c", "x", 101, 122, 123)}}, nil, [2]int{2, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			h := History{Healed: ms, Faults: test.faults}
			for _, list := range test.calls {
				h.Done = append(h.Done, list...)
			}
			waits := h.Waits(rules)
			got := [2]int{int(waits[test.name][0].Long / ms), int(waits[test.name][1].Long / ms)}
			if len(waits) != 1 || got != test.want {
				t.Errorf("got %v, want %v", waits, test.want)
			}
		})
	}
}

// A busy machine may keep a caller waiting for a while, and no longer.
func TestSlow(t *testing.T) {
	for slow, want := range map[time.Duration]int{0: 1, 4 * ms: 1, 5 * ms: 0} {
		h := History{Healed: ms, Done: []*Acquisition{op("a", "r", 100, 125, 126)}}
		r := rules
		r.Slow = slow
		if found := h.unserved(r); len(found) != want {
			t.Errorf("%v: got %v, want %d violations", slow, found, want)
		}
	}
}

func refused(a *Acquisition) *Acquisition {
	a.Held = false
	return a
}
