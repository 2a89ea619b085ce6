package main

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/sharded"
)

// The functions of package admin are for one group of masters. These are for all.

// check asks the masters of all groups about themselves, and returns a report for each group.
func check(ctx context.Context, l *sharded.Locker) ([]admin.Report, error) {
	groups := l.Groups()
	reports, errs := make([]admin.Report, len(groups)), make([]error, len(groups))
	var asking sync.WaitGroup
	for i, g := range groups {
		asking.Go(func() { reports[i], errs[i] = admin.Check(ctx, g) })
	}
	asking.Wait()
	return reports, errors.Join(errs...)
}

// bootstrap vouches for the masters of each group.
func bootstrap(ctx context.Context, l *sharded.Locker) error {
	groups := l.Groups()
	errs := make([]error, len(groups))
	for i, g := range groups {
		errs[i] = admin.Bootstrap(ctx, g)
	}
	return errors.Join(errs...)
}

// inspect asks the group of a key which holder has it.
func inspect(ctx context.Context, l *sharded.Locker, key string) (admin.Inspection, error) {
	return admin.Inspect(ctx, l.Of(key), key)
}

// listAll returns the locks of all groups, one group after the other.
func listAll(ctx context.Context, l *sharded.Locker) iter.Seq2[admin.Inspection, error] {
	return func(yield func(admin.Inspection, error) bool) {
		for _, g := range l.Groups() {
			for in, err := range admin.List(ctx, g) {
				if !yield(in, err) {
					return
				}
			}
		}
	}
}

// mastersIn returns the statistics of all masters.
func mastersIn(l *sharded.Locker) (all []redlock.MasterStats) {
	for _, g := range l.Groups() {
		all = append(all, g.Stats().Masters...)
	}
	return all
}
