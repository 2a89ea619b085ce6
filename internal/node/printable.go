package node

import (
	"strings"

	"github.com/d0720281/redlock/internal/resp"
)

// This file makes errors printable that do not come in a reply to this package: those of a dialer, of
// TLS, and of a credentials provider. Their texts can quote what the server has sent, for example the
// names in its certificate.

// withText is an error with another text.
type withText struct {
	text string
	error
}

func (e *withText) Error() string { return e.text }
func (e *withText) Unwrap() error { return e.error }

// printable returns an error of the node's connection with a text that has no control character and
// no password. It matches what err matches.
func (n *Node) printable(err error) error {
	if err == nil {
		return nil
	}
	was := err.Error()
	text := resp.NewError(n.withoutPassword(strings.ReplaceAll(was, "\n", "; ")))
	if string(text) == was {
		return err
	}
	if marked, is := err.(*Marked); is {
		return &Marked{marked.Sentinel, n.printable(marked.Err)}
	}
	if IsReply(err) {
		return text
	}
	return &withText{string(text), err}
}

// leastPassword is the length of the shortest password that is looked for in texts. A shorter one is
// a part of many words.
const leastPassword = 4

// withoutPassword returns a text without the password that the server was sent, which it may repeat.
func (n *Node) withoutPassword(text string) string { return without(*n.sent.Load(), text) }

func without(password, text string) string {
	if len(password) < leastPassword {
		return text
	}
	return strings.ReplaceAll(text, password, "***")
}
