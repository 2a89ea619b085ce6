package redlock

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/google/uuid"
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

// isID reports whether a token has the form of an attempt's id.
func isID(token string) bool {
	var id uuid.UUID
	if len(token) != idEncoding.EncodedLen(len(id)) {
		return false
	}
	_, err := idEncoding.Decode(id[:], []byte(token))
	return err == nil
}
