package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/wire"
)

const topHelp = `Show the masters and all locks under the key prefix, until q or a signal ends it.

For each master: how long it took to answer, whether it has a vote, and how long its quarantine lasts. For each lock: the label of its holder, its state in the words of redlock status, when its keys expire unless they are renewed, and how many processes wait for it; then fencing token and token. If the terminal is too narrow, the token is shortened, and what then has no room is left out: redlock status shows all.

` + keysHelp + `
If the output is no terminal, one picture is written, with all locks and without colours.

redlock looks for the locks by SCAN, as redlock list does, so with very many locks ask less often. As redlock doctor does, it writes a key of its own on each master, which lives for a second. Nothing else is changed on the masters, except that a master that is seen for the first time gets its marker.

Exit code: 0, or 69 if the output is no terminal and too few masters have a vote.`

const watchHelp = `Show some locks, until q or a signal ends it. On a terminal it is redlock top for these KEYs, whether they are held or not, without a line for each master.

` + keysHelp + `
If the output is no terminal, and with -o json, a line is written at the beginning and for each change: of the verdict, the holder's token, or the fencing token. What comes and goes within an interval is not seen, and nothing should be decided by it: by the time it is shown it can have changed.

Exit code: 0 when q or a signal has ended it.`

const keysHelp = `  space, r   ask now         up, down, k, j, page up, page down   scroll
  + and -    ask more often, or less often
  w          the locks that most processes wait for come first
  q          end
`

const leastInterval = 100 * time.Millisecond

// live is the commands top and watch, which show locks again and again.
type live struct {
	asking
	name     string
	keys     []string // of watch
	interval time.Duration

	seen   snapshot
	offset int  // locks above the first that is shown
	byWait bool // order of the locks
}

// snapshot has the data of a picture.
type snapshot struct {
	at      time.Time // zero before the first one
	report  admin.Report
	found   error
	locks   []lock
	missing error
}

func newTop() *cobra.Command {
	t := live{name: "redlock top", interval: 2 * time.Second}
	cmd := &cobra.Command{Use: "top [flags]", Short: "Show masters, locks, holders and waiters, live", Long: topHelp, Args: noArgs}
	return t.command(cmd, t.once)
}

func newWatch() *cobra.Command {
	w := live{name: "redlock watch", interval: time.Second}
	cmd := &cobra.Command{
		Use:     "watch KEY... [flags]",
		Short:   "Show who holds locks, live or as a line for each change",
		Long:    watchHelp,
		Example: "  redlock watch deploy nightly\n  redlock watch deploy -o json >>deploy.log",
		Args:    wants(anyNumber, "which locks? give their KEYs"),
	}
	w.output.register(cmd.Flags())
	return w.command(cmd, w.changes)
}

// command completes a command that shows pictures on a terminal, and without one runs plain.
func (t *live) command(cmd *cobra.Command, plain func(context.Context) error) *cobra.Command {
	cmd.Flags().Var((*duration)(&t.interval), "interval", "how often to ask the masters")
	return t.asking.command(cmd, func(ctx context.Context, keys []string) error {
		if t.interval < leastInterval {
			return usagef("--interval %v: must be at least %v", t.interval, leastInterval)
		}
		for _, key := range keys {
			if err := inside.Of(t.locker).CheckResource("Inspect", key); err != nil {
				return err
			}
		}
		t.keys = keys
		if terminal := terminalOf(t.out); terminal != nil && t.format != "json" {
			return t.draw(ctx, terminal)
		}
		return plain(ctx)
	})
}

// once writes one picture.
func (t *live) once(ctx context.Context) error {
	t.seen = t.look(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintln(t.out, strings.Join(append(t.head(0), t.lockTable("key", t.seen.locks, 0)...), "\n"))
	if errors.Is(t.seen.found, redlock.ErrNoQuorum) {
		return exitError{code: exitNoQuorum}
	}
	return nil
}

// changes writes a line for each change, until ctx ends.
func (t *live) changes(ctx context.Context) error {
	type state struct {
		verdict admin.Verdict
		token   string
		fence   int64
		readers int
	}
	last := make(map[string]state)
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for {
		locks, _ := t.locks(ctx)
		if ctx.Err() != nil {
			return nil
		}
		now := time.Now()
		for _, l := range locks {
			s := state{l.Verdict, l.Token, l.Fence, len(l.Readers)}
			if before, known := last[l.Key]; known && before == s {
				continue
			}
			last[l.Key] = s
			var err error
			if t.format == "json" {
				err = writeJSON(t.out, changedLock{now, l}, "")
			} else {
				_, err = fmt.Fprintln(t.out, now.Format("2006-01-02T15:04:05.000Z07:00"), l.line(&t.output))
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// changedLock is a change in JSON.
type changedLock struct {
	Time time.Time `json:"time"`
	lock
}

// locks asks for the locks of watch, or for all, and returns why some may be missing.
func (t *live) locks(ctx context.Context) (found []lock, missing error) {
	if len(t.keys) == 0 {
		return t.list(ctx, all)
	}
	for _, key := range t.keys {
		l, _ := t.inspect(ctx, key) // an error is a verdict, too
		found = append(found, l)
	}
	return found, nil
}

// look asks the masters for a picture.
func (t *live) look(ctx context.Context) (s snapshot) {
	s.at = time.Now()
	s.report, s.found = admin.Check(ctx, t.locker)
	s.locks, s.missing = t.locks(ctx)
	return s
}

// Control sequences of terminals.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // and hides the cursor
	firstScreen = "\x1b[?25h\x1b[?1049l"
	toTheTop    = "\x1b[H"
	toLineEnd   = "\x1b[K"
	toScreenEnd = "\x1b[J"
)

// draw shows pictures on a terminal until the user ends it.
func (t *live) draw(ctx context.Context, terminal *os.File) error {
	keys := make(chan string)
	if stdin := int(os.Stdin.Fd()); term.IsTerminal(stdin) {
		before, err := term.MakeRaw(stdin)
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(stdin, before) }()
		go readKeys(os.Stdin, keys)
	}
	if _, err := io.WriteString(terminal, otherScreen); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(terminal, firstScreen) }()
	ctx, cancel := context.WithCancel(ctx)
	looks := make(chan snapshot, 1)
	looking := false
	ask := func() {
		if !looking {
			looking = true
			go func() { looks <- t.look(ctx) }()
		}
	}
	defer func() {
		if cancel(); looking {
			<-looks // which asks by the Locker
		}
	}()
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for ask(); ; {
		width, height := sizeOf(terminal)
		picture := strings.Join(t.picture(width-1, height), toLineEnd+"\r\n") // in the last column some terminals wrap
		if _, err := io.WriteString(terminal, toTheTop+picture+toLineEnd+toScreenEnd); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			ask()
		case t.seen = <-looks:
			looking = false
		case key := <-keys:
			switch key {
			case "q", "\x03": // Ctrl-C is no signal in the raw mode
				return nil
			case " ", "r":
				ask()
			default:
				t.press(key, width-1, height)
				tick.Reset(t.interval)
			}
		}
	}
}

// readKeys sends what the user types. It ends with the process.
func readKeys(in io.Reader, keys chan<- string) {
	buf := make([]byte, 64)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		for typed := string(buf[:n]); typed != ""; {
			key := typed[:1]
			if i := strings.IndexAny(typed, "ABCD~"); strings.HasPrefix(typed, "\x1b[") && i > 0 {
				key = typed[:i+1]
			}
			keys <- key
			typed = typed[len(key):]
		}
	}
}

// press changes what the next picture shows.
func (t *live) press(key string, width, height int) {
	page := max(height-len(t.head(width))-2, 1) // picture corrects an offset that is too far
	switch key {
	case "+":
		t.interval = max(t.interval/2, leastInterval)
	case "-":
		t.interval = min(t.interval*2, time.Minute)
	case "w":
		t.byWait = !t.byWait
	case "k", "\x1b[A":
		t.offset--
	case "j", "\x1b[B":
		t.offset++
	case "\x1b[5~":
		t.offset -= page
	case "\x1b[6~":
		t.offset += page
	}
}

// picture returns the lines of a picture of a size.
func (t *live) picture(width, height int) []string {
	lines := t.head(width)
	if t.seen.at.IsZero() {
		return lines
	}
	locks := slices.Clone(t.seen.locks)
	if t.byWait {
		slices.SortStableFunc(locks, func(a, b lock) int { return cmp.Compare(b.Waiting, a.Waiting) })
	}
	rows := t.lockTable("key", locks, width)
	lines = append(lines, rows[0])
	room := max(height-len(lines)-1, 0)
	t.offset = max(min(t.offset, len(locks)-room), 0)
	shown := rows[1+t.offset:][:min(room, len(locks)-t.offset)]
	if len(shown) < len(locks) {
		lines[0] += fmt.Sprintf(", %d-%d", t.offset+1, t.offset+len(shown))
	}
	lines = append(lines, shown...)
	lines[0] = fit(lines[0], width)
	return append(lines[:min(len(lines), height-1)], fit("q ends, space asks now, + - how often, w waiters first, arrows scroll", width))
}

// head returns the lines about the masters.
func (t *live) head(width int) []string {
	if t.seen.at.IsZero() {
		return []string{t.name + "  asking the masters"}
	}
	word := t.good("quorum")
	var rows []table.Row
	if whyNoLock(t.seen.report) != "" { // also where one master refuses the list
		word = t.bad("NO QUORUM")
	}
	for _, n := range t.seen.report.Masters {
		rows = append(rows, t.masterRow(n))
	}
	lines := []string{fmt.Sprintf("%s  %s  every %v  %d of %d masters vote  %s  %s", t.name, t.seen.at.Format("15:04:05"), t.interval, t.seen.report.Voting, len(rows), word, counted(len(t.seen.locks), "lock"))}
	if len(t.keys) == 0 {
		header := table.Row{"master", "round trip", "vote", "quarantine", "remark"}
		lines = append(lines, withRemarks(header, rows, width, 4, toTheRight(2), toTheRight(4))...)
	}
	if t.seen.missing != nil {
		lines = append(lines, fit("locks may be "+t.bad("missing")+": "+missingFor(t.seen.missing), width))
	}
	return lines
}

// missingFor returns why locks may be missing: a right that the user lacks comes first, as a line has no room for all.
func missingFor(err error) string {
	var refused *redlock.QuorumError
	if errors.As(err, &refused) {
		for _, m := range refused.Masters {
			if redlock.Reason(m.Err) == "permission" {
				return oneLine(m.Err)
			}
		}
	}
	return oneLine(err)
}

// masterRow returns the row of a master.
func (t *live) masterRow(n admin.Master) table.Row {
	vote, remark := t.good("yes"), ""
	for _, f := range n.Findings {
		if f.Level == admin.LevelFailure {
			vote = t.bad("no")
		}
		if f.Level >= admin.LevelWarning {
			remark = f.Text
			break
		}
	}
	if n.Err != nil {
		vote = t.bad("down")
	}
	if dialed := (*net.OpError)(nil); errors.As(n.Err, &dialed) {
		remark = dialed.Err.Error() // its address is in the row already
	}
	return table.Row{n.Master, short(n.RoundTrip), vote, short(n.Quarantine), wire.Printable(remark)}
}
