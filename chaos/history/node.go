package history

import (
	"slices"
	"time"
)

// Look is the state of a node at one moment, read past the network of the clients.
type Look struct {
	Node     int
	At, Done time.Duration // when it was asked, and when it had answered
	Up       bool          // it has answered; if not, the fields below are unknown
	Run      string        // id of the process
	Left     time.Duration // left of its quarantine, by its clock
	Born     int64         // when its last quarantine began, in ms of the node's clock; it identifies the quarantine
	Keys     map[string]Key
	Rest     []string // keys other than locks, counters and the marker
	Conns    []string // connections of clients
}

// Key is the lock key of a resource and its counter; zero if there are none.
type Key struct {
	ID      string // of an attempt, or the sign of readers
	C       int64
	Counter int64
	Readers []string // attempt ids, if readers have the key
}

// of reports whether the node has the key of a lease.
func (k Key) of(token string) bool { return k.ID == token || slices.Contains(k.Readers, token) }
