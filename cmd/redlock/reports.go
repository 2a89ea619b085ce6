package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/d0720281/redlock"
)

// nodeReports has what the Lockers reported about the masters.
type nodeReports struct {
	services int
	mu       sync.Mutex
	node     map[string]*nodeReport // by address; guarded by mu
}

type nodeReport struct {
	down  map[int]bool // services that reported it down
	first time.Time    // when it was first reported down, and why
	why   error
	ups   int
}

func newNodeReports(services int) *nodeReports {
	return &nodeReports{services: services, node: map[string]*nodeReport{}}
}

func (r *nodeReports) observer(service int) redlock.Observer {
	return func(e redlock.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch e.Kind {
		case redlock.EventMasterDown:
			n := r.ofLocked(e.Master)
			n.down[service] = true
			if n.first.IsZero() || e.Time.Before(n.first) {
				n.first, n.why = e.Time, e.Err
			}
		case redlock.EventMasterUp:
			r.ofLocked(e.Master).ups++
		}
	}
}

func (r *nodeReports) ofLocked(addr string) *nodeReport {
	if r.node[addr] == nil {
		r.node[addr] = &nodeReport{down: map[int]bool{}}
	}
	return r.node[addr]
}

// about sums up the reports of a master on one line.
func (r *nodeReports) about(n *node) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.ofLocked(n.opts.Addr)
	if len(rep.down) == 0 {
		return "nothing"
	}
	s := fmt.Sprintf("down, by %d of %d services", len(rep.down), r.services)
	if !n.since.IsZero() {
		s += fmt.Sprintf(", after %s", short(rep.first.Sub(n.since)))
	}
	if rep.ups > 0 {
		s += fmt.Sprintf("; up again %d times", rep.ups)
	}
	why := rep.why.Error()
	return s + ": " + strings.TrimSpace(why[strings.LastIndex(why, ": ")+1:])
}
