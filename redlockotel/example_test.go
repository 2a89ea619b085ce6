package redlockotel_test

import (
	"context"
	"fmt"
	"log"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/redlockotel"
)

// A service leaves out the option, and gets the meters of the global provider.
func ExampleMetrics() {
	addrs, stop := locktest.ExampleMasters()
	defer stop()
	reader := sdkmetric.NewManualReader() // a service exports to its collector
	metrics, err := redlockotel.Metrics(redlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	if err != nil {
		log.Panic(err)
	}
	locker, err := redlock.New(addrs, redlock.WithMasterTimeout(2*time.Second), metrics)
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

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Panic(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == "redlock.attempts" {
			for _, p := range m.Data.(metricdata.Sum[float64]).DataPoints {
				if p.Value == 0 { // as are all outcomes that have not been yet
					continue
				}
				outcome, _ := p.Attributes.Value("redlock.outcome")
				fmt.Println(m.Name, outcome.AsString(), p.Value)
			}
		}
	}
	// Output:
	// redlock.attempts granted 1
}

// A service leaves out WithTracerProvider, and gets the tracers of the global provider.
func ExampleTracer() {
	addrs, stop := locktest.ExampleMasters()
	defer stop()
	spans := tracetest.NewInMemoryExporter() // a service exports to its collector
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	locker, err := redlock.New(addrs, redlock.WithMasterTimeout(2*time.Second), redlock.WithTracer(redlockotel.Tracer(redlockotel.WithTracerProvider(provider))))
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()

	ctx, order := provider.Tracer("shop").Start(context.Background(), "order")
	err = locker.Do(ctx, "stock:item-1", func(context.Context, *redlock.Lease) error { return nil })
	if err != nil {
		log.Panic(err)
	}
	order.End()
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, "is a child:", s.Parent.IsValid())
	}
	// Output:
	// redlock.Lock is a child: true
	// redlock.Unlock is a child: true
	// order is a child: false
}
