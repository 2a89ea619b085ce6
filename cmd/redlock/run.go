package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// runName is the name of the run command.
const runName = "run"

const runHelp = `Hold the lock KEY while a command runs, and give it back afterwards. With several KEYs, hold all of them: redlock waits until it has all, and does not deadlock whatever their order. With --shared other readers can hold KEY at the same time, and a holder without --shared cannot. With --permits K, hold one of the K permits of the semaphore KEY, or --take n of them: at most K are held at the same time. All who use the semaphore should give the same K.

Without -- the first argument is KEY and the rest is the command, as with flock: the flags of redlock come before the command. Several KEYs need the --, also with -c, and where there is a --, all that is before it are KEYs and flags.

The lock is renewed as long as the command runs. If the renewals fail, redlock asks the command to end (--signal) when no more than --kill-after is left of the lock. Before the lock ends, it kills the command and its process group, so that no other process can hold the lock while the command runs. If the masters say that the lock is gone already, the command is killed at once. A renewal that succeeds after the command was asked to end changes nothing.

This works only while redlock itself runs. If redlock is stopped past the end of the lock (by SIGSTOP, or because a virtual machine is paused), another holder and the command can run at the same time. If a wrong write is unacceptable, the store must check the fencing token, in $REDLOCK_FENCE, at the write and at the read that the write is computed from.

The command runs in a process group of its own, in the foreground if the standard input is a terminal. SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 are forwarded to the group. While redlock waits for the lock, they end redlock. Ctrl-Z stops both redlock and the command: the lock is not renewed meanwhile, and a command that is continued too late is killed. When the command ends by itself, redlock does not wait for its background processes, and the lock no longer protects them. If a signal was forwarded, redlock ends what is left of the group, by --signal and --kill-after, before it releases the lock. If SIGPIPE ends it, as behind "| head", they are killed. redlock itself goes on when nothing reads its output. On Linux, killing redlock kills the command too, but neither the processes that the command has started, nor a set-user-ID program. As process 1 of a container redlock reaps orphans.

A job that a timer starts on several machines runs once for each due time with --every, in step on all machines (--every 5m: 03:00, 03:05 and so on), or with --due, a time of day in the machine's time zone or a whole time (2006-01-02T03:00:00Z). The masters keep a record of the run for --max-ttl. A machine that is more than half of that late, 5s by default, leaves the run out, and so does one that finds the lock held. As with -n, redlock does not wait for another holder. A job without a due time holds the lock for --at-least. If a signal ends redlock in that time, the lock is not released: it ends by itself, within the TTL.

The environment of the command has REDLOCK_KEY, REDLOCK_FENCE (a number that is larger for every later holder), REDLOCK_TTL_MS and REDLOCK_MODE (exclusive, shared or permit). With several KEYs it has REDLOCK_KEY_1 and REDLOCK_FENCE_1 for the first one, and so on. With --permits it has REDLOCK_SLOT, a number from 1 to K that no other holder has at the same time; REDLOCK_FENCE is larger for every later holder of that slot. With --take 2 or more it has REDLOCK_SLOT_1 and REDLOCK_FENCE_1, and so on. The masters' passwords are taken out of it: $REDLOCK_PASSWORD, $REDISCLI_AUTH, and $REDLOCK_MASTERS if a URL there has a user or a password. A command that calls redlock itself needs --pass-credentials.

Without -w and -n redlock waits for as long as it takes. With -n it does not wait for another holder, but for masters in quarantine, so that a job that is due once is not left out on all machines because masters restarted (--quarantine-wait). It writes errors only, and what it waits for: on a terminal the holder that is in its way, and everywhere masters that give no votes. -q leaves that out, -v tells more. A duration is 10s, 1m30s or 500ms, or a number of seconds.

Exit code: the command's own, or 128+n if signal n ended it, and otherwise

   64  wrong usage, the command was not run
   69  no quorum of masters
   75  another process has the lock, or has made the run, or it is late (-E)
   76  the lock was lost, the command ended
   78  masters or options that cannot work
  124  the command was ended by --at-most
  125  redlock itself failed
  126  the command cannot be run
  127  the command was not found
  128+n  signal n ended the waiting

If you know another command:

  flock         -n, -w, -E and -c are the same, and --shared is its -s
  consul lock   its -n 3 is --permits 3, -try 5s is -w 5s; a shell needs -c
  etcdctl lock  --ttl is the same; without a command it is redlock acquire`

const runExamples = `  redlock run nightly -n -- /usr/local/bin/backup --all
  redlock run nightly --due 03:00 -- /usr/local/bin/backup --all
  redlock run deploy -w 5m --result-file last.json -- make deploy
  redlock run price-list --shared -- ./report
  redlock run uploads --permits 4 -- ./upload
  redlock run accounts:7 accounts:12 -- ./transfer
  redlock run -n nightly /usr/local/bin/backup --all
  redlock run report --at-most 10m -n -E 0 -c 'gather | mail -s report ops'`

// run is the run command: a lock held while a command runs.
type run struct {
	connection
	taking
	conflict   int
	killAfter  time.Duration
	sigName    string
	sig        syscall.Signal
	every      time.Duration
	dueText    string
	ended      bool // by a signal
	atLeast    time.Duration
	atMost     time.Duration
	script     string
	resultFile string

	passCredentials bool // to the command

	argv   []string
	stderr io.Writer
	log    *slog.Logger
	rec    record
}

func newRun() *cobra.Command {
	var r run
	cmd := &cobra.Command{
		Use:                   "run KEY [flags] [--] command [args...]",
		Short:                 "Run a command while holding a lock",
		Long:                  runHelp,
		Example:               runExamples,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.stderr = cmd.ErrOrStderr()
			if err := r.parse(cmd, args); err != nil {
				return err
			}
			return r.main(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	r.taking.register(f)
	f.IntVarP(&r.conflict, "conflict-exit-code", "E", exitConflict, "exit code if another process holds the lock, or the wait is over")
	f.BoolVar(&r.shared, "shared", false, "share the lock with other readers, and keep writers out")
	f.IntVar(&r.permits, "permits", 0, "take permits of a semaphore that has `K` of them")
	f.IntVar(&r.take, "take", 1, "take `n` permits")
	r.registerTTL(f, "how long the lock outlives a redlock that died")
	f.VarP((*duration)(&r.killAfter), "kill-after", "k", "kill the command that long after it was asked to end, at most a third of the TTL; by default a fifth")
	f.StringVarP(&r.sigName, "signal", "s", "TERM", "signal that asks the command to end")
	f.Var((*duration)(&r.every), "every", "run the command once on all machines in each of these times")
	f.StringVar(&r.dueText, "due", "", "run the command once on all machines for this `time`: 03:00 or 2006-01-02T03:00:00Z")
	f.Var((*duration)(&r.atLeast), "at-least", "hold the lock at least that long, also if the command ends sooner; after a signal it ends by itself")
	f.Var((*duration)(&r.atMost), "at-most", "ask the command to end when it has run for that long")
	f.StringVarP(&r.script, "command", "c", "", "run `string` by "+cmp.Or(shell, "a shell (not here)")+" instead of a command")
	f.StringVar(&r.resultFile, "result-file", "", "write what happened to `file`, as JSON")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "log on the standard error")
	f.BoolVar(&r.passCredentials, "pass-credentials", false, "leave the masters' password in the environment of the command")
	r.connection.register(f)
	return cmd
}

// parse checks flags and arguments.
func (r *run) parse(cmd *cobra.Command, args []string) (err error) {
	f := cmd.Flags()
	keys := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		keys, r.argv = args[:dash], args[dash:]
	}
	switch {
	case len(keys) == 0:
		return usagef("which lock? give its KEY (see redlock run --help)")
	case r.shared && len(keys) > 1:
		return usagef("--shared takes one KEY")
	case f.Changed("permits") && len(keys) > 1:
		return usagef("--permits takes one KEY")
	case f.Changed("permits") && r.shared:
		return usagef("--permits and --shared contradict each other")
	case f.Changed("take") && !f.Changed("permits"):
		return usagef("--take: of which number? give --permits, too")
	case f.Changed("command") && len(r.argv) > 0:
		return usagef("give a command or -c, not both")
	case f.Changed("command") && shell == "":
		return usagef("-c: there is no shell to rely on here")
	case !f.Changed("command") && len(r.argv) == 0:
		return usagef("which command? give it after the KEY, or after -- (see redlock run --help)")
	case r.conflict < 0 || r.conflict > 255:
		return usagef("--conflict-exit-code %d: must be from 0 to 255", r.conflict)
	case r.atMost > 0 && r.atMost < r.atLeast:
		return usagef("--at-most %v: must not be less than --at-least %v", r.atMost, r.atLeast)
	case f.Changed("at-most") && r.atMost == 0:
		return usagef("--at-most 0: leaves the command no time")
	case f.Changed("every") && r.dueText != "":
		return usagef("--every and --due contradict each other")
	case f.Changed("every") && r.every == 0:
		return usagef("--every 0: no time is due")
	case (f.Changed("every") || r.dueText != "") && (len(keys) > 1 || r.shared || f.Changed("permits") || r.wait > 0):
		return usagef("--every and --due take one KEY, without --shared, --permits and --wait")
	}
	switch now := time.Now(); {
	case r.dueText != "":
		r.due, err = dueAt(r.dueText, now)
	case r.every > 0:
		r.due = jobs.Due(jobs.Every(r.every), now)
	}
	if err != nil {
		return err
	}
	if f.Changed("permits") {
		err := cmp.Or(checkNumber("permits", r.permits, semaphore.MaxPermits), checkNumber("take", r.take, min(r.permits, several.MaxNames)))
		if err != nil {
			return err
		}
	}
	r.keys = keys
	if f.Changed("command") {
		r.argv = []string{shell, "-c", r.script}
	}
	if err := r.check(r.maxTTL); err != nil {
		return err
	}
	if !f.Changed("kill-after") {
		r.killAfter = r.ttl / 5
	}
	if most := r.ttl / 3; r.killAfter > most {
		return usagef("--kill-after %v: must be at most %v, a third of the TTL: the lock has to last until then", r.killAfter, most)
	}
	if r.sig, err = parseSignal(r.sigName); err != nil {
		return usagef("--signal: %w", err)
	}
	return nil
}

// main runs the command under the lock, and always writes the result file.
func (r *run) main(ctx context.Context) error {
	surviveOutput()
	file, err := openRecord(r.resultFile)
	if err != nil {
		return exitf(exitBroken, "%s: --result-file: %w", r.names(), err)
	}
	var flush func()
	r.log, flush = r.newLog(r.stderr)
	defer flush()
	r.rec = record{Outcome: outcomeError, TTLMillis: r.ttl.Milliseconds(), Asked: time.Now()}
	for _, k := range r.keys {
		r.rec.Locks = append(r.rec.Locks, lockRecord{name: keyName(k)})
	}
	err = r.hold(ctx)
	r.rec.ExitCode = exitCode(err)
	if !isSilent(err) {
		r.rec.Error = oneLine(err)
	}
	if werr := file.write(&r.rec); werr != nil {
		werr = exitf(exitBroken, "%s: --result-file: %w", r.names(), werr)
		if err == nil {
			return werr
		}
		fmt.Fprintln(r.stderr, "redlock:", oneLine(werr))
	}
	return err
}

// hold takes the lock and runs the command.
func (r *run) hold(ctx context.Context) (err error) {
	cmd, err := findCommand(r.argv)
	if at := slices.Index(r.argv, "-c"); exitCode(err) == exitNotFound && at > 0 {
		return exitf(exitNotFound, "%w; for several KEYs and -c write: redlock run %s -c 'command' --", err, strings.Join(slices.Concat(r.keys, r.argv[:at]), " "))
	}
	if err != nil {
		return err
	}
	logger := r.logger(r.stderr)
	if r.verbose {
		logger = r.log
	}
	locker, err := r.open(redlock.WithTTL(r.ttl), r.ownedBy(os.Getpid(), filepath.Base(r.argv[0])), redlock.WithLogger(logger))
	switch {
	case errors.Is(err, errNoMasters) && slices.ContainsFunc(r.argv, isMastersFlag):
		return usagef("which masters? --masters is an argument of the command there: write redlock run --masters URLs %s -- %s", strings.Join(r.keys, " "), r.argv[0])
	case err != nil:
		return err
	}
	defer func() {
		if cerr := locker.Close(); cerr != nil {
			r.log.Warn("close", "error", cerr)
		}
	}()
	signals := make(chan os.Signal, 64)
	listen(signals, forwarded)
	defer signal.Stop(signals)
	lease, err := r.acquire(ctx, locker, signals)
	if err != nil {
		return err
	}
	r.rec.Acquired = time.Now()
	r.rec.Locks = r.holdings(lease)
	for _, l := range r.rec.Locks {
		r.log.Info("holding the lock", "key", l.Key, "fence", l.Fence, "waited", r.rec.Acquired.Sub(r.rec.Asked), "valid for", lease.Validity())
	}
	err = r.protect(lease, cmd, signals)
	if left := r.atLeast - time.Since(r.rec.Acquired); left > 0 && r.rec.Command != nil && exitCode(err) != exitLost && (r.ended || r.linger(lease, left, signals)) {
		r.leave(lease)
		return err
	}
	r.giveBack(lease)
	return err
}

// dueAt returns the time that --due means: a whole time, or a time of day, of which the one next to now is due.
func dueAt(text string, now time.Time) (due time.Time, err error) {
	if due, err = time.Parse(time.RFC3339, text); err == nil {
		return due, nil
	}
	clock, err := time.Parse("15:04", text)
	if err != nil {
		return due, usagef("--due %q: must be a time of day such as 03:00, or a time such as 2006-01-02T03:00:00Z", text)
	}
	for day := -1; day <= 1; day++ {
		at := time.Date(now.Year(), now.Month(), now.Day()+day, clock.Hour(), clock.Minute(), 0, 0, now.Location())
		if due.IsZero() || at.Sub(now).Abs() < due.Sub(now).Abs() {
			due = at
		}
	}
	return due, nil
}

// listen has signals sent to a channel, except for those that are ignored, for example because
// of nohup: the command must ignore them, too.
func listen(signals chan<- os.Signal, list []os.Signal) {
	for _, sig := range list {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
}

func isMastersFlag(arg string) bool {
	return arg == "--masters" || strings.HasPrefix(arg, "--masters=")
}

// acquire takes the lock. Its error has the exit code with which to give up.
func (r *run) acquire(ctx context.Context, locker *redlock.Locker, signals <-chan os.Signal) (lease held, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.once() {
		r.log.Info("trying once, without waiting for another holder", "keys", r.keys)
	}
	got := make(chan struct{})
	go func() {
		defer close(got)
		lease, err = r.get(ctx, locker, r.stderr)
	}()
	select {
	case <-got:
	case sig := <-signals:
		cancel()
		<-got // Close releases a lock that was acquired meanwhile
		r.rec.Outcome = outcomeSignal
		r.log.Info("a signal has ended the waiting", "signal", sig)
		return nil, exitError{code: exitSignalled + int(sig.(syscall.Signal))}
	}
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, redlock.ErrConfig):
		return nil, exitError{exitUsage, err} // only KEY has not been checked before
	case isNoQuorum(err):
		err = r.withoutQuorum(err)
		if exitCode(err) == exitNoQuorum {
			r.rec.Outcome = outcomeNoQuorum
		}
		return nil, err
	case errors.Is(err, jobs.ErrLate):
		r.rec.Outcome = outcomeLate
		return nil, exitf(r.conflict, "%s: %w", r.names(), err)
	case errors.Is(err, redlock.ErrNotAcquired):
		r.rec.Outcome = outcomeConflict
		r.rec.Error = oneLine(err)
		r.log.Info("not acquired", "error", err)
		return nil, exitError{code: r.conflict}
	}
	return nil, exitError{exitBroken, err}
}

// protect runs the command under the lease. Its error has the exit code.
func (r *run) protect(lease held, cmd *exec.Cmd, signals chan os.Signal) error {
	cmd.Env = r.environment(lease)
	listen(signals, jobSignals)
	began := time.Now()
	child, err := startChild(cmd, openTerminal(os.Stdin))
	if err != nil {
		return err
	}
	ignoreTTOU()
	r.log.Info("started the command", "pid", cmd.Process.Pid)
	pid := cmd.Process.Pid
	w := &watchdog{
		child: child, lease: lease, signals: signals, sig: r.sig, killAfter: r.killAfter,
		lead: killLead(r.ttl), atMost: r.atMost, log: r.log, began: began,
	}
	w.run()
	r.ended = w.ended
	r.rec.ValidUntil = time.Now().Add(lease.Validity())
	r.rec.Command = &commandRecord{Pid: pid, Started: began, Ended: child.status.ended, ExitCode: child.status.code}
	if s := child.status.signal; s != 0 {
		r.rec.Command.Signal = signalName(s)
	}
	r.log.Info("the command has ended", "code", child.status.code)
	switch {
	case w.why == lost || lease.Context().Err() != nil: // the watchdog may not have seen the end of the lease in time
		r.rec.Outcome = outcomeLost
		select { // the cause has what the masters answered to the last renewal
		case <-lease.Context().Done():
		case <-time.After(w.lead): // a renewal has succeeded since
		}
		return exitf(exitLost, "%s: the lock was lost while the command ran: %w", r.names(), cmp.Or(context.Cause(lease.Context()), errNotRenewed))
	case w.why == timedOut:
		r.rec.Outcome = outcomeTimedOut
		return exitError{code: exitTimedOut}
	}
	r.rec.Outcome = outcomeDone
	if child.status.code == exitOK {
		return nil
	}
	return exitError{code: child.status.code}
}

var errNotRenewed = errors.New("it could not be renewed in time")

// linger holds the lock until --at-least is over. It reports whether a signal has ended that.
func (r *run) linger(lease held, left time.Duration, signals <-chan os.Signal) (ended bool) {
	r.log.Info("holding the lock on", "for", left)
	timer := time.NewTimer(left)
	defer timer.Stop()
	for {
		select {
		case sig := <-signals:
			if slices.Contains(endSignals, sig) {
				return true
			}
		case <-timer.C:
			return false
		case <-lease.Context().Done():
			r.log.Warn("the lock was lost when the command had ended", "cause", context.Cause(lease.Context()))
			return false
		}
	}
}

// leave leaves the lock on the masters, where it ends by itself.
func (r *run) leave(lease held) {
	for _, part := range lease.Parts() {
		if _, err := part.Detach(); err != nil {
			r.log.Warn("leave", "error", err)
		}
	}
	r.log.Info("left the lock to end by itself", "within", r.ttl)
}

// giveBack releases the lock. Keys whose release is not confirmed expire with the TTL.
func (r *run) giveBack(lease held) {
	err := lease.Unlock(context.Background())
	r.rec.Released = err == nil
	if err != nil {
		r.log.Warn("release", "error", err)
		return
	}
	r.log.Info("released")
}
