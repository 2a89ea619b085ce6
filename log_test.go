package redlock

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A resource that is granted says nothing about the masters of another: with several groups of masters,
// one may be down and the others not.
func TestLogObserverOfAnotherResource(t *testing.T) {
	var out bytes.Buffer
	o := LogObserver(slog.New(slog.NewTextHandler(&out, nil)))
	for range 3 {
		o.NotAcquired(Event{Resource: "r", Err: ErrNoQuorum})
		o.Acquired(Event{Resource: "other"})
	}
	if got := strings.Count(out.String(), "not acquired"); got != 1 {
		t.Errorf("got %d lines, want 1:\n%s", got, &out)
	}
}

func TestLogObserver(t *testing.T) {
	e := Event{Resource: "r", Mode: Exclusive, Fence: 7, Master: "10.0.0.1:6379", Err: ErrTaken}
	down := e
	down.Err = ErrNoQuorum
	for _, test := range []struct {
		name string
		say  func(Observer)
		want string
	}{
		{"acquired", func(o Observer) { o.Acquired(e) }, `level=DEBUG msg="redlock: acquired" resource=r mode=exclusive fence=7`},
		{"taken", func(o Observer) { o.NotAcquired(e) }, `level=DEBUG msg="redlock: not acquired" resource=r`},
		{"no quorum", func(o Observer) { o.NotAcquired(down) }, `level=WARN msg="redlock: not acquired" resource=r`},
		{"extended", func(o Observer) { o.Extended(e) }, `level=DEBUG msg="redlock: extended" resource=r fence=7`},
		{"extend failed", func(o Observer) { o.ExtendFailed(down) }, `level=WARN msg="redlock: extension failed" resource=r`},
		{"lost", func(o Observer) { o.Lost(e) }, `level=WARN msg="redlock: lease lost" resource=r fence=7`},
		{"released", func(o Observer) { o.Released(e) }, `level=DEBUG msg="redlock: released" resource=r`},
		{"down", func(o Observer) { o.MasterDown(down) }, `level=WARN msg="redlock: master is down" master=10.0.0.1:6379`},
		{"up", func(o Observer) { o.MasterUp(e) }, `level=INFO msg="redlock: master is up again" master=10.0.0.1:6379`},
		{"forgot", func(o Observer) { o.MasterForgot(e) }, `level=WARN msg="redlock: master has lost a key" master=10.0.0.1:6379 resource=r`},
		{"quarantined", func(o Observer) { o.Quarantined(e) }, `level=WARN msg="redlock: master has no vote for a time"`},
		{"dropped", func(o Observer) { o.Dropped(3) }, `level=WARN msg="redlock: events were dropped" count=3`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			test.say(LogObserver(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
			if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), " "); !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q, want it to begin with %q", got, test.want)
			}
		})
	}
	o := LogObserver(nil)
	if o.Warning != nil || o.ClockStepped != nil || o.StoodStill != nil {
		t.Error("got callbacks for what the logger of WithLogger has been told, want none")
	}
}
