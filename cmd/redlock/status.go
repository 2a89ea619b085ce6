package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/sharded"
)

const statusHelp = `Show the holders of locks, as each master has them.

  FREE         the lock is not held, and could be granted
  HELD         a quorum of masters has the key of one holder
  SHARED       a quorum of masters has the key of at least one reader
  BROKEN       redlock break took the lock away, and its holder has not given it back yet
  MINORITY     fewer masters have the key: it is being set or dropped, or is left over
  SPLIT        masters have keys of several holders, none of them a quorum
  QUARANTINED  not held, and too few masters have a vote to grant it
  UNKNOWN      too few masters answered

The owner is the label that the holder has given itself: --owner of redlock run, WithOwner of
the library.

The fence of a master is the largest fencing token that the master knows of. The fence of the
lock is that of its holder.

The output can be out of date when it is shown. Use redlock run, not redlock status, for work
that two processes must not do at the same time. Nothing is changed on the masters, except that
a master that is seen for the first time gets its marker.

With --permits, the output has the slots of a semaphore that are not free.

Exit code: 0, or 69 if a verdict is UNKNOWN. With --exit-status also 75 if a lock or a slot is not
free (HELD, SHARED, BROKEN, MINORITY or SPLIT), and 69 if one is QUARANTINED; 69 outweighs 75.`

// statusCommand is the status command: it shows who holds locks.
type statusCommand struct {
	connection
	output
	exitStatus bool
	permits    int
}

func newStatus() *cobra.Command {
	var s statusCommand
	cmd := &cobra.Command{
		Use:                   "status KEY... [flags]",
		Short:                 "Show who holds locks",
		Long:                  statusHelp,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, keys []string) error {
			switch {
			case len(keys) == 0:
				return usagef("which locks? give their KEYs (see redlock status --help)")
			case cmd.Flags().Changed("permits") && (s.permits < 1 || s.permits > semaphore.MaxPermits):
				return usagef("--permits %d: must be from 1 to %d", s.permits, semaphore.MaxPermits)
			}
			return s.run(cmd, keys)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	s.output.register(f)
	f.IntVar(&s.permits, "permits", 0, "show the slots of semaphores that have `K` permits")
	f.BoolVar(&s.exitStatus, "exit-status", false, "tell by the exit code whether the locks are free")
	s.connection.register(f)
	return cmd
}

func (s *statusCommand) run(cmd *cobra.Command, keys []string) (err error) {
	if err := s.output.open(cmd); err != nil {
		return err
	}
	locker, err := s.connection.open(redlock.WithLogger(nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	ctx, stop := interruptible(cmd)
	defer stop()
	var all []lockReport
	code := exitOK
	for _, key := range keys {
		found, err := s.inspect(ctx, locker, key)
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case errors.Is(err, redlock.ErrConfig):
			return usageError{err}
		case err != nil && !errors.Is(err, redlock.ErrNoQuorum):
			return err
		}
		for i, in := range found {
			report := reportOf(in)
			if s.permits > 0 {
				report.Slot = i + 1
			}
			all = append(all, report)
			code = worse(code, s.codeOf(in.Verdict))
		}
		if s.format == "text" && s.permits > 0 {
			s.showPermits(key, found)
		} else if s.format == "text" {
			s.showLock(found[0])
		}
	}
	if _, err := s.json(all); err != nil {
		return err
	}
	if code != exitOK {
		return exitError{code: code}
	}
	return nil
}

// inspect returns what the masters have of a lock, or of each permit of a semaphore: its own, and those
// behind them that clients with more permits hold.
func (s *statusCommand) inspect(ctx context.Context, locker *sharded.Locker, key string) (all []admin.Inspection, err error) {
	if s.permits == 0 {
		in, err := inspect(ctx, locker, key)
		return []admin.Inspection{in}, err
	}
	for i := 1; i <= semaphore.MaxPermits; i++ {
		in, failed := inspect(ctx, locker, fmt.Sprint(key, "/", i))
		if failed != nil && !errors.Is(failed, redlock.ErrNoQuorum) {
			return all, failed
		}
		if i > s.permits && (failed != nil || in.Verdict == admin.VerdictFree) {
			break
		}
		all, err = append(all, in), errors.Join(err, failed)
	}
	return all, err
}

// showPermits shows a semaphore as text.
func (s *statusCommand) showPermits(key string, permits []admin.Inspection) {
	held, behind := 0, 0
	var rows []table.Row
	for i, in := range permits {
		switch {
		case in.Verdict == admin.VerdictFree:
			continue
		case i >= s.permits:
			behind++
		case in.Verdict == admin.VerdictHeld:
			held++
		}
		row := rowOfLock(in)
		row[0] = fmt.Sprint(i + 1)
		rows = append(rows, row)
	}
	fmt.Fprintf(s.out, "%s: %d of %d permits held", key, held, s.permits)
	if behind > 0 {
		fmt.Fprintf(s.out, ", %d more by clients with more permits", behind)
	}
	fmt.Fprintln(s.out)
	if len(rows) > 0 {
		s.table(table.Row{"slot", "verdict", "token", "fence", "expires in", "owner"}, rows)
	}
}

func (s *statusCommand) codeOf(v admin.Verdict) int {
	switch {
	case v == admin.VerdictUnknown, s.exitStatus && v == admin.VerdictQuarantined:
		return exitNoQuorum
	case s.exitStatus && v != admin.VerdictFree:
		return exitConflict
	}
	return exitOK
}

// worse returns the exit code for two locks.
func worse(a, b int) int {
	switch {
	case a == exitNoQuorum || b == exitNoQuorum:
		return exitNoQuorum
	case a == exitOK:
		return b
	}
	return a
}

// showLock shows one lock as text.
func (o *output) showLock(in admin.Inspection) {
	word := in.Verdict.String()
	switch in.Verdict {
	case admin.VerdictFree, admin.VerdictHeld, admin.VerdictShared:
		word = o.style.good(word)
	default:
		word = o.style.bad(word)
	}
	line := fmt.Sprintf("%s: %s", in.Resource, word)
	if in.Token != "" {
		line += ", token " + shortToken(in.Token)
	}
	if in.Verdict == admin.VerdictShared {
		line += ", " + readersOf(len(in.Readers))
	}
	if in.Fence != 0 {
		line += fmt.Sprint(", fence ", in.Fence)
	}
	if in.Owner != "" {
		line += ", owner " + in.Owner
	}
	if free := freeOf(in); free != "" {
		line += ", " + free
	}
	fmt.Fprintln(o.out, line)
	if in.Waiting > 0 {
		fmt.Fprintln(o.out, counted(in.Waiting, "process"), "waiting")
	}
	var rows []table.Row
	for _, n := range in.Masters {
		rows = append(rows, rowOf(n))
	}
	o.table(table.Row{"master", "key", "token", "owner", "fence", "expires in", "round trip", "remark"}, rows)
	rows = nil
	for _, r := range in.Readers {
		rows = append(rows, table.Row{shortToken(r.Token), r.Owner, r.TTL.String()})
	}
	if len(rows) > 0 {
		o.table(table.Row{"reader", "owner", "expires in"}, rows)
	}
}

// readersOf returns a number of readers as text.
func readersOf(n int) string {
	if n == 1 {
		return "1 reader"
	}
	return fmt.Sprint(n, " readers")
}

// freeOf says when a broken lock is free; for other locks it returns "".
func freeOf(in admin.Inspection) string {
	switch left := in.FreeIn(); {
	case in.Verdict != admin.VerdictBroken:
		return ""
	case left < 0:
		return "never free by itself"
	default:
		return fmt.Sprintf("free in %v at the latest", left.Round(time.Millisecond))
	}
}

// freeMillis is the same for JSON, in whole ms; negative for never.
func freeMillis(in admin.Inspection) int64 {
	return int64(math.Ceil(float64(in.FreeIn()) / float64(time.Millisecond)))
}

func rowOf(n admin.MasterLock) table.Row {
	key, fence, ttl, trip, remark := stateOf(n), "", "", "", ""
	if n.Err != nil {
		remark = oneLine(n.Err)
	}
	if n.RoundTrip > 0 {
		trip = short(n.RoundTrip)
	}
	if n.Fence != 0 {
		fence = fmt.Sprint(n.Fence)
	}
	if n.NoVote != nil {
		remark = "no vote: " + strings.TrimPrefix(oneLine(n.NoVote), "no vote: ")
	}
	if hasTTL(key) {
		ttl = "never"
		if n.TTL >= 0 {
			ttl = n.TTL.String()
		}
	}
	token := shortToken(n.Token)
	if n.ReaderKeys > 0 {
		token = readersOf(n.ReaderKeys)
	}
	return table.Row{n.Master, key, token, n.Owner, fence, ttl, trip, remark}
}

// The states of a key on a master.
const (
	keyHeld   = "held"
	keyShared = "shared"
	keyBroken = "broken"
)

// hasTTL reports whether there is a key in a state.
func hasTTL(state string) bool { return state == keyHeld || state == keyShared || state == keyBroken }

func stateOf(n admin.MasterLock) string {
	switch {
	case redlock.Reason(n.Err) == "wrong_type":
		return "wrong type"
	case n.Err != nil:
		return "down"
	case n.Broken:
		return keyBroken
	case n.ReaderKeys > 0:
		return keyShared
	case n.Token != "":
		return keyHeld
	}
	return "free"
}

// shortToken returns enough of a token to tell it from others. With the whole token any user
// could release the lock.
func shortToken(token string) string { return token[:min(len(token), 8)] }

// lockReport is a lock in JSON.
type lockReport struct {
	Key     string         `json:"key"`
	Waiting int            `json:"waiting,omitempty"` // processes
	Slot    int            `json:"slot,omitempty"`    // of a permit, with --permits
	Verdict string         `json:"verdict"`
	Quorum  int            `json:"quorum"`
	Token   string         `json:"token,omitempty"` // its beginning
	Owner   string         `json:"owner,omitempty"`
	Fence   int64          `json:"fence,omitempty"`
	Free    *int64         `json:"free_in_ms,omitempty"` // for BROKEN, at the latest; negative: never by itself
	Readers []readerReport `json:"readers,omitempty"`    // of SHARED
	Masters []masterStatus `json:"masters"`
}

type readerReport struct {
	Token     string `json:"token"` // its beginning
	Owner     string `json:"owner,omitempty"`
	TTLMillis int64  `json:"ttl_ms"`
}

type masterStatus struct {
	Master          string `json:"master"`
	Key             string `json:"key"` // held, shared, free, broken, down or wrong type
	Readers         int    `json:"readers,omitempty"`
	Token           string `json:"token,omitempty"`
	Owner           string `json:"owner,omitempty"`
	Fence           int64  `json:"fence,omitempty"`  // the largest that it knows
	TTLMillis       *int64 `json:"ttl_ms,omitempty"` // -1: never expires
	QuarantineMilli int64  `json:"quarantine_ms,omitempty"`
	Vote            bool   `json:"vote"`
	RoundTripMicros int64  `json:"round_trip_us,omitempty"`
	Error           string `json:"error,omitempty"`
}

func reportOf(in admin.Inspection) lockReport {
	r := lockReport{Key: in.Resource, Verdict: in.Verdict.String(), Quorum: in.Quorum, Token: shortToken(in.Token), Owner: in.Owner, Fence: in.Fence, Waiting: in.Waiting}
	if in.Verdict == admin.VerdictBroken {
		free := freeMillis(in)
		r.Free = &free
	}
	for _, reader := range in.Readers {
		r.Readers = append(r.Readers, readerReport{shortToken(reader.Token), reader.Owner, reader.TTL.Milliseconds()})
	}
	for _, n := range in.Masters {
		s := masterStatus{
			Master: n.Master, Key: stateOf(n), Readers: n.ReaderKeys, Token: shortToken(n.Token), Owner: n.Owner, Fence: n.Fence, Vote: n.Err == nil && n.NoVote == nil,
			QuarantineMilli: int64(math.Ceil(float64(n.Quarantine) / float64(time.Millisecond))), RoundTripMicros: n.RoundTrip.Microseconds(),
		}
		if hasTTL(s.Key) {
			ttl := max(n.TTL.Milliseconds(), -1)
			s.TTLMillis = &ttl
		}
		if n.Err != nil {
			s.Error = oneLine(n.Err)
		}
		r.Masters = append(r.Masters, s)
	}
	return r
}
