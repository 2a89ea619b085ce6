package redlockprom_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/redlockprom"
)

// No label has anything that a master has sent, nor the name of a resource or a password.
func TestPrinted(t *testing.T) {
	for name, lie := range locktest.Lies() {
		if lie.Step != "" && lie.Step != "auth" && lie.Step != "requests" {
			continue // the test of the library has all steps
		}
		masters, addrs := locktest.Hostile(t, 1)
		masters[0].Tell(lie)
		metrics, registry := redlockprom.New(), prometheus.NewRegistry()
		locktest.Must(t, registry.Register(metrics))
		l, err := redlock.New([]string{"redis://default:" + locktest.Secret + "@" + addrs[0]}, redlock.WithObserver(metrics.Observer()), redlock.WithLogger(nil))
		locktest.Must(t, err)
		metrics.Watch(l)
		if _, err := l.TryLock(t.Context(), locktest.Mark); err == nil {
			t.Errorf("%s: got a lease", name)
		}
		locktest.Must(t, l.Close())
		families, err := registry.Gather()
		locktest.Must(t, err)
		text := ""
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, label := range m.GetLabel() {
					text += fmt.Sprint(label.GetName(), "=", label.GetValue(), " ")
				}
			}
		}
		if leak := locktest.Leaks(text); leak != "" || text == "" {
			t.Errorf("%s: the labels %.40q have %s", name, text, leak)
		}
	}
}
