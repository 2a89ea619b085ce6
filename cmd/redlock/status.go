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
			case cmd.Flags().Changed("permits") && (s.permits < 1 || s.permits > redlock.MaxPermits):
				return usagef("--permits %d: must be from 1 to %d", s.permits, redlock.MaxPermits)
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
		for _, in := range found {
			all = append(all, reportOf(in))
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

// inspect returns what the masters have of a lock, or of each slot of a semaphore.
func (s *statusCommand) inspect(ctx context.Context, locker *redlock.Locker, key string) ([]redlock.Inspection, error) {
	if s.permits > 0 {
		all, err := locker.Semaphore(key, s.permits).Inspect(ctx)
		return all.Slots, err
	}
	in, err := locker.Inspect(ctx, key)
	return []redlock.Inspection{in}, err
}

// showPermits shows a semaphore as text.
func (s *statusCommand) showPermits(key string, slots []redlock.Inspection) {
	held, behind := 0, 0
	var rows []table.Row
	for _, in := range slots {
		switch {
		case in.Verdict == redlock.VerdictFree:
			continue
		case in.Slot > s.permits:
			behind++
		case in.Verdict == redlock.VerdictHeld:
			held++
		}
		row := rowOfLock(in)
		row[0] = fmt.Sprint(in.Slot)
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

func (s *statusCommand) codeOf(v redlock.Verdict) int {
	switch {
	case v == redlock.VerdictUnknown, s.exitStatus && v == redlock.VerdictQuarantined:
		return exitNoQuorum
	case s.exitStatus && v != redlock.VerdictFree:
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
func (o *output) showLock(in redlock.Inspection) {
	word := in.Verdict.String()
	switch in.Verdict {
	case redlock.VerdictFree, redlock.VerdictHeld, redlock.VerdictShared:
		word = o.style.good(word)
	default:
		word = o.style.bad(word)
	}
	line := fmt.Sprintf("%s: %s", in.Resource, word)
	if in.Token != "" {
		line += ", token " + shortToken(in.Token)
	}
	if in.Verdict == redlock.VerdictShared {
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
func freeOf(in redlock.Inspection) string {
	switch left := in.FreeIn(); {
	case in.Verdict != redlock.VerdictBroken:
		return ""
	case left < 0:
		return "never free by itself"
	default:
		return fmt.Sprintf("free in %v at the latest", left.Round(time.Millisecond))
	}
}

// freeMillis is the same for JSON, in whole ms; negative for never.
func freeMillis(in redlock.Inspection) int64 {
	return int64(math.Ceil(float64(in.FreeIn()) / float64(time.Millisecond)))
}

func rowOf(n redlock.MasterLock) table.Row {
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
	if n.Void != nil {
		remark = "no vote: " + strings.TrimPrefix(oneLine(n.Void), "no vote: ")
	}
	if hasTTL(key) {
		ttl = "never"
		if n.TTL >= 0 {
			ttl = n.TTL.String()
		}
	}
	token := shortToken(n.Token)
	if n.Sharing > 0 {
		token = readersOf(n.Sharing)
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

func stateOf(n redlock.MasterLock) string {
	switch {
	case errors.Is(n.Err, redlock.ErrWrongType):
		return "wrong type"
	case n.Err != nil:
		return "down"
	case n.Broken:
		return keyBroken
	case n.Sharing > 0:
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
	Slot    int            `json:"slot,omitempty"` // of a permit
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

func reportOf(in redlock.Inspection) lockReport {
	r := lockReport{Key: in.Resource, Slot: in.Slot, Verdict: in.Verdict.String(), Quorum: in.Quorum, Token: shortToken(in.Token), Owner: in.Owner, Fence: in.Fence}
	if in.Verdict == redlock.VerdictBroken {
		free := freeMillis(in)
		r.Free = &free
	}
	for _, reader := range in.Readers {
		r.Readers = append(r.Readers, readerReport{shortToken(reader.Token), reader.Owner, reader.TTL.Milliseconds()})
	}
	for _, n := range in.Masters {
		s := masterStatus{
			Master: n.Master, Key: stateOf(n), Readers: n.Sharing, Token: shortToken(n.Token), Owner: n.Owner, Fence: n.Fence, Vote: n.Err == nil && n.Void == nil,
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
