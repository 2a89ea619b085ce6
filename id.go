package redlock

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/google/uuid"

	"github.com/d0720281/redlock/internal/wire"
)

// idEncoding writes the 16 bytes of a UUID in 22 characters, because each message of an attempt has
// its id. It is the encoding for URLs with a dot for the minus: a token may be an argument of a
// command.
var idEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._").
	WithPadding(base64.NoPadding).Strict()

// newID returns a random id. The source of random numbers is named here and never fails. That of
// package uuid is a variable of the whole program, which another package can make deterministic.
//
// Source: ALGORITHM section 3, point 1.
func newID() string {
	id := uuid.Must(uuid.NewRandomFromReader(rand.Reader))
	return idEncoding.EncodeToString(id[:])
}

// isToken reports whether a text has the form of an attempt's id: the random id, and the label of its
// owner if it has one.
func isToken(text string) bool {
	var id uuid.UUID
	random, label, hasLabel := strings.Cut(text, wire.OwnerMark)
	if len(random) != idEncoding.EncodedLen(len(id)) || hasLabel && !wire.IsLabel(label) {
		return false
	}
	_, err := idEncoding.Decode(id[:], []byte(random))
	return err == nil
}
