package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/wire"
	"github.com/d0720281/redlock/semaphore"
)

const statusHelp = `Show the holders of locks, as each master has them.

  FREE         the lock is not held, and a quorum of masters has a vote
  HELD         a quorum of masters has the key of one holder
  SHARED       a quorum of masters has the key of at least one reader
  BROKEN       redlock break took the lock away; its holder has not ended yet
  MINORITY     fewer masters have the key: it is being set or dropped, or is
               left over
  SPLIT        masters have keys of several holders, none of them a quorum
  QUARANTINED  not held, and too few masters have a vote to grant it
  UNKNOWN      too few masters answered

With a master down, a lock that is taken and given back all the time is "changing hands".

The owner is the label that the holder has given itself: --owner of redlock run, WithOwner of the library. With a "?" it is what one master knows. A lock is held since the call of its holder, or since the holder adopted it, by the masters' clocks. The leader of an election is the owner of the lock with the election's name. The fence of a master is the largest fencing token that the master knows of. The fence of the lock is that of its holder. With --permits, the output has the slots of a semaphore that are not free.

The output can be out of date when it is shown. Use redlock run, not redlock status, for work that two processes must not do at the same time. Nothing is changed on the masters, except that a master that is seen for the first time gets its marker. So a master that is full and refuses locks is not found here: redlock doctor writes, and finds it.

Exit code: 0, or 69 if a verdict is UNKNOWN. With --exit-status also 75 if a lock or a slot is not free (HELD, SHARED, BROKEN, MINORITY or SPLIT), and 69 if one is QUARANTINED; 69 outweighs 75.`

// statusCommand is the status command: it shows who holds locks.
type statusCommand struct {
	asking
	exitStatus bool
	permits    int
}

func newStatus() *cobra.Command {
	var s statusCommand
	cmd := &cobra.Command{
		Use:   "status KEY... [flags]",
		Short: "Show who holds locks",
		Long:  statusHelp,
		Args:  wants(anyNumber, "which locks? give their KEYs"),
	}
	f := cmd.Flags()
	s.output.register(f)
	f.IntVar(&s.permits, "permits", 0, "show the slots of semaphores that have `K` permits")
	f.BoolVar(&s.exitStatus, "exit-status", false, "tell by the exit code whether the locks are free")
	return s.command(cmd, func(ctx context.Context, keys []string) error {
		if f.Changed("permits") {
			if err := checkNumber("permits", s.permits, semaphore.MaxPermits); err != nil {
				return err
			}
			for _, key := range keys {
				if _, err := semaphore.New(s.locker, key, s.permits); err != nil {
					return err
				}
			}
		}
		return s.run(ctx, keys)
	})
}

func (s *statusCommand) run(ctx context.Context, keys []string) error {
	var all []lock
	byKey := make([][]lock, len(keys))
	code := exitOK
	var mistake error
	for i, key := range keys {
		found, err := s.locks(ctx, key)
		if ctx.Err() != nil || err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
			return err
		}
		for _, l := range found {
			if c := s.codeOf(&l); c != exitOK && code != exitNoQuorum {
				code = c
			}
		}
		if err != nil && mistake == nil {
			if err = s.withoutQuorum(err); exitCode(err) == exitConfig {
				mistake = err
			}
		}
		byKey[i], all = found, append(all, found...)
	}
	err := s.show(all, func() {
		for i, found := range byKey {
			if s.permits > 0 {
				s.showPermits(keys[i], found)
			} else {
				s.showLock(&found[0])
			}
		}
	})
	switch {
	case err != nil || code == exitOK:
		return err
	case mistake != nil:
		return mistake
	}
	return exitError{code: code}
}

// locks returns what the masters have of a lock, or of each permit of a semaphore.
func (s *statusCommand) locks(ctx context.Context, key string) (all []lock, err error) {
	if s.permits == 0 {
		l, err := s.inspect(ctx, key)
		return []lock{l}, err
	}
	for i := 1; i <= s.permits; i++ {
		l, failed := s.inspect(ctx, fmt.Sprint(key, "~", i))
		if failed != nil && !errors.Is(failed, redlock.ErrNoQuorum) {
			return all, failed
		}
		l.Slot = i
		all, err = append(all, l), cmp.Or(err, failed) // one is enough to show
	}
	return all, err
}

// showPermits shows a semaphore as text.
func (s *statusCommand) showPermits(key string, permits []lock) {
	held := 0
	var taken []lock
	for _, l := range permits {
		if l.Verdict == admin.VerdictHeld {
			held++
		}
		if l.Verdict != admin.VerdictFree {
			taken = append(taken, l)
		}
	}
	fmt.Fprintf(s.out, "%s: %d of %d permits held\n", wire.Printable(key), held, s.permits)
	s.showLocks("slot", taken)
}

func (s *statusCommand) codeOf(l *lock) int {
	v := l.Verdict
	switch {
	case l.Changing && !s.exitStatus:
		return exitOK
	case l.Changing:
		return exitConflict
	case v == admin.VerdictUnknown, s.exitStatus && v == admin.VerdictQuarantined:
		return exitNoQuorum
	case s.exitStatus && v != admin.VerdictFree:
		return exitConflict
	}
	return exitOK
}

const listHelp = `List the locks under the key prefix: those of which some master has a key. With a PATTERN, list those whose KEYs match it: * stands for any text, and ? for one character. Quote it, as the shell knows these characters, too.

The words are those of redlock status. redlock looks for the keys on all masters, by SCAN, in small steps that delay no lock. The output can be out of date when it is shown. If there are no locks, the standard error says so.

Exit code: 0, or 69 if too few masters answered, so that locks may be missing.`

const listExamples = `  redlock list 'orders:*' --owner 'web-1:*'
  redlock list --limit 20`

// listCommand is the list command.
type listCommand struct {
	asking
	owner string
	limit int
}

func newList() *cobra.Command {
	var c listCommand
	cmd := &cobra.Command{Use: "list [PATTERN] [flags]", Short: "List locks and their holders", Long: listHelp, Example: listExamples, Args: func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return usagef("one PATTERN at most; quote it, so that the shell leaves it as it is (see redlock list --help)")
		case len(args) == 1 && args[0] == "":
			return usagef("the PATTERN is empty, as from a variable that is not set")
		}
		return nil
	}}
	f := cmd.Flags()
	f.StringVar(&c.owner, "owner", "*", "list the locks of holders whose label matches `PATTERN`")
	f.IntVar(&c.limit, "limit", 0, "list the first `n` locks, in the order of their KEYs")
	c.output.register(f)
	return c.command(cmd, func(ctx context.Context, patterns []string) error {
		if f.Changed("limit") {
			if err := checkNumber("limit", c.limit, math.MaxInt32); err != nil {
				return err
			}
		}
		return c.run(ctx, cmp.Or(strings.Join(patterns, ""), "*"), cmd.ErrOrStderr())
	})
}

func (c *listCommand) run(ctx context.Context, pattern string, stderr io.Writer) error {
	found, missing := c.list(ctx, matching(pattern))
	if ctx.Err() != nil || missing != nil && !errors.Is(missing, redlock.ErrNoQuorum) {
		return missing
	}
	if c.owner != "*" {
		match := matching(c.owner)
		found = slices.DeleteFunc(found, func(l lock) bool { return !slices.ContainsFunc(l.owners(), match) })
	}
	remark := ""
	switch more := len(found) - c.limit; {
	case len(found) == 0 && missing == nil:
		remark = "no locks"
	case c.limit > 0 && more > 0:
		found, remark = found[:c.limit], counted(more, "more lock")
	}
	if err := c.show(found, func() { c.showLocks("key", found) }); err != nil {
		return err
	}
	if remark != "" && c.format != "json" {
		fmt.Fprintln(stderr, remark)
	}
	return missing
}

// matching returns whether a text matches a pattern.
func matching(pattern string) func(text string) bool {
	words := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(characters(pattern)))
	whole := regexp.MustCompile("(?s)^" + words + "$")
	return func(text string) bool { return whole.MatchString(characters(text)) }
}

// characters returns a text in UTF-8: a byte that is none becomes a character for private use.
func characters(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		c, size := utf8.DecodeRuneInString(text)
		if c == utf8.RuneError && size == 1 {
			c = 0x10ff00 + rune(text[0])
		}
		b.WriteRune(c)
		text = text[size:]
	}
	return b.String()
}

// all matches each KEY.
func all(string) bool { return true }

const breakHelp = `Take the lock KEY away from its holder. Without --yes redlock only shows the holder.

Use it against a holder that lives and does not let go. The lock of a holder that has died ends by itself. On each master the holder's key is replaced by a placeholder, with the life that the key had left. So the holder cannot renew its lock, and loses it before another holder can have it; a redlock run then kills its command. A holder that lives is told, and gives the lock back when it has ended. Otherwise the lock is BROKEN until the placeholders expire, and then free. The placeholder of a key that never expires lives for --max-ttl.

Exit code: 0 if the lock was taken away or was free, 64 without --yes, and 69 if the lock could not be taken away on a quorum of masters: then the holder may go on.`

func newBreak() *cobra.Command {
	var a asking
	yes := false
	cmd := &cobra.Command{
		Use:     "break KEY --yes [flags]",
		Short:   "Take a lock away from its holder",
		Long:    breakHelp,
		Example: "  redlock break deploy --yes",
		Args:    wants(1, "which lock? give a KEY"),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	a.output.register(cmd.Flags())
	return a.command(cmd, func(ctx context.Context, keys []string) error {
		do := admin.Inspect
		if yes {
			do = admin.Break
		}
		in, err := do(ctx, a.locker, keys[0])
		if ctx.Err() != nil || err != nil && !errors.Is(err, redlock.ErrNoQuorum) {
			return err
		}
		broken := 0
		for _, n := range in.Masters {
			if n.Broken {
				broken++
			}
		}
		if yes && err == nil && broken > 0 {
			in.Verdict = admin.VerdictBroken // it was that of before
		}
		l := lockOf(in)
		if failed := a.show(l, func() { a.showLock(&l) }); failed != nil {
			return failed
		}
		switch {
		case !yes:
			return usagef("nothing was done: add --yes to take the lock away from its holder")
		case err != nil || a.format == "json":
			return err
		case broken == 0:
			fmt.Fprintln(a.out, "Nothing to take away.")
		default:
			fmt.Fprintf(a.out, "Taken away on %d of %d masters. Free in %s at the latest.\n", broken, len(in.Masters), lifeOf(l.freeIn))
		}
		return nil
	})
}
