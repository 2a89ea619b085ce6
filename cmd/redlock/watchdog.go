package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"
)

// ending says why redlock ends the command.
type ending int

const (
	notEnding ending = iota
	timedOut         // by --at-most
	lost             // the lock is lost, or about to be lost
)

// watchdog looks after the command while it runs: it ends the command before the lock ends, and
// forwards signals.
type watchdog struct {
	child     *child
	lease     held
	signals   chan os.Signal
	sig       syscall.Signal // asks the command to end
	killAfter time.Duration  // the command is killed so much later
	lead      time.Duration  // the command is killed at the latest so long before the end of the validity
	atMost    time.Duration  // 0: no bound
	log       *slog.Logger

	began      time.Time
	why        ending
	asked      bool // the command was asked to end
	killed     bool
	signalled  bool // a signal was forwarded
	ended      bool // and is one that ends programs
	stopWanted bool // redlock has had a SIGTSTP since the last stop
}

// killLead returns how long before the end of the validity the command is killed. A process
// takes a moment to die, and on a busy machine redlock wakes up late.
func killLead(ttl time.Duration) time.Duration { return min(ttl/50+100*time.Millisecond, ttl/5) }

// longestNap bounds how long the watchdog relies on a timer, as timers stand still while the
// machine is suspended.
const longestNap = time.Second

// run returns when the command has ended. If redlock or a signal ended it, the rest of its group has ended, too.
func (w *watchdog) run() {
	over := w.lease.Context().Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(w.look())
		select {
		case <-timer.C:
		case <-over:
			over = nil // look finds the reason
		case sig := <-w.signals:
			w.pass(sig)
		case <-w.child.stops:
			w.stopped()
		case <-w.child.exited:
			w.bury()
			return
		}
	}
}

// look compares the clock with the deadlines, does what is due, and returns the time until it
// has to look again.
func (w *watchdog) look() time.Duration {
	left := w.lease.Validity()
	over := w.lease.Context().Err() != nil
	gone := time.Since(w.began)
	switch {
	case over || left <= w.lead:
		w.because(lost)
		w.kill()
	case left <= w.killAfter:
		w.because(lost)
		w.ask()
	}
	if w.atMost > 0 && gone >= w.atMost {
		w.because(timedOut)
		w.ask()
		if gone >= w.atMost+w.killAfter {
			w.kill()
		}
	}

	nap := longestNap
	next := []time.Duration{left - w.lead, left - w.killAfter}
	if w.atMost > 0 {
		next = append(next, w.atMost-gone, w.atMost+w.killAfter-gone)
	}
	for _, d := range next {
		if d > 0 && !w.killed {
			nap = min(nap, d)
		}
	}
	return nap
}

// because records why the command is ended. A lost lock outweighs --at-most, and no renewal
// brings it back.
func (w *watchdog) because(why ending) {
	if why <= w.why {
		return
	}
	w.why = why
	if why == lost {
		w.log.Warn("the lock is lost, or cannot be renewed in time", "left", w.lease.Validity(), "cause", context.Cause(w.lease.Context()))
	} else {
		w.log.Warn("the command has had its time", "at most", w.atMost)
	}
}

func (w *watchdog) ask() {
	if !w.asked {
		w.asked = true
		w.log.Info("asking the command to end", "signal", signalName(w.sig))
		w.child.end(w.sig)
	}
}

func (w *watchdog) kill() {
	if !w.killed {
		w.killed = true
		w.child.kill()
		w.log.Warn("killed the command")
	}
}

// bury reaps the command, and ends the rest of its process group: at once if redlock or the end of its output ended
// the command, and by --signal and --kill-after if a signal was forwarded to it. If the command ended by itself, its
// background processes go on.
func (w *watchdog) bury() {
	defer close(w.child.buried)
	kill := w.why != notEnding || slices.Contains(brokenOutput, w.child.status.signal)
	switch {
	case kill:
		w.child.kill()
	case w.signalled:
		w.child.end(w.sig)
	}
	w.child.reap()
	w.child.tty.takeBack()
	if !kill && !w.signalled {
		return
	}
	for began := time.Now(); w.child.remains(); time.Sleep(restPause) {
		gone := time.Since(began)
		if gone >= w.killAfter || w.lease.Validity() <= w.lead {
			w.child.killRest()
		}
		if gone >= w.killAfter+unkillable {
			w.log.Warn("what the command has started cannot be killed", "group", w.child.pid)
			return
		}
	}
}

// How often bury looks for the rest of the group, and how long it waits for processes that were killed.
const (
	restPause  = 2 * time.Millisecond
	unkillable = time.Second
)
