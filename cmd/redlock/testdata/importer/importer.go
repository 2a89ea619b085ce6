// Package importer is a program with every package that redlock has for importers. TestImporter
// builds it.
package importer

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/redlockdebug"
	"github.com/d0720281/redlock/redlockotel"
	"github.com/d0720281/redlock/redlockprom"
)

// Service has a Locker with metrics and traces, and what is built on it.
type Service struct {
	Metrics *prometheus.Registry
	Locker  *redlock.Locker
	Elector *election.Elector
	Jobs    *jobs.Locker
}

// New makes a Service.
func New(masters []*redis.Options, opts ...redlock.Option) (*Service, error) {
	metrics := redlockprom.New()
	s := &Service{Metrics: prometheus.NewRegistry()}
	if err := s.Metrics.Register(metrics); err != nil {
		return nil, err
	}
	measured, err := redlockotel.Metrics()
	if err != nil {
		return nil, err
	}
	opts = append(opts, metrics.Option(), measured, redlock.WithTracer(redlockotel.Tracer()))
	if s.Locker, err = redlock.NewFromOptions(masters, opts...); err != nil {
		return nil, err
	}
	var wrong [2]error
	s.Elector, wrong[0] = election.New(s.Locker, "leader")
	s.Jobs, wrong[1] = jobs.New(s.Locker)
	_ = redlockdebug.Handler(s.Locker)
	return s, errors.Join(wrong[:]...)
}

// Report makes the run of the job that all machines have.
func (s *Service) Report(ctx context.Context, due time.Time, write func(context.Context) error) error {
	return s.Jobs.Run(ctx, "report", func(ctx context.Context, _ *redlock.Lease) error { return write(ctx) }, jobs.At(due))
}
