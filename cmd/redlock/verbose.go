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

// newLog is where -v writes to; without it there is nothing to read. flush writes what was
// logged before.
func newLog(out io.Writer, verbose bool) (log *slog.Logger, flush func()) {
	if !verbose {
		return slog.New(slog.DiscardHandler), func() {}
	}
	w := &lineWriter{lines: make(chan []byte, maxLines), done: make(chan struct{})}
	go w.run(out)
	return slog.New(slog.NewTextHandler(w, nil)), w.close
}

// maxLines is how many lines wait for somebody who does not read them.
const maxLines = 1024

// lineWriter writes in a goroutine of its own: whoever has to kill a command in time
// cannot wait for somebody to read about it. What there is no room for is left out.
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
		_, _ = out.Write(line) // there is nowhere else to say it
	}
}

func (w *lineWriter) close() {
	close(w.lines)
	<-w.done
}

// outageNotice is how long masters have to be out of order before somebody who waits for
// them is told.
const outageNotice = 2 * time.Second

// patience is for somebody who waits. It tells once if that is for the masters and not for
// another holder: it could last for ever, and nobody would know why.
type patience struct {
	out     io.Writer
	log     *slog.Logger
	waiting bool
	since   time.Time // of an outage
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

// observer logs what happens. Warnings the library writes to the log itself.
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
