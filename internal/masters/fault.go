package masters

// Fault is the fault of a network that a [Proxy] causes.
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

// direction is one way through a proxy.
type direction int

const (
	requests direction = iota // client to server
	replies                   // server to client
)

// loses reports whether f drops bytes that travel in direction d.
func (f Fault) loses(d direction) bool {
	return f == LoseRequests && d == requests || f == LoseReplies && d == replies
}
