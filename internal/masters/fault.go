package masters

import "github.com/d0720281/redlock/internal/fault"

// Fault is the fault of a network that a [Proxy] causes.
type Fault = fault.Fault

// The faults, as package fault explains them.
const (
	Pass         = fault.Pass
	Blackhole    = fault.Blackhole
	LoseReplies  = fault.LoseReplies
	LoseRequests = fault.LoseRequests
	Refuse       = fault.Refuse
)

// direction is one way through a proxy.
type direction int

const (
	requests direction = iota // client to server
	replies                   // server to client
)

// loses reports whether f drops bytes that travel in direction d.
func loses(f Fault, d direction) bool {
	return f == LoseRequests && d == requests || f == LoseReplies && d == replies
}
