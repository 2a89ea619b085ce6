package redlockotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/telemetry"
	"github.com/d0720281/redlock/redlockotel"
	"github.com/d0720281/redlock/redlocktest"
)

const resource = "customer-4711"

// scene is a Locker with masters of its own, and what it reports. It is made in a bubble of testing/synctest.
type scene struct {
	t       *testing.T
	masters []*redlocktest.Master
	locker  *redlock.Locker
	spans   *tracetest.InMemoryExporter
	tracer  trace.Tracer
}

func newScene(t *testing.T, opts ...redlockotel.Option) *scene {
	cluster := redlocktest.Start(t, 3)
	s := &scene{t: t, masters: cluster.Masters(), spans: tracetest.NewInMemoryExporter()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	s.tracer = tracers.Tracer("test")
	opts = append(opts, redlockotel.WithTracerProvider(tracers))
	s.locker = cluster.Locker(redlock.WithoutRenewal(), redlock.WithLogger(nil), redlock.WithTracer(redlockotel.Tracer(opts...)))
	return s
}

// scenario acquires leases in each way.
func (s *scene) scenario(ctx context.Context) {
	t := s.t
	lease, err := s.locker.Lock(ctx, resource)
	locktest.Must(s.t, err)
	locktest.Must(s.t, lease.Extend(ctx))
	_, err = s.locker.TryLock(ctx, resource)
	if !errors.Is(err, redlock.ErrTaken) {
		t.Fatalf("got %v, want ErrTaken", err)
	}
	next := make(chan *redlock.Lease)
	go func() {
		le, err := s.locker.Lock(ctx, resource)
		if err != nil {
			t.Error(err)
		}
		next <- le
	}()
	synctest.Wait() // another caller waits
	locktest.Must(s.t, lease.Unlock(ctx))
	lease = <-next
	for _, m := range s.masters[1:] {
		m.Kill()
	}
	if err := lease.Extend(ctx); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Fatalf("got %v, want ErrNoQuorum", err)
	}
	<-lease.Context().Done()
	if err := lease.Unlock(ctx); !errors.Is(err, reason.Expired) {
		t.Fatalf("got %v, want reason.Expired", err)
	}
	if _, err := s.locker.TryLock(ctx, resource); !errors.Is(err, redlock.ErrNoQuorum) {
		t.Fatalf("got %v, want ErrNoQuorum", err)
	}
}

// One option gives all metrics, those that the package comment lists, with names and units of the table. Lockers of one
// provider are added up, and none has the name of a resource. What they mean is tested in internal/telemetry.
func TestMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	meters := redlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	var lockers []*redlock.Locker
	dead, alive := redlocktest.Start(t, 3), redlocktest.Start(t, 3)
	for _, cluster := range []*redlocktest.Cluster{dead, alive} {
		option, err := redlockotel.Metrics(meters, redlockotel.WithResource())
		locktest.Must(t, err)
		l := cluster.Locker(option, redlock.WithLogger(nil))
		locktest.Must(t, locktest.Lock(t, l, resource).Extend(t.Context()))
		lockers = append(lockers, l)
	}
	for _, m := range dead.Masters() {
		m.Kill()
	}
	_, _ = lockers[0].TryLock(t.Context(), "other")
	e, err := election.New(lockers[1], "e")
	locktest.Must(t, err)
	leads := make(chan bool)
	go e.Run(t.Context(), func(ctx context.Context, _ *redlock.Lease) error { close(leads); <-ctx.Done(); return nil })
	<-leads
	got := make(map[string]string) // name and unit
	values := make(map[string]float64)
	note := func(name string, attrs attribute.Set, v float64) {
		for _, kv := range attrs.ToSlice() {
			name += fmt.Sprintf(" %s=%s", kv.Key, kv.Value.String())
		}
		values[name] = v
		if strings.Contains(name, resource) {
			t.Errorf("got %s, want no resource", name)
		}
	}
	collect := func() {
		var all metricdata.ResourceMetrics
		locktest.Must(t, reader.Collect(t.Context(), &all))
		for _, m := range all.ScopeMetrics[0].Metrics {
			got[m.Name] = m.Unit
			switch d := m.Data.(type) {
			case metricdata.Sum[float64]:
				for _, p := range d.DataPoints {
					note(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					note(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					note(m.Name, p.Attributes, float64(p.Count))
				}
			}
		}
	}
	collect() // with gauges
	for _, l := range lockers {
		_ = l.Close() // all events have been told; no master confirms a release of the first
	}
	collect()
	want := make(map[string]string)
	for _, row := range telemetry.Table {
		want["redlock."+row.OpenTelemetry] = row.Unit
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	host, port, _ := net.SplitHostPort(dead.Masters()[0].Addr())
	for name, want := range map[string]float64{
		"redlock.attempts redlock.outcome=granted": 3, "redlock.leases redlock.mode=exclusive": 3, "redlock.validity redlock.at=grant": 3,
		"redlock.leader redlock.election=e": 1, "redlock.quorum": 0, "redlock.handovers": 0, "redlock.master.failures error.type=tls server.address=" + host + " server.port=" + port: 0,
	} {
		if v, there := values[name]; !there || v != want {
			t.Errorf("%s: got %v (found: %v), want %v", name, v, there, want)
		}
	}
	text, err := os.ReadFile("doc.go")
	locktest.Must(t, err)
	documented := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^//\t(redlock\.[a-z_.]+) +(\S+)`).FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = m[2]
	}
	if !maps.Equal(documented, want) {
		t.Errorf("the package comment lists %v, want %v", documented, want)
	}
}

// Calls are spans under the caller's span. The resource is on them only with WithResource;
// without it, no text contains the name.
func TestTraces(t *testing.T) {
	for _, test := range []struct {
		opts []redlockotel.Option
		want int // spans with the name of the resource
	}{{nil, 0}, {[]redlockotel.Option{redlockotel.WithResource()}, 8}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, test.opts...)
			ctx, root := s.tracer.Start(t.Context(), "root")
			s.scenario(ctx)
			root.End()
			var told []string
			named := 0
			for _, span := range s.spans.GetSpans() {
				if span.Name == "root" {
					continue
				}
				if span.Parent.SpanID() != root.SpanContext().SpanID() || span.SpanKind != trace.SpanKindClient {
					t.Errorf("%s: got parent %v and kind %v, want the caller's span and a client", span.Name, span.Parent.SpanID(), span.SpanKind)
				}
				outcome, fence, kind := "", false, ""
				for _, kv := range span.Attributes {
					switch kv.Key {
					case "redlock.outcome":
						outcome = kv.Value.AsString()
					case "redlock.fence":
						fence = kv.Value.AsInt64() > 0
					case "error.type":
						kind = kv.Value.AsString()
					}
				}
				if (span.Status.Code == codes.Error) != (kind != "") {
					t.Errorf("%s: got status %v with error.type %q", span.Name, span.Status, kind)
				}
				masters := 0
				for _, e := range span.Events {
					if e.Name == "redlock.master" {
						masters++
					}
				}
				told = append(told, fmt.Sprintf("%s %s fence=%v error=%q masters=%v", span.Name, outcome, fence, kind, masters > 0))
				if strings.Contains(fmt.Sprint(span), resource) {
					named++
				}
			}
			want := []string{
				`redlock.Lock granted fence=true error="" masters=false`,
				`redlock.Extend renewed fence=true error="" masters=false`,
				`redlock.TryLock taken fence=false error="" masters=true`,
				`redlock.Unlock released fence=true error="" masters=false`,
				`redlock.Lock granted fence=true error="" masters=false`,
				`redlock.Extend no_quorum fence=false error="no_quorum" masters=true`,
				`redlock.Unlock expired fence=false error="expired" masters=true`,
				`redlock.TryLock no_quorum fence=false error="no_quorum" masters=true`,
			}
			slices.Sort(told) // either call of the hand-over can end first
			slices.Sort(want)
			if !slices.Equal(told, want) {
				t.Errorf("got %q, want %q", told, want)
			}
			if named != test.want {
				t.Errorf("got %d spans with the name of the resource, want %d", named, test.want)
			}
		})
	}
}

// Each call that succeeds has an outcome.
func TestOutcomes(t *testing.T) { synctest.Test(t, testOutcomes) }

func testOutcomes(t *testing.T) {
	s := newScene(t)
	ctx := t.Context()
	lease, err := s.locker.TryLock(ctx, resource)
	locktest.Must(s.t, err)
	locktest.Must(s.t, lease.Extend(ctx))
	locktest.Must(s.t, lease.Downgrade(ctx))
	locktest.Must(s.t, lease.Unlock(ctx))
	for _, lock := range []func() (*redlock.Lease, error){
		func() (*redlock.Lease, error) { return s.locker.Lock(ctx, resource) },
		func() (*redlock.Lease, error) { return inside.Of(s.locker).LockAny(ctx, resource, 2) },
	} {
		lease, err := lock()
		locktest.Must(s.t, err)
		locktest.Must(s.t, lease.Unlock(ctx))
	}
	told := make(map[string]string)
	for _, span := range s.spans.GetSpans() {
		for _, kv := range span.Attributes {
			if kv.Key == "redlock.outcome" {
				told[span.Name] = kv.Value.AsString()
			}
		}
	}
	want := map[string]string{"redlock.TryLock": "granted", "redlock.Lock": "granted", "redlock.LockAny": "granted", "redlock.Extend": "renewed", "redlock.Downgrade": "downgraded", "redlock.Unlock": "released"}
	if !maps.Equal(told, want) {
		t.Errorf("got %v, want %v", told, want)
	}
}

// The refusal of an instrument is reported.
func TestRefusedInstrument(t *testing.T) {
	if _, err := redlockotel.Metrics(redlockotel.WithMeterProvider(refusing{})); !errors.Is(err, errRefused) {
		t.Errorf("got %v, want %v", err, errRefused)
	}
}

// What is nil is refused, and does not panic at the first event or collection.
func TestNil(t *testing.T) {
	_, option := redlockotel.Metrics(nil)
	_, provider := redlockotel.Metrics(redlockotel.WithMeterProvider(nil))
	for name, err := range map[string]error{"a nil option": option, "a nil provider": provider} {
		if !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
	}
}

var errRefused = errors.New("refused")

type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Float64Counter(string, ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	return nil, errRefused
}

func TestMain(m *testing.M) { os.Exit(redistest.Again(m).Run()) }
