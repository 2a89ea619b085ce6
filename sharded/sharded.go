// Package sharded spreads resources over several groups of masters, for more locks a second than
// one quorum grants. It uses the exported API of package redlock alone. Each group is a
// [redlock.Locker] with a list of masters and a quorum of its own. A resource belongs to the group
// with the highest rendezvous hash of the group's number and the resource's name.
//
// # Promise
//
// Within a group all promises of package redlock hold. A group whose masters do not answer, or are
// in quarantine, stops its own resources alone. If clients with different groups share a group,
// only those with the groups that came first are served: the calls of the others return an error
// that matches [redlock.ErrMasters]. A group that is added at the end takes its share of the
// resources from all others, and moves no other resource; a group that is removed from the end
// gives its own away. Fencing tokens do not fall when a resource moves, as far as the clocks of the
// masters of all groups agree.
//
// # Limits
//
// A master compares groups when a client asks it for votes. So a client asks the masters of each
// group for a lock of the package's own before its first lease, and then four times in a
// quarantine. A client that cannot reach a quorum of a group leaves that group out, until it asks
// again. So two clients with different groups can both be served if one of them could not reach the
// groups that both have. A group whose masters answer with an error, because they are replicas now,
// load their data or are out of memory, stops the other groups of the client for as long: it may
// have served clients with other groups. A client that is refused later, because it was stopped, or
// cut off from a group, for two quarantines, gets no new lease, nor does a call of it that waited
// meanwhile; the leases that it has in other groups go on. After a group was emptied, a client with
// new groups can be served up to a TTL before the last lease under the former ones ends: do not
// change groups while a master is in quarantine.
//
// To change the groups, stop the processes with the former groups, and start those with the new
// ones, in any order: the new ones are refused until the former ones have been gone for two
// quarantines, 20.6 s by default (see [redlock.WithMaxTTL]). Within a group a master is added or
// removed as in a list of [redlock.New]. With [redlock.WithoutRestartGuard] groups are not
// compared.
//
// Source: ALGORITHM section 8, "Membership" and "Groups".
package sharded

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
)

// Locker locks each resource in its group. Call [New] to make one. A Locker is safe for concurrent
// use. Its methods are those of a [redlock.Locker], so packages semaphore and several take it, too.
type Locker struct {
	groups []*redlock.Locker
	survey *survey // nil for one group
}

// New makes a Locker. Each group is a list of masters as for [redlock.New], and no master may be in
// two groups. The options hold for all groups. All clients must have the same groups in the same
// order.
//
// New sends nothing to any master. If a group or an option cannot work, the error matches
// [redlock.ErrConfig].
func New(groups [][]string, opts ...redlock.Option) (*Locker, error) {
	return open(groups, opts, func(i int, opts []redlock.Option) (*redlock.Locker, error) {
		return redlock.New(groups[i], opts...)
	})
}

// NewFromOptions is [New] with the masters of [redlock.NewFromOptions]. With several groups each Addr
// is host:port or the path of a socket, also where a Dialer leads to the master.
func NewFromOptions(groups [][]*redis.Options, opts ...redlock.Option) (*Locker, error) {
	addrs := make([][]string, len(groups))
	for i, masters := range groups {
		for _, o := range masters {
			addrs[i] = append(addrs[i], addressOf(o))
		}
	}
	return open(addrs, opts, func(i int, opts []redlock.Option) (*redlock.Locker, error) {
		return redlock.NewFromOptions(groups[i], opts...)
	})
}

// addressOf returns the address of a master in the form of redlock.New.
func addressOf(o *redis.Options) string {
	if o == nil {
		return ""
	}
	addr := strings.TrimSpace(o.Addr)
	if o.Network == "unix" || strings.HasPrefix(addr, "/") {
		return "unix://" + strings.ReplaceAll((&url.URL{Path: addr}).EscapedPath(), "@", "%40")
	}
	return addr
}

func open(addrs [][]string, opts []redlock.Option, group func(i int, opts []redlock.Option) (*redlock.Locker, error)) (*Locker, error) {
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%w: sharded: no groups: give the masters of at least one", redlock.ErrConfig)
	}
	if len(addrs) > 1 {
		opts = append(slices.Clip(opts), redlock.WithGroups(addrs))
	}
	l := &Locker{}
	for i := range addrs {
		g, err := group(i, opts)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.groups = append(l.groups, g)
	}
	if len(l.groups) > 1 {
		l.survey = newSurvey(l.groups)
	}
	return l, nil
}

// first returns the Locker of the first group: nil if New has not made the Locker.
func (l *Locker) first() *redlock.Locker {
	if l == nil || len(l.groups) == 0 {
		return nil
	}
	return l.groups[0]
}

// Groups returns the Lockers of the groups, in their order: for package admin and for Stats. Lock
// resources by the methods of this Locker alone, which refuse clients with other groups.
func (l *Locker) Groups() []*redlock.Locker { return slices.Clone(l.groups) }

// GroupOf returns the Locker of the group that a resource belongs to. The resources of one name of
// [Locker.LockAny] belong to one group.
func (l *Locker) GroupOf(resource string) *redlock.Locker {
	if any := strings.TrimRight(resource, "0123456789"); any != resource && strings.HasSuffix(any, "~") {
		resource = any
	}
	best, highest := l.first(), uint64(0)
	if best == nil {
		return nil // its methods return ErrConfig
	}
	for i, g := range l.groups {
		if score := hash(strconv.Itoa(i) + " " + resource); score > highest {
			best, highest = g, score
		}
	}
	return best
}

// hash is FNV-1a, mixed because its last bytes reach too few of the bits. All clients must have the
// same.
func hash(s string) uint64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(s))
	h := f.Sum64()
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Lock is [redlock.Locker.Lock] in the group of the resource. While clients with other groups are
// at work, it fails at once with an error that matches [redlock.ErrMasters].
func (l *Locker) Lock(ctx context.Context, resource string, opts ...redlock.LockOption) (*redlock.Lease, error) {
	return l.lock(ctx, resource, opts, true, func() (*redlock.Lease, error) { return l.GroupOf(resource).Lock(ctx, resource, opts...) })
}

// LockAny is [redlock.Locker.LockAny] in the group of the resources.
func (l *Locker) LockAny(ctx context.Context, name string, n int, opts ...redlock.LockOption) (*redlock.Lease, error) {
	last := name + "~" + strconv.Itoa(n) // the group refuses another n
	return l.lock(ctx, last, opts, true, func() (*redlock.Lease, error) { return l.GroupOf(name+"~1").LockAny(ctx, name, n, opts...) })
}

// TryLock is [redlock.Locker.TryLock] in the group of the resource.
func (l *Locker) TryLock(ctx context.Context, resource string, opts ...redlock.LockOption) (*redlock.Lease, error) {
	return l.lock(ctx, resource, opts, false, func() (*redlock.Lease, error) { return l.GroupOf(resource).TryLock(ctx, resource, opts...) })
}

// lock calls get after enter. If the survey counts no longer when get has a lease, as after a wait in which the
// process was stopped, clients with other groups may have come: without another survey that passes, lock gives the
// lease back, and begins again.
func (l *Locker) lock(ctx context.Context, resource string, opts []redlock.LockOption, waits bool, get func() (*redlock.Lease, error)) (*redlock.Lease, error) {
	for {
		if err := l.enter(ctx, resource, opts, waits); err != nil {
			return nil, err
		}
		lease, err := get()
		if err != nil || l.counts(ctx) {
			return lease, err
		}
		_ = lease.Unlock(ctx) // the key expires by itself
	}
}

// counts reports whether a survey counts that has passed, or one passes now.
func (l *Locker) counts(ctx context.Context) bool {
	return l.survey == nil || l.survey.passes() || l.survey.ask(ctx) == nil
}

// Do is [redlock.Locker.Do] in the group of the resource.
func (l *Locker) Do(ctx context.Context, resource string, fn func(ctx context.Context, lease *redlock.Lease) error, opts ...redlock.LockOption) error {
	if fn == nil { // the group refuses the call
		return l.GroupOf(resource).Do(ctx, resource, fn, opts...)
	}
	for {
		if err := l.enter(ctx, resource, opts, true); err != nil {
			return err
		}
		late := false
		err := l.GroupOf(resource).Do(ctx, resource, func(inner context.Context, lease *redlock.Lease) error {
			if late = !l.counts(inner); late {
				return nil
			}
			return fn(inner, lease)
		}, opts...)
		if !late {
			return err
		}
	}
}

// Adopt is [redlock.Locker.Adopt] in the group of the resource.
func (l *Locker) Adopt(ctx context.Context, resource, token string, fence int64, opts ...redlock.LockOption) (*redlock.Lease, error) {
	if err := l.enter(ctx, resource, opts, false); err != nil {
		return nil, err
	}
	return l.GroupOf(resource).Adopt(ctx, resource, token, fence, opts...)
}

// ExtendToken is [redlock.Locker.ExtendToken] in the group of the resource.
func (l *Locker) ExtendToken(ctx context.Context, resource, token string, opts ...redlock.LockOption) (validity time.Duration, fence int64, err error) {
	if err := l.enter(ctx, resource, opts, false); err != nil {
		return 0, 0, err
	}
	return l.GroupOf(resource).ExtendToken(ctx, resource, token, opts...)
}

// ReleaseToken is [redlock.Locker.ReleaseToken] in the group of the resource.
func (l *Locker) ReleaseToken(ctx context.Context, resource, token string) error {
	if err := l.enter(ctx, resource, nil, false); err != nil {
		return err
	}
	return l.GroupOf(resource).ReleaseToken(ctx, resource, token)
}

// CheckResource is [redlock.Locker.CheckResource].
func (l *Locker) CheckResource(resource string) error { return l.first().CheckResource(resource) }

// Settings is [redlock.Locker.Settings].
func (l *Locker) Settings(opts ...redlock.LockOption) (redlock.Settings, error) {
	return l.first().Settings(opts...)
}

// WhyWaiting is [redlock.Locker.WhyWaiting].
func (l *Locker) WhyWaiting(resource string) error { return l.GroupOf(resource).WhyWaiting(resource) }

// Logger is [redlock.Locker.Logger].
func (l *Locker) Logger() *slog.Logger { return l.first().Logger() }

// Done is [redlock.Locker.Done].
func (l *Locker) Done() <-chan struct{} { return l.first().Done() }

// Close closes the Lockers of all groups, as [redlock.Locker.Close] does, and joins their errors.
func (l *Locker) Close() error {
	if l == nil {
		return l.first().Close()
	}
	errs := make([]error, len(l.groups))
	var closing sync.WaitGroup
	for i, g := range l.groups {
		closing.Go(func() { errs[i] = g.Close() })
	}
	closing.Wait()
	if l.survey != nil {
		l.survey.wait()
	}
	return errors.Join(errs...)
}

// enter returns nil if the groups of this client are those of all clients, as far as is known. It
// also does so if the group refuses the call anyway, without asking a master. If waits is true, the call
// waits for any quarantine, and otherwise for as long as its options say.
func (l *Locker) enter(ctx context.Context, resource string, opts []redlock.LockOption, waits bool) error {
	if l == nil || l.survey == nil || ctx == nil || l.survey.passes() || l.CheckResource(resource) != nil {
		return nil
	}
	settings, err := l.Settings(opts...)
	if err != nil {
		return nil
	}
	patience := settings.QuarantineWait
	if waits {
		patience = 1000 * time.Hour
	}
	return l.survey.enter(ctx, time.Now().Add(patience))
}
