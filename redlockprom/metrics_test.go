package redlockprom_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/telemetry"
	"github.com/d0720281/redlock/redlockprom"
	"github.com/d0720281/redlock/redlocktest"
)

// One option gives all metrics, those that the package comment lists, with kinds and labels of the table. What they mean is
// tested in internal/telemetry.
func TestMetrics(t *testing.T) {
	metrics, registry := redlockprom.New(), prometheus.NewPedanticRegistry()
	locktest.Must(t, registry.Register(metrics))
	cluster := redlocktest.Start(t, 3)
	l := cluster.Locker(metrics.Option())
	lease := locktest.Lock(t, l, "r")
	locktest.Must(t, lease.Extend(t.Context()))
	cluster.Masters()[0].Kill()
	locktest.Must(t, lease.Extend(t.Context()))
	problems, err := testutil.CollectAndLint(metrics)
	if err != nil || len(problems) > 0 {
		t.Errorf("the linter says %v, %v", problems, err)
	}
	locktest.Must(t, lease.Unlock(t.Context()))
	e, err := election.New(l, "e")
	locktest.Must(t, err)
	leads := make(chan bool)
	go e.Run(t.Context(), func(ctx context.Context, _ *redlock.Lease) error { close(leads); <-ctx.Done(); return nil })
	<-leads
	open, err := registry.Gather() // with gauges
	locktest.Must(t, err)
	_ = l.Close() // all events have been told; a master is down
	closed, err := registry.Gather()
	locktest.Must(t, err)
	granted := 0.0
	for _, f := range closed {
		if f.GetName() == "redlock_attempts_total" {
			for _, m := range f.Metric {
				if m.Label[0].GetName() == "outcome" && m.Label[0].GetValue() == telemetry.Granted {
					granted = m.GetCounter().GetValue()
				}
			}
		}
	}
	if granted != 2 {
		t.Errorf("got %v leases, want 2", granted)
	}
	var told, names []string
	for _, f := range append(closed, open...) {
		told = append(told, f.GetName())
	}
	for _, row := range telemetry.Table {
		names = append(names, "redlock_"+row.Prometheus)
	}
	slices.Sort(told)
	slices.Sort(names)
	if told = slices.Compact(told); !slices.Equal(told, names) {
		t.Errorf("got %q, want %q", told, names)
	}
	text, err := os.ReadFile("doc.go")
	locktest.Must(t, err)
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(redlock_[a-z_]+)`).FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1])
	}
	if slices.Sort(documented); !slices.Equal(documented, names) {
		t.Errorf("the package comment lists %q, want %q", documented, names)
	}
}
