package redlockotel_test

import (
	"fmt"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlockotel"
)

// Spans have nothing that a master has sent but in printable form, and no password. The
// same holds for a resource of any bytes.
func TestPrinted(outer *testing.T) {
	t := redistest.Timed(outer)
	for name, lie := range locktest.Lies() {
		if lie.Step != "" && lie.Step != "auth" && lie.Step != "requests" {
			continue // the test of the library has all steps
		}
		masters, addrs := locktest.Hostile(t, 1)
		masters[0].Tell(lie)
		spans := tracetest.NewInMemoryExporter()
		with := []redlockotel.Option{
			redlockotel.WithResource(), redlockotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))),
		}
		l, err := redlock.New([]string{"redis://default:" + locktest.Secret + "@" + addrs[0]},
			redlock.WithTracer(redlockotel.Tracer(with...)), redlock.WithLogger(nil))
		locktest.Must(t, err)
		if _, err := l.TryLock(t.Context(), locktest.Mark); err == nil {
			t.Errorf("%s: got a lease", name)
		}
		locktest.Must(t, l.Close())
		for _, s := range spans.GetSpans() {
			text := fmt.Sprint(s.Name, " ", s.Status.Description)
			for _, a := range s.Attributes {
				text += " " + a.Value.String()
			}
			for _, e := range s.Events {
				for _, a := range e.Attributes {
					text += " " + a.Value.String()
				}
			}
			if leak := locktest.Leaks(text); leak != "" {
				t.Errorf("%s: a span has %s", name, leak)
			}
		}
		if len(spans.GetSpans()) == 0 {
			t.Errorf("%s: got no spans", name)
		}
	}
}
