package sharded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/d0720281/redlock"
)

// resource is the lock that a survey tries to get in each group. No client keeps it.
const resource = "sharded"

// errClosed is the error of a call during which the Locker was closed.
var errClosed = fmt.Errorf("sharded: %w: %w", redlock.ErrNotAcquired, redlock.ErrClosed)

// survey finds out whether clients with other groups are at work. It tries to lock a resource of
// its own in each group. A master in use by clients with other groups refuses that.
//
// The first call of the Locker waits for a survey, and so does a call after surveys have failed for
// so long that clients with other groups can have come. From the first survey on, one is made every
// quarter of a quarantine, until the Locker is closed: a group is known to be in use for two
// quarantines after a client last asked for votes there. A survey that is made when the last one counts
// no longer, as after the process was stopped, asks a group that does not answer up to eight times more.
// While masters refuse the groups of this client, only their groups are asked. If the others heard of
// this client, they would take its groups for in use, and would not begin their counters anew from the
// clocks when the client is served again: tokens could fall.
//
// Source: ALGORITHM section 8, "Groups".
type survey struct {
	groups     []*redlock.Locker
	clock      redlock.Clock
	quarantine time.Duration

	running sync.WaitGroup
	asks    chan chan error // calls that wait for a survey
	start   sync.Once

	mu      sync.Mutex
	until   time.Duration // the last survey that passed counts until then, by the clock; guarded by mu
	counted bool          // a survey has passed; guarded by mu
	refused error         // of the last survey, if it did not pass; guarded by mu

	entered   []bool // by group: its masters have accepted the groups of this client; of the goroutine
	conflicts []bool // by group: its masters are in use by clients with other groups; of the goroutine
}

func newSurvey(groups []*redlock.Locker) *survey {
	settings, _ := groups[0].Settings() // without options no error
	return &survey{
		groups: groups, clock: settings.Clock, quarantine: settings.Quarantine,
		asks: make(chan chan error), entered: make([]bool, len(groups)), conflicts: make([]bool, len(groups)),
	}
}

// passes reports whether a survey that has passed counts, and the last one has not been refused.
func (s *survey) passes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused == nil && s.countsLocked()
}

// enter waits until the survey passes. It returns nil then, and otherwise the error of the last one. It
// waits for masters in quarantine if they have their votes by end and before the deadline of ctx.
func (s *survey) enter(ctx context.Context, end time.Time) error {
	if limit, limited := ctx.Deadline(); limited && limit.Before(end) {
		end = limit
	}
	for !s.passes() {
		err := s.ask(ctx)
		in := votesIn(err)
		if err == nil || !errors.Is(err, redlock.ErrQuarantine) || waitingIsVain(err) || time.Now().Add(in).After(end) {
			return err
		}
		if why := s.pause(ctx, min(cmp.Or(in, s.quarantine)+time.Millisecond, s.quarantine/20)); why != nil {
			return fmt.Errorf("%w: %w", err, why)
		}
	}
	return nil
}

func (s *survey) countsLocked() bool { return s.counted && s.clock.Now() < s.until }

// ask returns the result of the next survey.
func (s *survey) ask(ctx context.Context) error {
	select {
	case <-s.groups[0].Done():
		return redlock.ErrClosed
	default:
	}
	s.start.Do(func() { s.running.Go(s.run) })
	result := make(chan error, 1)
	select {
	case s.asks <- result:
	case <-ctx.Done():
		return fmt.Errorf("sharded: %w: %w", redlock.ErrNotAcquired, contextError(ctx))
	case <-s.groups[0].Done():
		return errClosed
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("sharded: %w: %w", redlock.ErrNotAcquired, contextError(ctx))
	}
}

func (s *survey) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	case <-s.groups[0].Done():
		return errClosed
	}
}

// wait returns when the goroutine of the survey has ended, after the Lockers were closed.
func (s *survey) wait() {
	s.start.Do(func() {}) // no later call starts it
	s.running.Wait()
}

// run is the goroutine of the survey.
func (s *survey) run() {
	every := time.NewTicker(s.quarantine / 4)
	defer every.Stop()
	for {
		var waiting []chan error
		select {
		case <-every.C:
		case result := <-s.asks:
			waiting = append(waiting, result)
		case <-s.groups[0].Done():
			return
		}
		for more := true; more; {
			select {
			case result := <-s.asks:
				waiting = append(waiting, result)
			default:
				more = false
			}
		}
		err := s.round()
		for _, result := range waiting {
			result <- err
		}
	}
}

// round makes one survey, and keeps its result.
func (s *survey) round() error {
	began := s.clock.Now()
	s.mu.Lock()
	lapsed := !s.countsLocked()
	stopped := lapsed && s.counted
	s.mu.Unlock()
	if lapsed {
		clear(s.entered) // clients with other groups can have come meanwhile
	}
	errs := make([]error, len(s.groups))
	asked := slices.Clone(s.conflicts)
	all := !slices.Contains(asked, true)
	var asking sync.WaitGroup
	for i, g := range s.groups {
		if !all && !asked[i] {
			continue
		}
		asking.Go(func() {
			errs[i] = probe(g)
			for n := 0; n < 8 && stopped && silent(errs[i]) && s.pause(context.Background(), s.quarantine/64) == nil; n++ {
				errs[i] = probe(g)
			}
		})
	}
	asking.Wait()
	select {
	case <-s.groups[0].Done():
		return errClosed
	default:
	}
	for i, err := range errs {
		s.conflicts[i] = conflicts(err) > 0
	}
	if !all && !slices.Contains(s.conflicts, true) {
		return s.round() // of all
	}
	var refusal error
	group := 0 // that it is of
	for i, err := range errs {
		if !all && !asked[i] {
			continue
		}
		accepts, passes := judge(err, s.entered[i])
		s.entered[i] = accepts || s.entered[i] && conflicts(err) == 0 // or clients with other groups have come
		if !passes && refusal == nil {
			group, refusal = i+1, fmt.Errorf("sharded: group %d: %w", i+1, err)
		}
	}
	s.mu.Lock()
	first := refusal != nil && s.refused == nil
	if s.refused = refusal; refusal == nil {
		s.until, s.counted = began+s.quarantine/2, true
	}
	s.mu.Unlock()
	if first { // not under the mutex, which each call needs
		s.groups[0].Logger().Warn(fmt.Sprintf("redlock: no new lease can be granted because of group %d", group),
			"reason", redlock.Reason(refusal), "masters", answers(refusal))
	}
	return refusal
}

// probe asks the masters of a group for their votes.
func probe(g *redlock.Locker) error {
	lease, err := g.TryLock(context.Background(), resource, redlock.WithMinHold(0), redlock.WithQuarantineWait(0))
	if err == nil {
		_ = lease.Unlock(context.Background()) // the key expires by itself
	}
	return err
}

// judge returns what the result of a probe means. A group accepts if a quorum of its masters do:
// they granted, or another client had the lock. A client that the group has accepted before counts
// masters in quarantine, too, so that masters that restart in one group do not stop the others. A
// group also passes if too few masters answer, and none of them names other groups: it must not
// stop the other groups. Masters that answer with another error keep a group from passing. One that
// is out of memory, or was a master until now, can have served clients with other groups, and does
// not name them.
func judge(err error, entered bool) (accepts, passes bool) {
	var q *redlock.QuorumError
	switch {
	case err == nil:
		return true, true
	case !errors.As(err, &q) || conflicts(err) > 0:
		return false, false
	}
	failed, quarantined, silent := 0, 0, 0
	for _, m := range q.Masters {
		switch why := redlock.Reason(m); {
		case m.Quarantine > 0 || why == "quarantine": // also with another client's key
			quarantined++
		case why == "taken":
		case why == "timeout" || why == "connection":
			silent++
		default:
			failed++
		}
	}
	accepting := q.Total - failed - quarantined - silent
	if entered {
		accepting += quarantined
	}
	accepts = accepting >= q.Need
	return accepts, accepts || q.Total-silent < q.Need
}

// silent reports whether too few masters of a group answered. When the process was stopped, what it had sent before has
// timed out by then, and the masters count as down until they answer again.
func silent(err error) bool {
	accepts, passes := judge(err, false)
	return passes && !accepts
}

// conflicts returns how many masters of a group are in use by clients with other groups.
func conflicts(err error) (n int) {
	var q *redlock.QuorumError
	if errors.As(err, &q) {
		for _, m := range q.Masters {
			if redlock.Reason(m) == "membership" {
				n++
			}
		}
	}
	return n
}

// answers returns what each master of a group has said.
func answers(err error) (list []string) {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return []string{err.Error()}
	}
	for _, m := range q.Masters {
		list = append(list, strings.TrimPrefix(m.Error(), "redlock: "))
	}
	return list
}

// waitingIsVain reports whether a refusal lasts longer than quarantines do.
func waitingIsVain(err error) bool {
	var q *redlock.QuorumError
	return conflicts(err) > 0 || errors.As(err, &q) && q.Permanent()
}

// votesIn returns after how long a group can have a quorum, if masters in quarantine are what it lacks.
func votesIn(err error) time.Duration {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return 0
	}
	return q.VotesIn()
}

// contextError returns ctx.Err(), with the cause if that is another error.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
