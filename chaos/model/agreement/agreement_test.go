package agreement

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

var same, differ = [2]uint8{2, 2}, [2]uint8{2, 1}

func TestSound(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"two servers, a cut", Config{TTL: same, Use: 2, Cuts: 1}},
		{"two servers, a loss", Config{TTL: same, Use: 2, Losses: 1}},
		{"two TTLs, a cut and a loss", Config{TTL: differ, Cuts: 1, Losses: 1}},
		{"a node exchanged, a cut", Config{TTL: same, Lists: true, Cuts: 1}},
		{"a node exchanged, a loss", Config{TTL: same, Lists: true, Losses: 1}},
		{"a node more, a loss", Config{TTL: [2]uint8{1, 1}, Lists: true, Longer: true, Losses: 1}},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// Without any one of the rules the search finds a fault.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
		depth string
	}{
		{"a batch without a proof", Config{TTL: same, Use: 2, Losses: 1, NoProof: true}, ""},
		{"two servers: a grant that does not wait for each node", Config{TTL: same, Use: 2, NoWait: true}, ""},
		{"a node exchanged: a grant that does not wait for each node", Config{TTL: same, Lists: true, NoWait: true}, ""},
		{"a vote of a server that is not reached any more", Config{TTL: same, Use: 2, Cuts: 1, Gone: true}, ""},
		{"a server in use from when it was heard", Config{TTL: same, Use: 2, Cuts: 1, Heard: true}, searchtest.Deep},
		{"a server in use for one quarantine", Config{TTL: [2]uint8{4, 4}, Use: 1}, searchtest.Deep},
		{"two servers: a cut, and a loss at the other node in common", Config{TTL: same, Use: 2, Cuts: 1, Losses: 1}, searchtest.Deep},
		{"a node exchanged: a cut, and a loss at the other node in common", Config{TTL: same, Lists: true, Cuts: 1, Losses: 1}, searchtest.Deep},
		{"a node takes another server at any time", Config{TTL: same, Use: 2, NoFirst: true}, ""},
		{"servers are not compared", Config{TTL: same, Use: 2, ByText: true}, ""},
		{"the vote of a contested server counts", Config{TTL: same, Use: 2, Contested: true}, ""},
		{"the caller's TTL alone", Config{TTL: differ, Cuts: 1, Losses: 1, OwnTTL: true}, searchtest.Deep},
		{"votes from before a larger TTL was heard", Config{TTL: differ, Cuts: 1, Losses: 1, Earlier: true}, searchtest.Deep},
		{"a proof from before that", Config{TTL: differ, Cuts: 1, Losses: 1, OldProof: true}, searchtest.Deep},
		{"a larger TTL is not written down", Config{TTL: differ, Cuts: 1, Losses: 1, NotRaised: true}, searchtest.Deep},
		{"a node exchanged", Config{TTL: same, Lists: true, NotRefused: true}, ""},
		{"a node exchanged: one of three refuses the list", Config{TTL: same, Lists: true, OneRefuses: true}, ""},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), TwoHolders+test.depth) })
	}
}
