package history

import (
	"fmt"
	"testing"
	"time"
)

// adopts adds a call that adopts the lease with a token: called, granted, valid until; granted 0 if it is refused.
func (s *story) adopts(client, former string, fence int64, call, granted, until int) *story {
	s.op++
	s.h.Add(Record{Kind: Called, Client: client, Op: s.op, At: time.Duration(call) * ms, Resource: "r", Former: former})
	if granted == 0 {
		s.h.Add(Record{Kind: Refused, Client: client, Op: s.op, At: time.Duration(call+1) * ms, Why: "not_held"})
		return s
	}
	s.h.Add(Record{Kind: Granted, Client: client, Op: s.op, At: time.Duration(granted) * ms, Token: fmt.Sprint("t", s.op), Fence: fence})
	s.h.Add(Record{Kind: Seen, Client: client, Op: s.op, At: time.Duration(granted) * ms, Until: time.Duration(until) * ms})
	return s
}

// An adopter has the lease alone: no other call adopted it, and no other holder came first. The former holder may believe
// in its lease for longer.
func TestAdoptions(t *testing.T) {
	for _, test := range []struct {
		name string
		s    *story
		want string
	}{
		{"while the former holder believes in its lease", new(story).hold("a", 64, 1, 2, 50, 40).adopts("b", "t1", 128, 10, 12, 60), ""},
		{"one of two", new(story).hold("a", 64, 1, 2, 50, 20).adopts("b", "t1", 128, 10, 12, 60).adopts("c", "t1", 0, 10, 0, 0), ""},
		{"of an adopter", new(story).hold("a", 64, 1, 2, 50, 5).adopts("b", "t1", 128, 10, 12, 60).adopts("c", "t2", 192, 20, 22, 70), ""},
		{"twice", new(story).hold("a", 64, 1, 2, 50, 5).adopts("b", "t1", 128, 10, 12, 18).adopts("c", "t1", 192, 20, 22, 70), "adopt"},
		{"after another holder", new(story).hold("a", 64, 1, 2, 50, 5).hold("b", 128, 6, 7, 60, 9).adopts("c", "t1", 192, 10, 12, 60), "adopt"},
		{"of a lease that no client has had", new(story).adopts("b", "t9", 128, 10, 12, 60), "adopt"},
		{"and another holder meanwhile", new(story).hold("a", 64, 1, 2, 50, 5).adopts("b", "t1", 128, 10, 12, 60).hold("c", 192, 20, 21, 60, 0), "I1"},
		{"with a smaller fencing token", new(story).hold("a", 64, 1, 2, 50, 5).adopts("b", "t1", 63, 10, 12, 60), "I2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			found := test.s.h.Check(rules)
			got := ""
			for _, v := range found {
				if got == "" || v.Rule == test.want {
					got = v.Rule
				}
			}
			if got != test.want {
				t.Errorf("got %v, want a violation of %q", found, test.want)
			}
		})
	}
}
