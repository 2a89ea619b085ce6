package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
)

const (
	demoPrefix = "redlock:demo:"
	demoItem   = "stock:item-1"
	ownMasters = 5

	// When a master fails, in per cent of the stock. Once all is sold, two holders at a time would
	// do no harm.
	killAfter  = 30
	pauseAfter = 60

	votesWithin = 15 * time.Second // for the first votes of the masters
)

const demoHelp = `Sell a stock that is kept in one plain Redis key, from several services with many workers each, under one lock.

redlock starts five masters on this machine, real ones if redis-server is on the PATH. While the stock lasts, one of them is killed and another is paused, for the rest of the run. Afterwards the services do the same without the lock.

Exit code: 1 if anything went wrong: a wrong number sold, two holders at a time, a fencing token that did not rise, a lock that failed, or output that cannot be written.`

// demo is the demo command: services sell a stock, one item at a time. The sum is correct
// only if no two services read the same number.
type demo struct {
	output
	stock    int // items to sell
	services int // each with a Locker of its own
	workers  int // of each service
	rounds   int // attempts of each worker

	guard func(*redlock.Locker) locking // tests set a broken lock here
}

func newDemo() *cobra.Command {
	d := demo{stock: 200, services: 3, workers: 100, rounds: 4, guard: byLibrary}
	return &cobra.Command{
		Use: "demo", Short: "Sell a stock under a lock while masters fail", Long: demoHelp, Args: noArgs, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			d.to(cmd.OutOrStdout())
			_, err := d.run(ctx)
			return err
		},
	}
}

func (d *demo) attempts() int { return d.services * d.workers * d.rounds }

// shop has the masters of a demo, the services, and what became of them.
type shop struct {
	kind     string           // of the masters
	masters  []masters.Master // the last one keeps the stock, and grants no locks
	fates    []string         // of the masters that grant locks
	told     []string         // what the services noticed of them
	services []service

	locked   *result
	unlocked *result // nil if locked was cut short
}

// service is one of the services, with a Locker and connections to the store of its own, as
// real services have.
type service struct {
	locker *redlock.Locker
	store  *redis.Client
	lock   locking
}

// run runs the whole demo. Its error says what was wrong.
func (d *demo) run(ctx context.Context) (_ *shop, err error) {
	var s shop
	defer func() { err = errors.Join(err, s.close()) }()
	if s.masters, s.kind, err = masters.Start(ctx, ownMasters+1); err != nil {
		return nil, cmp.Or(interrupted(ctx), err)
	}
	var addrs []string
	for _, m := range s.masters[:ownMasters] {
		addrs, s.fates = append(addrs, m.Addr()), append(s.fates, "healthy")
	}
	for range d.services {
		l, err := redlock.New(addrs, redlock.WithKeyPrefix(demoPrefix), redlock.WithLogger(nil)) // the tables have it all
		if err != nil {
			return nil, err
		}
		s.services = append(s.services, service{l, redis.NewClient(&redis.Options{Addr: s.masters[ownMasters].Addr()}), d.guard(l)})
	}
	d.say("%d masters on this machine: %s", ownMasters, s.kind)
	d.say("%d services of %d workers, %d rounds each: %d attempts to sell %d items",
		d.services, d.workers, d.rounds, d.attempts(), d.stock)
	if err := d.begin(ctx, s.services[0].locker); err != nil {
		return nil, cmp.Or(interrupted(ctx), err)
	}
	return &s, d.sell(ctx, &s)
}

func (s *shop) close() (err error) {
	for _, one := range s.services {
		err = errors.Join(err, one.locker.Close(), one.store.Close())
	}
	for _, m := range s.masters {
		err = errors.Join(err, m.Close())
	}
	return err
}

// begin gives the masters their votes. On a busy machine one of them may be late.
func (d *demo) begin(ctx context.Context, l *redlock.Locker) error {
	ctx, cancel := context.WithTimeout(ctx, votesWithin)
	defer cancel()
	for {
		err := admin.Bootstrap(ctx, l)
		switch {
		case err == nil:
			d.say("The masters are new. Bootstrap vouches for them, so they vote at once.")
			return nil
		case !sleep(ctx, 100*time.Millisecond):
			return fmt.Errorf("the masters cannot be used: %w", err)
		}
	}
}

// lesson is the sentence that a newcomer should remember.
const lesson = "To take along: a lease keeps services apart until it ends. Only a store that checks the fencing token keeps out a later write."

// sell sells the stock under the lock, while masters fail, and then without the lock for contrast.
// It judges the run with the lock.
func (d *demo) sell(ctx context.Context, s *shop) error {
	sales := min(d.stock, d.attempts()) // under a lock the first attempts are the sales
	work := workload{stock: d.stock, workers: d.workers, rounds: d.rounds, services: s.services, steps: map[int]func(done int) error{
		sales * killAfter / 100:  func(done int) error { return d.fail(s, 1, "killed", masters.Master.Kill, done) },
		sales * pauseAfter / 100: func(done int) error { return d.fail(s, 3, "paused", masters.Master.Pause, done) },
	}}
	s.locked = work.run(ctx)
	if err := interrupted(ctx); err != nil {
		return fmt.Errorf("%w after %d of %d attempts", err, s.locked.done, s.locked.attempts)
	}
	s.ask()
	d.report(s)
	if s.locked.err == nil {
		for i := range s.services {
			s.services[i].lock = withoutLock
		}
		work.steps = nil
		s.unlocked = work.run(ctx)
		d.say("The same without the lock: %d sold of a stock of %d, %s.",
			s.unlocked.sold, d.stock, d.bad(fmt.Sprintf("oversold by %d", s.unlocked.oversold())))
	}
	if err := cmp.Or(interrupted(ctx), s.locked.verdict()); err != nil {
		return err
	}
	d.say("%s\n%s", d.good("All checks passed."), lesson)
	return nil
}

// fail makes a master fail, and says so.
func (d *demo) fail(s *shop, master int, how string, fault func(masters.Master) error, done int) error {
	s.fates[master] = fmt.Sprintf("%s after %d attempts", how, done)
	d.say("%d attempts done: %s is %s", done, s.masters[master].Addr(), how)
	return fault(s.masters[master])
}

// ask notes what the services have noticed of each master.
func (s *shop) ask() {
	for i := range s.fates {
		down, now, why := 0, "", error(nil)
		for _, one := range s.services {
			if seen := one.locker.Stats().Masters[i]; seen.Err != nil {
				down, now, why = down+1, seen.State.String(), seen.Err
				if dialed := (*net.OpError)(nil); errors.As(why, &dialed) {
					why = dialed.Err // its address is in the row already
				}
			}
		}
		told := noticedNothing
		if down > 0 {
			told = fmt.Sprintf("%s, found down by %d of %d services: %v", now, down, len(s.services), why)
		}
		s.told = append(s.told, told)
	}
}

const noticedNothing = "nothing"

// report prints the findings, and the fate of the masters.
func (d *demo) report(s *shop) {
	var rows []table.Row
	for _, x := range s.locked.findings() {
		mark := d.good("ok")
		if x.wrong {
			mark = d.bad("WRONG")
		}
		rows = append(rows, table.Row{x.name, x.got, mark})
	}
	rows = append(rows, table.Row{"wait for the lock, p50 / p99", s.locked.quantiles()},
		table.Row{"releases not confirmed in time", s.locked.unconfirmed},
		table.Row{"wall time of the run", short(s.locked.wall)})
	d.table(table.Row{"under the lock"}, rows)
	rows = nil
	for i, fate := range s.fates {
		if s.told[i] == noticedNothing && terminalOf(d.out) != nil {
			continue // a terminal of 24 lines has no room for the masters that are well
		}
		rows = append(rows, table.Row{s.masters[i].Addr(), fate, s.told[i]})
	}
	d.remarks(table.Row{"master", "in this run", "noticed by the services"}, rows, 2)
}

// interrupted returns an error if a signal has ended ctx.
func interrupted(ctx context.Context) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}
