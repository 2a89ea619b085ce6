package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/sharded"
)

const topHelp = `Show the masters and all locks under the key prefix, until q or a signal ends it.

For each master: how long it took to answer, whether it has a vote, and how long its
quarantine lasts. For each lock: its state in the words of redlock status, when its keys
expire unless they are renewed, how many processes wait for it, and the label of its holder.

  space, r   ask now                 up, down, k, j, page up, page down   scroll
  +, -       ask more, less often    w   the locks that most processes wait for come first
  q          end

If the output is no terminal, one picture is written, with all locks and without colours.

redlock looks for the locks by SCAN, as redlock list does, so with very many locks ask less
often. Nothing is changed on the masters, except that a master that is seen for the first time
gets its marker.

Exit code: 0, or 69 if the output is no terminal and too few masters have a vote.`

// top is the top command.
type top struct {
	connection
	interval time.Duration

	out    io.Writer
	style  style
	locker *sharded.Locker

	seen   snapshot
	asked  bool // a snapshot has come
	offset int  // locks above the first that is shown
	byWait bool // order of the locks
}

// snapshot has the data that top shows.
type snapshot struct {
	at      time.Time
	report  []admin.Report
	found   error
	locks   []admin.Inspection
	missing error
}

func newTop() *cobra.Command {
	t := top{interval: 2 * time.Second}
	cmd := &cobra.Command{
		Use:                   "top [flags]",
		Short:                 "Show masters, locks, holders and waiters, live",
		Long:                  topHelp,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.interval < leastInterval {
				return usagef("--interval %v: must be at least %v", t.interval, leastInterval)
			}
			return t.run(cmd)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var((*duration)(&t.interval), "interval", "how often to ask the masters")
	t.connection.register(f)
	return cmd
}

func (t *top) run(cmd *cobra.Command) (err error) {
	t.out, t.style = cmd.OutOrStdout(), styleOf(cmd.OutOrStdout())
	if t.locker, err = t.connection.open(redlock.WithLogger(nil)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.locker.Close()) }()
	ctx, stop := interruptible(cmd)
	defer stop()
	if terminal := terminalOf(t.out); terminal != nil {
		return t.live(ctx, terminal)
	}
	t.seen = t.look(ctx)
	if ctx.Err() != nil {
		return errInterrupted
	}
	for _, line := range t.picture(0, 0) {
		fmt.Fprintln(t.out, line)
	}
	if errors.Is(t.seen.found, redlock.ErrNoQuorum) {
		return exitError{code: exitNoQuorum}
	}
	return nil
}

// look asks all masters.
func (t *top) look(ctx context.Context) snapshot {
	s := snapshot{at: time.Now()}
	s.report, s.found = check(ctx, t.locker)
	for in, err := range listAll(ctx, t.locker) {
		if in.Resource == "" {
			s.missing = err
			continue
		}
		s.locks = append(s.locks, in)
	}
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

// live shows pictures on a terminal until the user ends it.
func (t *top) live(ctx context.Context, terminal *os.File) error {
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
		if err := t.draw(terminal); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			ask()
		case s := <-looks:
			looking, t.seen, t.asked = false, s, true
		case key := <-keys:
			if end := t.press(key, terminal, ask); end {
				return nil
			}
			tick.Reset(t.interval)
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

// press does what a key is for. It reports whether the user wants to end.
func (t *top) press(key string, terminal *os.File, ask func()) (end bool) {
	_, height := sizeOf(terminal)
	page := max(height-len(t.head())-1, 1)
	switch key {
	case "q", "\x03": // Ctrl-C is no signal in the raw mode
		return true
	case " ", "r":
		ask()
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
	t.offset = max(min(t.offset, len(t.seen.locks)-page), 0)
	return false
}

// sizeOf returns the size of a terminal.
func sizeOf(terminal *os.File) (width, height int) {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// draw replaces the picture on the terminal.
func (t *top) draw(terminal *os.File) error {
	var b strings.Builder
	b.WriteString(toTheTop)
	for i, line := range t.picture(sizeOf(terminal)) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + toLineEnd)
	}
	b.WriteString(toScreenEnd)
	_, err := io.WriteString(terminal, b.String())
	return err
}

// picture returns the lines of a picture of a size; without a size, all of them.
func (t *top) picture(width, height int) []string {
	lines, locks, more := t.head(), t.locks(), ""
	if height > 0 {
		room := max(height-len(lines)-1, 0)
		shown := locks[min(t.offset, len(locks)):]
		if len(shown) > room {
			shown = shown[:room]
		}
		if len(shown) < len(locks) {
			more = fmt.Sprintf(", %d-%d", min(t.offset+1, len(locks)), t.offset+len(shown))
		}
		locks = shown
	}
	lines[0].text += more
	lines = append(lines, locks...)
	if height > 0 {
		lines = append(lines[:min(len(lines), height-1)], line{text: "q ends, space asks now, + - how often, w waiters first, arrows scroll"})
	}
	texts := make([]string, len(lines))
	for i, l := range lines {
		if width > 0 {
			l.text = cut(l.text, width)
		}
		texts[i] = strings.TrimRight(l.text, " ")
		if to := l.from + len(l.word); l.word != "" && to <= len(texts[i]) {
			texts[i] = texts[i][:l.from] + l.paint(l.word) + texts[i][to:]
		}
	}
	return texts
}

// line is a line of a picture, with a word that has a colour.
type line struct {
	text, word string
	from       int // where the word begins
	paint      func(string) string
}

// painted returns a line of two texts and a word between them.
func painted(before, word string, paint func(string) string, after string) line {
	return line{before + word + after, word, len(before), paint}
}

// head returns the lines about the masters, and the head of the locks.
func (t *top) head() []line {
	if !t.asked && t.seen.at.IsZero() {
		return []line{{text: "redlock top  asking the masters"}}
	}
	r := t.seen.report
	voting, masters := 0, 0
	well := true
	wide := len("MASTER")
	for _, g := range r {
		voting, masters, well = voting+g.Voting, masters+len(g.Masters), well && g.Voting >= g.Quorum
		for _, n := range g.Masters {
			wide = max(wide, len(n.Master))
		}
	}
	word, paint := "quorum", t.style.good
	if !well {
		word, paint = "NO QUORUM", t.style.bad
	}
	lines := []line{
		painted(fmt.Sprintf("redlock top  %s  every %v  %d of %d masters vote  ", t.seen.at.Format("15:04:05"), t.interval, voting, masters), word, paint, "  "+counted(len(t.seen.locks), "lock")),
		{text: fmt.Sprintf("%-*s  %10s  %-4s  %10s  %s", wide, "MASTER", "ROUND TRIP", "VOTE", "QUARANTINE", "REMARK")},
	}
	for i, g := range r {
		for _, n := range g.Masters {
			vote, paint, trip, quarantine, remark := "yes", t.style.good, "", "", ""
			if n.RoundTrip > 0 {
				trip = short(n.RoundTrip)
			}
			if n.Quarantine > 0 {
				quarantine = n.Quarantine.Round(100 * time.Millisecond).String()
			}
			if len(r) > 1 {
				remark = fmt.Sprintf("group %d  ", i+1)
			}
			for _, f := range n.Findings {
				if f.Level == admin.LevelFailure {
					vote, paint = "no", t.style.bad
				}
				if f.Level >= admin.LevelWarning {
					remark += f.Text + "  "
					break
				}
			}
			if n.Err != nil {
				vote, paint = "down", t.style.bad
			}
			lines = append(lines, painted(fmt.Sprintf("%-*s  %10s  ", wide, n.Master, trip), fmt.Sprintf("%-4s", vote), paint, fmt.Sprintf("  %10s  %s", quarantine, remark)))
		}
	}
	if t.seen.missing != nil {
		lines = append(lines, painted("locks may be ", "missing", t.style.bad, ": "+oneLine(t.seen.missing)))
	}
	return append(lines, t.lockLine("KEY", "STATE", nil, "EXPIRES", "WAITING", "OWNER"))
}

// counted returns a number of things as text.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (t *top) lockLine(key, state string, paint func(string) string, expires, waiting, owner string) line {
	const most = 32
	wide := len("KEY")
	for _, in := range t.seen.locks {
		wide = max(wide, min(len([]rune(in.Resource)), most))
	}
	if runes := []rune(key); len(runes) > most {
		key = string(runes[:most-1]) + "…"
	}
	after := fmt.Sprintf("%*s  %8s  %7s  %s", len("QUARANTINED")-len(state), "", expires, waiting, owner)
	if paint == nil {
		return line{text: fmt.Sprintf("%-*s  %s%s", wide, key, state, after)}
	}
	return painted(fmt.Sprintf("%-*s  ", wide, key), state, paint, after)
}

// locks returns a line for each lock.
func (t *top) locks() (lines []line) {
	all := slices.Clone(t.seen.locks)
	if t.byWait {
		slices.SortStableFunc(all, func(a, b admin.Inspection) int {
			return cmp.Compare(b.Waiting, a.Waiting)
		})
	}
	for _, in := range all {
		verdict, expires, waiting, owner, paint := in.Verdict.String(), "never", "", in.Owner, t.style.bad
		switch in.Verdict {
		case admin.VerdictFree, admin.VerdictHeld, admin.VerdictShared:
			paint = t.style.good
		}
		if left := in.FreeIn(); left >= 0 {
			expires = left.Round(100 * time.Millisecond).String()
		}
		if in.Waiting > 0 {
			waiting = fmt.Sprint(in.Waiting)
		}
		if in.Verdict == admin.VerdictShared {
			owner = readersOf(len(in.Readers))
		}
		lines = append(lines, t.lockLine(printable(in.Resource), verdict, paint, expires, waiting, printable(owner)))
	}
	return lines
}

// printable replaces what would move the cursor: a key has any bytes.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}
