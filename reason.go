package redlock

import (
	"context"
	"errors"
	"io"
	"net"
)

// Reason is what an error of this package comes to, in one word out of a short list, for
// the labels of metrics and the fields of logs. It is "" for nil and "other" for an error
// that has no word of its own. The name of a resource or node is never in it.
//
//	taken, split_vote               somebody else has the resource, or some nodes granted it and too few
//	no_quorum, quarantine           too few nodes answered usably; what is missing has no vote yet
//	canceled, deadline              the context ended before anything was known
//	expired, suspended, quorum_lost, max_hold, released
//	                                what ended a lease
//	timeout, connection, late, key_missing
//	                                of one node: no answer in time, none at all, it came too late, it had lost the key
//	permission, wrong_type, not_master, same_server, stale
//	config, reentry, closed
//
// More may be added. Of an error with several of them it is the one to act on: what
// masters said goes before the end of the context that cut the waiting short.
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
	var waits quarantined
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

// reasonWords is in the order in which they are looked for.
var reasonWords = []struct {
	err  error
	word string
}{
	{ErrClosed, "closed"},
	{ErrConfig, "config"},
	{ErrReentry, "reentry"},
	{ErrSuspended, "suspended"},
	{ErrMaxHold, "max_hold"},
	{ErrQuorumLost, "quorum_lost"},
	{ErrExpired, "expired"},
	{ErrReleased, "released"},
	{ErrSameServer, "same_server"},
	{ErrNotMaster, "not_master"},
	{ErrPermission, "permission"},
	{ErrWrongType, "wrong_type"},
	{ErrTaken, "taken"},
	{ErrQuarantine, "quarantine"},
	{ErrNoQuorum, "no_quorum"},
	{errHeldByOther, "taken"},
	{errQueued, "taken"},
	{errNodeTimeout, "timeout"},
	{errLate, "late"},
	{errNotCounted, "key_missing"},
	{errGone, "key_missing"},
	{errForgot, "quarantine"},
	{errStepped, "quarantine"},
	{errStale, "stale"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline"},
}
