package node

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/wire"
)

// Held is what a node has of a lock.
type Held struct {
	Err        error         // why the node did not answer; nil if it did
	Quarantine time.Duration // how long the node has no vote yet
	Void       error         // why the node's vote would not count, as in quarantine; nil if it would
	Unfit      error         // why the fencing counter lets no lease be granted; nil if it does
	RoundTrip  time.Duration
	Waiting    int // processes in the node's queue for the lock

	Value   string        // of the lock key; "" if there is none, or if it is empty
	Token   string        // of the holder, or of the former holder if Broken; "" if readers have the key
	Broken  bool          // the key is a placeholder without a holder: lua/break.lua
	Readers []Reader      // those whose life ends first, if readers have the key
	Sharing int           // how many readers have the key
	For     time.Duration // since the attempt of the holder, by the node's clock; 0 if that is not known
	TTL     time.Duration // of the key; negative for a key that never expires
	Asked   clock.Instant // when the question was sent, from which the TTL counts

	Given   int64 // fencing counter that came with the key; 0 = none, or further ahead than it can be
	Counter int64 // fencing counter at the moment of the answer; 0 as above
}

// Reader is a reader that has a lock key.
type Reader struct {
	Token string
	For   time.Duration // as that of a Held
	TTL   time.Duration
}

// Middle returns the middle one of what nodes say, the smaller of two; 0 if none says anything.
func Middle(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[(len(list)-1)/2]
}

// Has reports whether the node has the key of a holder. A placeholder is no such key.
func (h *Held) Has(token string) bool {
	return h.Err == nil && !h.Broken && token != "" && h.Token == token
}

// Taken reports whether the node has a key: of a holder, of readers, or a placeholder.
func (h *Held) Taken() bool { return h.Token != "" || h.Sharing > 0 || h.Broken }

// setKey takes the value of a key apart. most is the largest counter that can be.
func (h *Held) setKey(value string, ttl time.Duration, most int64) {
	token, given, _ := strings.Cut(value, "|") // another library's value has no counter
	if of, is := strings.CutPrefix(token, wire.BrokenMark); is {
		token, given, h.Broken = of, "", true
	}
	switch {
	case value == wire.Sign, h.Broken && (token == wire.Readers || token == wire.Unowned):
		token = ""
	case token == "" && !h.Broken: // of no attempt, and a key all the same
		token = wire.Unowned
	}
	h.Value, h.Token, h.TTL, h.Given = value, token, ttl, counterIn(given, most)
}

// counterIn returns 0 for a text that cannot be a fencing counter.
func counterIn(text string, most int64) int64 {
	c, err := strconv.ParseInt(text, 10, 64)
	if err != nil || c < wire.Block || c > most {
		return 0
	}
	return c
}

// CounterOf returns the fencing counter of a holder's lease, from what all nodes have, or 0 if that
// does not tell it. The counter came with the key on one of the holder's nodes, and a quorum counts
// at least as much. A larger counter came with a vote that was too late, and fewer nodes count as
// much. The other nodes may count anything, and each counter may have come from one of them.
//
// Source: ALGORITHM section 4.
func CounterOf(nodes []Held, quorum int, token string) int64 {
	var its []Held
	for _, h := range nodes {
		if h.Has(token) && h.Given > 0 {
			its = append(its, h)
		}
	}
	others := len(nodes) - len(its)
	slices.SortFunc(its, func(a, b Held) int { return cmp.Compare(b.Given, a.Given) })
	for _, candidate := range its {
		same, more := 0, 0
		for _, h := range its {
			if h.Counter >= candidate.Given {
				same++
			}
			if h.Counter > candidate.Given {
				more++
			}
		}
		switch {
		case others > 0 && more+others >= quorum, same < quorum && same+others >= quorum:
			return 0
		case same >= quorum:
			return candidate.Given
		}
	}
	return 0
}
