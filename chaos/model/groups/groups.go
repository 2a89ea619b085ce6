// Package groups models two clients of package sharded with several groups of masters each. Their
// sets share one group. The resource lies in a group that the other client does not have, so only
// the surveys of the shared group keep the two clients apart.
//
// The model has the nodes of the shared group alone. A client has no rival in the group of the
// resource. So it acquires and extends whenever its surveys let it: it holds a lease while its last
// passed survey counts, and for the TTL after that. So the model shows what is promised to clients
// that reach a quorum of the shared group as long as they hold leases.
//
// Time passes in ticks, the same for all. A message or its reply takes any time or is lost. A
// join has no latest time. A node can carry it out after its survey has ended, more than once,
// up to Late ticks later. A client begins a survey at any moment, or none for any time: it may
// be paused. If two events fall on the same tick, both orders are possible, and a survey still
// counts on its last tick. So a bound has to be met exactly, without the help of a tick.
//
// A node that was emptied forgets which sets are in use. A client may enter by it as soon as its
// quarantine is over, and that is one TTL too early, or the time of a survey: package sharded tells
// its callers not to change groups then. The controls have the traces.
//
// Source: package sharded; ALGORITHM section 8, "Membership".
package groups

import "github.com/d0720281/redlock/chaos/model/search"

const (
	clients   = 2
	mostNodes = 3
)

// TwoHolders is what can break.
const TwoHolders = "two holders"

// Config says what is modelled, and with which of the rules.
type Config struct {
	Nodes, Quorum int // of the shared group
	TTL           int // in ticks
	Quarantine    int // of a node that was emptied; a passed survey counts as long
	InUse         int // a set is in use this long after a join
	Timeout       int // the longest survey
	Late          int // a join is carried out this long after its survey at the latest

	// What can happen.
	Restarts int  // of nodes, which come back empty
	New      bool // all nodes are empty at the start
	Stops    bool // client 0 may stop for good; then client 1 must be able to pass

	// Rules left out, or others in their place, to see what they are for.
	NoSurvey       bool // clients lock without a survey
	CountsForever  bool // a passed survey counts for ever
	CountsFromEnd  bool // a passed survey counts from its end
	EnterByOne     bool // a client enters, and passes, by one node
	CompareNumbers bool // sets with the same number of groups are compatible
	SkipSilent     bool // a survey passes if less than a quorum answers, though the other client reaches it
	StaysInUse     bool // a set is in use for ever
}

// Default has all rules, and three nodes.
//
// A passed survey counts for twice as long here as in package sharded, and the longest survey may
// be as long as the rule has it count. So the search shows the rules to hold with half a Quarantine
// to spare.
func Default() Config {
	return Config{Nodes: 3, Quorum: 2, TTL: 1, Quarantine: 2, InUse: 4, Timeout: 1, Late: 1}
}

// What has become of a client's join at a node in the survey that is running.
type join uint8

const (
	none    join = iota // nothing is on the way, and no reply counts
	sent                // on its way to the node
	taken               // taken without a conflict, by a node that lets clients enter
	witness             // the same, by a node that counts for clients that have entered
	refused             // a conflict is named
)

type node struct {
	joined [clients]uint8 // ticks since a client's last join, at most InUse
	up     uint8          // ticks since it was empty, at most Quarantine

	join [clients]join
	late [clients]uint8 // ticks for which a join of an earlier survey can be carried out
}

type client struct {
	surveying bool
	elapsed   uint8 // since the start of the survey that is running

	passed  bool  // a passed survey counts
	age     uint8 // since the start of that survey
	entered bool
	left    uint8 // until the end of the last lease
	stopped bool
}

type state struct {
	node     [mostNodes]node
	client   [clients]client
	restarts uint8
}

// Model returns the model of a configuration.
func (c Config) Model() search.Model[state] {
	m := search.Model[state]{Start: c.start(), Next: c.next, Canon: c.canon}
	if c.Stops {
		m.Goal = func(s state) bool { return s.client[0].stopped && s.client[1].passed }
	}
	return m
}

func (c Config) start() (s state) {
	for i := range c.Nodes {
		n := &s.node[i]
		for a := range n.joined {
			n.joined[a] = uint8(c.InUse)
		}
		if !c.New {
			n.up = uint8(c.Quarantine)
		}
	}
	return s
}

// canon sorts the nodes: they are alike. So are the clients, unless one of them stops.
func (c Config) canon(s state) state {
	search.Sort(s.node[:c.Nodes])
	if c.Stops {
		return s
	}
	t := s
	t.client[0], t.client[1] = s.client[1], s.client[0]
	for i := range c.Nodes {
		n := &t.node[i]
		n.joined[0], n.joined[1] = n.joined[1], n.joined[0]
		n.join[0], n.join[1] = n.join[1], n.join[0]
		n.late[0], n.late[1] = n.late[1], n.late[0]
	}
	search.Sort(t.node[:c.Nodes])
	both := [2]state{s, t}
	search.Sort(both[:])
	return both[0]
}
