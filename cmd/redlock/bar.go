package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// bar shows the progress of a run, with lines of text above it. If the output is no
// terminal, it shows the lines alone.
type bar struct {
	mu       sync.Mutex // for writing to out
	out      io.Writer
	writer   progress.Writer // nil if there is no bar
	tracker  *progress.Tracker
	rendered chan struct{}
}

func newBar(out io.Writer, shown bool, total int) *bar {
	b := &bar{out: out}
	if !shown {
		return b
	}
	b.tracker = &progress.Tracker{Message: "attempts", Total: int64(total)}
	b.writer = progress.NewWriter()
	b.writer.SetOutputWriter(out)
	b.writer.SetStyle(progress.StyleBlocks)
	b.writer.Style().Options.ErrorString = "stopped"
	b.writer.SetUpdateFrequency(50 * time.Millisecond)
	b.writer.AppendTracker(b.tracker)
	b.rendered = make(chan struct{})
	go func() {
		defer close(b.rendered)
		b.writer.Render()
	}()
	return b
}

func (b *bar) add() {
	if b.writer != nil {
		b.tracker.Increment(1)
	}
}

// say prints a line.
func (b *bar) say(line string) {
	if b.writer != nil {
		b.writer.Log("%s", line)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintln(b.out, line)
}

// stop leaves the bar as it is and returns when nothing is drawn any more.
func (b *bar) stop() {
	if b.writer == nil {
		return
	}
	if !b.tracker.IsDone() {
		b.tracker.MarkAsErrored()
	}
	for {
		b.writer.Stop() // has no effect if Render is only about to begin
		select {
		case <-b.rendered:
			return
		case <-time.After(time.Millisecond):
		}
	}
}
