package redlock

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/d0720281/redlock/internal/node"
)

// Reason returns an error as one word of a short list, for the labels of metrics and the
// fields of logs. It returns "" for nil, and "other" for an error without a word. No word
// contains the name of a resource or a node.
//
//	taken, split_vote               another holder has the resource; or some nodes granted it, but too few
//	no_quorum, quarantine           too few nodes answered usably; the missing ones have no vote yet
//	canceled, deadline              the context ended before anything was known
//	expired, suspended, quorum_lost, broken, max_hold, released
//	                                what ended a lease
//	timeout, connection, late, key_missing
//	                                of one node: no answer in time; no connection; an answer too late; it had lost the key
//	permission, membership, wrong_type, not_master, same_server, stale
//	config, reentry, closed
//	detached                        the lease goes on elsewhere
//	not_held, lost, not_acquired    of an error that has no other reason
//
// A [Locker.Adopt] that found no lease is "not_held".
//
// An error that matches several words has the word to act on: what masters said goes before
// the end of the context that cut the waiting short. An error type of another package can add
// a word by a method Reason() string, which goes before not_held, lost and not_acquired: that
// of package election adds not_leader. More words may be added.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	var verdict *QuorumError
	if errors.As(err, &verdict) { // what single nodes said is not what the round came to
		err = errors.Join(verdict.reasons...)
	}
	for _, w := range reasonWords {
		if !errors.Is(err, w.err) {
			continue
		}
		if w.err == ErrTaken && verdict != nil && verdict.Granted > 0 {
			return "split_vote"
		}
		return w.word
	}
	var own interface{ Reason() string }
	if errors.As(err, &own) {
		if word := own.Reason(); word != "" {
			return word
		}
	}
	for _, w := range vagueWords {
		if errors.Is(err, w.err) {
			return w.word
		}
	}
	var waits node.Quarantine
	var broken net.Error
	switch {
	case errors.As(err, &waits):
		return "quarantine"
	case isTimeout(err):
		return "timeout"
	case errors.As(err, &broken), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection"
	}
	return "other"
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

type reasonWord struct {
	err  error
	word string
}

// reasonWords has the words in the order in which they are looked for.
var reasonWords = []reasonWord{
	{ErrClosed, "closed"},
	{ErrConfig, "config"},
	{ErrReentry, "reentry"},
	{ErrSuspended, "suspended"},
	{ErrMaxHold, "max_hold"},
	{ErrBroken, "broken"},
	{ErrQuorumLost, "quorum_lost"},
	{ErrExpired, "expired"},
	{ErrReleased, "released"},
	{ErrSameServer, "same_server"},
	{ErrNotMaster, "not_master"},
	{ErrPermission, "permission"},
	{ErrMembership, "membership"},
	{ErrWrongType, "wrong_type"},
	{ErrTaken, "taken"},
	{ErrQuarantine, "quarantine"},
	{ErrNoQuorum, "no_quorum"},
	{errHeldByOther, "taken"},
	{errTakenAway, "broken"},
	{node.ErrQueued, "taken"},
	{errNodeTimeout, "timeout"},
	{node.ErrLate, "late"},
	{node.ErrNotCounted, "key_missing"},
	{errGone, "key_missing"},
	{node.ErrForgot, "quarantine"},
	{node.ErrStepped, "quarantine"},
	{node.ErrStale, "stale"},
	{ErrDetached, "detached"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline"},
}

// vagueWords has those of errors without another reason.
var vagueWords = []reasonWord{
	{ErrNotHeld, "not_held"},
	{ErrLost, "lost"},
	{ErrNotAcquired, "not_acquired"},
}
