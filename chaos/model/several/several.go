// Package several models calls of package several: each wants some resources, tries all that it lacks at once, keeps those
// before the first one that is missing, gives the others back, and waits for the missing one. A lock of a single resource is
// one step, because that is modelled elsewhere. Two calls that try a resource at the same time may both be refused.
//
// A process may die. What it holds is free later.
//
// Source: the comment of package several.
package several

import (
	"slices"

	"github.com/d0720281/redlock/chaos/model/search"
)

const (
	resources = 3
	most      = 3 // processes
)

// Stuck is what can break: a call waits for ever, or leaves a resource taken.
const Stuck = "a call waits for ever"

// Config says what is modelled, and with which of the rules.
type Config struct {
	Sets    [][]int // the resources of each process, in the order in which its calls name them
	Turns   int     // calls of each process
	Crashes int     // processes that die

	// Rules left out.
	AsNamed bool // a call waits in the order in which the resources are named
	Keeps   bool // a call that waits keeps what it has behind the missing resource
}

type phase uint8

const (
	idle phase = iota
	trying
	waiting // for the first resource that is missing
	holding
	dead
)

type process struct {
	phase phase
	turns uint8
	has   uint8 // resources, a bit each
}

type state struct {
	process [most]process
	crashes uint8
}

// Model is the model of a configuration.
func (c Config) Model() search.Model[state] {
	var start state
	for i := range c.Sets {
		start.process[i].turns = uint8(c.Turns)
	}
	return search.Model[state]{Start: start, Next: c.next, Ends: c.ends, Goal: func(s state) bool { return c.ends(s) == "" }}
}

// ends is Stuck unless each process that lives has had its turns, and nothing is left.
func (c Config) ends(s state) string {
	for i := range c.Sets {
		if p := s.process[i]; p.has != 0 || p.phase != dead && (p.phase != idle || p.turns > 0) {
			return Stuck
		}
	}
	return ""
}

// order returns the resources of a process in the order in which a call waits for them, a bit each.
func (c Config) order(i int) (list []uint8) {
	for _, r := range c.Sets[i] {
		list = append(list, 1<<r)
	}
	if !c.AsNamed {
		slices.Sort(list)
	}
	return list
}

// missing returns the first resource that a process lacks, and all those before it.
func (c Config) missing(p process, i int) (first, before uint8) {
	for _, r := range c.order(i) {
		if p.has&r == 0 {
			return r, before
		}
		before |= r
	}
	return 0, before
}

func (s state) taken() (set uint8) {
	for _, p := range s.process {
		set |= p.has
	}
	return set
}

func (c Config) next(s state, visit func(state, search.Step)) {
	for i := range c.Sets {
		step := func(format string, change func(*process)) {
			next := s
			change(&next.process[i])
			visit(next, search.Step{Format: format, A: i + 1})
		}
		p := s.process[i]
		switch p.phase {
		case idle:
			if p.turns > 0 {
				step("process %d calls", func(p *process) { p.phase = trying; p.turns-- })
			}
		case trying:
			lacks := uint8(0)
			for _, r := range c.order(i) {
				lacks |= r &^ (p.has | s.taken())
			}
			for got := range lacks + 1 { // any part of what is free, as others may try, too
				if got&^lacks == 0 {
					step("process %d tries the resources", func(p *process) { c.keep(p, i, got) })
				}
			}
		case waiting:
			if first, _ := c.missing(p, i); first&s.taken() == 0 {
				step("process %d gets what it waits for", func(p *process) { p.has |= first; p.phase = trying })
			}
		case holding:
			step("process %d unlocks", func(p *process) { p.has, p.phase = 0, idle })
		case dead:
			if p.has != 0 {
				step("a lease of process %d expires", func(p *process) { p.has &= p.has - 1 })
			}
		}
		if p.phase != dead && p.has != 0 && int(s.crashes) < c.Crashes {
			next := s
			next.crashes++
			next.process[i].phase = dead
			visit(next, search.Step{Format: "process %d DIES", A: i + 1, Fault: true})
		}
	}
}

// keep notes what a try has got.
func (c Config) keep(p *process, i int, got uint8) {
	p.has |= got
	first, before := c.missing(*p, i)
	if first == 0 {
		p.phase = holding
		return
	}
	p.phase = waiting
	if !c.Keeps {
		p.has = before
	}
}
