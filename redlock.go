package redlock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock/internal/address"
	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// Locker grants leases on resources by a quorum of a fixed list of masters. [New] and [NewFromOptions] make
// one: methods of a nil or zero Locker panic. A Locker is safe for concurrent use.
//
// Make one per process. A Locker keeps one connection to each master, and a second one to each master with the
// queue of a resource for which the Locker waits or whose lease it renews. Two Lockers of one process are two
// processes to the masters: they hand no lease over to each other, and neither recognizes re-entry into a lease
// of the other.
type Locker struct {
	conf   *config
	pool   *pool
	events *events

	startOnce sync.Once
	watchers  errgroup.Group // the goroutine of the events
	closeOnce sync.Once
	closeErr  error
	calls     callGate
}

// New makes a Locker for the masters at the given addresses: "host:port", or URLs
// redis://user:password@host:port/db, rediss:// for TLS, unix://user:password@/path. valkey:// and valkeys://
// are redis:// and rediss://. A URL may have the parameters db, client_name and skip_verify, each once. The
// default port is 6379. In a user name, password or path some characters must be percent-encoded:
// docs/operations.md names them. New ignores blanks around an address.
//
// The quorum is N/2+1 of the masters, whether they are up or not. They must be independent: no replicas of each
// other, no nodes of one cluster. With N = 1 no lock survives the loss of the one master. An even number is no
// error, but tolerates as many masters down as one master less; New logs a note.
//
// New sends nothing to any master and works with all of them down. If the list or an option cannot work, the
// error matches [ErrConfig]. It has the number of a wrong address in the list, and no part of its text, which
// may have a password. Source: distlock, "The Redlock Algorithm"; ALGORITHM section 1.
func New(masters []string, opts ...Option) (*Locker, error) {
	conf, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	parsed, err := address.Parse(masters)
	if err != nil {
		return nil, err
	}
	if err := address.NeedPasswords(parsed); err != nil {
		return nil, err
	}
	return newLocker(conf, parsed)
}

// NewFromOptions is [New] for masters that need more than a URL can hold: a TLS configuration, a credentials
// provider or a dialer. It also takes client.Options() of a go-redis client that a service already has.
//
// The library has connections of its own. It uses the fields Network, Addr, Dialer, TLSConfig, ClientName,
// Username, Password, CredentialsProvider, CredentialsProviderContext, StreamingCredentialsProvider and DB, and
// ignores every other field, and hooks and limiters of a client: retries, timeouts and pools are those that a
// lock needs.
//
// Addr is host:port, or the absolute path of a socket; with a Dialer also a name alone. It is the name of the
// master in errors and logs, and the masters compare it between clients: so it must be the same in all
// processes, and differ between masters. A go-redis client of Sentinel is one master. Its Addr is always
// "FailoverClient": give each a name of its own, in a copy of the client's options.
//
// A Dialer has to do the TLS handshake itself. If it goes on after its context has ended, the library closes
// the connection that it then returns. Goroutines of the library call a credentials provider, for several
// masters at the same time, and before each connection; a streaming one once for each master until Close. A
// provider has 10 s for an answer, for which no call waits. The master is down meanwhile, and while a provider,
// a Dialer or a function in a TLSConfig fails or panics. docs/operations.md has the details.
func NewFromOptions(masters []*redis.Options, opts ...Option) (*Locker, error) {
	conf, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	return newLocker(conf, masters)
}

func newLocker(conf *config, masters []*redis.Options) (*Locker, error) {
	list, err := address.Check(masters)
	if err != nil {
		return nil, err
	}
	l := &Locker{conf: conf, events: newEvents(conf)}
	l.pool = newPool(conf, list, l.events)
	for _, made := range conf.made {
		made(l)
	}
	if len(list)%2 == 0 {
		l.events.call(func() { conf.logger().Info("redlock: " + l.pool.set.CountFinding().Err().Error()) })
	}
	return l, nil
}

// start starts the goroutines of the Locker, once.
func (l *Locker) start() *pool {
	l.startOnce.Do(func() {
		l.events.start()
		l.pool.start()
		l.watchers.Go(func() error { l.events.run(); return nil })
	})
	return l.pool
}

// Lock returns a lease on resource. It waits until a quorum of the masters grants the lease or ctx ends.
// Nothing but ctx bounds the wait. Callers of one process are served in the order of their calls, and hand the
// lease over without asking the masters. Processes wait in a queue on one of the masters, which notifies each
// process in its turn.
//
// A resource is a string of 1 to [MaxResourceLength] bytes. Its key, the prefix of [WithKeyPrefix] and the
// resource, must not end in "~fence", "~guard", "~queue", "~seen", "~turn", "~readers" or "~adopted", and the
// resource not in "~", nor in "~" and a number, which is for package semaphore. The validity of a new lease is
// the TTL, less the drift, the grace of [WithGrace] and the time of the attempt: at least half of the TTL. The
// library renews the lease until Unlock, unless [WithoutRenewal] is given.
//
// If an argument is wrong, the error matches [ErrConfig]. If the Locker was closed before the call, it matches
// [ErrClosed], and if the context has the resource already, [ErrReentry]. Any other error matches
// [ErrNotAcquired]. If ctx ended, the error also matches ctx.Err(), and [ErrTaken] or [ErrNoQuorum] if an
// attempt had a result before that. Unless this process itself had the resource, a [*QuorumError] then has the
// answers of the masters.
//
// Lock waits for masters in quarantine ([ErrQuarantine]), and logs for how long. If the deadline of ctx comes
// before the end of the quarantine, Lock returns at once, without ctx.Err(). If too many masters cannot take
// part ([ErrMasterSetup]), or two masters are one server, Lock fails at once.
//
// After an error no lease is held. The library asks every master that may have set the key to delete it, until
// the master confirms. A master that cannot be reached keeps the key for at most the TTL. Source: distlock,
// "The Redlock Algorithm", steps 1 to 5; ALGORITHM sections 3 and 10.
func (l *Locker) Lock(ctx context.Context, resource string, opts ...LockOption) (*Lease, error) {
	if wire.QueueOf(resource) != resource {
		return nil, reason.Configf("Lock: resource %q is one of several, for any of which package semaphore waits", resource)
	}
	return l.acquire(ctx, "Lock", resource, opts, (*pool).waitFor)
}

// TryLock is [Locker.Lock] with one attempt. It waits for the masters' answers, but not for another holder: for
// one master timeout at most, or for two if fencing counters differ, if the Locker is new or if it was idle for
// minutes. Under overload the call first waits for its turn, because the Locker limits the attempts that run at
// the same time. With [WithQuarantineWait] it waits for masters in quarantine. TryLock joins no queue. It is
// refused while a waiting process has its turn.
//
// If another holder has the resource, the error matches [ErrTaken]. If the masters are in trouble, it matches
// [ErrNoQuorum], and [ErrQuarantine] if waiting would help. If ctx ended the attempt, neither is known.
func (l *Locker) TryLock(ctx context.Context, resource string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, "TryLock", resource, opts, (*pool).tryOnce)
}

// Do calls fn while a lease on resource is held, and returns fn's error joined with the error of
// Unlock. It waits for the resource as [Locker.Lock] does. If Lock fails, Do returns its error and
// does not call fn. The context of fn is that of [Lease.Within]. When fn returns or panics, Do
// unlocks the lease, even if ctx has ended, unless fn has detached it. If the lease was over before
// fn returned, the error matches [ErrNotHeld], even if fn did not notice: with [ErrLost] if the
// library had noticed the loss, and with [ErrReleased] if fn had unlocked the lease.
func (l *Locker) Do(ctx context.Context, resource string, fn func(ctx context.Context, lease *Lease) error, opts ...LockOption) error {
	if fn == nil {
		return reason.Configf("Do: fn is nil")
	}
	lease, err := l.Lock(ctx, resource, opts...)
	if err != nil {
		return err
	}
	return lease.during(ctx, fn)
}

// during calls fn while the lease is held, and unlocks it then.
func (le *Lease) during(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) (err error) {
	defer le.work()() // over when the lease was given back: Close waits for that
	defer func() {
		if unlockErr := le.Unlock(ctx); unlockErr != nil && (errors.Is(unlockErr, ErrLost) || !errors.Is(unlockErr, ErrDetached)) {
			err = errors.Join(err, unlockErr)
		}
	}()
	fnCtx, cancel := le.within(ctx)
	defer cancel()
	return fn(fnCtx, le)
}

// tryFunc tries to get a lease.
type tryFunc func(p *pool, ctx context.Context, resource string, lc lockConfig) (*hold, error)

// acquire is the common part of Lock, LockAny and TryLock: it checks everything that can be checked
// without asking a node, and then calls try.
func (l *Locker) acquire(ctx context.Context, name, resource string, opts []LockOption, try tryFunc) (*Lease, error) {
	if err := l.checkCall(ctx, name, resource); err != nil {
		return nil, err
	}
	lc, err := l.conf.forCall(opts)
	if err != nil {
		return nil, err
	}
	end := l.conf.trace(ctx, name, resource)
	h, err := l.admit(ctx, resource, lc, try)
	var le *Lease
	if err == nil {
		le = h.public()
	}
	l.ended(end, le, err)
	return le, err
}

// ended ends the trace of a call. If end panics or exits the goroutine, no caller gets the
// lease, and ended unlocks it.
func (l *Locker) ended(end func(*Lease, error), le *Lease, err error) {
	returned := false
	defer func() {
		if !returned && le != nil {
			_, _ = le.grant.pool.unlock(le.hold)
		}
	}()
	end(le, err)
	returned = true
}

// admit rejects calls on a closed Locker, with an ended context, or that would deadlock on
// re-entry. Otherwise it calls try.
func (l *Locker) admit(ctx context.Context, resource string, lc lockConfig, try tryFunc) (*hold, error) {
	if !l.calls.enter() {
		return nil, ErrClosed
	}
	defer l.calls.leave()
	if closed(ctx.Done()) {
		return nil, endedBy(ctx)
	}
	if outer := l.pool.heldIn(ctx, resource); outer != nil && lc.several == 0 { // LockAny takes name~1 to name~n, and not name
		inner, err := outer.reenter(ctx, lc.shared, lc.reentry)
		switch {
		case inner != nil:
			return inner, nil
		case err != nil:
			return nil, reason.Errorf("lock %q: %w", resource, err)
		}
	}
	return try(l.start(), ctx, resource, lc)
}

// made returns the Locker, and panics if New has not made it.
func (l *Locker) made() *Locker {
	if l == nil || l.conf == nil {
		panic("redlock: the Locker was not made by New")
	}
	return l
}

func (l *Locker) checkCall(ctx context.Context, name, resource string) error {
	conf := l.made().conf
	if ctx == nil {
		return reason.Configf("%s: ctx is nil", name)
	}
	return conf.checkResource(name, resource)
}

// checkResource returns an error if resource cannot be the name of a resource. It looks at the
// whole key, prefix included, to tell whether that is one of the library's own keys.
//
// Source: ALGORITHM section 2.
func (c *config) checkResource(name, resource string) error {
	switch {
	case resource == "":
		return reason.Configf("%s: the resource is empty", name)
	case len(resource) > MaxResourceLength:
		return reason.Configf("%s: the resource has %d bytes: at most %d are allowed", name, len(resource), MaxResourceLength)
	}
	queue, number := wire.CutNumber(resource)
	switch suffix := wire.Reserved(c.keyPrefix + resource); {
	case queue != resource && (number < 1 || number > wire.MaxOneOf || queue+strconv.Itoa(number) != resource):
		return reason.Configf("%s: resource %q ends in %q and a number: must be from 1 to %d, without leading zeros", name, resource, wire.OneOf, wire.MaxOneOf)
	case queue == resource && wire.QueueOf(c.keyPrefix+resource) != c.keyPrefix+resource:
		return reason.Configf("%s: resource %q, behind the prefix %q, has the key of one of several resources", name, resource, c.keyPrefix)
	case strings.HasSuffix(resource, wire.OneOf):
		return reason.Configf("%s: resource %q ends in %q, which marks the queue of several resources", name, resource, wire.OneOf)
	case suffix == "":
		return nil
	case wire.Reserved(resource) != "":
		return reason.Configf("%s: resource %q ends in %q, which marks the library's own keys", name, resource, suffix)
	default:
		return reason.Configf("%s: the key of resource %q, behind the prefix %q, ends in %q, which marks the library's own keys", name, resource, c.keyPrefix, suffix)
	}
}

// Close ends all leases of the Locker and releases their keys. Calls that wait fail with [ErrClosed].
//
// If a function of [Locker.Do] or of a package on top (election, jobs, semaphore, several) runs under a lease,
// or work in a context of [Lease.Within], Close ends its context, and keeps the lease until the work is over,
// for 10 s at most: no other process has the resource before. A call of Close within such work takes the 10 s.
//
// Close returns when every goroutine has ended: a few master timeouts after the last of the work at most, and
// after the calls of an observer or a logger that are under way. A master that does not answer by then keeps
// its keys until they expire. If no quorum confirmed the release of some lease, the error matches
// [ErrNoQuorum]. A further call returns the same error.
func (l *Locker) Close() error {
	l.made().closeOnce.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Locker) close() error {
	p := l.pool
	l.calls.shut()
	p.shut(ErrClosed)
	l.calls.wait()
	var kept []<-chan struct{} // closed when the work is over for which a lease is kept
	ending := p.endLeases(func(g *grant) bool {
		idle := g.windDown()
		if idle != nil {
			kept = append(kept, idle)
		}
		return idle == nil
	})
	enough := time.NewTimer(workAfterClose)
	defer enough.Stop()
	for _, idle := range kept {
		select {
		case <-idle:
			continue
		case <-enough.C:
		}
		break
	}
	ending = append(ending, p.endLeases(func(*grant) bool { return true })...)
	unconfirmed := 0
	for _, le := range ending {
		if err := le.grant.awaitRelease(); errors.Is(err, ErrNoQuorum) {
			unconfirmed++
		}
	}
	l.stop()
	if unconfirmed > 0 {
		return reason.Errorf("close: %w for the release of %d leases: their keys expire by themselves", ErrNoQuorum, unconfirmed)
	}
	return nil
}

// workAfterClose bounds how long Close keeps leases for work that has not ended.
const workAfterClose = 10 * time.Second

// endLeases ends the leases for which may returns true, and returns their last holds. The releases have
// been sent.
func (p *pool) endLeases(may func(*grant) bool) (ended []*hold) {
	for _, g := range p.renewer.all() {
		if !may(g) {
			continue
		}
		if last := g.endAll(errClosedHeld); last != nil {
			ended = append(ended, last)
			p.release(last, p.now())
		}
	}
	return ended
}

// stop ends all goroutines of the Locker.
func (l *Locker) stop() {
	l.startOnce.Do(func() {}) // no later call starts the goroutines
	l.pool.stop(l.conf.nodeTimeoutOfAll() + 10*time.Millisecond)
	l.events.close()
	_ = l.watchers.Wait()
}

func init() {
	door.Made = func(l any) bool {
		ours, is := l.(*Locker)
		return is && ours != nil && ours.conf != nil
	}
	door.Inside = func(l any) any { return inside{l.(*Locker).made()} }
	door.Enter = func(l any) (door.Room, error) { return l.(*Locker).open() }
	door.Look = func(l any) door.Sight {
		p := l.(*Locker).pool
		return door.Sight{QueueNode: p.queueNodeOf, Lines: p.lines.Count, Asking: p.admission.Count}
	}
	door.Clock = func(source clock.Source) any { return withClock(source) }
	door.Watched = func(observer, made any) any {
		return option(func(c *config) {
			c.observers = append(c.observers, observer.(Observer))
			c.made = append(c.made, made.(func(*Locker)))
		})
	}
}

// open lets package admin in for one call.
func (l *Locker) open() (door.Room, error) {
	if !l.calls.enter() {
		return door.Room{}, ErrClosed
	}
	p := l.start()
	return door.Room{
		Nodes:  p.set,
		Opened: p.opened,
		Prefix: l.conf.keyPrefix,
		Quorum: p.need,
		Guard:  l.conf.guard,
		Leave:  l.calls.leave,
		TellBroken: func(resource string, taken []string) {
			for _, g := range p.renewer.all() {
				if g.resource == resource {
					g.brokenOn(taken)
				}
			}
		},
	}, nil
}

// callGate counts the calls under way. Once it is shut, it admits no further call.
type callGate struct {
	mu      lockorder.Mutex[lockorder.Calls]
	closed  bool
	running sync.WaitGroup
}

func (c *callGate) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Add(1)
	return true
}

func (c *callGate) leave() { c.running.Done() }

func (c *callGate) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func (c *callGate) wait() { c.running.Wait() }
