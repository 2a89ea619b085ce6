// Package reason has the errors behind the sentinels of package redlock. Programs branch on the
// sentinels. The finer errors here match them, and redlock.Reason has a word for each.
package reason

//lint:file-ignore ST1012 reason.Lost says that it is an error.

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Config is matched by errors about arguments, also of package fence, which does not import the library.
var Config = errors.New("redlock: invalid configuration")

// Errors of masters, which a person has to correct. Each matches Masters.
var (
	Masters     = errors.New("redlock: a master cannot take part")
	SameServer  = within(Masters, "redlock: two masters are the same server")
	Membership  = within(Masters, "redlock: list of masters conflicts with another one in use")
	OtherServer = within(Masters, "redlock: other clients have another server at the address of a master")
	Version     = within(Masters, "redlock: clients with another version of the protocol are in use")
	NotMaster   = within(Masters, "redlock: server is no independent master")
	ClusterNode = within(NotMaster, "redlock: server is a node of a Redis Cluster")
	Permission  = within(Masters, "redlock: permission denied by the master")
	Unsupported = within(Masters, "redlock: the master lacks a command or setting that locks need")
	TLS         = within(Masters, "redlock: no TLS connection with the master")
	WrongType   = within(Masters, "redlock: key holds something that is not a lock")
)

// Causes by which a lease is lost. Each matches Lost.
var (
	Lost       = errors.New("redlock: lease lost")
	Expired    = within(Lost, "redlock: validity ran out")
	Suspended  = within(Expired, "redlock: local clock had stood still")
	QuorumLost = within(Lost, "redlock: key gone from too many masters")
)

// Causes that come with Lost, and with other errors.
var (
	Broken  = errors.New("redlock: lock was broken")
	MaxHold = errors.New("redlock: maximum hold reached")
)

// Errors of a call whose context has the resource already.
var (
	Reentry = errors.New("redlock: resource already held by this context" + ownContext)
	Upgrade = within(Reentry, "redlock: resource already held by this context as a reader"+ownContext)
)

const ownContext = "; work that does not belong to the lease needs a context that does not descend from it"

// finer is an error that also matches a more general one, without its text.
type finer struct {
	text string
	of   error
}

func within(of error, text string) error { return &finer{text, of} }

func (e *finer) Error() string { return e.text }
func (e *finer) Unwrap() error { return e.of }

// OfContext returns the error of a context that has ended, and with it the cause if that is another
// error.
func OfContext(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Errorf is fmt.Errorf for an error whose text names the library once, in front, although the
// errors that it wraps name it, too.
func Errorf(format string, args ...any) error {
	texts := make([]any, len(args))
	for i, arg := range args {
		texts[i] = arg
		if err, is := arg.(error); is {
			texts[i] = strings.TrimPrefix(fmt.Sprint(err), Prefix) // fmt recovers a panic of a foreign Error
		}
	}
	text := fmt.Sprintf(strings.ReplaceAll(format, "%w", "%s"), texts...)
	return &prefixed{Prefix + text, fmt.Errorf(format, args...)}
}

// Prefix is in front of the text of every error of the library.
const Prefix = "redlock: "

// prefixed is an error with a text of its own, which matches what the other error matches.
type prefixed struct {
	text string
	error
}

func (e *prefixed) Error() string { return e.text }
func (e *prefixed) Unwrap() error { return e.error }

// Configf returns an error about an argument or option.
func Configf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", Config, fmt.Sprintf(format, args...))
}
