package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/reason"
)

// This file judges how a server refuses. A refusal is lasting if no waiting ends it: a person has
// to correct something. Every other refusal is passing.
//
// Source: ALGORITHM section 5, "Refusals".

// passingCodes are the codes, the first words, of the errors by which Redis refuses a request before
// it does anything, and for as long as the server is in some state. A script that meets such a state
// is refused its first write.
var passingCodes = []string{"OOM", "MISCONF", "NOREPLICAS", "READONLY", "MASTERDOWN", "LOADING", "BUSY", "NOSCRIPT", "TRYAGAIN"}

// denials are the beginnings of the errors by which a server refuses the user: the credentials,
// a command, a key, a channel or a connection without a password. Inside a script, Redis before 7.2
// replies the last but one, and Redis from 7.2 on and Valkey reply the last.
var denials = []string{"NOPERM ", "NOAUTH ", "WRONGPASS ", "DENIED ", "AUTH <password> called without ", "The user executing the script ", "ACL failure in script: "}

// redirections are the beginnings of the errors by which a node of a Redis Cluster refuses the keys
// of a request, or a request with keys of different slots.
var redirections = []string{"MOVED ", "ASK ", "CROSSSLOT ", "CLUSTERDOWN "}

// Servers, providers and proxies have words of their own. An error that tells of load, a quota or the
// network is passing. Any other error that says that something is missing or forbidden is lasting.
var (
	lastingWords = regexp.MustCompile(`(?i)\b(unknown( redis)?( lua)? (sub)?command|unsupported|not (be )?(support|implement|allow|permit|enable|recogni[sz]e)\w*|disabled|denied|forbidden|unauthori[sz]ed|invalid|out of range|no such|syntax|wrong number|attempt to|nonexistent|without any password|no password is set)\b`)
	passingWords = regexp.MustCompile(`(?i)\b(limit|quota|exceed|too many|throttl|max\b|maximum|timeout|timed? out|deadline|unavailable|again|retry|later|temporar|maintenance|failover|loading|busy|overload|memory|disk|not ready|backend|upstream|connect|route to host|network|internal|shut|clos(ed|ing)|reset|starting|fail(ed|ure|s)?\b|lost|eof\b|broken pipe|restart|killed|is down)`)
	limitWords   = regexp.MustCompile(`(?i)\b(limit|quota|too many|throttl|max(imum)? number)`)
	timeWords    = regexp.MustCompile(`(?i)\b(time|deadline)`)
)

// lasting returns the sentinel of a server's error that no waiting ends; nil for any other error.
func lasting(err error) error {
	if !IsReply(err) || err == ErrBadReply {
		return nil
	}
	text := withoutPlace(err.Error())
	code, rest, _ := strings.Cut(text, " ")
	starts := func(of string) bool {
		return strings.HasPrefix(text, of) || code == "ERR" && strings.HasPrefix(rest, of)
	}
	switch {
	case slices.ContainsFunc(denials, starts):
		return reason.Permission
	case slices.ContainsFunc(redirections, starts):
		return reason.ClusterNode
	case code == "WRONGTYPE":
		return reason.WrongType
	case slices.Contains(passingCodes, code):
		return nil
	case lastingWords.MatchString(text) && !passingWords.MatchString(text):
		return reason.Unsupported
	}
	return nil
}

// lastingAtFirst is lasting for a request that a new connection is tried by. An unknown error with the
// general code ERR is lasting there: such an error is about the request. Later it may be that of a
// proxy.
func lastingAtFirst(err error) error {
	if sentinel := lasting(err); sentinel != nil || !Says(err, "ERR ") || passingWords.MatchString(err.Error()) {
		return sentinel
	}
	return reason.Unsupported
}

// denial says what a master that refused an acquire has done of the request.
type denial uint8

const (
	notDenied denial = iota
	undone           // nothing: no release is needed
	doubtful         // perhaps a part: another program answered for the master
	taken            // nothing: another holder has the key; the queue node is told of the end all the same
)

// denialBy returns what a server's error says of an acquire. A proxy may have passed the request on
// before it answers in words of its own. whole says that the error is the reply to the whole call, and
// not that of one command in the script: then a denial came before anything was done, too.
func denialBy(err error, whole bool) denial {
	text := withoutPlace(err.Error())
	code, _, _ := strings.Cut(text, " ")
	switch {
	case slices.Contains(passingCodes, code):
		return undone
	case !whole, strings.Contains(text, "attempt to"), timeWords.MatchString(text): // the script ran, or a proxy has waited
		return doubtful
	case lasting(err) != nil, limitWords.MatchString(text):
		return undone
	}
	return doubtful
}

// IsPermission reports whether err is a server's refusal of the user.
func IsPermission(err error) bool { return err != nil && lasting(err) == reason.Permission }

// nodeFailure adds the sentinel of a lasting refusal to an error of a node.
func nodeFailure(err error) error {
	switch sentinel := lasting(err); {
	case err == nil:
		return nil
	case sentinel != nil:
		return &Marked{sentinel, err}
	case isLastingTLS(err):
		return &Marked{reason.TLS, err}
	}
	return err
}

// refusing bounds how often a node is asked that refuses every acquire for a passing reason, as a
// server out of memory does. After a second it is asked by one acquire in refusedEvery. Any other
// acquire gets the answer to that one.
type refusing struct {
	since clock.Instant // of the first refusal since the last other answer; 0: the node did not refuse
	last  clock.Instant // refusal; an older one than refusedFor says nothing
	askAt clock.Instant
	why   error
}

const (
	refusedFor   = time.Second
	doubtEvery   = time.Second           // releases of what was perhaps not done are sent together, if no acquire takes them along
	refusedEvery = 60 * time.Millisecond // the request, the client's list and a sample of the clock: 50 commands a second
)

// note takes the answer to an acquire: why is a passing refusal, or nil for any other answer.
func (s *refusing) note(why error, now clock.Instant) {
	if why == nil {
		*s = refusing{}
		return
	}
	s.forget(now)
	if s.since == 0 {
		s.since = now
	}
	s.last, s.why = now, why
}

func (s *refusing) forget(now clock.Instant) {
	if s.since != 0 && now.Sub(s.last) > refusedFor {
		*s = refusing{}
	}
}

// goesOn reports whether the node has refused for so long that it is asked seldom.
func (s *refusing) goesOn(now clock.Instant) bool {
	s.forget(now)
	return s.since != 0 && now.Sub(s.since) >= refusedFor
}

// known returns the answer to an acquire that is not sent, or nil if it may be sent.
func (s *refusing) known(now clock.Instant) error {
	switch {
	case !s.goesOn(now):
		return nil
	case now < s.askAt:
		return s.why
	}
	s.askAt = now.Add(refusedEvery)
	return nil
}

// lastingAlerts are the alerts by which a server refuses what this client offers.
//
// Source: RFC 8446, section 6.2.
var lastingAlerts = []tls.AlertError{40, 42, 43, 44, 45, 46, 48, 49, 70, 71, 112, 116, 120}

// isLastingTLS reports whether an error of a connection is about a certificate, or about what the two
// ends speak. Until a person corrects that, no connection is possible.
func isLastingTLS(err error) bool {
	var certificate *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &certificate), errors.As(err, &plain):
		return true
	case !IsReply(err) && strings.HasPrefix(err.Error(), "tls: "): // this end refuses: no version, curve or name that it could offer
		return true
	case errors.As(err, &remote) && remote.Op == "remote error":
		return slices.ContainsFunc(lastingAlerts, func(a tls.AlertError) bool { return a.Error() == remote.Err.Error() })
	}
	return errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.CertificateInvalidError))
}

// IsReply reports whether an error came in a complete reply. Otherwise it is an error of the
// connection.
func IsReply(err error) bool {
	_, ok := err.(redis.Error) // not errors.As: if the client library gives up a connection because of a reply, it wraps that
	return ok || errors.Is(err, ErrBadReply)
}

// Says reports whether err is the reply of a server and begins with prefix.
func Says(err error, prefix string) bool {
	return err != nil && IsReply(err) && strings.HasPrefix(withoutPlace(err.Error()), prefix)
}

// scriptPlace matches what Redis before 7.0 puts in front of the error of a command in a script:
// the line, a second time if the script ended with the error, and a minus in front of some
// errors. Later Redis and Valkey put it behind the error that has ended a script.
var scriptPlace = regexp.MustCompile(`^(ERR Error running script \(call to \w+\): )?(@?user_script: ?\d+: )*-?`)

var scriptEnd = regexp.MustCompile(` script: (?:[0-9a-f]+, )?on @user_script:\d+\.?$`)

// withoutPlace returns the text of an error without the place in the script, on one line.
func withoutPlace(text string) string {
	text = strings.TrimSpace(text[len(scriptPlace.FindString(text)):])
	return text[:len(text)-len(scriptEnd.FindString(text))]
}

// isUnwritable reports whether an error says that the server is no master any more. The caller
// gives up the connection, so that the address is looked up again.
func isUnwritable(err error) bool { return Says(err, "READONLY") || Says(err, "MASTERDOWN") }
