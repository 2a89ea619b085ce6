// Package several models leases on several resources at once. An attempt asks each node for what is
// missing, in sorted order. A node stops at the first resource that is busy, or goes on behind it.
// The process keeps what a quorum gave without a gap, waits for the first resource that is missing,
// and gives the rest back.
//
// What a process sends to one node arrives in order; apart from that each message and reply takes
// any time. A claim ends by itself only when its process is dead. A process that waits may ask
// again at any moment: the queue is in package queue.
//
// Source: ALGORITHM section 10; package several.
package several

import "github.com/d0720281/redlock/chaos/model/search"

const (
	nodes         = 3
	quorum        = 2
	most          = 3 // processes
	mostResources = 3
	depth         = 3 // messages on one lane
)

// What can break, beside a goal that gets out of reach: all processes that live have had
// their turns, and nothing is left.
const (
	TwoHolders = "two holders of one resource"
	Stuck      = "a process waits for ever"
)

// Config says what is modelled, and with which of the rules.
type Config struct {
	Sets  [][]int // the resources that each process wants, as it names them
	Turns int     // of each process

	Crashes int // processes that die

	Patient      bool // a process that asks waits for all nodes
	AllOrNothing bool // a process that waits keeps nothing
	GoesOn       bool // a node goes on behind what is busy; still nothing behind a gap is kept

	// Rules left out.
	AsNamed bool // the resources are asked for in the order in which they are named
	NoTrim  bool // what too few nodes gave is not given back
	One     bool // one node is enough
	Some    bool // a node goes on behind what is busy, and what a quorum gave is kept
}

type phase uint8

const (
	idle phase = iota
	asking
	waiting
	holding
	dead
)

type message uint8

const (
	none message = iota
	acquire
	late // an acquire whose attempt is over
	trim // gives back what is not held
	free // gives back all
)

type link struct {
	lane    [depth]message
	replied bool  // the reply is on its way
	reply   uint8 // resources
	heard   bool
	vote    uint8 // resources
}

type process struct {
	phase phase
	turns uint8
	has   uint8 // resources, a bit each
	link  [nodes]link
}

type state struct {
	owner   [nodes][mostResources]uint8 // process + 1
	process [most]process
	crashes uint8
}

// Model is the model of a configuration.
func (c Config) Model() search.Model[state] {
	var start state
	for i := range c.Sets {
		start.process[i].turns = uint8(c.Turns)
	}
	return search.Model[state]{Start: start, Next: c.next, Ends: c.ends, Canon: canon, Goal: func(s state) bool { return c.ends(s) == "" }}
}

// canon sorts the nodes, with their links: they are alike.
func canon(s state) state {
	var parts [nodes]struct {
		owner [mostResources]uint8
		link  [most]link
	}
	for n := range parts {
		parts[n].owner = s.owner[n]
		for i := range s.process {
			parts[n].link[i] = s.process[i].link[n]
		}
	}
	search.Sort(parts[:])
	for n := range parts {
		s.owner[n] = parts[n].owner
		for i := range s.process {
			s.process[i].link[n] = parts[n].link[i]
		}
	}
	return s
}

func (c Config) ends(s state) string {
	for i := range c.Sets {
		if p := &s.process[i]; p.phase != dead && (p.phase != idle || p.turns > 0) {
			return Stuck
		}
	}
	if s.owner != [nodes][mostResources]uint8{} {
		return Stuck
	}
	return ""
}

// order returns the resources of a process in the order in which it asks for them.
func (c Config) order(p int) []int {
	if c.AsNamed {
		return c.Sets[p]
	}
	var sorted []int
	for r := range mostResources {
		for _, x := range c.Sets[p] {
			if x == r {
				sorted = append(sorted, r)
			}
		}
	}
	return sorted
}

func (c Config) all(p int) (set uint8) {
	for _, r := range c.Sets[p] {
		set |= 1 << r
	}
	return set
}
