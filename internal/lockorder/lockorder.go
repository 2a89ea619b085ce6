// Package lockorder has the mutexes of the library, each with its place in the one order in
// which a goroutine may lock them. A build with the tag lockorder checks the order at run time.
// Any other build has plain mutexes. And it has the signal by which one goroutine wakes another.
package lockorder

// The places, in the order in which a goroutine may lock them: with a mutex of one place it may
// lock those of later places, and none of the same place.
type (
	Calls     struct{} // the count of calls under way
	Lines     struct{} // the callers of the process, by resource
	Grant     struct{} // one attempt, or one lease
	Outage    struct{} // whether the log has an outage
	Renewer   struct{} // the leases by the time when they are due
	Admission struct{} // the attempts that may ask
	Node      struct{} // one node
	Watch     struct{} // what the clocks of all nodes show together
	Servers   struct{} // which node is which server
	Events    struct{} // what observers have still to be told
)

// Place is a place in the order.
type Place interface {
	Calls | Lines | Grant | Outage | Renewer | Admission | Node | Watch | Servers | Events
}

// Signal tells one goroutine, which receives from it, to look again. It holds one token. Nil tells no goroutine.
type Signal chan struct{}

// NewSignal returns a signal without a token.
func NewSignal() Signal { return make(Signal, 1) }

// Set puts the token in, unless it is there, and does not wait.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
