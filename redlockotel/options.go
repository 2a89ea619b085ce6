package redlockotel

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/d0720281/redlock"
)

const scope = "github.com/d0720281/redlock/redlockotel"

// Option configures [Metrics] or a [Tracer].
type Option interface{ apply(*config) }

type config struct {
	meters   metric.MeterProvider
	tracers  trace.TracerProvider
	resource bool
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

func newConfig(opts []Option) (*config, error) {
	c := &config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("%w: redlockotel: option %d is nil", redlock.ErrConfig, i+1)
		}
		o.apply(c)
	}
	if c.meters == nil || c.tracers == nil {
		return nil, fmt.Errorf("%w: redlockotel: a provider is nil", redlock.ErrConfig)
	}
	return c, nil
}

// WithMeterProvider sets where metrics go: the global provider by default.
func WithMeterProvider(p metric.MeterProvider) Option {
	return option(func(c *config) { c.meters = p })
}

// WithTracerProvider sets where spans go: the global provider by default.
func WithTracerProvider(p trace.TracerProvider) Option {
	return option(func(c *config) { c.tracers = p })
}

// WithResource adds the name of the resource to spans, and whole error texts, which contain it.
// By default both are left out: names can be those of customers. Metrics never have the name.
func WithResource() Option { return option(func(c *config) { c.resource = true }) }
