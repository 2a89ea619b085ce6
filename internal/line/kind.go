package line

import (
	"strconv"
	"strings"

	"github.com/d0720281/redlock/internal/wire"
)

// A kind has the differences between lines. The rules of waiting know nothing else of a kind.
type kind struct {
	named  bool                  // the call of the queue node names the resource to ask for
	ticket func(slot int) string // what follows the name of the process, and the key in a call, at the queue node
	alone  string                // what follows the resource in a request about the queue alone
}

// The kinds.
var (
	ofWriters = kind{ticket: func(int) string { return "" }}
	ofReaders = kind{ticket: func(int) string { return wire.OfReaders }}
	ofAny     = kind{named: true, ticket: func(slot int) string { return wire.OneOf + strconv.Itoa(slot) }, alone: wire.None}
)

func (k Key) kind() *kind {
	switch {
	case k.Slot > 0:
		return &ofAny
	case k.Shared:
		return &ofReaders
	}
	return &ofWriters
}

// Ticket returns the name by which the line of a process waits in the queue.
func (k Key) Ticket(process string) string { return process + k.kind().ticket(k.Slot) }

// Alone returns the resource of a request that is about the queue of the line alone.
func (k Key) Alone() string { return k.Resource + k.kind().alone }

// CalledTo returns the line that a call is for, and the number of the one of several resources. name is that in the call: a
// resource with the end of a ticket.
func CalledTo(name string) (k Key, number int) {
	k.Resource, k.Shared = strings.CutSuffix(name, wire.OfReaders)
	if queue, slot := wire.CutNumber(k.Resource); slot > 0 {
		k.Slot = slot
		k.Resource, number = wire.CutNumber(strings.TrimSuffix(queue, wire.OneOf))
	}
	return k, number
}
