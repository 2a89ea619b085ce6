package wire

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file has the form of a token: the id of an attempt, which is random, and the label of its
// owner behind it. So the label is on every node that has the key, and no message has a field for
// it.
//
// Source: ALGORITHM section 2, "label".

// ownerMark stands before the label.
const ownerMark = ";"

// MaxLabel is the largest length of a label, in bytes.
const MaxLabel = 64

// idEncoding writes 16 bytes in 22 characters, because each message of an attempt has its id. It is
// the encoding for URLs with a dot for the minus: a token may be an argument of a command.
var idEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._").
	WithPadding(base64.NoPadding).Strict()

// idLength is the number of characters of an id.
const idLength = 22

// Token returns the token of a random id, with the label of its owner if there is one.
func Token(id [16]byte, owner string) string {
	var room [idLength + len(ownerMark) + MaxLabel]byte
	token := idEncoding.AppendEncode(room[:0], id[:])
	if owner != "" {
		token = append(append(token, ownerMark...), owner...)
	}
	return string(token)
}

// IsToken reports whether a text has the form of a token.
func IsToken(text string) bool {
	var id [16]byte
	random, label, hasLabel := strings.Cut(text, ownerMark)
	if len(random) != idLength || hasLabel && !IsLabel(label) {
		return false
	}
	_, err := idEncoding.Decode(id[:], []byte(random))
	return err == nil
}

// OwnerOf returns the label in a token. It is "" for a token without a label, and for a text that
// is no token.
func OwnerOf(token string) string {
	if !IsToken(token) {
		return ""
	}
	_, label, _ := strings.Cut(token, ownerMark)
	return label
}

// IsLabel reports whether a text can be the label of an owner: it has 1 to MaxLabel bytes of
// printable characters and spaces, and no "|", which ends the id.
func IsLabel(text string) bool {
	unusable := func(r rune) bool { return r == '|' || !unicode.IsPrint(r) }
	return text != "" && len(text) <= MaxLabel && utf8.ValidString(text) && !strings.ContainsFunc(text, unusable)
}

// LabelOf returns the label host:pid:program of a process. Characters that a shell or a label
// treats specially become "_". Of a label that is too long the middle of the host goes: the ends tell machines
// apart. Then there is room for a package to add a word of its own.
func LabelOf(host string, pid int, program string) string {
	const most = MaxLabel - 16
	if host == "" {
		host = "unknown"
	}
	usable := func(text string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._:-/@+=,", r) {
				return r
			}
			return '_'
		}, strings.ToValidUTF8(text, "_"))
	}
	host = usable(host)
	rest := usable(fmt.Sprintf(":%d:%s", pid, program))
	rest = rest[:min(len(rest), most/2)]
	if over := len(host) + len(rest) - most; over > 0 {
		head := (most - len(rest)) / 2
		host = host[:head] + "+" + host[head+over+1:]
	}
	return strings.ToValidUTF8(host+rest, "") // without half a character
}
