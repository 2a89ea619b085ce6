package redlock

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
)

// Reason returns an error as one word of a short list, for the labels of metrics and the fields of logs. It
// returns "" for nil, and "other" for an error without a word. No word contains the name of a resource or a
// master.
//
//	taken, split_vote               another holder has the resource; or some masters granted it, but too few
//	no_quorum, quarantine           too few masters answered usably; the missing ones have no vote yet
//	canceled, deadline              the context ended before anything was known
//	expired, suspended, quorum_lost, broken, max_hold, released, detached
//	                                what ended a lease here
//	timeout, connection, late, key_missing, stale
//	                                of one master: no answer in time; no connection; an answer too late; it had lost the key; it is another server
//	permission, unsupported, tls, membership, wrong_type, not_master, cluster_node, same_server, other_server, version
//	                                what a person has to correct, see ErrMasterSetup
//	config, reentry, upgrade, closed
//	masters, not_held, lost, not_acquired
//	                                of an error that has no other reason; not_held also of an Adopt that found no lease
//
// Of several words, Reason returns the one to act on: the answers of masters go before the end of the context,
// and what a person has to correct goes before no_quorum. An error type of another package can add a word, of a
// to z, 0 to 9 and "_", by a method Reason() string, which goes before the last line of the list: election adds
// not_leader and no_leader, jobs too_late. More words may be added.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	var verdict *QuorumError
	if !errors.Is(err, reason.Expired) && errors.As(err, &verdict) { // what single nodes answered is not the result of the round
		err = errors.Join(verdict.Reasons...)
		if verdict.tooMany((*MasterError).excluded) {
			err = errors.Join(err, verdict.Masters[slices.IndexFunc(verdict.Masters, (*MasterError).excluded)])
		}
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
		if word := own.Reason(); isWord(word) {
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
	case node.IsTimeout(err):
		return "timeout"
	case errors.As(err, &broken), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection"
	}
	return "other"
}

// isWord reports whether the word of another package's error can be a label of metrics.
func isWord(text string) bool {
	return text != "" && len(text) <= 64 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

type reasonWord struct {
	err  error
	word string
}

// reasonWords has the words in the order in which they are looked for.
var reasonWords = []reasonWord{
	{ErrClosed, "closed"},
	{ErrConfig, "config"},
	{reason.Upgrade, "upgrade"},
	{ErrReentry, "reentry"},
	{reason.Suspended, "suspended"},
	{ErrMaxHold, "max_hold"},
	{ErrBroken, "broken"},
	{errLostAdopted, "detached"},
	{reason.QuorumLost, "quorum_lost"},
	{reason.Expired, "expired"},
	{ErrReleased, "released"},
	{reason.SameServer, "same_server"},
	{reason.OtherServer, "other_server"},
	{reason.Version, "version"},
	{reason.ClusterNode, "cluster_node"},
	{reason.NotMaster, "not_master"},
	{reason.Permission, "permission"},
	{reason.Membership, "membership"},
	{reason.Unsupported, "unsupported"},
	{reason.TLS, "tls"},
	{reason.WrongType, "wrong_type"},
	{ErrTaken, "taken"},
	{ErrQuarantine, "quarantine"},
	{ErrNoQuorum, "no_quorum"},
	{node.ErrHeldByOther, "taken"},
	{node.ErrTakenAway, "broken"},
	{node.ErrQueued, "taken"},
	{node.ErrTimeout, "timeout"},
	{node.ErrNoConnection, "timeout"},
	{node.ErrLate, "late"},
	{node.ErrNotCounted, "key_missing"},
	{node.ErrGone, "key_missing"},
	{node.ErrForgot, "quarantine"},
	{node.ErrStepped, "quarantine"},
	{node.ErrStale, "stale"},
	{node.ErrEarly, "stale"},
	{ErrDetached, "detached"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline"},
}

// vagueWords has the words of errors that match none of reasonWords.
var vagueWords = []reasonWord{
	{ErrMasterSetup, "masters"},
	{ErrNotHeld, "not_held"},
	{ErrLost, "lost"},
	{ErrNotAcquired, "not_acquired"},
}
