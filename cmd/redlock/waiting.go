package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/wire"
)

// newLog returns the log of -v; without -v it discards everything. flush writes all lines
// logged before.
func (t *taking) newLog(out io.Writer) (log *slog.Logger, flush func()) {
	if !t.verbose {
		return slog.New(slog.DiscardHandler), func() {}
	}
	lines, done := make(lineWriter, maxLines), make(chan struct{})
	go func() {
		defer close(done)
		for line := range lines {
			_, _ = out.Write(line) // there is no other place to report an error
		}
	}()
	return slog.New(namingHandler{slog.NewTextHandler(lines, nil), t}), func() { close(lines); <-done }
}

// namingHandler adds the KEYs to each line that names none, as the lines of several commands may be in
// one log.
type namingHandler struct {
	slog.Handler
	of *taking
}

func (h namingHandler) Handle(ctx context.Context, r slog.Record) error {
	named := false
	r.Attrs(func(a slog.Attr) bool { named = a.Key == "key" || a.Key == "keys"; return !named })
	if !named {
		r = r.Clone()
		r.AddAttrs(slog.String("key", h.of.names()))
	}
	return h.Handler.Handle(ctx, r)
}

// names returns the KEYs, for a line about them.
func (t *taking) names() string { return wire.Printable(strings.Join(t.keys, ", ")) }

// maxLines is how many lines wait for a reader of the log.
const maxLines = 1024

// lineWriter has a goroutine that writes, because the watchdog has to kill a command in time and
// cannot wait for a reader of the log. Lines for which there is no room are dropped.
type lineWriter chan []byte

func (w lineWriter) Write(line []byte) (int, error) {
	select {
	case w <- bytes.Clone(line):
	default:
	}
	return len(line), nil
}

// logger is the logger of the library for a command without -v. It tells the user of a redlock
// that waits that it waits because of the masters, and not for another holder. Otherwise the user
// would not know why the wait does not end. The library says that once for each outage or
// quarantine.
func (t *taking) logger(stderr io.Writer) *slog.Logger {
	if t.quiet {
		return nil
	}
	t.got = make(chan struct{})
	return slog.New(waitingHandler{stderr, t})
}

type waitingHandler struct {
	out io.Writer
	of  *taking
}

func (waitingHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle writes what calls wait for, and nothing else.
func (h waitingHandler) Handle(_ context.Context, r slog.Record) error {
	fields := make(map[string]slog.Value)
	r.Attrs(func(a slog.Attr) bool { fields[a.Key] = a.Value; return true })
	if _, waits := fields["reason"]; !waits {
		return nil
	}
	select {
	case <-h.of.got: // with groups the library makes attempts of its own
		return nil
	default:
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(r.Message, "redlock: "), "; ")
	masters, _ := fields["masters"].Any().([]string)
	_, err := fmt.Fprintln(h.out, onTerminal(h.out, "", wire.Printable(fmt.Sprintf("redlock: %s: still waiting: %s: %s", h.of.names(), text, strings.Join(masters, "; ")))))
	return err
}

func (h waitingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h waitingHandler) WithGroup(string) slog.Handler      { return h }

// How long a command waits before it names the holder, and how often it looks for one from then on.
const (
	waitsSilently = time.Second
	looksEvery    = 100 * time.Millisecond
)

// nameHolder writes one line if the command waits for longer than a second: for which key, and
// which holder is in its way. stop ends that. why is WhyWaiting of the Locker.
func (t *taking) nameHolder(out io.Writer, why func(resource string) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var naming sync.WaitGroup
	naming.Go(func() {
		for pause := waitsSilently; sleep(ctx, pause); pause = looksEvery {
			if line := t.holderNow(why); line != "" {
				fmt.Fprintln(out, line)
				return
			}
		}
	})
	return func() { cancel(); naming.Wait() }
}

// holderNow returns the line about a holder that is in the way, "" if none is known.
func (t *taking) holderNow(why func(resource string) error) string {
	for _, key := range t.keys {
		var refused *redlock.QuorumError
		if err := why(key); errors.Is(err, redlock.ErrTaken) && errors.As(err, &refused) {
			owner, _ := refused.Holder()
			line := fmt.Sprintf("redlock: waiting for %s, held by %s", wire.Printable(key), cmp.Or(wire.Printable(owner), "another process"))
			if held := refused.HeldFor(); held > 0 {
				line += " for " + wire.Age(held)
			}
			return line
		}
	}
	return ""
}
