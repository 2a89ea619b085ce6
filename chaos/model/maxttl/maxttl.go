// Package maxttl models what a node knows of the largest TTL: when that rises, when it is forgotten, and how long the node
// has no vote after a loss of data. One node stands for all, as its vote would be the last one that another holder needs.
//
// There are two clients. The first expects leases with the TTLs long and medium, and asks for either. The second
// expects none longer than short, and asks for that. The node loses its keys, but not its marker. The second client
// must not be granted the lock while the first one may believe in a lease.
//
// Time passes in ticks, the same for all.
//
// Source: ALGORITHM section 8, "MaxTTL".
package maxttl

import "github.com/d0720281/redlock/chaos/model/search"

// The TTLs, in ticks. A quarantine is as long as the TTL that it is for.
const (
	short  = 1
	medium = 3
	long   = 5
)

// TwoHolders is what can break.
const TwoHolders = "two holders"

// Config says which of the rules are left out, to see what they are for.
type Config struct {
	Losses int

	NotRaised    bool // a larger TTL is not written down
	ForgetAtOnce bool // a smaller TTL takes the place of a larger one
	NoRecent     bool // what takes the place of the largest TTL is that of the present request, and not the largest since
	NotTouched   bool // a request with the largest TTL does not begin its time anew
	Early        bool // the largest TTL is forgotten a tick too early
}

type state struct {
	largest uint8 // that the node knows; 0: none
	watched bool  // a smaller one would do
	since   uint8 // ticks since the largest was used, or a smaller one was first asked for; while watched
	recent  uint8 // the largest other one since
	born    uint8 // ticks since the node lost its keys, at most long
	key     uint8 // life of the key
	lease   uint8 // for which the first client believes in its lease
	losses  uint8
}

// Model returns the model of a configuration.
func (c Config) Model() search.Model[state] {
	return search.Model[state]{Start: state{born: long}, Next: c.next}
}

// asks has the node take down the TTL of a request.
func (c Config) asks(s *state, ttl, expects uint8) {
	switch {
	case ttl > s.largest && (!c.NotRaised || s.largest == 0):
		s.largest, s.watched, s.since, s.recent = ttl, false, 0, 0
	case ttl < s.largest && c.ForgetAtOnce:
		s.largest = ttl
	case !s.watched && s.largest <= expects:
	case ttl >= s.largest:
		if !c.NotTouched {
			s.since = 0
		}
	case !s.watched:
		s.watched, s.since, s.recent = true, 0, ttl
	case s.since >= s.largest || c.Early && s.since+1 >= s.largest:
		s.largest = max(s.recent, ttl)
		s.watched, s.since, s.recent = false, 0, 0
		if c.NoRecent {
			s.largest = ttl
		}
	default:
		s.recent = max(s.recent, ttl)
	}
}

// votes reports whether the node has a vote for a client.
func votes(s *state, expects uint8) bool { return s.born >= max(s.largest, expects) }

func (c Config) next(s state, visit func(state, search.Step)) {
	for _, ttl := range []uint8{medium, long} {
		s := s
		c.asks(&s, ttl, long)
		switch {
		case s.lease > 0: // an extension; a key that was lost is set again
			s.lease, s.key = max(s.lease, ttl), max(s.key, ttl)
			visit(s, search.Step{Format: "the first client extends its lease by %d", A: int(ttl)})
		case s.key == 0 && votes(&s, long):
			s.lease, s.key = ttl, ttl
			visit(s, search.Step{Format: "the first client HOLDS for %d", A: int(ttl)})
		}
	}
	{
		s := s
		c.asks(&s, short, short)
		by := search.Step{Format: "the second client asks"}
		if s.key == 0 && votes(&s, short) {
			by.Format = "the second client HOLDS, and gives the lock back"
			if s.lease > 0 {
				by.Breaks = TwoHolders
			}
		}
		visit(s, by)
	}
	if int(s.losses) < c.Losses {
		s := s
		s.losses++
		s.key, s.born = 0, 0
		s.watched, s.since, s.recent = false, 0, 0
		visit(s, search.Step{Format: "the node LOSES ITS KEYS", Fault: true})
	}
	s.key, s.lease = max(s.key, 1)-1, max(s.lease, 1)-1
	s.born = min(s.born+1, long)
	if s.watched {
		s.since = min(s.since+1, long)
	}
	visit(s, search.Step{Format: "time passes"})
}
