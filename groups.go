package redlock

import (
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// This file has the groups of masters of a Locker. Each resource belongs to one group, and all
// rules of the algorithm hold in that group by itself. survey.go makes sure that all clients have
// the same groups.

// NewSharded makes a Locker for several groups of masters, for more locks a second than one
// quorum grants. Each group is a list as for [New], with a quorum of its own, and no master is in
// two groups. Each resource belongs to one group, by a hash of its name, so a group without a
// quorum stops the locks of its own resources alone.
//
// All clients must have the same groups in the same order. A group that is added at the end
// takes its share of the resources from all others, and a group that is removed from the end
// gives its own away; the other resources stay. For the fencing tokens of a resource that changes
// its group the clocks of all groups must agree. Clients with different groups are refused:
// their calls return an error that matches [ErrMembership]. So the groups change when all clients
// with the former groups have been closed for 20.6 s, which is two quarantines (see
// [WithMaxTTL]). Within a group a master is added or removed as in a list of New, without that.
//
// The first call for a lease waits until the masters of all groups have been asked whether other
// clients have other groups. While a group cannot be reached, that takes up to five times the value
// of [WithMasterTimeout]; the group is then left out. From then on the Locker repeats that four
// times in a quarantine, until it is closed. Masters of a new deployment without
// [Locker.Bootstrap] have to be two quarantines old. With [WithoutRestartGuard] groups are not
// compared.
//
// Source: [ALGORITHM section 8], "Groups".
//
// [ALGORITHM section 8]: https://github.com/d0720281/redlock/blob/main/ALGORITHM.md#8-restart-guard
func NewSharded(groups [][]string, opts ...Option) (*Locker, error) {
	parsed := make([][]*redis.Options, len(groups))
	for i, masters := range groups {
		var err error
		if parsed[i], err = parseMasters(masters); err != nil {
			return nil, inGroup(len(groups), i, err)
		}
	}
	return newLocker(parsed, opts)
}

// NewShardedFromOptions is [NewSharded] with the masters of [NewFromOptions].
func NewShardedFromOptions(groups [][]*redis.Options, opts ...Option) (*Locker, error) {
	return newLocker(groups, opts)
}

// checkGroups checks the list of each group, and that no master is in two groups.
func checkGroups(groups [][]*redis.Options) ([][]redis.Options, error) {
	if len(groups) == 0 {
		return nil, configErrorf("no groups: give the masters of at least one")
	}
	lists := make([][]redis.Options, len(groups))
	in := make(map[string]int)
	for i, masters := range groups {
		list, err := checkMasters(masters)
		if err != nil {
			return nil, inGroup(len(groups), i, err)
		}
		for _, m := range list {
			if first, twice := in[m.Addr]; twice {
				return nil, configErrorf("%s is in group %d and in group %d: groups must have no master in common", m.Addr, first, i+1)
			}
			in[m.Addr] = i + 1
		}
		lists[i] = list
	}
	return lists, nil
}

// inGroup adds the number of a group to an error, if there are several groups.
func inGroup(groups, i int, err error) error {
	if groups == 1 {
		return err
	}
	return errorf("group %d: %w", i+1, err)
}

// eachGroup calls do for all groups at the same time. Of several errors it returns all.
func (l *Locker) eachGroup(do func(p *pool) error) error {
	errs := make([]error, len(l.groups))
	var doing sync.WaitGroup
	for i, p := range l.groups {
		doing.Go(func() {
			if err := do(p); err != nil {
				errs[i] = inGroup(len(l.groups), i, err)
			}
		})
	}
	doing.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// groupOf returns the group that a resource belongs to: the one with the highest rendezvous hash.
//
// Source: ALGORITHM section 8, "Groups".
func (l *Locker) groupOf(resource string) *pool {
	if len(l.groups) == 1 {
		return l.groups[0]
	}
	if semaphore, slot := wire.CutSlot(resource); slot > 0 { // all slots are in one group
		resource = wire.Base(semaphore)
	}
	best, highest := l.groups[0], uint64(0)
	for i, p := range l.groups {
		if score := mix(node.Hash(strconv.Itoa(i) + " " + resource)); score > highest {
			best, highest = p, score
		}
	}
	return best
}
