package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/d0720281/redlock"
)

// newLog returns the log of -v; without -v it discards everything. flush writes all lines
// logged before.
func newLog(out io.Writer, verbose bool) (log *slog.Logger, flush func()) {
	if !verbose {
		return slog.New(slog.DiscardHandler), func() {}
	}
	w := &lineWriter{lines: make(chan []byte, maxLines), done: make(chan struct{})}
	go w.run(out)
	return slog.New(slog.NewTextHandler(w, nil)), w.close
}

// maxLines is how many lines wait for a reader of the log.
const maxLines = 1024

// lineWriter writes in a goroutine of its own, because the watchdog has to kill a command in time
// and cannot wait for a reader of the log. Lines for which there is no room are dropped.
type lineWriter struct {
	lines chan []byte
	done  chan struct{}
}

func (w *lineWriter) Write(line []byte) (int, error) {
	select {
	case w.lines <- bytes.Clone(line):
	default:
	}
	return len(line), nil
}

func (w *lineWriter) run(out io.Writer) {
	defer close(w.done)
	for line := range w.lines {
		_, _ = out.Write(line) // there is no other place to report an error
	}
}

func (w *lineWriter) close() {
	close(w.lines)
	<-w.done
}

// waiting is the logger of the library for a command without -v. It tells the user of a redlock that
// waits that it waits because of the masters, and not for another holder. Otherwise the user would not
// know why the wait does not end. The library says that once for each outage or quarantine.
func waiting(out io.Writer) *slog.Logger { return slog.New(waitingHandler{out}) }

type waitingHandler struct{ out io.Writer }

func (waitingHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle writes what calls wait for, and nothing else.
func (h waitingHandler) Handle(_ context.Context, r slog.Record) error {
	fields := make(map[string]slog.Value)
	r.Attrs(func(a slog.Attr) bool { fields[a.Key] = a.Value; return true })
	if _, waits := fields["reason"]; !waits {
		return nil
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(r.Message, "redlock: "), "; ")
	masters, _ := fields["masters"].Any().([]string)
	_, err := fmt.Fprintf(h.out, "redlock: still waiting: %s: %s\n", text, strings.Join(masters, "; "))
	return err
}

func (h waitingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h waitingHandler) WithGroup(string) slog.Handler      { return h }

// observer logs the leases of a command. The library logs warnings itself.
func observer(log *slog.Logger) redlock.Observer {
	var first sync.Once
	return func(e redlock.Event) {
		switch e.Kind {
		case redlock.EventTaken, redlock.EventAttemptFailed:
			first.Do(func() { log.Info("waiting for the lock", "key", e.Resource, "error", e.Err) })
		case redlock.EventAcquired:
			log.Info("holding the lock", "key", e.Resource, "fence", e.Fence, "waited", e.Elapsed, "valid for", e.Validity)
		case redlock.EventReleased:
			log.Info("released", "key", e.Resource, "held", e.Elapsed)
		}
	}
}
