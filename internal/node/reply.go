package node

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// Reply is the result of a request. Either Err is set, or Code, Counter and Extra are the reply of
// the script.
type Reply struct {
	Code    wire.Code
	Counter int64
	Extra   int64
	Owner   string        // the label of the holder in the way, if there is one
	HeldFor time.Duration // how long that holder has had the key; 0 if it is not known
	Err     error
	Server  string        // identity of the server that replied, "" if it is not known
	At      clock.Instant // when the reply came in, or the error was found out

	void   error         // why this client does not count the node's vote; nil if it does
	votes  time.Duration // after which the node has its vote, as far as is known; 0 if it has one
	counts bool          // the reply counts as a vote, although the node has none: with wrong rules alone
}

// HasKey reports whether a reply to an acquire says that the node has the key of the attempt.
func (r Reply) HasKey() bool {
	switch r.Code {
	case wire.Granted, wire.Mine, wire.SetVoteless, wire.Unseeded:
		return r.Err == nil
	}
	return false
}

// withoutVote reports whether the node carried out the request, but has no vote.
func (r Reply) withoutVote() bool {
	switch r.Code {
	case wire.SetVoteless, wire.KeptVoteless, wire.FilledVoteless:
		return r.Err == nil
	case wire.Granted, wire.Mine, wire.Kept:
		return r.Err == nil && r.void != nil
	}
	return false
}

// Voteless reports whether the node has the key after an extend, but has no vote.
func (r Reply) Voteless() bool {
	return !r.counts && (r.Code == wire.KeptVoteless || r.Code == wire.FilledVoteless || r.void != nil)
}

// Refusal returns why a reply is no vote, or nil if it is a vote.
func (r Reply) Refusal(k *Key) error {
	if r.Err != nil {
		return r.Err
	}
	if r.counts {
		return nil
	}
	switch r.Code {
	case wire.Granted, wire.Mine:
		if r.Counter <= 0 {
			return ErrSetVoteless
		}
		return r.void
	case wire.Kept:
		return r.void
	case wire.Raised, wire.Released:
		return nil
	case wire.Busy:
		return r.refused(r.holder())
	case wire.Taken:
		return HeldByOther{}
	case wire.TakenAway:
		return ErrTakenAway
	case wire.Adopted:
		return ErrAdopted
	case wire.Queued:
		return r.refused(ErrQueued)
	case wire.SetVoteless, wire.KeptVoteless, wire.FilledVoteless:
		if r.votes > 0 {
			return Quarantine(r.votes)
		}
		return cmp.Or(r.void, ErrSetVoteless)
	case wire.Late:
		return ErrLate
	case wire.Filled:
		return ErrNotCounted
	case wire.Unheld:
		return ErrUnraised
	case wire.Gone:
		return ErrGone
	case wire.Unseeded:
		switch {
		case r.void != nil:
			return r.void
		case r.Extra != 0:
			return clockwatch.Skewed(time.Duration(r.Extra) * time.Millisecond)
		}
		return ErrUnseeded
	case wire.Ahead:
		millis := time.Duration(min(r.Extra, math.MaxInt64/1_000_000))
		return &KeyError{Key: k.Lock + wire.FenceSuffix, Err: Ahead(millis * time.Millisecond)}
	case wire.BadType:
		key := k.Lock
		switch r.Extra {
		case 2:
			key += wire.FenceSuffix
		case 3:
			key += wire.ReadersSuffix
		}
		return &KeyError{Key: key, Err: reason.WrongType}
	}
	return ErrBadReply
}

// refused returns the error of an acquire that was refused. It also matches Quarantine if the node
// has no vote: attempts that wait for votes set their keys there all the same, for moments.
func (r Reply) refused(err error) error {
	if r.votes > 0 {
		return fmt.Errorf("%w; %w", err, Quarantine(r.votes))
	}
	return err
}

// Word returns what the queue node reports in the reply to a request that names a process.
//
// Source: ALGORITHM section 10, "attend".
func (r Reply) Word(q *Request) (w wire.Word) {
	if r.Err != nil || q.Process == "" {
		return w
	}
	switch q.Op {
	case wire.Acquire:
		switch r.Code {
		case wire.Granted:
			w = wire.Word{Heard: true, Others: int(r.Extra)}
		case wire.Busy, wire.Queued:
			w = wire.Word{Heard: true, Refused: true, Others: int(r.Counter), Left: time.Duration(r.Extra) * time.Millisecond}
			if r.Code == wire.Queued { // the process that has the turn may have left the queue
				w.Vetoed, w.Others = true, max(w.Others, 1)
			}
			w.Foreign = r.Code == wire.Busy && r.Extra == wire.Abrupt && r.Owner == ""
		}
	case wire.Release:
		if r.Code == wire.Adopted { // it says nothing of the queue
			return w
		}
		w = wire.Word{Heard: true, Ended: true, Others: int(r.Counter)}
	case wire.Rest:
		if q.Process != wire.NoProcess {
			w = wire.Word{Joined: true, Turn: r.Counter > 0, Number: int(max(r.Counter, 0)), Before: int(r.Extra), Left: -1}
			if r.Counter < 0 {
				w.Left = time.Duration(-r.Counter) * time.Millisecond
			}
		}
	}
	return w
}

// numbersPerReply is how many numbers the script replies to each request, behind the node's time.
const numbersPerReply = 3

// scan takes the first elements of a reply that is an array: for each target an integer, a text or an array, as its
// type says. It returns the other elements.
func scan(reply any, targets ...any) (rest []any, err error) {
	if refused, ok := reply.(resp.Error); ok {
		return nil, nodeFailure(resp.Error(withoutPlace(string(refused))))
	}
	values, isArray := reply.([]any)
	if !isArray || len(values) < len(targets) {
		return nil, ErrBadReply
	}
	for i, target := range targets {
		ok := false
		switch target := target.(type) {
		case *int64:
			*target, ok = values[i].(int64)
		case *string:
			*target, ok = values[i].(string)
		case *[]any:
			*target, ok = values[i].([]any)
		}
		if !ok {
			return nil, ErrBadReply
		}
	}
	return values[len(targets):], nil
}

// readBatch reads the reply of the script to a batch of k requests: the node's time, 0 if nothing needed it, and a reply
// to each request. refused is an error that the server replied instead. err is an error of the
// connection: it failed, or the server did not reply in this form.
func readBatch(in *resp.Reader, k int, replies []Reply) (micros int64, _ []Reply, refused, err error) {
	head, err := in.Head()
	switch {
	case err != nil:
		return 0, replies, nil, err
	case head.Kind == resp.Failure:
		return 0, replies, in.Error(string(head.Text)), nil
	case head.Kind != resp.Array || head.N != int64(1+numbersPerReply*k):
		return 0, replies, nil, ErrBadReply
	}
	if micros, err = readInt(in); err != nil {
		return 0, replies, nil, err
	}
	for range k {
		one, err := readReply(in, micros)
		if err != nil {
			return 0, replies, nil, err
		}
		replies = append(replies, one)
	}
	if micros != 0 && !clockwatch.Plausible(micros) {
		return 0, replies, nil, ErrBadReply
	}
	return micros, replies, nil, nil
}

func readInt(in *resp.Reader) (int64, error) {
	head, err := in.Head()
	switch {
	case err != nil:
		return 0, err
	case head.Kind != resp.Number:
		return 0, ErrBadReply
	}
	return head.N, nil
}

// readReply reads the script's reply to one request: three numbers. If a command was refused,
// the first is a text instead. micros is the node's time.
func readReply(in *resp.Reader, micros int64) (r Reply, err error) {
	head, err := in.Head()
	if err != nil {
		return r, err
	}
	switch head.Kind {
	case resp.Number:
		r.Code = wire.Code(head.N)
	case resp.Bulk:
		text, err := in.String(head)
		switch {
		case err != nil:
			return r, err
		case head.N < 0:
			return r, ErrBadReply
		}
		r.Err = in.Error(withoutPlace(text))
	default:
		return r, ErrBadReply
	}
	if r.Counter, err = readInt(in); err != nil {
		return r, err
	}
	id := ""
	if r.Extra, id, r.Owner, err = readExtra(in); err != nil {
		return r, err
	}
	r.HeldFor = wire.HeldFor(id, micros)
	if r.Err != nil {
		r.Counter, r.Extra, r.Owner, r.HeldFor = 0, 0, "", 0
	}
	return r, nil
}

// readExtra reads the last part of the reply to one request: a number, or a text of a number, a
// space, the head of the id of a holder, and the label of that holder if there is one.
func readExtra(in *resp.Reader) (n int64, head, owner string, err error) {
	part, err := in.Head()
	switch {
	case err != nil:
		return 0, "", "", err
	case part.Kind == resp.Number:
		return part.N, "", "", nil
	case part.Kind != resp.Bulk || part.N < 0:
		return 0, "", "", ErrBadReply
	}
	text, err := in.String(part)
	if err != nil {
		return 0, "", "", err
	}
	number, rest, found := strings.Cut(text, " ")
	n, err = strconv.ParseInt(number, 10, 64)
	head, owner, _ = strings.Cut(rest, wire.OwnerMark)
	switch {
	case err != nil || !found:
		return 0, "", "", ErrBadReply
	case !wire.IsLabel(owner): // another program has written it
		owner = ""
	}
	return n, head, owner, nil
}

// leastLeft is the shortest life of a key that a refusal tells. A queue node says no more of a
// client of another library.
const leastLeft = wire.Abrupt * time.Millisecond

// holder returns the error of a node that has the key of another holder.
func (r Reply) holder() error {
	h := HeldByOther{Owner: r.Owner, For: r.HeldFor, Left: time.Duration(r.Extra) * time.Millisecond}
	if h.Left >= 0 && h.Left <= leastLeft {
		h.Left = 0
	}
	return h
}

// disbelieve replaces each grant by a refusal if its counter is further ahead of the node's time
// than a counter can be.
//
// Source: ALGORITHM section 4.
func disbelieve(batch []*Request, replies []Reply, micros int64, ahead time.Duration) {
	most := micros + ahead.Microseconds()
	for i := range replies {
		r := &replies[i]
		if (r.Code == wire.Granted || r.Code == wire.Mine) && r.Counter > most && batch[i].Op.Wants() {
			*r = Reply{Code: wire.Ahead, Extra: (r.Counter - micros) / 1000}
		}
	}
}
