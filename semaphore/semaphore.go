// Package semaphore limits how many permits are held at the same time, over all processes.
//
// # Promise
//
// Permit i of the semaphore "name" is the lock "name~i": an ordinary lease, with its own fencing
// token, that can be adopted, inspected, extended and broken like any other. So at most K permits
// are held, as long as the promises of package redlock hold. The permits of a holder that died are
// free after the TTL.
//
// Callers of all processes are served in the order of their calls, whatever K is, for up to 128 calls
// of a process. A caller that wants n permits gets them together, and callers that want
// one do not starve it. A waiting caller is woken and does not poll. A caller that gives up leaves
// nothing behind.
//
// # How
//
// While no caller of the process waits, a call tries as many permits as it wants at the same time: a free
// permit mostly takes one round trip. Otherwise the call waits for any of the permits, in one queue for all of
// them: that takes two.
//
// A caller that wants several permits has to keep the first ones while it waits for the others.
// Only one caller at a time, over all processes, may do that: the holder of the lock "name/turn".
// So callers do not wait for each other's permits.
//
// # Limits
//
// TryAcquire may be refused while another process tries the same permits. While a caller of n waits for
// the rest, the permits that it has are idle. With [redlock.WithMinHold] a permit that a caller
// gives up stays taken. If a quarantine outlasts the deadline of a waiting caller, the caller learns
// that only at the deadline.
//
// All clients should give a semaphore the same number of permits. If they do not, the largest
// number that is in use holds. A client that a holder with another number refuses logs that once: the
// label of a permit's lease ends in "permits=K", see [redlock.WithOwner]. Callers that wait their turn meet no
// holder, so under load the line may not come.
package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/door"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
	"github.com/d0720281/redlock/several"
)

// MaxPermits is the largest number of permits of a semaphore.
const MaxPermits = wire.MaxOneOf // 1000

// terms are those of package several: they make one lease of several permits.
type terms interface {
	Part() []redlock.LockOption
	Keep(ctx context.Context, lease *redlock.Lease) (context.Context, context.CancelFunc)
	Join(ctx context.Context, parts ...*redlock.Lease) (*several.Lease, error)
	Whole(ctx context.Context, parts ...*redlock.Lease) *several.Lease
	During(ctx context.Context, lease *several.Lease, fn func(ctx context.Context, lease *several.Lease) error) error
}

// Semaphore hands out permits. Call [New] to make one: methods of a nil or zero Semaphore panic. It is safe for concurrent use.
type Semaphore struct {
	locker  *redlock.Locker
	name    string
	base    []redlock.LockOption
	owner   string
	minHold bool // a permit that is given back stays taken for a while: WithMinHold

	mu      sync.Mutex
	permits int
	terms   terms // of this number of permits
	opts    []redlock.LockOption
	resized context.Context // ends with the next Resize
	resize  context.CancelFunc
	unused  []int       // permits that this process does not use; the last one is the most likely to be free
	uses    map[int]int // by permit: leases and attempts of this process
	waiting int         // callers
	differs map[string]bool
}

// New returns the semaphore with that name. The options hold for the lease of each permit. New asks no master.
// If an argument cannot work, the error matches [redlock.ErrConfig]. Two Semaphores of one name and one Locker
// work, and their callers stand in one line.
func New(l *redlock.Locker, name string, permits int, opts ...redlock.LockOption) (*Semaphore, error) {
	if !door.Made(l) {
		return nil, fmt.Errorf("%w: semaphore: the Locker is nil, or was not made by New", redlock.ErrConfig)
	}
	s := &Semaphore{locker: l, name: name, base: slices.Clone(opts), uses: make(map[int]int), differs: make(map[string]bool)}
	settings, err := inside.Of(l).Settings(opts...)
	switch {
	case err != nil:
		return nil, err
	case settings.Shared:
		return nil, s.configErrorf("Shared: a permit has one holder")
	case settings.Reentry:
		return nil, s.configErrorf("WithReentry is for single resources")
	}
	s.owner, s.minHold = settings.Owner, settings.MinHold > 0
	last := s.resource(MaxPermits)
	if most := redlock.MaxResourceLength - len(last) + len(name); len(name) > most {
		return nil, fmt.Errorf("%w: semaphore: the name has %d bytes: at most %d are allowed", redlock.ErrConfig, len(name), most)
	}
	if name == "" {
		return nil, s.configErrorf("the name is empty")
	}
	for _, resource := range []string{name, last, s.turn()} { // name is that of the queue
		if err := inside.Of(l).CheckResource(fmt.Sprintf("semaphore %q", name), resource); err != nil {
			return nil, err
		}
	}
	return s, s.Resize(permits)
}

// Permits returns the number of permits that this Semaphore uses.
func (s *Semaphore) Permits() int {
	s.made()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.permits
}

// Resize changes the number of permits, from 1 to [MaxPermits], of this Semaphore alone: each
// client has to do so, and until then the larger number holds. Leases go on. This Semaphore no
// longer grants permits above the new number. Callers that wait go on, except those that wait for
// more permits than there are now: these are refused. If permits is out of bounds, the error
// matches [redlock.ErrConfig], and nothing changes.
func (s *Semaphore) Resize(permits int) error {
	s.made()
	if permits < 1 || permits > MaxPermits {
		return s.configErrorf("%d permits: must be from 1 to %d", permits, MaxPermits)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var added []int
	for i := range permits {
		if i >= s.permits && s.uses[i] == 0 {
			added = append(added, i)
		}
	}
	rand.Shuffle(len(added), func(i, j int) { added[i], added[j] = added[j], added[i] })
	s.unused = slices.DeleteFunc(s.unused, func(p int) bool { return p >= permits })
	s.unused = append(added, s.unused...)
	s.permits = permits
	opts := slices.Clone(s.base)
	if label := withPermits(s.owner, permits); label != "" {
		opts = append(opts, redlock.WithOwner(label))
	}
	made, err := door.Terms(s.locker, opts)
	if err != nil {
		return err
	}
	s.opts, s.terms = opts, made.(terms)
	if s.resize != nil {
		s.resize()
	}
	s.resized, s.resize = context.WithCancel(context.Background())
	return nil
}

// Lease is a lease on permits. It is lost as soon as one of them is lost.
type Lease struct {
	*several.Lease
	of *Semaphore
}

// Within is [several.Lease.Within]. A call of Acquire on the same Semaphore inside is refused as
// re-entry.
func (l *Lease) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.Lease.Within(context.WithValue(ctx, withinKey{l.of}, &holding{l.Context()}))
}

// withinKey is the key of the context of work under a lease, and holding its value.
type withinKey struct{ *Semaphore }

// holding has the context of the lease: nil while the call waits for it. It does not refer to the parts, so
// that the garbage collector can tell of a lease that was dropped.
type holding struct{ lease context.Context }

// Acquire returns a lease on n permits. It waits until they are free.
//
// After an error the caller holds nothing. If ctx ends first, the error matches
// [redlock.ErrNotAcquired], ctx.Err() and the reason for which a permit was not granted. If n is
// less than 1 or more than there are permits, it matches [redlock.ErrConfig]. Inside a lease of
// this Semaphore it matches [redlock.ErrReentry]: callers that hold permits and wait for more would
// wait for each other.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Lease, error) {
	if err := s.check(ctx, n); err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, withinKey{s}, new(holding)) // which the contexts of the lease and its parts have, too
	if !s.busy() {
		got, err := s.try(ctx, n, n)
		if lease, err := s.lease(ctx, got, err); !again(ctx, err) {
			return lease, err
		}
	}
	for {
		got, err := s.wait(ctx, n)
		if err != nil {
			return nil, err
		}
		if lease, err := s.lease(ctx, got, nil); !again(ctx, err) {
			return lease, err
		}
	}
}

// again reports whether a call that may wait has to after an error: the permits were taken or lost.
func again(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, redlock.ErrTaken) || errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrLost))
}

// TryAcquire is [Semaphore.Acquire] without waiting. It asks for all permits that this process does
// not use before it is refused with [redlock.ErrTaken]. It is refused at once while a caller of
// this Semaphore waits.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Lease, error) {
	if err := s.check(ctx, n); err != nil {
		return nil, err
	}
	if s.busy() {
		return nil, s.refused(redlock.ErrTaken)
	}
	ctx = context.WithValue(ctx, withinKey{s}, new(holding))
	got, err := s.try(ctx, n, MaxPermits)
	return s.lease(ctx, got, err)
}

// Do calls fn while n permits are held, and returns fn's error joined with the error of Unlock. The
// context of fn ends with ctx or with the lease.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context, lease *Lease) error) error {
	s.made()
	if fn == nil {
		return s.configErrorf("fn is nil")
	}
	lease, err := s.Acquire(ctx, n)
	if err != nil {
		return err
	}
	ctx = context.WithValue(ctx, withinKey{s}, &holding{lease.Context()})
	return s.presentTerms().During(ctx, lease.Lease, func(ctx context.Context, _ *several.Lease) error { return fn(ctx, lease) })
}

// made panics if New has not made the Semaphore.
func (s *Semaphore) made() {
	if s == nil || s.locker == nil {
		panic("semaphore: the Semaphore was not made by New")
	}
}

func (s *Semaphore) check(ctx context.Context, n int) error {
	s.made()
	if ctx == nil {
		return s.configErrorf("ctx is nil")
	}
	if permits := s.Permits(); n < 1 || n > permits {
		return s.configErrorf("%d permits wanted: must be from 1 to %d", n, permits)
	}
	if outer, ok := ctx.Value(withinKey{s}).(*holding); ok && outer.lease != nil && outer.lease.Err() == nil {
		return fmt.Errorf("semaphore %q: %w", s.name, redlock.ErrReentry)
	}
	return nil
}

func (s *Semaphore) configErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: semaphore %q: %s", redlock.ErrConfig, s.name, fmt.Sprintf(format, args...))
}

// refused returns the error of a call that did not get its permits.
func (s *Semaphore) refused(why ...error) error {
	return fmt.Errorf("semaphore %q: %w: %w", s.name, redlock.ErrNotAcquired, errors.Join(why...))
}

func (s *Semaphore) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting > 0
}

// try tries to get n permits, and asks for at most so many: first for n, and then for twice as many
// at the same time, and so on. With a minimum hold it asks for no more than are missing: a permit that
// was granted beyond n would stay taken.
func (s *Semaphore) try(ctx context.Context, n, most int) (got []*redlock.Lease, err error) {
	if ctx.Err() != nil {
		return nil, s.refused(reason.OfContext(ctx))
	}
	err = s.refused(redlock.ErrTaken)
	var refused []int
	wrong := 0                                  // permits whose keys hold something that is no lock
	defer func() { s.put(false, refused...) }() // tried last the next time
	for ask := n; len(got) < n && most > 0 && ctx.Err() == nil; ask *= 2 {
		if s.minHold {
			ask = n - len(got)
		}
		permits, opts := s.pick(min(ask, most))
		if n > 1 {
			opts = s.presentTerms().Part()
		}
		if most -= ask; len(permits) == 0 {
			break
		}
		leases, errs := make([]*redlock.Lease, len(permits)), make([]error, len(permits))
		var trying sync.WaitGroup
		for i, permit := range permits {
			trying.Go(func() { leases[i], errs[i] = s.locker.TryLock(ctx, s.resource(permit+1), opts...) })
		}
		trying.Wait()
		for i, le := range leases {
			switch {
			case le == nil:
				refused = append(refused, permits[i])
				s.compare(errs[i])
				if errors.Is(errs[i], reason.WrongType) {
					wrong++
				}
				if errors.Is(err, redlock.ErrTaken) && (!errors.Is(errs[i], reason.WrongType) || wrong == s.Permits()) { // otherwise the others may be had
					err = errs[i]
				}
			case len(got) < n:
				got = append(got, le)
			default:
				door.GiveBack(le)
				refused = append(refused, permits[i])
			}
		}
		if s.minHold && !errors.Is(err, redlock.ErrTaken) { // the next permit would be refused alike, after a while
			break
		}
	}
	if len(got) < n {
		for _, le := range got {
			refused = append(refused, s.permit(le))
		}
		door.GiveBack(got...)
		if ctx.Err() != nil {
			err = s.refused(reason.OfContext(ctx), err)
		}
		return nil, err
	}
	return got, nil
}

// lease makes the lease of the permits that a call has got. The options of several permits count for the
// whole, from now.
func (s *Semaphore) lease(ctx context.Context, got []*redlock.Lease, err error) (*Lease, error) {
	if err != nil {
		return nil, err
	}
	whole := (*several.Lease)(nil)
	if len(got) == 1 {
		whole = s.presentTerms().Whole(ctx, got...)
	} else if whole, err = s.presentTerms().Join(ctx, got...); err != nil {
		for _, le := range got {
			s.put(true, s.permit(le))
		}
		door.GiveBack(got...)
		return nil, fmt.Errorf("semaphore %q: %w", s.name, err)
	}
	for _, le := range got {
		// The function does not refer to le, so that the garbage collector can tell of a lease that was dropped.
		permit := s.permit(le)
		context.AfterFunc(le.Context(), func() { s.put(true, permit) }) // tried first the next time
	}
	ctx.Value(withinKey{s}).(*holding).lease = whole.Context()
	return &Lease{whole, s}, nil
}

func (s *Semaphore) presentTerms() terms {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms
}

// resource returns the name of the lock of a permit; permits count from 1 there.
func (s *Semaphore) resource(number int) string { return s.name + wire.OneOf + strconv.Itoa(number) }

// turn returns the name of the lock of the caller that wants several permits and waits.
func (s *Semaphore) turn() string { return s.name + "/turn" }

// permit returns the permit of a lease, from 0.
func (s *Semaphore) permit(le *redlock.Lease) int {
	_, number := wire.CutNumber(le.Resource())
	return number - 1
}

// pick takes up to n of the permits that this process does not use.
func (s *Semaphore) pick(n int) (picked []int, opts []redlock.LockOption) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := max(0, len(s.unused)-n)
	picked = slices.Clone(s.unused[at:])
	s.unused = s.unused[:at]
	for _, p := range picked {
		s.uses[p]++
	}
	return picked, s.opts
}

// take notes that this process uses a permit that one of its waiters was granted.
func (s *Semaphore) take(permit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses[permit]++
	s.unused = slices.DeleteFunc(s.unused, func(p int) bool { return p == permit })
}

// put notes that uses of permits are over. free says that they are likely to be free.
func (s *Semaphore) put(free bool, permits ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range permits {
		if s.uses[p]--; s.uses[p] > 0 {
			continue
		}
		delete(s.uses, p)
		switch {
		case p >= s.permits:
		case free:
			s.unused = append(s.unused, p)
		default:
			s.unused = slices.Insert(s.unused, 0, p)
		}
	}
}

const permitsLabel = "permits="

// withPermits returns the label of a holder with the number of permits; "" if there is no room for
// it.
func withPermits(owner string, permits int) string {
	if owner != "" {
		owner += ":"
	}
	if owner += permitsLabel + strconv.Itoa(permits); len(owner) > redlock.MaxOwnerLength {
		return ""
	}
	return owner
}

// compare logs, once for each number, that the holder of a permit has another number of permits.
func (s *Semaphore) compare(err error) {
	var refused *redlock.QuorumError
	if !errors.As(err, &refused) {
		return
	}
	holder, _ := refused.Holder()
	_, number, found := strings.Cut(holder, permitsLabel)
	s.mu.Lock()
	own := strconv.Itoa(s.permits)
	isNew := found && number != own && !s.differs[number]
	if isNew {
		s.differs[number] = true
	}
	s.mu.Unlock()
	if isNew {
		inside.Of(s.locker).Logger().Warn("redlock: a client gives the semaphore another number of permits; the largest holds",
			"semaphore", s.name, "permits", own, "theirs", number, "holder", holder)
	}
}
