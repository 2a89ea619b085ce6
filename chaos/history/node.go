package history

import "time"

// Look is what a node had at one moment, seen past the network that clients use.
type Look struct {
	Node     int
	At, Done time.Duration // it was asked, and had answered
	Up       bool          // it has answered; if not nothing else is known
	Run      string        // process
	Left     time.Duration // of its quarantine, by its clock
	Born     int64         // which quarantine that is or was: when it began, ms of the node's clock
	Keys     map[string]Key
	Rest     []string // keys but for locks, counters and the marker
	Conns    int      // of clients
}

// Key is the lock key of a resource and its counter; zero if there are none.
type Key struct {
	ID      string
	C       int64
	Counter int64
}
