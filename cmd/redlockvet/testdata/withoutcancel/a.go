package withoutcancel

import (
	"context"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/several"
)

func work(context.Context) error { return nil }

func with(lease *redlock.Lease, all *several.Lease) error {
	held := all.Context()
	go func() { _ = work(context.WithoutCancel(held)) }()              // want `the context no longer ends with the lease: what it is for goes on beside the next holder`
	if err := work(context.WithoutCancel(all.Context())); err != nil { // want `the context no longer ends with the lease`
		return err
	}
	ctx := context.WithoutCancel(lease.Context()) // want `the context no longer ends with the lease`
	return work(ctx)
}

func without(ctx context.Context, lease *redlock.Lease) error {
	either := ctx
	if lease.Fence() > 1 {
		either = lease.Context()
	}
	defer func() { _ = work(context.WithoutCancel(lease.Context())) }()
	if err := work(context.WithoutCancel(either)); err != nil {
		return err
	}
	if err := work(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return lease.Unlock(context.WithoutCancel(lease.Context()))
}
