// Package fault names the faults of a network that tests cause.
package fault

// Fault is a fault of the network in front of a master.
type Fault int

const (
	// Pass hands everything on.
	Pass Fault = iota

	// Blackhole holds everything, both ways, and hands it on when the fault ends, as
	// TCP does with data that it could not deliver. Connections are accepted.
	Blackhole

	// LoseReplies hands requests on and drops all replies for good. A write takes
	// effect, its client never learns of it, and the connection stays open.
	LoseReplies

	// LoseRequests drops requests for good; the connection stays open.
	LoseRequests

	// Refuse resets all connections and refuses new ones. The port is free
	// meanwhile, and taken again when the fault ends.
	Refuse
)

// String returns the fault's name in lower case.
func (f Fault) String() string {
	switch f {
	case Pass:
		return "pass"
	case Blackhole:
		return "blackhole"
	case LoseReplies:
		return "lose replies"
	case LoseRequests:
		return "lose requests"
	case Refuse:
		return "refuse"
	}
	return "unknown fault"
}
