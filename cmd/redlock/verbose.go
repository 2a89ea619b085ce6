package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

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

// outageNotice is how long masters must have failed before a waiting redlock says so.
const outageNotice = 2 * time.Second

// patience tells the user of a waiting redlock, once, if it waits because the masters fail and not
// for another holder. Otherwise the user would not know why the wait does not end.
type patience struct {
	out     io.Writer
	log     *slog.Logger
	waiting bool
	since   time.Time // start of an outage
	told    bool
}

func (p *patience) failed(e redlock.Event) {
	if !p.waiting {
		p.waiting = true
		p.log.Info("waiting for the lock", "key", e.Resource, "error", e.Err)
	}
	if !errors.Is(e.Err, redlock.ErrNoQuorum) {
		p.since = time.Time{}
		return
	}
	if p.since.IsZero() {
		p.since = e.Time
	}
	if !p.told && (errors.Is(e.Err, redlock.ErrQuarantine) || e.Time.Sub(p.since) >= outageNotice) {
		p.told = true
		fmt.Fprintln(p.out, "redlock: still waiting:", oneLine(e.Err))
	}
}

// observer logs events. The library logs warnings itself.
func observer(log *slog.Logger) redlock.Observer {
	return redlock.Observer{
		Acquired: func(e redlock.Event) {
			log.Info("holding the lock", "key", e.Resource, "fence", e.Fence, "waited", e.Elapsed, "valid for", e.Validity)
		},
		ExtendFailed: func(e redlock.Event) { log.Warn("renewal failed", "valid for", e.Validity, "error", e.Err) },
		Released:     func(e redlock.Event) { log.Info("released", "key", e.Resource, "held", e.Elapsed) },
		NodeDown:     func(e redlock.Event) { log.Warn("master is down", "node", e.Node, "error", e.Err) },
		NodeUp:       func(e redlock.Event) { log.Info("master is up again", "node", e.Node) },
		Quarantined:  func(e redlock.Event) { log.Warn("master has no vote", "node", e.Node, "for", e.Elapsed) },
		NodeForgot:   func(e redlock.Event) { log.Warn("master has lost the key", "node", e.Node) },
	}
}
