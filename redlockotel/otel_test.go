package redlockotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/telemetry"
	"github.com/d0720281/redlock/redlockotel"
)

const (
	ttl      = 5 * time.Second
	resource = "customer-4711"
)

// scene is a Locker with masters of its own, and what it reports.
type scene struct {
	t      *testing.T
	procs  []*masters.Process
	locker *redlock.Locker
	reader *sdkmetric.ManualReader
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
	opts   []redlockotel.Option
}

func newScene(t *testing.T, n int, opts ...redlockotel.Option) *scene {
	t.Helper()
	s := &scene{t: t, procs: redistest.Masters(t, n), reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	s.tracer = tracers.Tracer("test")
	opts = append(opts, redlockotel.WithMeterProvider(meters), redlockotel.WithTracerProvider(tracers))
	s.opts = opts
	observer, err := redlockotel.Observer(opts...)
	s.must(err)
	s.locker, err = redlock.New(redistest.Addrs(s.procs), redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithMasterTimeout(ttl/4),
		redlock.WithoutRenewal(), redlock.WithLogger(nil), redlock.WithObserver(observer), redlock.WithTracer(redlockotel.Tracer(opts...)))
	s.must(err)
	t.Cleanup(func() { _ = s.locker.Close() }) // some tests leave no master to confirm a release
	_, err = redlockotel.Watch(s.locker, opts...)
	s.must(err)
	redistest.Eventually(t, 20*time.Second, func() bool { return admin.Bootstrap(t.Context(), s.locker) == nil }, "the masters vote")
	return s
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// metrics returns what a reader collects.
func (s *scene) metrics() []metricdata.Metrics {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	s.must(s.reader.Collect(context.Background(), &all))
	if len(all.ScopeMetrics) == 0 {
		return nil
	}
	return all.ScopeMetrics[0].Metrics
}

// values returns each series with its value, for histograms the number of observations.
func (s *scene) values() map[string]float64 {
	values := make(map[string]float64)
	note := func(name string, attrs attribute.Set, v float64) {
		key := strings.TrimPrefix(name, "redlock.")
		for _, kv := range attrs.ToSlice() {
			key += fmt.Sprintf(" %s=%s", strings.TrimPrefix(string(kv.Key), "redlock."), kv.Value.String())
		}
		values[key] = v
	}
	for _, m := range s.metrics() {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				note(m.Name, p.Attributes, float64(p.Value))
			}
		case metricdata.Sum[float64]:
			for _, p := range d.DataPoints {
				note(m.Name, p.Attributes, p.Value)
			}
		case metricdata.Gauge[int64]:
			for _, p := range d.DataPoints {
				note(m.Name, p.Attributes, float64(p.Value))
			}
		case metricdata.Gauge[float64]:
			for _, p := range d.DataPoints {
				note(m.Name, p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				note(m.Name, p.Attributes, float64(p.Count))
			}
		default:
			s.t.Fatalf("%s: got %T, want a kind that is known", m.Name, d)
		}
	}
	return values
}

// want waits until the values are as wanted: events are delivered a moment after they happen.
func (s *scene) want(want map[string]float64) {
	s.t.Helper()
	wrong := func() (list []string) {
		got := s.values()
		for key, v := range want {
			if got[key] != v {
				list = append(list, fmt.Sprintf("%s: got %v, want %v", key, got[key], v))
			}
		}
		return list
	}
	for end := time.Now().Add(10 * time.Second); len(wrong()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal(strings.Join(wrong(), "; "))
		}
	}
}

func (s *scene) server(i int) string {
	host, port, _ := strings.Cut(s.procs[i].Addr(), ":")
	return fmt.Sprintf(" server.address=%s server.port=%s", host, port)
}

// scenario acquires leases in each way.
func (s *scene) scenario(ctx context.Context) {
	t := s.t
	lease, err := s.locker.Lock(ctx, resource)
	s.must(err)
	s.must(lease.Extend(ctx))
	s.want(map[string]float64{"attempts outcome=granted": 1, "leases mode=exclusive": 1, "renewals outcome=renewed": 1, "validity at=renewal": 1, "master.up" + s.server(2): 1})
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
	redistest.Eventually(t, 10*time.Second, func() bool { return s.locker.Stats().Waiting == 1 }, "another caller waits")
	_, err = redlockotel.Watch(s.locker, s.opts...) // once more
	s.must(err)
	s.want(map[string]float64{"waiting": 1, "quorum": 1})
	s.must(lease.Unlock(ctx))
	lease = <-next
	s.want(map[string]float64{"handovers": 1, "attempts outcome=granted": 1, "leases mode=exclusive": 1, "hold.duration": 1, "wait.duration outcome=granted": 2, "validity at=grant": 2})
	for _, p := range s.procs[1:] {
		s.must(p.Kill())
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
	s.want(map[string]float64{
		"losses cause=expired": 1, "leases mode=exclusive": 0, "hold.duration": 2, "renewals outcome=no_quorum": 1, "validity at=failure": 1,
		"attempts outcome=no_quorum": 1, "wait.duration outcome=no_quorum": 1, "master.up" + s.server(0): 1, "master.up" + s.server(1): 0, "master.up" + s.server(2): 0,
	})
}

// Metrics count what has happened, and none has the name of a resource.
func TestMetrics(t *testing.T) {
	t.Parallel() // it waits for the end of a lease
	s := newScene(t, 3, redlockotel.WithResource())
	s.scenario(t.Context())
	for key := range s.values() {
		if strings.Contains(key, resource) {
			t.Errorf("got %s, want no resource", key)
		}
	}
	documented := documentedMetrics(t)
	for _, m := range s.metrics() {
		if want, known := documented[m.Name]; !known || m.Unit != want || m.Description == "" {
			t.Errorf("%s: got unit %q and description %q, want unit %q (documented: %v)", m.Name, m.Unit, m.Description, want, known)
		}
		delete(documented, m.Name)
	}
	if len(documented) > 0 {
		t.Errorf("got no %v", documented)
	}
}

var gauges = []string{"leases", "waiting", "quorum", "master.up", "master.quarantine"}

// Gauges are of the Lockers that are open, also while an observer is slow. Unregister takes one of them out.
func TestGauges(t *testing.T) {
	t.Parallel()
	s := newScene(t, 3)
	gone := func() (found []string) {
		for key := range s.values() {
			if name, _, _ := strings.Cut(key, " "); slices.Contains(gauges, name) {
				found = append(found, key)
			}
		}
		return found
	}
	hold := make(chan struct{})
	let := sync.OnceFunc(func() { close(hold) })
	defer let()
	open := func(opts ...redlock.Option) *redlock.Locker {
		l, err := redlock.New(redistest.Addrs(s.procs), append(opts, redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithMasterTimeout(ttl/4), redlock.WithLogger(nil))...)
		s.must(err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	slow := open(redlock.WithObserver(func(redlock.Event) { <-hold }))
	watched, err := redlockotel.Watch(slow, s.opts...)
	s.must(err)
	var leases []*redlock.Lease
	for i := range 5 {
		le, err := slow.Lock(t.Context(), fmt.Sprint("slow", i))
		s.must(err)
		leases = append(leases, le)
	}
	if got := s.values()["leases mode=exclusive"]; got != 5 {
		t.Errorf("behind a slow observer: got %v leases, want 5", got)
	}
	for _, le := range leases[1:] {
		s.must(le.Unlock(t.Context()))
	}
	if got := s.values()["leases mode=exclusive"]; got != 1 {
		t.Errorf("behind a slow observer: got %v leases, want 1", got)
	}
	s.must(watched.Unregister())
	s.must(watched.Unregister())
	if got := s.values()["leases mode=exclusive"]; got != 0 {
		t.Errorf("after Unregister: got %v leases, want none", got)
	}
	s.must(leases[0].Unlock(t.Context()))
	let()

	s.must(s.procs[2].Kill())
	s.must(s.locker.Do(t.Context(), resource, func(context.Context, *redlock.Lease) error { return nil }))
	s.want(map[string]float64{"master.up" + s.server(2): 0, "master.up" + s.server(0): 1, "quorum": 1})
	_ = s.locker.Close()
	if found := gone(); len(found) > 0 {
		t.Errorf("after Close: got %q, want no gauges", found)
	}
}

// Each kind of event has its metric, with the name, unit and attributes of the package comment.
func TestEveryEvent(t *testing.T) {
	s := &scene{t: t, reader: sdkmetric.NewManualReader()}
	o, err := redlockotel.Observer(redlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))))
	s.must(err)
	e := redlock.Event{Resource: resource, Mode: redlock.ModeExclusive, Master: "10.0.0.1:6379", Elapsed: 2 * time.Second, Validity: time.Second}
	failed := e
	failed.Err = redlock.ErrNoQuorum
	lost := e
	lost.Err = reason.Expired
	handed := e
	handed.HandedOver = true
	read := e
	read.Mode = redlock.ModeShared
	socket := e
	socket.Master = "/run/redis.sock"
	tell := func(k redlock.EventKind, e redlock.Event) {
		e.Kind = k
		o(e)
	}
	tell(redlock.EventAcquired, e)
	tell(redlock.EventAcquired, handed)
	tell(redlock.EventAcquired, e)
	tell(redlock.EventDowngraded, read)
	taken := e
	taken.Err = redlock.ErrTaken
	tell(redlock.EventTaken, taken)
	tell(redlock.EventAttemptFailed, failed)
	tell(redlock.EventNotAcquired, failed)
	tell(redlock.EventExtended, e)
	tell(redlock.EventExtendFailed, failed)
	tell(redlock.EventLost, lost)
	tell(redlock.EventAbandoned, e)
	tell(redlock.EventReleased, e)
	tell(redlock.EventExchange, e)
	tell(redlock.EventExchange, failed)
	tell(redlock.EventMasterDown, failed)
	tell(redlock.EventMasterUp, socket)
	tell(redlock.EventKeyLost, e)
	tell(redlock.EventQuarantined, e)
	tell(redlock.EventMasterClockStepped, e)
	tell(redlock.EventLocalClockStopped, e)
	tell(redlock.EventWarning, e)
	tell(redlock.EventDropped, redlock.Event{Count: 7})
	const at = " server.address=10.0.0.1 server.port=6379"
	want := map[string]float64{
		"attempts outcome=granted": 2, "attempts outcome=taken": 1, "attempts outcome=no_quorum": 1, "handovers": 1,
		"wait.duration outcome=granted": 3, "wait.duration outcome=no_quorum": 1, "hold.duration": 2,
		"validity at=grant": 3, "validity at=renewal": 1, "validity at=failure": 1,
		"renewals outcome=renewed": 1, "renewals outcome=no_quorum": 1, "losses cause=expired": 1,
		"master.duration outcome=answered" + at: 1, "master.duration outcome=no_quorum" + at: 1,
		"master.failures error.type=no_quorum" + at: 1, "master.forgets" + at: 1, "master.quarantines" + at: 1, "master.clock_steps" + at: 1, "master.warnings" + at: 1,
		"clock.standstill": 2, "events.dropped": 7, "abandoned": 1,
	}
	s.want(want)
	for key, v := range s.values() {
		if _, known := want[key]; !known && v != 0 {
			t.Errorf("got %s, want none like that", key)
		}
	}
	documented := documentedMetrics(t)
	for _, name := range gauges {
		delete(documented, "redlock."+name)
	}
	for _, m := range s.metrics() {
		if documented[m.Name] != m.Unit {
			t.Errorf("%s: got unit %q, want %q", m.Name, m.Unit, documented[m.Name])
		}
		delete(documented, m.Name)
	}
	if len(documented) > 0 {
		t.Errorf("nothing tells of %v", documented)
	}
}

var documentedLine = regexp.MustCompile(`(?m)^//\t(redlock\.[a-z_.]+) +(\S+)`)

// documentedMetrics returns the metrics of the package comment, names with units.
func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	list := make(map[string]string)
	for _, m := range documentedLine.FindAllStringSubmatch(string(text), -1) {
		list[m[1]] = m[2]
	}
	return list
}

// Calls are spans under the caller's span. The resource is on them only with WithResource;
// without it, no text contains the name.
func TestTraces(t *testing.T) {
	for _, test := range []struct {
		name string
		opts []redlockotel.Option
		want int // spans with the name of the resource
	}{
		{"without the resource", nil, 0},
		{"with the resource", []redlockotel.Option{redlockotel.WithResource()}, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 3, test.opts...)
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
				`redlock.Unlock expired fence=false error="expired" masters=false`,
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
func TestOutcomes(t *testing.T) {
	s := newScene(t, 3)
	ctx := t.Context()
	lease, err := s.locker.TryLock(ctx, resource)
	s.must(err)
	s.must(lease.Extend(ctx))
	s.must(lease.Downgrade(ctx))
	s.must(lease.Unlock(ctx))
	for _, lock := range []func() (*redlock.Lease, error){
		func() (*redlock.Lease, error) { return s.locker.Lock(ctx, resource) },
		func() (*redlock.Lease, error) { return s.locker.LockAny(ctx, resource, 2) },
	} {
		lease, err := lock()
		s.must(err)
		s.must(lease.Unlock(ctx))
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
	with := redlockotel.WithMeterProvider(refusing{})
	if _, err := redlockotel.Observer(with); !errors.Is(err, errRefused) {
		t.Errorf("Observer: got %v, want %v", err, errRefused)
	}
	l, err := redlock.New([]string{"127.0.0.1:1"}, redlock.WithLogger(nil)) // asks nothing
	if err != nil {
		t.Fatal(err)
	}
	if _, err := redlockotel.Watch(l, with); !errors.Is(err, errRefused) {
		t.Errorf("Watch: got %v, want %v", err, errRefused)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// What is nil is refused, and does not panic at the first event or collection.
func TestNil(t *testing.T) {
	_, option := redlockotel.Observer(nil)
	_, provider := redlockotel.Observer(redlockotel.WithMeterProvider(nil))
	_, watched := redlockotel.Watch(nil)
	_, zero := redlockotel.Watch(new(redlock.Locker))
	for name, err := range map[string]error{"a nil option": option, "a nil provider": provider, "a nil Locker": watched, "no Locker of New": zero} {
		if !errors.Is(err, redlock.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
	}
}

// The counters that alerts ask for are 0 for each outcome before the first event.
func TestZeros(t *testing.T) {
	s := &scene{t: t, reader: sdkmetric.NewManualReader()}
	with := redlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader)))
	l, err := redlock.New([]string{"127.0.0.1:1"}, redlock.WithLogger(nil)) // asks nothing
	s.must(err)
	defer l.Close()
	o, err := redlockotel.Observer(with)
	s.must(err)
	_, err = redlockotel.Watch(l, with)
	s.must(err)
	const at = " server.address=127.0.0.1 server.port=1"
	want := []string{"handovers", "abandoned", "events.dropped", "clock.standstill", "master.quarantines" + at, "master.forgets" + at, "master.clock_steps" + at, "master.warnings" + at}
	for name, words := range map[string][]string{
		"attempts outcome=": append(telemetry.Words(telemetry.OfAttempt), "granted"),
		"renewals outcome=": append(telemetry.Words(telemetry.OfAttempt|telemetry.OfLease), "renewed"),
		"losses cause=":     telemetry.Words(telemetry.OfLease),
	} {
		for _, word := range words {
			want = append(want, name+word)
		}
	}
	for _, word := range telemetry.Words(telemetry.OfMaster) {
		want = append(want, "master.failures error.type="+word+at)
	}
	got := s.values()
	for _, key := range want {
		if v, there := got[key]; !there || v != 0 {
			t.Errorf("%s: got %v (found: %v), want 0", key, v, there)
		}
	}
	o(redlock.Event{Kind: redlock.EventMasterDown, Master: "127.0.0.1:1", Err: redlock.ErrClosed})
	s.want(map[string]float64{"attempts outcome=no_quorum": 0, "master.failures error.type=closed" + at: 1})
	o(redlock.Event{Kind: redlock.EventAttemptFailed, Err: redlock.ErrNoQuorum}) // counted in the series that is there
	s.want(map[string]float64{"attempts outcome=no_quorum": 1})
}

var errRefused = errors.New("refused")

type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Float64Counter(string, ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	return nil, errRefused
}
