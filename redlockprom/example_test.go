package redlockprom_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/redlockprom"
)

// A service serves the metrics with promhttp, as all others of its registry.
func ExampleMetrics_Option() {
	addrs, stop := locktest.ExampleMasters()
	defer stop()
	metrics := redlockprom.New()
	registry := prometheus.NewRegistry() // or the default one, with prometheus.MustRegister
	registry.MustRegister(metrics)
	locker, err := redlock.New(addrs, redlock.WithMasterTimeout(2*time.Second), metrics.Option())
	if err != nil {
		log.Panic(err)
	}
	err = locker.Do(context.Background(), "stock:item-1", func(context.Context, *redlock.Lease) error { return nil })
	if err != nil {
		log.Panic(err)
	}
	if err := locker.Close(); err != nil { // all events have been told then
		log.Panic(err)
	}

	families, err := registry.Gather()
	if err != nil {
		log.Panic(err)
	}
	for _, f := range families {
		if f.GetName() == "redlock_attempts_total" {
			for _, m := range f.Metric { // also those that are 0 so far
				if m.GetCounter().GetValue() == 0 {
					continue
				}
				fmt.Printf("%s{%s=%q} %v\n", f.GetName(), m.Label[0].GetName(), m.Label[0].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// redlock_attempts_total{outcome="granted"} 1
}
