package telemetry

import "slices"

// Level is what an operator does about an outcome.
type Level int

// The levels, from least to most.
const (
	Nothing Level = iota // work as usual, the wish of the program, or covered by the metrics of the master
	Ticket               // one resource or one program cannot work; the others can
	Page                 // no lock is granted; waiting may end that
	Lasting              // no lock is granted to this process, and no waiting ends that: a page at once
)

// Of is what an outcome is the outcome of.
type Of int

// Several can be added up.
const (
	OfAttempt Of = 1 << iota // or of a renewal
	OfLease                  // what ended a lease
	OfMaster                 // why a master is not asked
)

// Outcome is a word of redlock.Reason.
type Outcome struct {
	Word  string
	Of    Of
	Level Level
}

// Outcomes has the words of redlock.Reason, each once: the labels of metrics. Counters are 0 for all that
// apply to them before the first event, since a rule sees no rise in a series that begins with 1. The
// alerts in contrib/prometheus follow the levels.
var Outcomes = []Outcome{
	{"taken", OfAttempt, Nothing},
	{"split_vote", OfAttempt, Nothing},
	{"no_quorum", OfAttempt, Page},
	{"quarantine", OfAttempt, Page},
	{"canceled", OfAttempt, Nothing},
	{"deadline", OfAttempt, Nothing},

	{"expired", OfLease, Page},
	{"suspended", OfLease, Page},
	{"quorum_lost", OfLease, Page},
	{"broken", OfLease, Page},
	{"lost", OfLease, Page},
	{"max_hold", OfLease, Nothing}, // the planned end of a term
	{"detached", OfLease, Nothing}, // the lease goes on elsewhere
	{"released", 0, Nothing},

	{"timeout", OfMaster, Nothing},
	{"connection", OfMaster, Nothing},
	{"late", 0, Nothing},
	{"key_missing", 0, Nothing},
	{"stale", OfMaster, Nothing},

	{"permission", OfAttempt | OfMaster, Lasting},
	{"unsupported", OfAttempt | OfMaster, Lasting},
	{"tls", OfAttempt | OfMaster, Lasting},
	{"membership", OfAttempt | OfLease | OfMaster, Lasting}, // with OfLease: other masters granted the lease before one refused the client
	{"not_master", OfAttempt | OfMaster, Lasting},
	{"cluster_node", OfAttempt | OfMaster, Lasting},
	{"same_server", OfAttempt | OfMaster, Lasting},
	{"other_server", OfAttempt, Lasting},
	{"version", OfAttempt | OfLease, Lasting},
	{"masters", OfAttempt | OfMaster, Lasting},
	{"wrong_type", OfAttempt, Ticket},

	{"config", 0, Nothing},
	{"reentry", 0, Nothing},
	{"upgrade", 0, Nothing},
	{"closed", OfAttempt, Nothing},
	{"not_held", 0, Nothing},
	{"not_acquired", OfAttempt, Ticket},
	{"other", OfAttempt | OfMaster, Ticket},
}

// Words returns the words of outcomes of a kind, in the order of the list. With levels it returns those of
// these levels alone.
func Words(of Of, levels ...Level) (words []string) {
	for _, o := range Outcomes {
		if o.Of&of != 0 && (len(levels) == 0 || slices.Contains(levels, o.Level)) {
			words = append(words, o.Word)
		}
	}
	return words
}
