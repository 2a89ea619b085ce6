package redlock

import (
	"strings"

	"github.com/d0720281/redlock/internal/wire"
)

// This file has the label by which a holder tells who it is. The label is the end of the attempt's
// id, so it is on every node that has the key, and no message has a field for it.
//
// Source: ALGORITHM section 2, "label".

// MaxOwnerLength is the largest length of a label of [WithOwner], in bytes.
const MaxOwnerLength = wire.MaxLabel

// WithOwner labels the leases with their owner, for people: "web-3 4711 nightly", for example.
// The masters keep the label with the key. [Locker.Inspect] returns it, and so does the error of a
// caller that is refused because of the lease, by [QuorumError.Holder]. A label has 1 to
// [MaxOwnerLength] bytes of UTF-8: printable characters and spaces, but no "|". By default there is
// none.
//
// The holder chooses its label. Nothing may be decided by it, and all clients of the
// masters can read it. A lease is handed over only to a caller of the process with the same label.
func WithOwner(label string) LockOption {
	return lockOption(func(c *lockConfig) { c.owner, c.ownerSet = label, true })
}

// labelled returns the id of an attempt with the label of its owner, if there is one.
func labelled(id, owner string) string {
	if owner == "" {
		return id
	}
	return id + wire.OwnerMark + owner
}

// ownerOf returns the label in the token of a lease. It is "" for a lease without a label, and for
// a token that is not of this library.
func ownerOf(token string) string {
	if !isToken(token) {
		return ""
	}
	_, label, _ := strings.Cut(token, wire.OwnerMark)
	return label
}

// Owner returns the label of [WithOwner], or "" if the lease has none. An adopted lease has the
// label of the process that got it.
func (le *Lease) Owner() string { return ownerOf(le.grant.keys.ID) }
