//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// Two machines start a short job by clocks that are a second apart. With the time for which the run is due it runs once,
// and so it does with a minimum hold, also if a signal ends redlock in that time. Without both it runs twice.
func TestShortJobRunsOnce(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	for name, test := range map[string]struct {
		flags []string
		ended syscall.Signal
		want  int // code of the second redlock
	}{
		"neither":                 {nil, 0, exitOK},
		"due":                     {[]string{"--due", ""}, 0, exitConflict}, // now
		"minimum hold":            {[]string{"--at-least", "5s"}, 0, exitConflict},
		"minimum hold and SIGINT": {[]string{"--at-least", "5s"}, syscall.SIGINT, exitConflict},
		"a drained node":          {[]string{"--at-least", "5s"}, syscall.SIGTERM, exitConflict},
		"SIGUSR1 ends nothing":    {[]string{"--at-least", "3s"}, syscall.SIGUSR1, exitOK},
	} {
		t.Run(name, func(t *redistest.T) {
			t.Parallel()
			if name == "due" {
				test.flags[1] = time.Now().Format(time.RFC3339)
			}
			args := append([]string{name, "-n", "-v"}, append(test.flags, "--", "true")...)
			first := c.start(t, args...)
			redistest.Eventually(t, 30*time.Second, first.has("the command has ended"), "the job has run")
			if test.ended != 0 {
				first.signal(t, test.ended)
				if code, rec := first.wait(t); code != exitOK || rec.Released != (test.want == exitOK) {
					t.Errorf("the first: got code %d, %+v, %s; want 0, and a lock that is left unless another process may have it", code, rec, first.all())
				}
			}
			time.Sleep(time.Second)
			second := c.start(t, args...)
			if code, rec := second.wait(t); code != test.want {
				t.Errorf("the second: got code %d, %+v; want %d", code, rec, test.want)
			}
		})
	}
	long := c.start(t, "long", "--at-least", "20s", "--ttl", "1s", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done")
	redistest.Eventually(t, 30*time.Second, long.has("ready"), "the job runs")
	long.signal(t, syscall.SIGTERM)
	if code, rec := long.wait(t); code != 3 || rec.Released {
		t.Errorf("got code %d, %+v; want 3, and a lock that is left", code, rec)
	}
	if code, rec := c.start(t, "long", "-w", "20s", "--", "true").wait(t); code != exitOK {
		t.Errorf("after the TTL: got code %d, %+v; want the lock", code, rec)
	}
}

// A time of day is the one next to now, in the zone of the machine, also on the days on which clocks change.
func TestDueAt(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	for now, want := range map[string]string{
		"2026-11-25T02:59:59": "2026-11-25T03:00:00",
		"2026-11-25T03:00:00": "2026-11-25T03:00:00",
		"2026-11-25T14:59:00": "2026-11-25T03:00:00",
		"2026-11-25T15:01:00": "2026-11-26T03:00:00",
		"2026-11-24T23:59:59": "2026-11-25T03:00:00",
		"2026-03-29T03:00:01": "2026-03-29T03:00:00", // the clock was set from 02:00 to 03:00
		"2026-10-25T03:00:01": "2026-10-25T03:00:00", // and back, after 03:00
	} {
		now, err := time.ParseInLocation("2006-01-02T15:04:05", now, zone)
		must(t, err)
		if got, err := dueAt("03:00", now); err != nil || got.Format("2006-01-02T15:04:05") != want {
			t.Errorf("at %v: got %v, %v; want %s", now, got, err, want)
		}
	}
	if got, err := dueAt("2026-11-25T03:00:00+01:00", time.Time{}); err != nil || got.UTC().Hour() != 2 {
		t.Errorf("got %v, %v; want 02:00 UTC", got, err)
	}
}
