package node

import (
	"errors"
	"fmt"
	"time"
)

// Standing says whether this client asks a node, and whether the node's yes counts. A Standing
// is never changed: it is replaced as a whole, under the node's mutex.
type Standing struct {
	Down     error     // why the node is not asked; nil while it is
	Reached  bool      // the node was reached at some time
	Failure  error     // the last value of Down that was not nil
	FailedAt time.Time // when Down was last set from nil
	Hash     uint64    // of the server's run id, or of the address while the run id is not known

	trust
}

// Quarantine is the error of a node that has no vote for so long.
type Quarantine time.Duration

func (q Quarantine) Error() string {
	return fmt.Sprintf("in quarantine for %.1fs more: it is new, or may have lost keys", time.Duration(q).Seconds())
}

// HeldByOther is the error of a node that has the key of another holder.
type HeldByOther struct {
	Owner string        // the label of the holder; "" if it has none
	For   time.Duration // since the attempt of the holder; 0 if that is not known
	Left  time.Duration // until the key expires; 0 if that is not known, negative for never
}

func (h HeldByOther) Error() string {
	text := "held by another"
	if h.Owner != "" {
		text += fmt.Sprintf(" (%s)", h.Owner)
	}
	if h.Left > 0 {
		text += fmt.Sprintf(" for %.1fs", h.Left.Seconds())
	}
	return text
}

// Is makes all errors of this type match ErrHeldByOther.
func (h HeldByOther) Is(target error) bool { return target == ErrHeldByOther }

// Ahead is the error of a node whose fencing counter is further ahead of its clock than a grant
// can have brought it. The value is how far the counter is ahead.
type Ahead time.Duration

func (a Ahead) Error() string {
	return fmt.Sprintf("no vote: the fencing counter is %v ahead of the master's clock", time.Duration(a).Round(time.Second))
}

// KeyError adds the key to an error of a node.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return fmt.Sprintf("%v (key %q)", e.Err, e.Key) }
func (e *KeyError) Unwrap() error { return e.Err }

// Marked is an error that also matches a sentinel, without its text.
type Marked struct{ Sentinel, Err error }

func (e *Marked) Error() string   { return e.Err.Error() }
func (e *Marked) Unwrap() []error { return []error{e.Err, e.Sentinel} }

// Errors of one node.
var (
	ErrHeldByOther  = errors.New("held by another")
	ErrTakenAway    = errors.New("taken away by Break")
	ErrAdopted      = errors.New("adopted or released by another process, which has the token")
	ErrTimeout      = errors.New("timeout: no answer within the master timeout")
	ErrLookup       = errors.New("the name server has not answered")
	ErrNoConnection = errors.New("timeout: no connection")
	ErrLate         = errors.New("request arrived after its time and was ignored")
	ErrNotCounted   = errors.New("key was missing and has been set again")
	ErrExpired      = errors.New("key has expired by now")
	ErrGone         = errors.New("key was not there any more")
	ErrUnraised     = errors.New("grant was gone before its fencing counter could be raised")
	ErrBadReply     = errors.New("reply is not in the form of the script")
	ErrSetVoteless  = errors.New("key set, but without a vote")
	ErrForgot       = errors.New("has lost a key: no vote for a time")
	ErrStepped      = errors.New("clock was stepped: no vote for a time")
	ErrStale        = errors.New("server was replaced behind the connection")
	ErrEarly        = errors.New("connected after the attempt had begun")
	ErrQueued       = errors.New("another process has been called and is about to lock")
	ErrUnsent       = errors.New("not sent: the attempt was over")
	ErrUnseeded     = errors.New("ready, but alone: the clocks of too few masters are known to start a fencing token")
	ErrGuardOff     = errors.New("the restart guard is off")

	errVotelessOnDisk = errors.New("has restarted and has no vote, although this client trusts its disk: a client without WithTrustedDisk came first, or the data is gone")
	errTrustedByOther = errors.New("has restarted or was replaced, and votes at once: a client with WithTrustedDisk, which this client lacks, came first, Bootstrap was called, or the address leads back to a server that was in use")
)
