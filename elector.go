package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Elector makes one of several processes the leader: the one that holds the lease of a
// resource. It is made by [NewElector] and safe for concurrent use; nothing happens until
// Run is called.
//
// As with every lease, that there is one leader at a time holds for the validity of the
// lease and by the clock. What a leader that was paused still does when it wakes up only a
// fencing token stops, see [Lease.Fence].
type Elector struct {
	locker   *Locker
	resource string
	opts     []LockOption

	mu      sync.Mutex
	running bool  // guarded by mu, like all below
	term    *term // whose lead has not returned yet; nil for none
	failed  error // what the last Run ended with, but for the end of its context
}

// term is one time of leading.
type term struct {
	lease  *Lease
	ctx    context.Context // of lead
	cancel context.CancelCauseFunc
}

// afterYou is how long Run waits to campaign again after a term that it gave up: who waits in
// another process has been called by then, or has asked by itself, see patience.
const afterYou = 1500 * time.Millisecond

// errResigned is how the context of a term ends after Resign.
var errResigned = fmt.Errorf("redlock: resigned as leader: %w", ErrReleased)

// NewElector makes an Elector for a resource, with options for the leases of its terms. The
// TTL is how long there can be no leader after one died; [WithMaxHold] bounds a term.
//
// Arguments and options that cannot work give an error that matches [ErrConfig], and so
// does [WithReentry], by which one lease would make two leaders.
func NewElector(l *Locker, resource string, opts ...LockOption) (*Elector, error) {
	if l == nil {
		return nil, configErrorf("NewElector: the Locker is nil")
	}
	if err := l.conf.checkResource("NewElector", resource); err != nil {
		return nil, err
	}
	switch lc, err := l.conf.forCall(opts); {
	case err != nil:
		return nil, err
	case lc.reentry:
		return nil, configErrorf("NewElector: WithReentry would make two leaders of one lease")
	}
	return &Elector{locker: l, resource: resource, opts: opts}, nil
}

// Run campaigns until this process leads, calls lead, and campaigns again when the term is
// over, until ctx ends or lead returns of its own accord.
//
// The context of lead ends when ctx does, when the lease does (context.Cause then matches
// [ErrLost]), or after Resign ([ErrReleased]); it carries the values of ctx. lead should
// return soon after that. Until it has returned Run waits: this process neither campaigns
// nor leads again, so that two of its terms never overlap. Other processes do not wait for
// a lead whose lease is lost; [Elector.Healthy] tells of one that goes on all the same.
// While ctx or Resign has ended the context and lead still winds down, the lease is kept.
// When lead returns or panics the lease is released, whatever has become of ctx, and the
// next leader need not wait for the TTL.
//
// What lead returns after its term was over by loss or Resign does not end Run; what is no
// consequence of the end of its context goes to the log, see [WithLogger]. What it returns
// before that, nil too, ends Run and is returned; if the lease was lost in that moment the
// error matches ErrLost as well.
//
// Run returns an error that matches ctx.Err() if ctx ended, joined with what lead returned
// if that is something else. Masters that are down do not end it; why there is no quorum
// is told by [Elector.IsLeader] meanwhile. An error after which waiting cannot help
// ([ErrClosed], [ErrPermission], [ErrWrongType] and so on, see [Locker.Lock]) ends it. A nil
// ctx or lead, and a second Run before the first has returned, give [ErrConfig].
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, lease *Lease) error) (err error) {
	switch {
	case ctx == nil:
		return configErrorf("Run: ctx is nil")
	case lead == nil:
		return configErrorf("Run: lead is nil")
	case !e.begin():
		return configErrorf("Run: the elector of %q is running already", e.resource)
	}
	defer func() { e.finish(ctx, err) }()
	for {
		lease, err := e.locker.Lock(ctx, e.resource, e.opts...)
		if err != nil {
			return err
		}
		if over, err := e.lead(ctx, lease, lead); over {
			return err
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, ErrLost) || errors.Is(cause, ErrMaxHold) {
			if err := until(ctx, e.locker.pool.closing, nil, afterYou); err != nil {
				return fmt.Errorf("redlock: elector of %q: %w", e.resource, err)
			}
		}
	}
}

// lead is one term. over says that it was the last.
func (e *Elector) lead(ctx context.Context, lease *Lease, lead func(context.Context, *Lease) error) (over bool, err error) {
	inner, done := lease.Within(ctx)
	defer done()
	termCtx, cancel := context.WithCancelCause(inner)
	e.setTerm(&term{lease, termCtx, cancel})
	var unlockErr error
	ended := false // before lead returned
	func() {
		defer func() {
			e.setTerm(nil)
			cancel(context.Canceled)
			unlockErr = lease.Unlock(ctx)
		}()
		err = lead(termCtx, lease)
		ended = termCtx.Err() != nil || lease.Err() != nil
	}()
	consequence := err == nil || ended && (errors.Is(err, context.Canceled) || errors.Is(err, ErrReleased) || errors.Is(err, ErrLost))
	switch {
	case ctx.Err() != nil:
		if consequence || errors.Is(err, ctx.Err()) {
			err = nil
		}
		return true, errors.Join(contextError(ctx), err, unlockErr)
	case !ended:
		return true, errors.Join(err, unlockErr)
	}
	if consequence {
		err = nil
	}
	if errors.Is(unlockErr, ErrNotHeld) {
		unlockErr = nil // as is known
	}
	if err := errors.Join(err, unlockErr); err != nil {
		e.locker.conf.warn("after a term as leader", "resource", e.resource, "error", err)
	}
	return false, nil
}

// Resign ends the present term, if there is one: the context of lead ends, when lead
// has returned the lease is released, and after 1.5 s, in which another process can take it,
// Run campaigns again. Resign does not wait for that. To stop campaigning end the context
// of Run.
func (e *Elector) Resign() {
	if t := e.present(); t != nil {
		t.cancel(errResigned)
	}
}

// Leading reports whether lead has a term that is not over. It looks at the clock: after a
// pause that was longer than the lease it says false, even before the context of lead
// has ended.
func (e *Elector) Leading() bool { return e.present().leads() }

// Lease is the lease of the present term, nil if Leading is false.
func (e *Elector) Lease() *Lease {
	if t := e.present(); t.leads() {
		return t.lease
	}
	return nil
}

// IsLeader is nil while Leading is true. If not, the error matches [ErrNotLeader], and what
// keeps this process from leading as far as is known: [ErrTaken] if somebody else leads,
// [ErrNoQuorum] and [ErrQuarantine] if it is the masters. It asks no node and does not need
// ctx, which is there to fit what schedulers want of an elector.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	running, t := e.running, e.term
	e.mu.Unlock()
	switch {
	case t.leads():
		return nil
	case t != nil:
		return fmt.Errorf("%w of %q: the last term is over, but lead has not returned: %w", ErrNotLeader, e.resource, t.cause())
	case !running:
		return fmt.Errorf("%w of %q: it does not campaign", ErrNotLeader, e.resource)
	}
	if err := e.locker.pool.turns.whyNot(e.resource); err != nil {
		return fmt.Errorf("%w of %q: %w", ErrNotLeader, e.resource, err)
	}
	return fmt.Errorf("%w of %q yet", ErrNotLeader, e.resource)
}

// Healthy is for a liveness probe. It returns an error if lead goes on for longer than
// after past the validity of its lease, when others may lead already, or if Run has ended
// with an error other than that of its context, as long as it has not been called again. A process
// that merely does not lead is healthy, also where the masters are in trouble: to restart
// it would not help.
func (e *Elector) Healthy(after time.Duration) error {
	e.mu.Lock()
	t, failed := e.term, e.failed
	e.mu.Unlock()
	switch {
	case t != nil && -t.lease.grant.validity() > after:
		return fmt.Errorf("redlock: lead of %q goes on %v after the end of its lease: %w", e.resource, -t.lease.grant.validity(), t.cause())
	case failed != nil:
		return fmt.Errorf("redlock: the elector of %q has ended: %w", e.resource, failed)
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
	return true
}

func (e *Elector) finish(ctx context.Context, err error) {
	if ctx.Err() != nil {
		err = nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.failed = false, err
}

func (e *Elector) setTerm(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

func (e *Elector) present() *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}

// leads reports whether the term is not over. There may be none.
func (t *term) leads() bool { return t != nil && t.ctx.Err() == nil && t.lease.Err() == nil }

// cause is why the term is over.
func (t *term) cause() error {
	if err := context.Cause(t.ctx); err != nil {
		return err
	}
	return errLostExpired // the context has yet to hear of it
}
