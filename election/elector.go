// Package election makes one of several processes the leader: the process that holds the
// lease of a resource of package redlock.
//
// There is one leader at a time, but only during the validity of its lease, and by its own
// clock. A leader that was paused can wake up after another one was elected, and write before
// it looks at the clock. The store has to refuse such writes by the fencing token, see
// [redlock.Lease.Fence].
package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// ErrNotLeader is matched by the errors of [Elector.IsLeader]. [redlock.Reason] returns
// "not_leader" for such an error, or a more precise word.
var ErrNotLeader error = notLeader{}

type notLeader struct{}

func (notLeader) Error() string { return "election: not the leader" }

// Reason implements what [redlock.Reason] asks of errors of other packages.
func (notLeader) Reason() string { return "not_leader" }

// errResigned ends the context of a term after Resign.
var errResigned = fmt.Errorf("election: resigned: %w", redlock.ErrReleased)

// errAborted is what [Elector.Healthy] reports of a Run that did not return.
var errAborted = errors.New("lead panicked, or ended its goroutine")

// afterYou is how long Run waits before it campaigns again after a term that it gave up. A process
// that waits for a lease asks for it within that time, even if it is not called, so it comes first.
const afterYou = 1500 * time.Millisecond

// Elector takes part in the elections of one leader. Call [New] to make one, and
// [Elector.Run] to campaign: methods of a nil or zero Elector panic. An Elector is safe for concurrent use.
type Elector struct {
	locker   *redlock.Locker
	resource string
	opts     []redlock.LockOption
	minHold  time.Duration
	listed   *inside.Campaign

	mu      sync.Mutex
	running bool  // guarded by mu, like all below
	term    *term // of the lead that has not returned yet; nil for none
	failed  error // result of the last Run, unless its context had ended
}

// term is one time of leading.
type term struct {
	lease  *redlock.Lease
	began  time.Time
	ctx    context.Context // of lead
	cancel context.CancelCauseFunc
	over   time.Time // when the lease's context ended; guarded by Elector.mu
}

// New returns an Elector for the resource. The options hold for the lease of each term. Their
// TTL bounds the time without a leader after a leader has died, and [redlock.WithMaxHold]
// bounds a term. After such a term Run campaigns again after 1.5 s, as after Resign. With
// [redlock.WithMinHold] there is no leader between a term that was shorter and the end of that time;
// Run campaigns again 1.5 s after it. With [redlock.WithoutRenewal] a term ends with its TTL, also
// while lead winds down.
//
// New sends nothing to any master. A nil locker, and a resource or options that
// [redlock.Locker.Lock] would refuse, give an error that matches [redlock.ErrConfig].
// So do [redlock.WithReentry] and [redlock.Shared], with which there could be two leaders.
func New(locker *redlock.Locker, resource string, opts ...redlock.LockOption) (*Elector, error) {
	if !door.Made(locker) {
		return nil, configError("New: the Locker is nil, or was not made by New")
	}
	if err := inside.Of(locker).CheckResource("election: New", resource); err != nil {
		return nil, err
	}
	settings, err := inside.Of(locker).Settings(opts...)
	switch {
	case err != nil:
		return nil, named("New", err)
	case wire.QueueOf(resource) != resource:
		return nil, configError(fmt.Sprintf("New: resource %q is one of several, for any of which package semaphore waits", resource))
	case settings.Reentry || settings.Shared:
		return nil, configError("New: with WithReentry or Shared two leaders could have a lease")
	}
	e := &Elector{locker: locker, resource: resource, opts: slices.Clone(opts), minHold: settings.MinHold}
	e.listed = &inside.Campaign{Locker: locker, Election: resource, Leads: e.Leading}
	return e, nil
}

func configError(text string) error {
	return fmt.Errorf("%w: election: %s", redlock.ErrConfig, text)
}

// named returns err as it is, but an ErrConfig with the name of the function that was called.
func named(name string, err error) error {
	if !errors.Is(err, redlock.ErrConfig) {
		return err
	}
	text := strings.TrimPrefix(err.Error(), redlock.ErrConfig.Error()+": ")
	return configError(name + ": " + strings.TrimPrefix(text, "Inspect: "))
}

// made panics if New has not made the Elector.
func (e *Elector) made() {
	if e == nil || e.locker == nil {
		panic("election: the Elector was not made by New")
	}
}

// Run campaigns until this process leads, calls lead, and campaigns again when the term is over. It
// returns when ctx ends, or when lead returns before its term is over.
//
// The context of lead carries the values of ctx. It ends when ctx ends, when the lease is lost (its
// cause then matches [redlock.ErrLost]), or after [Elector.Resign] (its cause then matches
// [redlock.ErrReleased]). lead must return soon after that. Until lead has returned, this process
// neither campaigns nor leads again, so that two of its terms never overlap. If ctx or Resign has
// ended the context, the lease is renewed until lead has returned. After [redlock.Locker.Close] it
// is, too, for 10 s at most. If the lease is lost, another process may lead while lead still runs;
// [Elector.Healthy] reports that. When lead returns or panics, the lease is released, even if ctx has
// ended, and the next leader need not wait for the TTL.
//
// If lead returns before its term is over, Run returns the result of lead, joined with the error of
// [redlock.Lease.Unlock]: it matches [redlock.ErrLost] if the lease was lost just after lead
// returned, and [redlock.ErrNoQuorum] if no quorum confirmed the release. If lead returns after the
// end of its term, Run campaigns again. It then logs the error of lead, unless the error follows from
// the end of the term, see [redlock.WithLogger].
//
// If ctx ends, the error matches ctx.Err(), and also the error of lead if that has another reason.
// Run goes on while masters are down: [Elector.IsLeader] returns why there is no quorum. An error
// after which waiting cannot help ([redlock.ErrClosed], or [redlock.ErrMasterSetup] from too many
// masters, see [redlock.Locker.Lock]) ends Run. So does [redlock.ErrQuarantine] if ctx has a
// deadline before the end of the quarantine. A nil ctx, a nil lead, and a call while another Run
// of this Elector has not returned give [redlock.ErrConfig].
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, lease *redlock.Lease) error) error {
	e.made()
	switch {
	case ctx == nil:
		return configError("Run: ctx is nil")
	case lead == nil:
		return configError("Run: lead is nil")
	case !e.begin():
		return configError(fmt.Sprintf("Run: the Elector of %q is running already", e.resource))
	}
	failed := errAborted // unless Run returns
	defer func() { e.finish(ctx, failed) }()
	for {
		again, err := e.campaign(ctx, lead)
		if !again {
			failed = err
			return err
		}
	}
}

// campaign waits until this process leads, and leads for one term. If it reports false, Run
// ends with the error.
func (e *Elector) campaign(ctx context.Context, lead func(context.Context, *redlock.Lease) error) (again bool, _ error) {
	var t *term // nil until the lease is granted
	var err error
	ended := false // before lead returned
	unlockErr := e.locker.Do(ctx, e.resource, func(leaseCtx context.Context, lease *redlock.Lease) error {
		t = e.beginTerm(leaseCtx, lease)
		defer e.endTerm(t)
		err = lead(t.ctx, lease)
		ended = !t.leads()
		return nil
	}, e.opts...)
	if t == nil {
		return false, unlockErr // of the wait for the lease
	}
	consequence := err == nil || ended && (errors.Is(err, context.Canceled) || errors.Is(err, redlock.ErrReleased) || errors.Is(err, redlock.ErrLost))
	switch {
	case ctx.Err() != nil:
		if consequence || errors.Is(err, ctx.Err()) {
			err = nil
		}
		return false, errors.Join(reason.OfContext(ctx), err, unlockErr)
	case !ended:
		return false, errors.Join(err, unlockErr)
	}
	if consequence {
		err = nil
	}
	if errors.Is(unlockErr, redlock.ErrLost) || errors.Is(unlockErr, redlock.ErrReleased) {
		unlockErr = nil // the term ended by that
	}
	if err := errors.Join(err, unlockErr); err != nil {
		inside.Of(e.locker).Logger().Warn("redlock: error after a term as leader", "resource", e.resource, "error", err)
	}
	if why := t.lease.Err(); errors.Is(why, redlock.ErrLost) && !errors.Is(why, redlock.ErrMaxHold) {
		return true, nil
	}
	if err := e.pause(ctx, max(0, e.minHold-time.Since(t.began))+afterYou); err != nil {
		return false, fmt.Errorf("election: Elector of %q: %w", e.resource, err)
	}
	return true, nil
}

// pause lets other processes lead after a term that this one gave up.
func (e *Elector) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return reason.OfContext(ctx)
	case <-inside.Of(e.locker).Done():
		return redlock.ErrClosed
	}
}

// Resign ends the present term, if there is one. The context of lead ends, and when lead has
// returned the lease is released. Run campaigns again after 1.5 s, in which another process can
// take the lease. Resign does not wait for any of that. To stop campaigning, end the context of
// Run.
func (e *Elector) Resign() {
	if t := e.present(); t != nil {
		t.cancel(errResigned)
	}
}

// Leading reports whether lead runs and its term is not over. It looks at the clock: after a
// pause longer than the lease it returns false, even if the context of lead has not ended yet.
func (e *Elector) Leading() bool { return e.present().leads() }

// Lease returns the lease of the present term, or nil if Leading is false.
func (e *Elector) Lease() *redlock.Lease {
	if t := e.present(); t.leads() {
		return t.lease
	}
	return nil
}

// IsLeader returns nil while [Elector.Leading] is true. Otherwise the error matches
// [ErrNotLeader], and the reason as far as it is known: [redlock.ErrTaken] if another process
// leads, [redlock.ErrNoQuorum] and [redlock.ErrQuarantine] if too few masters answer or have a
// vote, and the error with which Run ended before its context. IsLeader asks no master, and
// ignores its context. The context is there to fit the interfaces of schedulers: an Elector is a
// gocron.Elector, for example.
func (e *Elector) IsLeader(context.Context) error {
	e.made()
	e.mu.Lock()
	running, t, failed := e.running, e.term, e.failed
	e.mu.Unlock()
	switch {
	case t.leads():
		return nil
	case t != nil:
		return fmt.Errorf("%w of %q: the term is over, but lead has not returned: %w", ErrNotLeader, e.resource, t.cause())
	case !running && failed != nil:
		return fmt.Errorf("%w of %q: Run has ended: %w", ErrNotLeader, e.resource, failed)
	case !running:
		return fmt.Errorf("%w of %q: it does not campaign", ErrNotLeader, e.resource)
	}
	if err := inside.Of(e.locker).WhyWaiting(e.resource); err != nil {
		return fmt.Errorf("%w of %q: %w", ErrNotLeader, e.resource, err)
	}
	return fmt.Errorf("%w of %q yet", ErrNotLeader, e.resource)
}

// Healthy is for a liveness probe. It returns an error if lead still runs although its lease has
// been over for longer than after: another process may lead then. It also returns an error if
// the last Run ended with an error, or by a panic of lead, before its context ended. A process that does not lead is
// healthy, also while masters are down: a restart of the process would not help. A negative duration
// gives [redlock.ErrConfig].
func (e *Elector) Healthy(after time.Duration) error {
	e.made()
	if after < 0 {
		return configError(fmt.Sprintf("Healthy: %v: must not be negative", after))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term != nil {
		if late := e.term.lateLocked(); late > after {
			return fmt.Errorf("election: lead of %q still runs %v after the end of its lease: %w", e.resource, late, e.term.cause())
		}
	}
	if e.failed != nil {
		return fmt.Errorf("election: the Elector of %q has ended: %w", e.resource, e.failed)
	}
	return nil
}

func (e *Elector) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return false
	}
	e.running, e.failed = true, nil
	inside.Campaigns.Store(e.listed, nil)
	return true
}

func (e *Elector) finish(ctx context.Context, err error) {
	if ctx.Err() != nil {
		err = nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.failed = false, err
	inside.Campaigns.Delete(e.listed)
}

func (e *Elector) beginTerm(leaseCtx context.Context, lease *redlock.Lease) *term {
	t := &term{lease: lease, began: time.Now()}
	t.ctx, t.cancel = context.WithCancelCause(leaseCtx)
	context.AfterFunc(lease.Context(), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		t.over = time.Now()
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
	return t
}

func (e *Elector) endTerm(t *term) {
	e.mu.Lock()
	e.term = nil
	e.mu.Unlock()
	t.cancel(context.Canceled)
}

func (e *Elector) present() *term {
	e.made()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}

// leads reports whether there is a term, and it is not over.
func (t *term) leads() bool { return t != nil && t.ctx.Err() == nil && t.lease.Err() == nil }

// cause is why the term is over.
func (t *term) cause() error {
	if err := context.Cause(t.ctx); err != nil {
		return err
	}
	return t.lease.Err() // the context has not noticed yet
}

// lateLocked is how long ago the lease ended; negative while it is valid. The validity does not
// tell for a lease that lead itself has unlocked or detached.
func (t *term) lateLocked() time.Duration {
	if err := t.lease.Err(); errors.Is(err, redlock.ErrLost) || !errors.Is(err, redlock.ErrReleased) && !errors.Is(err, redlock.ErrDetached) {
		return -t.lease.Validity()
	}
	if t.over.IsZero() {
		return 0 // it ends in this moment
	}
	return time.Since(t.over)
}
