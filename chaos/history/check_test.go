package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// story is a hand-written history, in milliseconds.
type story struct {
	h  History
	op uint64
}

// hold adds a lease: called, granted, valid until, and given back; 0 for never.
func (s *story) hold(client string, fence int64, call, granted, until, ended int) *story {
	s.op++
	say := func(k Kind, at int, r Record) {
		r.Kind, r.Client, r.Op, r.At = k, client, s.op, time.Duration(at)*ms
		s.h.Add(r)
	}
	say(Called, call, Record{Resource: "r", Waits: true})
	if granted == 0 {
		return s
	}
	say(Granted, granted, Record{Token: fmt.Sprint("t", s.op), Fence: fence})
	say(Seen, granted, Record{Until: time.Duration(until) * ms})
	if ended > 0 {
		say(Ended, ended, Record{})
		say(Freed, ended+1, Record{})
	}
	return s
}

// then adds a record to the last lease.
func (s *story) then(client string, k Kind, at, until int, why string) *story {
	s.h.Add(Record{Kind: k, Client: client, Op: s.op, At: time.Duration(at) * ms, Until: time.Duration(until) * ms, Why: why})
	return s
}

// of adds a record to an earlier lease, by number.
func (s *story) of(op uint64, client string, k Kind, at, until int, why string) *story {
	last := s.op
	s.op = op
	s.then(client, k, at, until, why)
	s.op = last
	return s
}

// look adds a round: what each of three nodes has, as "token counter", "" for nothing,
// "down", or "?" for a look at other resources. The prefix "quarantine: " means a quarantine
// that began at 5 ms by the node's clock, "past quarantine: " the same after its end, and
// "next quarantine: " a quarantine that began at 33 ms.
func (s *story) look(at int, nodes ...string) *story {
	var round []Look
	for i, n := range nodes {
		l := Look{Node: i, At: time.Duration(at) * ms, Done: time.Duration(at)*ms + 1, Up: n != "down", Run: "run"}
		var k Key
		if state, key, in := strings.Cut(n, "quarantine: "); in {
			n, l.Left, l.Born = key, 100*ms, 5
			switch state {
			case "past ":
				l.Left = 0
			case "next ":
				l.Born = 33
			}
		}
		_, _ = fmt.Sscan(n, &k.ID, &k.Counter)
		k.C = k.Counter
		if k.ID != "?" {
			l.Keys = map[string]Key{"r": k}
		}
		round = append(round, l)
	}
	s.h.Rounds = append(s.h.Rounds, round)
	return s
}

func (s *story) stopped(client string, from, to int) *story {
	s.h.Faults = append(s.h.Faults, Fault{Name: "stopped", On: client, Node: -1, At: time.Duration(from) * ms, Healed: time.Duration(to) * ms})
	return s
}

// fault adds a fault of node 1.
func (s *story) fault(name string, from, to int) *story {
	s.h.Faults = append(s.h.Faults, Fault{Name: name, On: "node 1", Node: 1, At: time.Duration(from) * ms, Healed: time.Duration(to) * ms})
	return s
}

func (s *story) healed(at int) *story {
	s.h.Healed = time.Duration(at) * ms
	return s
}

var rules = Rules{Nodes: 3, TTL: 100 * ms, Drift: 2 * ms, Woken: map[string]time.Duration{"r": 20 * ms}, Served: 30 * ms, Settled: 50 * ms}

func TestGoodHistories(t *testing.T) {
	for name, s := range map[string]*story{
		"nothing":                                       new(story),
		"one after the other":                           new(story).hold("a", 1, 0, 1, 99, 10).hold("b", 65, 2, 11, 100, 20),
		"by the end of the validity":                    new(story).hold("a", 1, 0, 1, 99, 0).hold("b", 65, 2, 99, 190, 120),
		"given back late":                               new(story).hold("a", 1, 0, 1, 50, 80).hold("b", 65, 2, 60, 150, 70),
		"renewed":                                       new(story).hold("a", 1, 0, 1, 50, 0).then("a", Seen, 40, 120, "").hold("b", 65, 2, 121, 200, 130),
		"a call without a return":                       new(story).hold("a", 1, 0, 0, 0, 0).hold("b", 65, 2, 3, 50, 10),
		"over in the caller's hands":                    new(story).hold("a", 1, 0, 90, 50, 95).hold("b", 65, 2, 60, 150, 100),
		"lost at the instant of the next grant":         new(story).hold("a", 1, 0, 1, 99, 0).then("a", Seen, 40, 99, "").then("a", Over, 40, 0, "quorum lost").hold("b", 65, 2, 40, 90, 45),
		"one after the other, all at one instant":       new(story).hold("a", 1, 0, 10, 99, 10).hold("b", 65, 0, 10, 99, 10).hold("c", 66, 0, 10, 99, 20),
		"calls that overlap, in any order":              new(story).hold("a", 65, 0, 1, 50, 10).hold("b", 1, 0, 30, 50, 40).tokensOnly(),
		"lost, and then another client's":               new(story).hold("a", 1, 0, 1, 99, 0).then("a", Over, 30, 0, "quorum lost").hold("b", 65, 2, 20, 90, 30),
		"a bare majority has the key":                   new(story).hold("a", 1, 0, 1, 99, 50).look(20, "t1 1", "t1 1", ""),
		"the others are down":                           new(story).hold("a", 1, 0, 1, 99, 50).look(20, "t1 1", "down", "other 9"),
		"the other has no vote":                         new(story).hold("a", 1, 0, 1, 99, 50).look(20, "t1 1", "quarantine: t1 9", "other 9"),
		"a vote before the quarantine":                  new(story).look(20, "", "", "").hold("a", 1, 30, 31, 99, 50).look(40, "t1 1", "quarantine: t1 1", ""),
		"a quarantine that another MaxTTL makes longer": new(story).look(28, "", "past quarantine: ", "").hold("a", 1, 30, 31, 99, 50).look(40, "t1 1", "quarantine: t1 1", ""),
		"a vote before the quarantine, looked at late":  new(story).hold("a", 1, 10, 11, 99, 50).look(20, "", "quarantine: ?", "").look(40, "t1 1", "quarantine: t1 1", ""),
		"a vote between two quarantines":                new(story).look(20, "", "quarantine: ", "").hold("a", 1, 30, 31, 99, 50).look(40, "t1 1", "next quarantine: t1 1", ""),
		"a vote after a quarantine, then its clock is put back": new(story).look(20, "", "quarantine: ", "").look(28, "", "past quarantine: ", "").hold("a", 1, 30, 31, 99, 50).
			fault("clock put back", 35, 60).look(40, "t1 1", "quarantine: t1 1", ""),
		"a clock put forward and back":         new(story).look(20, "", "quarantine: ", "").fault("clock put forward", 25, 35).hold("a", 1, 30, 31, 99, 50).look(40, "t1 1", "quarantine: t1 1", ""),
		"a vote while the quarantine began":    new(story).look(30, "", "quarantine: t1 1", "").hold("a", 1, 30, 31, 99, 50).look(40, "t1 1", "quarantine: t1 1", ""),
		"the place is held, and is not a vote": new(story).look(20, "", "quarantine: ", "").hold("a", 1, 30, 31, 99, 50).look(40, "t1 1", "quarantine: t1 0", "t1 1"),
		"a context in time":                    new(story).hold("a", 1, 0, 1, 99, 0).then("a", Over, 94, 99, Expired),
		"a context late in a stopped client":   new(story).stopped("a", 50, 200).hold("a", 1, 0, 1, 99, 0).then("a", Over, 200, 99, Expired),
		"served in time":                       new(story).healed(10).hold("a", 1, 0, 59, 99, 70),
		"served after a holder":                new(story).healed(10).hold("a", 1, 0, 11, 100, 95).hold("b", 65, 12, 115, 200, 160),
		"given up in time":                     new(story).healed(10).hold("a", 1, 0, 0, 0, 0).then("a", Refused, 59, 0, "canceled"),
		"two readers at a time":                new(story).hold("a", 1, 0, 1, 99, 50).hold("b", 1, 2, 3, 99, 60).readers(0, 1).hold("c", 65, 61, 62, 99, 70),
		"a reader after a reader's token":      new(story).hold("a", 1, 0, 1, 99, 10).hold("b", 65, 11, 12, 99, 20).hold("c", 64, 11, 13, 99, 30).readers(1, 2),
		"nothing is left":                      new(story).healed(10).rest(100, "", ""),
		"a job after the minimum hold":         new(story).hold("a", 1, 0, 1, 99, 10).keep(30).hold("b", 65, 2, 30, 99, 40),
		"a job after the loss of the lease":    new(story).hold("a", 1, 0, 1, 99, 0).keep(30).then("a", Over, 15, 0, "quorum lost").then("a", Ended, 16, 0, "").hold("b", 65, 2, 20, 99, 40),
		"a key for the minimum hold":           new(story).healed(10).hold("a", 1, 0, 1, 80, 5).keep(60).look(100, "t1 1", "", ""),
		"a key that may still be there":        new(story).healed(10).hold("a", 1, 0, 1, 80, 0).look(100, "t1 1", "t1 1", ""),
	} {
		t.Run(name, func(t *testing.T) {
			if found := s.h.Check(rules); len(found) > 0 {
				t.Errorf("got %v, want no violation", found)
			}
		})
	}
}

// readers makes leases, by number from 0, those of readers.
func (s *story) readers(leases ...int) *story {
	for _, i := range leases {
		s.h.Done[i].Shared = true
	}
	return s
}

// keep gives the last lease a minimum hold.
func (s *story) keep(hold int) *story {
	s.h.Done[len(s.h.Done)-1].Keep = time.Duration(hold) * ms
	return s
}

// rest adds a round of one node that still has a key or a connection.
func (s *story) rest(at int, key, conn string) *story {
	l := Look{At: time.Duration(at) * ms, Done: time.Duration(at)*ms + 1, Up: true}
	if key != "" {
		l.Rest = []string{key}
	}
	if conn != "" {
		l.Conns = []string{conn}
	}
	s.h.Rounds = append(s.h.Rounds, []Look{l})
	return s
}

// tokensOnly marks a history that no lock has, but whose tokens are correct.
func (s *story) tokensOnly() *story {
	for _, a := range s.h.Done {
		a.Until = 0
	}
	return s
}

func TestBadHistories(t *testing.T) {
	for name, bad := range map[string]struct {
		s     *story
		rules []string // the rules that must be found broken
	}{
		"two holders":                                  {new(story).hold("a", 1, 0, 1, 99, 50).hold("b", 65, 2, 49, 100, 60), []string{"I1", "lock"}},
		"two holders by a nanosecond":                  {new(story).hold("a", 1, 0, 1, 99, 0).hold("b", 65, 2, 98, 190, 100).later(ms - 1), []string{"I1", "lock"}},
		"a third under the first":                      {new(story).hold("a", 1, 0, 1, 99, 90).hold("b", 65, 2, 10, 20, 15).hold("c", 129, 3, 60, 70, 65), []string{"I1", "I1", "lock"}},
		"granted before it was lost":                   {new(story).hold("a", 1, 0, 1, 99, 0).then("a", Seen, 50, 99, "").then("a", Over, 60, 0, "quorum lost").hold("b", 65, 2, 40, 90, 45), []string{"I1", "lock"}},
		"a token twice":                                {new(story).hold("a", 1, 0, 1, 99, 10).hold("b", 1, 2, 20, 99, 30), []string{"I2", "lock"}},
		"a token that falls":                           {new(story).hold("a", 65, 0, 1, 99, 10).hold("b", 1, 12, 20, 99, 30), []string{"I2", "lock"}},
		"a token that falls later":                     {new(story).hold("a", 65, 0, 1, 99, 10).hold("b", 66, 12, 20, 99, 30).hold("c", 2, 31, 32, 99, 33), []string{"I2", "lock"}},
		"no token":                                     {new(story).hold("a", 0, 0, 1, 99, 10), []string{"I2", "lock"}},
		"too few nodes have the key":                   {new(story).hold("a", 1, 0, 1, 99, 50).look(20, "t1 1", "x 1", " "), []string{"I3"}},
		"a vote of a node in quarantine":               {new(story).look(20, "", "quarantine: ", "").hold("a", 1, 30, 31, 99, 50).look(40, "t1 1", "quarantine: t1 1", ""), []string{"I4"}},
		"the same, looked at late":                     {new(story).look(20, "", "quarantine: ?", "").hold("a", 1, 30, 31, 99, 50).look(40, "t1 1", "quarantine: t1 1", ""), []string{"I4"}},
		"the same, of a client that had called before": {new(story).look(20, "", "quarantine: ", "").hold("a", 1, 10, 31, 99, 50).look(40, "t1 1", "quarantine: t1 1", ""), []string{"I4"}},
		"the same, under a key of another":             {new(story).look(20, "", "quarantine: x 0", "").hold("a", 1, 10, 31, 99, 50).look(40, "t1 1", "quarantine: t1 1", "").look(45, "t1 1", "quarantine: t1 1", ""), []string{"I4", "I4"}},
		"the same, by a clock moved before":            {new(story).fault("clock put back", 2, 10).look(20, "", "quarantine: ", "").hold("a", 1, 30, 31, 99, 50).look(40, "t1 1", "quarantine: t1 1", ""), []string{"I4"}},
		"counters behind":                              {new(story).hold("a", 7, 0, 1, 99, 50).look(20, "t1 7", "t1 6", "t1 5"), []string{"I5"}},
		"a counter that falls":                         {new(story).look(20, "x 7", "x 7", "x 7").look(30, "x 7", "x 6", "x 7"), []string{"I5"}},
		"a key of no lease":                            {new(story).healed(10).hold("a", 1, 0, 1, 80, 5).look(100, "t1 1", "", ""), []string{"I6"}},
		"a context too late":                           {new(story).hold("a", 1, 0, 1, 99, 0).then("a", Over, 101, 99, Expired), []string{"I7"}},
		"valid for longer than the TTL":                {new(story).hold("a", 1, 0, 1, 100, 0), []string{"I8"}},
		"valid again":                                  {new(story).hold("a", 1, 0, 1, 50, 0).then("a", Seen, 51, 50, "").then("a", Seen, 52, 120, ""), []string{"I8"}},
		"valid at the grant of another, then lost":     {new(story).hold("a", 1, 0, 1, 99, 0).hold("b", 65, 2, 40, 90, 45).of(1, "a", Seen, 40, 99, "").of(1, "a", Over, 60, 0, "quorum lost"), []string{"I1"}},
		"two holders, one for no time":                 {new(story).hold("a", 1, 0, 1, 99, 50).hold("b", 65, 2, 49, 100, 49), []string{"I1", "lock"}},
		"a token that falls, of calls that overlap":    {new(story).hold("a", 65, 0, 1, 99, 10).hold("b", 1, 0, 20, 99, 30), []string{"I2", "lock"}},
		"the same, all at one instant":                 {new(story).hold("a", 65, 0, 10, 99, 10).hold("b", 1, 0, 10, 99, 10), []string{"I2"}},
		"waits too long":                               {new(story).healed(10).hold("a", 1, 0, 61, 99, 70), []string{"I10"}},
		"waits too long, and gives up":                 {new(story).healed(10).hold("a", 1, 0, 0, 0, 0).then("a", Refused, 61, 0, "canceled"), []string{"I10"}},
		"waits too long after a holder":                {new(story).healed(10).hold("a", 1, 0, 11, 100, 20).hold("b", 65, 12, 71, 140, 80), []string{"I10"}},
		"waits too long before a holder":               {new(story).healed(10).hold("a", 1, 61, 62, 99, 63).hold("b", 65, 0, 64, 140, 80), []string{"I10"}},
		"a writer beside a reader":                     {new(story).hold("a", 1, 0, 1, 99, 50).readers(0).hold("b", 65, 2, 49, 100, 60), []string{"I1", "lock"}},
		"a reader beside a writer":                     {new(story).hold("a", 1, 0, 1, 99, 50).hold("b", 65, 2, 49, 100, 60).readers(1), []string{"I1", "lock"}},
		"a reader with a token below a writer's":       {new(story).hold("a", 65, 0, 1, 99, 10).hold("b", 64, 12, 20, 99, 30).readers(1), []string{"I2", "lock"}},
		"a writer with a reader's token":               {new(story).hold("a", 65, 0, 1, 99, 10).readers(0).hold("b", 65, 12, 20, 99, 30), []string{"I2", "lock"}},
		"a reader behind a writer, calls that overlap": {new(story).hold("a", 65, 0, 1, 99, 10).hold("b", 64, 0, 20, 99, 30).readers(1), []string{"I2", "lock"}},
		"a key of the library is left":                 {new(story).healed(10).rest(100, "redlock:r~queue", ""), []string{"I11"}},
		"a connection is left":                         {new(story).healed(10).rest(100, "", "id=7"), []string{"I11"}},
		"a job within the minimum hold":                {new(story).hold("a", 1, 0, 1, 99, 10).keep(30).hold("b", 65, 2, 29, 99, 40), []string{"I1", "lock"}},
		"a leader that goes on after the end":          {new(story).hold("a", 1, 0, 1, 99, 0).hold("b", 65, 2, 105, 200, 110).of(1, "a", Seen, 107, 108, ""), []string{"I1", "lock"}},
		"waits too long without faults":                {new(story).healed(10).hold("a", 1, 40, 61, 99, 70), []string{"I10"}},
		"a record without a call":                      {new(story).then("a", Seen, 1, 2, ""), []string{"history"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			found := bad.s.h.Check(rules)
			for _, v := range found {
				got = append(got, v.Rule)
			}
			slices.Sort(got)
			if !slices.Equal(got, bad.rules) {
				t.Errorf("got %v, want violations of %v", found, bad.rules)
			}
		})
	}
}

// later moves the last grant.
func (s *story) later(by time.Duration) *story {
	last := s.h.Done[len(s.h.Done)-1]
	last.Return += by
	return s
}

// Random histories of a working lock are good. With one grant moved into another lease they
// are not, and both checks of exclusion find that.
func TestRandomHistories(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		at, fence := 10, int64(0)
		s := new(story)
		n := 3 + rng.IntN(300)
		for i := range n {
			granted := at + rng.IntN(5)
			until := granted + 20 + rng.IntN(70)
			ended := granted + 1 + rng.IntN(90)
			fence += int64(1 + rng.IntN(64))
			s.hold(fmt.Sprint("c", i%5), fence, max(0, granted-1-rng.IntN(30)), granted, until, ended)
			at = min(until, ended)
		}
		if found := s.h.Check(rules); len(found) > 0 {
			t.Fatalf("got %v, want no violation", found)
		}
		a := s.h.Done[1+rng.IntN(n-1)]
		before := s.h.Done[slices.Index(s.h.Done, a)-1]
		a.Return = before.End() - 1
		a.Call = min(a.Call, a.Return)
		var got []string
		for _, v := range s.h.Check(rules) {
			got = append(got, v.Rule)
		}
		if !slices.Contains(got, "I1") || !slices.Contains(got, "lock") {
			t.Fatalf("got violations of %v, want I1 and lock", got)
		}
	}
}

func TestPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock.html")
	good, bad := new(story).hold("a", 1, 0, 1, 99, 10), new(story).hold("a", 1, 0, 1, 99, 50).hold("b", 65, 2, 49, 100, 60)
	if drawn, err := good.h.Picture("r", file); drawn || err != nil {
		t.Errorf("got %v, %v of a good history, want no picture", drawn, err)
	}
	if drawn, err := bad.h.Picture("r", file); !drawn || err != nil {
		t.Errorf("got %v, %v of a bad history, want a picture", drawn, err)
	}
}

func TestStores(t *testing.T) {
	read := func(fence, call, done, value int64, accepted bool) Access {
		return Access{Fence: fence, Call: time.Duration(call), Done: time.Duration(done), Value: value, Accepted: accepted}
	}
	write := func(fence, call, done, value int64, accepted bool) Access {
		a := read(fence, call, done, value, accepted)
		a.Write = true
		return a
	}
	good := []Access{write(1, 0, 1, 0, true), write(2, 2, 3, 1, true), write(1, 4, 5, 0, false), write(2, 6, 7, 2, true)}
	if lost, stale := Lost(good), Stale(good); len(lost)+len(stale) > 0 {
		t.Errorf("got %v and %v, want nothing wrong", lost, stale)
	}
	bad := slices.Clone(good)
	bad[2].Accepted = true
	if lost, stale := Lost(bad), Stale(bad); len(lost) != 2 || len(stale) != 1 {
		t.Errorf("got %v and %v, want two lost updates (the late write, and the write that did not see it) and one stale write", lost, stale)
	}

	// The write of holder 1 comes between the read and the write of holder 2.
	between := []Access{read(1, 0, 1, 0, true), read(2, 2, 3, 0, true), write(1, 4, 5, 0, false), write(2, 6, 7, 0, true), read(1, 8, 9, 0, false)}
	if lost, stale := Lost(between), Stale(between); len(lost)+len(stale) > 0 {
		t.Errorf("got %v and %v of a store that refused holder 1, want nothing wrong", lost, stale)
	}
	between[2].Accepted = true
	if lost, stale := Lost(between), Stale(between); len(lost) != 1 || len(stale) != 1 || stale[0].At != between[2].Call {
		t.Errorf("got %v and %v of a store that took the write, want one lost update and one stale write", lost, stale)
	}
	between[2].Accepted, between[4].Accepted = false, true
	if lost, stale := Lost(between), Stale(between); len(lost) != 0 || len(stale) != 1 || stale[0].At != between[4].Call {
		t.Errorf("got %v and %v of a store that took the read, want one stale read", lost, stale)
	}
}

// fakeLease is a lease whose validity the test sets.
type fakeLease struct {
	left time.Duration
	ctx  context.Context
}

func (*fakeLease) Token() string                { return "t1" }
func (*fakeLease) Fence() int64                 { return 1 }
func (l *fakeLease) Validity() time.Duration    { return l.left }
func (l *fakeLease) Context() context.Context   { return l.ctx }
func (*fakeLease) Unlock(context.Context) error { return nil }

func TestClient(t *testing.T) {
	var h History
	now := 10 * ms
	over := make(chan struct{}, 1)
	c := &Client{Name: "c", Now: func() time.Duration { return now }, Why: func(err error) string { return err.Error() },
		Sink: func(r Record) {
			h.Add(r)
			if r.Kind == Over {
				over <- struct{}{}
			}
		}}
	if held, err := Take(c, "r", false, func() (*fakeLease, error) { return nil, errors.New("taken") }); err == nil || held != nil {
		t.Error("got a lease of a refusal")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	lease := &fakeLease{left: 50 * ms, ctx: ctx}
	held, err := Take(c, "r", true, func() (*fakeLease, error) { return lease, nil })
	if err != nil {
		t.Fatal(err)
	}
	now, lease.left = 20*ms, 60*ms
	held.Look()
	now = 79 * ms
	lease.left = ms
	cancel(errors.New(Expired))
	<-over
	if err := held.Free(t.Context()); err != nil {
		t.Error(err)
	}
	if got, want := fmt.Sprint(h.Done[0].Held, " ", h.Done[0].Why), "false taken"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if a := h.Done[1]; a.Until != 80*ms || a.End() != 79*ms || a.Fence != 1 || h.Margins() != (Margins{1, ms, 0, a}) {
		t.Errorf("got %+v and margins %+v, want valid until 80 ms, over by 79 ms, 1 ms to spare", a, h.Margins())
	}
}
