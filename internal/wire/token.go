package wire

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// This file has the form of a token: the id of an attempt, a UUID with the time of the attempt, and the label of its
// owner behind it. So the label is on every node that has the key, and no message has a field for
// it.
//
// Source: ALGORITHM section 2, "label".

// OwnerMark stands before the label.
const OwnerMark = ";"

// MaxLabel is the largest length of a label, in bytes.
const MaxLabel = 64

// idEncoding writes 16 bytes in 22 characters, because each message of an attempt has its id. It is
// the encoding for URLs with a dot for the minus: a token may be an argument of a command.
var idEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._").
	WithPadding(base64.NoPadding).Strict()

// idLength is the number of characters of an id.
const idLength = 22

// headLength is the number of characters of an id that have its time and its version. A node tells them of a holder in the
// way (labelOf in lua/readers.lua), and keeps the rest to itself: with the whole id a client could release the lock.
const headLength = 9

// Stamped returns a random id with a time in it, ms since 1970: a UUID of version 7, of which 74 bits are random.
func Stamped(id [16]byte, millis int64) [16]byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(millis)<<16)
	copy(id[:6], b[:6])
	id[6] = 7<<4 | id[6]&0xf
	return id
}

// MadeAt returns the time in an id, or in its head: ms by the masters' clocks. It is 0 if the text has none.
func MadeAt(head string) int64 {
	var b [headLength]byte
	if len(head) < headLength {
		return 0
	}
	if _, err := idEncoding.Decode(b[:], []byte(head[:headLength]+"AAA")); err != nil || b[6]>>4 != 7 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b[:8]) >> 16)
}

// HeldFor returns how long the holder with a token, or with the head of one, has had a key at a moment, us by the clock of
// a master. It is 0 if that is not known, and otherwise positive: the clocks do not agree to the ms.
func HeldFor(head string, micros int64) time.Duration {
	made := MadeAt(head)
	if made == 0 || micros == 0 {
		return 0
	}
	return max(time.Duration(micros-1000*made)*time.Microsecond, time.Millisecond)
}

// Age returns for how long a lock has been held, as text.
func Age(d time.Duration) string {
	unit := time.Second
	if d < unit {
		unit = 10 * time.Millisecond
	}
	return d.Round(unit).String()
}

// Short returns enough of a token to tell it from others: of an id its end, as the head has the time.
func Short(token string) string {
	if IsToken(token) {
		return token[idLength-8 : idLength]
	}
	return token[:min(len(token), 8)]
}

// Token returns the token of an id, with the label of its owner if there is one.
func Token(id [16]byte, owner string) string {
	var room [idLength + len(OwnerMark) + MaxLabel]byte
	token := idEncoding.AppendEncode(room[:0], id[:])
	if owner != "" {
		token = append(append(token, OwnerMark...), owner...)
	}
	return string(token)
}

// IsToken reports whether a text has the form of a token.
func IsToken(text string) bool {
	var id [16]byte
	random, label, hasLabel := strings.Cut(text, OwnerMark)
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
	_, label, _ := strings.Cut(token, OwnerMark)
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
