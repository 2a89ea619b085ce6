package redlock

import (
	"context"
	"errors"
	"log/slog"
)

// LogObserver returns an Observer that logs events. Acquisitions, renewals, releases, and
// attempts that failed because another holder has the resource, have level Debug. A master that
// is up again has level Info. Attempts that failed for lack of a quorum, renewals that failed,
// lost leases, and failures of masters have level Warn. While masters are down, Lock makes many
// attempts: limit the rate in the handler, or replace NotAcquired of the Observer. If l is nil,
// each event goes to the [slog.Default] of that time.
//
// Warning, ClockStepped and StoodStill are not logged, because they go to the logger of
// [WithLogger].
func LogObserver(l *slog.Logger) Observer {
	log := func(level slog.Level, text string, attrs ...any) {
		to := l
		if to == nil {
			to = slog.Default()
		}
		to.Log(context.Background(), level, "redlock: "+text, attrs...)
	}
	return Observer{
		Acquired: func(e Event) {
			log(slog.LevelDebug, "acquired", "resource", e.Resource, "fence", e.Fence, "waited", e.Elapsed, "validity", e.Validity)
		},
		NotAcquired: func(e Event) {
			level := slog.LevelDebug
			if errors.Is(e.Err, ErrNoQuorum) {
				level = slog.LevelWarn
			}
			log(level, "not acquired", "resource", e.Resource, "waited", e.Elapsed, "error", e.Err)
		},
		Extended: func(e Event) {
			log(slog.LevelDebug, "extended", "resource", e.Resource, "fence", e.Fence, "validity", e.Validity)
		},
		ExtendFailed: func(e Event) {
			log(slog.LevelWarn, "extension failed", "resource", e.Resource, "fence", e.Fence, "validity", e.Validity, "error", e.Err)
		},
		Lost: func(e Event) {
			log(slog.LevelWarn, "lease lost", "resource", e.Resource, "fence", e.Fence, "error", e.Err)
		},
		Released: func(e Event) {
			log(slog.LevelDebug, "released", "resource", e.Resource, "fence", e.Fence, "held", e.Elapsed)
		},
		NodeDown:    func(e Event) { log(slog.LevelWarn, "master is down", "node", e.Node, "error", e.Err) },
		NodeUp:      func(e Event) { log(slog.LevelInfo, "master is up again", "node", e.Node) },
		NodeForgot:  func(e Event) { log(slog.LevelWarn, "master has lost a key", "node", e.Node, "resource", e.Resource) },
		Quarantined: func(e Event) { log(slog.LevelWarn, "master has no vote for a time", "node", e.Node, "for", e.Elapsed) },
		Dropped:     func(n int) { log(slog.LevelWarn, "events were dropped", "count", n) },
	}
}
