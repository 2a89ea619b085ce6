package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/wire"
)

// lock is what the masters have of a lock. All commands show locks by it: as JSON, as a line, or as
// a row of a table. Tokens are cut off: with the whole token any user could release the lock.
type lock struct {
	name
	Waiting int           `json:"waiting,omitempty"` // processes
	Slot    int           `json:"slot,omitempty"`    // of a permit, with --permits
	Verdict admin.Verdict `json:"verdict"`
	Quorum  int           `json:"quorum"`

	Changing bool `json:"changing_hands,omitempty"` // from look to look other masters have the key, or have it of another holder

	Token   string      `json:"token,omitempty"`
	Owner   string      `json:"owner,omitempty"`
	Held    int64       `json:"held_ms,omitempty"` // for how long, about
	Fence   int64       `json:"fence,omitempty"`
	Free    *int64      `json:"free_in_ms,omitempty"` // for BROKEN, at the latest; negative: never by itself
	Readers []reader    `json:"readers,omitempty"`    // of SHARED
	Masters []masterKey `json:"masters"`

	freeIn time.Duration
}

type reader struct {
	Token     string `json:"token"`
	Owner     string `json:"owner,omitempty"`
	Held      int64  `json:"held_ms,omitempty"`
	TTLMillis int64  `json:"ttl_ms"`
}

// masterKey is what one master has of a lock.
type masterKey struct {
	Master          string `json:"master"`
	Key             string `json:"key"` // held, shared, free, broken, down or wrong type
	Readers         int    `json:"readers,omitempty"`
	Token           string `json:"token,omitempty"`
	Owner           string `json:"owner,omitempty"`
	Fence           int64  `json:"fence,omitempty"`  // the largest that it knows
	TTLMillis       *int64 `json:"ttl_ms,omitempty"` // -1: never expires
	QuarantineMilli int64  `json:"quarantine_ms,omitempty"`
	Vote            bool   `json:"vote"`
	NoVote          string `json:"no_vote,omitempty"` // why
	RoundTripMicros int64  `json:"round_trip_us,omitempty"`
	Error           string `json:"error,omitempty"`
}

func lockOf(in admin.Inspection) lock {
	l := lock{
		name: keyName(in.Resource), Waiting: in.Waiting, Verdict: in.Verdict, Quorum: in.Quorum, Token: wire.Printable(wire.Short(in.Token)), Owner: in.Owner, Held: in.HeldFor.Milliseconds(), Fence: in.Fence,
		freeIn: in.FreeIn(),
	}
	if in.Verdict == admin.VerdictBroken {
		l.Free = new(wholeMillis(l.freeIn))
	}
	for _, r := range in.Readers {
		l.Readers = append(l.Readers, reader{wire.Printable(wire.Short(r.Token)), r.Owner, r.HeldFor.Milliseconds(), r.TTL.Milliseconds()})
	}
	for _, n := range in.Masters {
		l.Masters = append(l.Masters, masterKeyOf(n))
	}
	return l
}

func masterKeyOf(n admin.MasterLock) masterKey {
	m := masterKey{
		Master: n.Master, Key: "free", Readers: n.ReaderKeys, Token: wire.Printable(wire.Short(n.Token)), Owner: n.Owner, Fence: n.Fence,
		QuarantineMilli: wholeMillis(n.Quarantine), Vote: n.Err == nil && n.NoVote == nil, RoundTripMicros: n.RoundTrip.Microseconds(),
	}
	switch {
	case n.Err != nil:
		m.Key, m.Error = "down", oneLine(n.Err)
		if redlock.Reason(n.Err) == "wrong_type" {
			m.Key = "wrong type"
		}
		return m
	case n.Broken:
		m.Key = "broken"
	case n.ReaderKeys > 0:
		m.Key = "shared"
	case n.Token != "":
		m.Key = "held"
	}
	if m.Key != "free" {
		m.TTLMillis = new(max(n.TTL.Milliseconds(), -1))
	}
	if n.NoVote != nil {
		m.NoVote = strings.TrimPrefix(oneLine(n.NoVote), "no vote: ")
	}
	return m
}

// wholeMillis rounds up.
func wholeMillis(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}

// holder describes who has the lock.
func (l *lock) holder() string {
	if owner := l.Owner; len(l.Readers) == 0 {
		for _, m := range l.Masters {
			if owner == "" && m.Owner != "" && l.Verdict == admin.VerdictUnknown && !l.Changing {
				owner = m.Owner + "?" // a master knows it, and no quorum confirms it
			}
		}
		return wire.Printable(owner)
	}
	var names []string
	for _, r := range l.Readers {
		names = append(names, wire.Printable(cmp.Or(r.Owner, r.Token)))
	}
	return counted(len(names), "reader") + ": " + strings.Join(names, ", ")
}

// owners returns the labels that any master knows.
func (l *lock) owners() (list []string) {
	for _, m := range l.Masters {
		list = append(list, m.Owner)
	}
	for _, r := range l.Readers {
		list = append(list, r.Owner)
	}
	return list
}

// line describes the lock on one line.
func (l *lock) line(o *output) string {
	line := fmt.Sprintf("%s: %s", wire.Printable(l.Key), o.verdict(l))
	switch holder := l.holder(); {
	case holder == "":
	case l.Verdict == admin.VerdictHeld || l.Verdict == admin.VerdictShared:
		line += " by " + holder
	case l.Verdict == admin.VerdictBroken:
		line += ", taken from " + holder
	default:
		line += ", owner " + holder
	}
	if l.Held > 0 {
		line += " for " + ageOf(l.Held)
	}
	if l.Token != "" {
		line += ", token " + l.Token
	}
	if l.Fence != 0 {
		line += fmt.Sprint(", fence ", l.Fence)
	}
	switch {
	case l.Verdict != admin.VerdictBroken:
	case l.freeIn < 0:
		line += ", never free by itself"
	default:
		line += fmt.Sprintf(", free in %s at the latest", lifeOf(l.freeIn))
	}
	return line
}

// verdict returns the word of a lock, in its colour.
func (o *output) verdict(l *lock) string {
	if l.Changing {
		return "changing hands"
	}
	switch l.Verdict {
	case admin.VerdictFree, admin.VerdictHeld, admin.VerdictShared:
		return o.good(l.Verdict.String())
	}
	return o.bad(l.Verdict.String())
}

// showLock shows one lock as text, as each master has it.
func (o *output) showLock(l *lock) {
	o.say("%s", l.line(o))
	if l.Waiting > 0 {
		fmt.Fprintln(o.out, counted(l.Waiting, "process"), "waiting")
	}
	var rows []table.Row
	for _, m := range l.Masters {
		holder, expires, remark := wire.Printable(m.Owner), "", m.Error
		if m.Readers > 0 {
			holder = counted(m.Readers, "reader")
		}
		if m.TTLMillis != nil {
			expires = lifeOf(time.Duration(*m.TTLMillis) * time.Millisecond)
		}
		if m.NoVote != "" {
			remark = "no vote: " + m.NoVote
		}
		rows = append(rows, table.Row{m.Master, m.Key, holder, expires, numberOf(m.Fence), m.Token, short(time.Duration(m.RoundTripMicros) * time.Microsecond), remark})
	}
	o.remarks(table.Row{"master", "key", "owner", "expires", "fence", "token", "round trip", "remark"}, rows, 4)
	rows = nil
	for _, r := range l.Readers {
		rows = append(rows, table.Row{r.Token, wire.Printable(r.Owner), ageOf(r.Held), lifeOf(time.Duration(r.TTLMillis) * time.Millisecond)})
	}
	o.table(table.Row{"reader", "owner", "held", "expires"}, rows)
}

// showLocks shows a table of locks.
func (o *output) showLocks(first string, locks []lock) {
	if len(locks) > 0 {
		width := 0
		if terminal := terminalOf(o.out); terminal != nil {
			width, _ = sizeOf(terminal)
		}
		fmt.Fprintln(o.out, strings.Join(o.lockTable(first, locks, width), "\n"))
	}
}

// lockTable returns the lines of a table of locks. Where it is too wide, the token is cut first.
// Other columns are left out from the right: a part of a number is another number. The first column
// has what the next four leave, and at least 12. The label of a holder is cut only by the end of a
// line, a list of readers before.
func (o *output) lockTable(first string, locks []lock, width int) []string {
	const least, leastToken, mostReaders = 12, 5, 32
	header := table.Row{first, "owner", "state", "expires", "held", "waiting", "fence", "token"}
	var rows []table.Row
	for _, l := range locks {
		holder := l.holder()
		if width > 0 && len(l.Readers) > 1 {
			holder = text.Snip(holder, mostReaders, "…")
		}
		row := table.Row{wire.Printable(l.Key), holder, o.verdict(&l), lifeOf(l.freeIn), ageOf(l.Held), numberOf(int64(l.Waiting)), numberOf(l.Fence), l.Token}
		if l.Slot > 0 {
			row[0] = fmt.Sprint(l.Slot)
		}
		rows = append(rows, row)
	}
	if width > 0 {
		snip := func(column, most int) {
			for _, row := range rows {
				row[column] = text.Snip(row[column].(string), most, "…")
			}
		}
		snip(0, max(width-widthOf(header, rows, 1, 5), least))
		if room := width - widthOf(header, rows, 0, 7); room >= leastToken {
			snip(7, room)
		}
		whole := len(header)
		for whole > 2 && widthOf(header, rows, 0, whole)-2 > width {
			whole--
		}
		header = header[:whole]
		for i := range rows {
			rows[i] = rows[i][:whole]
		}
	}
	return tableOf(header, rows, width, toTheRight(4), toTheRight(5), toTheRight(6))
}

// lifeOf returns how long a key lives, as text.
func lifeOf(d time.Duration) string {
	if d < 0 {
		return "never"
	}
	return short(d)
}

// ageOf returns for about how long a lock has been held, as text; "" for 0.
func ageOf(millis int64) string {
	if millis == 0 {
		return ""
	}
	return wire.Age(time.Duration(millis) * time.Millisecond)
}

// numberOf returns a number as text, "" for 0.
func numberOf(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
