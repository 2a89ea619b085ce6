package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
)

const (
	keyPrefix  = "redlock:demo:"
	resource   = "stock:item-1"
	ownMasters = 5

	// When to kill, in per cent of the stock. Once all is sold, two holders at a time would do
	// no harm.
	killAfter  = 30
	pauseAfter = 60

	mostWork    = 1_000_000              // attempts
	firstWithin = 15 * time.Second       // for the first lease, which proves that the masters work
	probeWithin = 500 * time.Millisecond // for the last look at each master
)

// demo is the demo command: services sell a stock, one item at a time. The sum is correct
// only if no two services read the same number.
type demo struct {
	masters    []string
	store      string
	stock      int
	services   int
	workers    int
	rounds     int
	noProgress bool

	alone int // locks taken to measure a lock without contention
	out   io.Writer
	style style
	guard func(*redlock.Locker) mutex // tests set a broken lock here
}

func newDemo() *cobra.Command {
	d := demo{alone: 200, guard: func(l *redlock.Locker) mutex { return resourceLock{l} }}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Sell a stock under a lock while masters fail",
		Long: `Sell a stock that is kept in one plain Redis key, from several services with many
workers each, under one lock. Five masters are started on this machine, real ones
if redis-server is on the PATH; while the stock lasts one of them is killed and
another is paused, for the rest of the run. Afterwards the same is done without the
lock.

The exit code is 1 if anything went wrong: a wrong number sold, two holders at a
time, a fencing token that did not rise, a lock that failed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			d.out, d.style = cmd.OutOrStdout(), styleOf(cmd.OutOrStdout())
			_, err := d.run(ctx)
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&d.masters, "masters", nil, "use these masters (host:port or URLs) and leave them alone")
	f.StringVar(&d.store, "store", "", "Redis that keeps the stock; the first of --masters if not given")
	f.IntVar(&d.stock, "stock", 200, "items to sell")
	f.IntVar(&d.services, "services", 3, "services, each with a locker of its own")
	f.IntVar(&d.workers, "workers", 100, "workers of each service")
	f.IntVar(&d.rounds, "rounds", 4, "attempts of each worker")
	f.BoolVar(&d.noProgress, "no-progress", false, "show no progress bar")
	return cmd
}

func (d *demo) attempts() int { return d.services * d.workers * d.rounds }

func (d *demo) check() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"stock", d.stock}, {"services", d.services}, {"workers", d.workers}, {"rounds", d.rounds}} {
		if f.value < 1 || f.value > mostWork {
			return usagef("--%s %d: must be from 1 to %d", f.name, f.value, mostWork)
		}
	}
	if n := int64(d.services) * int64(d.workers) * int64(d.rounds); n > mostWork {
		return usagef("--services, --workers and --rounds make %d attempts: at most %d are allowed", n, mostWork)
	}
	return nil
}

// outcome is the result of a demo.
type outcome struct {
	fleet    *fleet
	reports  *nodeReports
	locked   *result
	unlocked *result // nil if locked was cut short
}

// run runs the whole demo. Its error says what was wrong.
func (d *demo) run(ctx context.Context) (out *outcome, err error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	f, err := d.fleet(ctx)
	if err != nil {
		return nil, cmp.Or(interrupted(ctx), err)
	}
	defer func() { err = errors.Join(err, f.close()) }()
	out = &outcome{fleet: f, reports: newNodeReports(d.services)}
	services, err := d.open(f, out.reports)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll(services)) }()
	fmt.Fprintln(d.out, f.describe())
	fmt.Fprintf(d.out, "%d services with %d workers of %d rounds each: %d attempts to sell one of %d items\n",
		d.services, d.workers, d.rounds, d.attempts(), d.stock)
	if err := d.vouch(ctx, services[0]); err != nil {
		return nil, cmp.Or(interrupted(ctx), err)
	}
	if err := firstLease(ctx, services[0]); err != nil {
		return nil, cmp.Or(interrupted(ctx), err)
	}
	return out, d.show(ctx, services, out)
}

// show sells the stock with and without the lock, and judges the run with the lock.
func (d *demo) show(ctx context.Context, services []service, out *outcome) (err error) {
	work := workload{key: out.fleet.stockKey, stock: d.stock, workers: d.workers, rounds: d.rounds}
	for _, s := range services {
		work.sellers = append(work.sellers, seller{d.guard(s.locker), s.store})
	}
	defer func() { err = cmp.Or(err, work.cleanUp()) }()

	res := d.locked(ctx, work, out.fleet)
	out.locked = res
	if err := interrupted(ctx); err != nil {
		return fmt.Errorf("%w after %d of %d attempts", err, res.done, res.attempts)
	}
	if res.err == nil {
		res.alone, res.err = uncontended(ctx, services[0], d.alone)
	}
	out.fleet.look(ctx)
	res.err = cmp.Or(res.err, closeLockers(services)) // after which all events have been delivered
	d.report(res, out.fleet, out.reports)
	if res.err == nil {
		out.unlocked = d.unlocked(ctx, work)
	}
	if err := cmp.Or(interrupted(ctx), res.verdict()); err != nil {
		return err
	}
	fmt.Fprintln(d.out, d.style.good("All checks passed."))
	fmt.Fprintln(d.out, lesson)
	return nil
}

// lesson is the sentence that a newcomer should remember.
const lesson = "To take along: a lease keeps services out of each other's way until it ends, and only a store that checks the fencing token\n" +
	"keeps out the write of a holder that has not noticed the end."

// locked does the work under the lock, while masters fail.
func (d *demo) locked(ctx context.Context, work workload, f *fleet) *result {
	b := newBar(d.out, d.style.terminal && !d.noProgress, d.attempts())
	defer b.stop()
	work.progress = b.add
	sales := min(d.stock, d.attempts()) // under a lock the first attempts are the sales
	work.steps = []step{
		{sales * killAfter / 100, func(done int) error { return f.kill(1, done, b.say) }},
		{sales * pauseAfter / 100, func(done int) error { return f.pause(3, done, b.say) }},
	}
	if f.given {
		work.steps = nil
	}
	return work.run(ctx)
}

// unlocked does the same work without the lock, for contrast.
func (d *demo) unlocked(ctx context.Context, work workload) *result {
	for i := range work.sellers {
		work.sellers[i].mutex = noLock{}
	}
	res := work.run(ctx)
	if res.err != nil {
		fmt.Fprintln(d.out, "The same without the lock ended early:", res.err)
		return res
	}
	fmt.Fprintf(d.out, "The same without the lock: %d sold of a stock of %d, %s.\n", res.sold, res.stock,
		d.style.bad(fmt.Sprintf("oversold by %d", res.oversold())))
	return res
}

// service is one of the services, with a Locker and connections to the store of its own, as
// real services have.
type service struct {
	locker *redlock.Locker
	store  *redis.Client
}

func (d *demo) open(f *fleet, reports *nodeReports) (list []service, err error) {
	for i := range d.services {
		opts := []redlock.Option{redlock.WithKeyPrefix(keyPrefix), redlock.WithObserver(reports.observer(i))}
		if !f.real() {
			opts = append(opts, redlock.WithLogger(nil)) // it would warn that in-process masters tell nothing about themselves
		}
		l, err := redlock.NewFromOptions(f.options(), opts...)
		if err != nil {
			return nil, errors.Join(err, closeAll(list))
		}
		list = append(list, service{l, redis.NewClient(f.store)})
	}
	return list, nil
}

func closeLockers(services []service) (err error) {
	for _, s := range services {
		err = errors.Join(err, s.locker.Close())
	}
	return err
}

func closeAll(services []service) error {
	err := closeLockers(services)
	for _, s := range services {
		err = errors.Join(err, s.store.Close())
	}
	return err
}

// vouch makes masters vote at once that the demo has never used before. It says so, because
// this is no part of using locks. If not all masters are up, it waits for the quarantine.
func (d *demo) vouch(ctx context.Context, s service) error {
	ctx, cancel := context.WithTimeout(ctx, firstWithin)
	defer cancel()
	err := admin.Bootstrap(ctx, s.locker)
	if err == nil {
		fmt.Fprintln(d.out, "The masters are new: Bootstrap vouches for them, or they would have no vote for their first 10.3 s.")
		return nil
	}
	if errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrQuarantine) {
		fmt.Fprintln(d.out, "Bootstrap does not vouch for the masters, so that some may have no vote for 10.3 s:", err)
		return nil
	}
	return err
}

// firstLease checks masters and store before all workers wait for them.
func firstLease(ctx context.Context, s service) error {
	ctx, cancel := context.WithTimeout(ctx, firstWithin)
	defer cancel()
	if err := s.store.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("the store cannot be used: %w", err)
	}
	lease, err := s.locker.Lock(ctx, resource)
	if err != nil {
		return fmt.Errorf("the masters cannot be used: %w", err)
	}
	return lease.Unlock(ctx)
}

// uncontended measures lock and unlock of a resource without contention.
func uncontended(ctx context.Context, s service, n int) (took []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stall)
	defer cancel()
	for range n {
		began := time.Now()
		lease, err := s.locker.Lock(ctx, resource+":alone")
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("a lock without contention: %w", err)
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// interrupted returns an error if a signal has ended ctx.
func interrupted(ctx context.Context) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}
