package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/sharded"
)

const watchHelp = `Show who holds locks, until a signal ends it. The words are those of redlock status.

On a terminal it is shown anew each second, in the same place. Otherwise, and with -o json, a
line is written at the beginning and for each change: of the verdict, the holder's token, or
the fencing token. The owner is the holder's label. What comes and goes within an interval is
not seen, and nothing should be decided by it: by the time it is shown it can have changed.

Exit code: 0 when SIGINT or SIGTERM has ended it, 64 for wrong usage.`

const leastInterval = 100 * time.Millisecond

// watch is the watch command.
type watch struct {
	connection
	output
	interval time.Duration
}

func newWatch() *cobra.Command {
	w := watch{interval: time.Second}
	cmd := &cobra.Command{
		Use:                   "watch KEY... [flags]",
		Short:                 "Show who holds locks, again and again",
		Long:                  watchHelp,
		Example:               "  redlock watch deploy nightly\n  redlock watch deploy -o json >>deploy.log",
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, keys []string) error {
			switch {
			case len(keys) == 0:
				return usagef("which locks? give their KEYs (see redlock watch --help)")
			case w.interval < leastInterval:
				return usagef("--interval %v: must be at least %v", w.interval, leastInterval)
			}
			return w.run(cmd, keys)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var((*duration)(&w.interval), "interval", "how often to ask the masters")
	w.output.register(f)
	w.connection.register(f)
	return cmd
}

func (w *watch) run(cmd *cobra.Command, keys []string) (err error) {
	if err := w.output.open(cmd); err != nil {
		return err
	}
	locker, err := w.connection.open(redlock.WithLogger(nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	ctx, stop := interruptible(cmd)
	defer stop()
	var show func([]admin.Inspection) error
	if terminal := terminalOf(w.out); terminal != nil && w.format == "text" {
		p := picture{terminal: terminal, style: w.style, interval: w.interval}
		show = p.draw
	} else {
		show = (&changes{output: &w.output, last: make(map[string]state)}).write
	}
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		all, err := look(ctx, locker, keys)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := show(all); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look inspects all locks once.
func look(ctx context.Context, locker *sharded.Locker, keys []string) (all []admin.Inspection, err error) {
	for _, key := range keys {
		in, err := inspect(ctx, locker, key)
		switch {
		case errors.Is(err, redlock.ErrConfig):
			return nil, usageError{err}
		case err != nil && !errors.Is(err, redlock.ErrNoQuorum):
			return nil, err
		}
		all = append(all, in)
	}
	return all, nil
}

// state has the parts of an Inspection that changes compare.
type state struct {
	verdict admin.Verdict
	token   string
	fence   int64
	readers int
}

// changes prints a line for each change.
type changes struct {
	*output
	last map[string]state
}

func (c *changes) write(all []admin.Inspection) error {
	now := time.Now()
	for _, in := range all {
		s := state{in.Verdict, in.Token, in.Fence, len(in.Readers)}
		if before, known := c.last[in.Resource]; known && before == s {
			continue
		}
		c.last[in.Resource] = s
		if err := c.line(now, in); err != nil {
			return err
		}
	}
	return nil
}

func (c *changes) line(now time.Time, in admin.Inspection) (err error) {
	if c.format == "json" {
		return json.NewEncoder(c.out).Encode(changeReport{now, reportOf(in)})
	}
	_, err = fmt.Fprintln(c.out, now.Format("2006-01-02T15:04:05.000Z07:00"), in.Verdict, in.Resource+holderOf(in)+labelOf(in))
	return err
}

// changeReport is a change in JSON.
type changeReport struct {
	Time time.Time `json:"time"`
	lockReport
}

// holderOf describes the holder of a lock.
func holderOf(in admin.Inspection) (text string) {
	if in.Token != "" {
		text = "  token " + shortToken(in.Token)
	}
	if in.Verdict == admin.VerdictShared {
		text += "  " + readersOf(len(in.Readers))
	}
	if in.Fence != 0 {
		text += fmt.Sprint("  fence ", in.Fence)
	}
	if free := freeOf(in); free != "" {
		text += "  " + free
	}
	return text
}

// labelOf returns the label of the holder. It comes last, because a terminal has little room.
func labelOf(in admin.Inspection) string {
	if in.Owner == "" {
		return ""
	}
	return "  owner " + in.Owner
}

// picture redraws a terminal in place.
type picture struct {
	terminal *os.File
	style    style
	interval time.Duration
	lines    int // number of lines drawn
}

func (p *picture) draw(all []admin.Inspection) error {
	width, height, err := term.GetSize(int(p.terminal.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	room := max(height-2, 1) // below the first line, and above the last line with the cursor
	head := fmt.Sprintf("%s  every %v, Ctrl-C ends it", time.Now().Format("15:04:05"), p.interval)
	if more := len(all) - room; more > 0 {
		head += fmt.Sprintf("; %d more do not fit", more)
		all = all[:room]
	}
	var b strings.Builder
	if p.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", p.lines)
	}
	fmt.Fprintln(&b, cut(head, width))
	for _, in := range all {
		p.row(&b, in, width)
	}
	p.lines = 1 + len(all)
	_, err = io.WriteString(p.terminal, b.String())
	return err
}

// row writes the line of one lock.
func (p *picture) row(b *strings.Builder, in admin.Inspection, width int) {
	verdict := in.Verdict.String()
	text := fmt.Sprintf("%-11s  %s%s", verdict, in.Resource, holderOf(in))
	down := 0
	for _, n := range in.Masters {
		if n.Err != nil {
			down++
		}
	}
	switch left := in.FreeIn(); {
	case in.Verdict == admin.VerdictBroken: // text has that time already
	case left < 0:
		text += "  never expires"
	case left > 0:
		text += "  expires in " + left.Round(100*time.Millisecond).String()
	}
	if down > 0 {
		text += fmt.Sprintf("  (%d of %d masters down)", down, len(in.Masters))
	}
	text += labelOf(in)
	text = cut(text, width)
	if len(text) >= len(verdict) {
		paint := p.style.bad
		if in.Verdict == admin.VerdictFree || in.Verdict == admin.VerdictHeld || in.Verdict == admin.VerdictShared {
			paint = p.style.good
		}
		text = paint(verdict) + text[len(verdict):]
	}
	fmt.Fprintln(b, text)
}

// cut returns as much of a line as fits: a line that wraps would spoil the picture.
func cut(line string, width int) string {
	runes := []rune(line)
	return string(runes[:min(len(runes), width-1)])
}
