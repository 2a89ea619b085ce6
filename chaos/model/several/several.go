// Package several models leases on several resources at once. An attempt asks each node for
// what is missing, in sorted order, and the node goes on until one is busy. What a quorum
// gave without a gap is kept, and waited for is the first that is missing; the rest is given
// back.
//
// What a process sends to one node arrives in order, as on a lane; apart from that every
// message and reply takes any time. A claim only ends by itself when its process is dead.
// Who waits may ask again at any moment: the queue is in package order.
//
// Source: FAMILY section 6.
package several

import (
	"bytes"

	"github.com/d0720281/redlock/chaos/model/search"
)

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
	Stuck      = "somebody waits for ever"
)

// Config is what is modelled, and with which of the rules.
type Config struct {
	Sets  [][]int // the resources that each process wants, as it names them
	Turns int     // of each process

	Crashes int // processes that die

	Patient      bool // who asks waits for all nodes
	AllOrNothing bool // nothing is kept while it waits
	GoesOn       bool // a node goes on behind what is busy; still nothing behind a gap is kept

	// Rules left out.
	AsNamed bool // the resources are asked for in the order in which they are named
	NoTrim  bool // what too few nodes gave is not given back
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

// canon sorts the nodes: they are alike.
func canon(s state) state {
	var room [nodes][mostResources + most*(depth+2)]byte
	var rank [nodes][]byte
	for n := range nodes {
		r := append(room[n][:0], s.owner[n][:]...)
		for i := range s.process {
			l := &s.process[i].link[n]
			flags := byte(0)
			if l.replied {
				flags |= 1
			}
			if l.heard {
				flags |= 2
			}
			r = append(r, byte(l.lane[0]), byte(l.lane[1]), byte(l.lane[2]), l.reply<<4|l.vote, flags)
		}
		rank[n] = r
	}
	for i := 1; i < nodes; i++ {
		for j := i; j > 0 && bytes.Compare(rank[j], rank[j-1]) < 0; j-- {
			rank[j], rank[j-1] = rank[j-1], rank[j]
			s.owner[j], s.owner[j-1] = s.owner[j-1], s.owner[j]
			for k := range s.process {
				l := &s.process[k].link
				l[j], l[j-1] = l[j-1], l[j]
			}
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

// order is in which a process asks for its resources.
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
