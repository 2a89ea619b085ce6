package redlockprom_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/redlockprom"
)

const (
	scrapeEach = 15 * time.Second
	quiet      = 2 * time.Minute
)

// The alerts that fire in a night, by its name.
var alertsOfNight = map[string][]string{
	"nothing happens":                                            nil,
	"a master is down for three minutes":                         {"RedlockMasterDown", "RedlockQuarantine"},
	"a master hangs for three minutes":                           {"RedlockMasterDown"},
	"a master is emptied":                                        {"RedlockMasterForgets", "RedlockQuarantine"},
	"two masters are down for three minutes":                     {"RedlockLeaseLost", "RedlockMasterDown", "RedlockNoQuorum", "RedlockQuarantine"},
	"two masters hang for three seconds":                         nil,
	"all masters restart empty at once":                          {"RedlockLeaseLost", "RedlockMasterForgets", "RedlockQuarantine"},
	"the clock of a master is put forward by a minute, and back": {"RedlockMasterClock", "RedlockMasterForgets", "RedlockQuarantine", "RedlockWarning"},
	"a rolling upgrade, with 30 leases":                          {"RedlockMasterForgets", "RedlockQuarantine"},
}

// promtool goes through each night with the metrics of a service in that night. The alerts of alertsOfNight fire in it, and no
// others. RedlockNoQuorum fires while no lock was granted for 90 s, and does not while locks are granted. At the end of
// each night every query of the dashboard has a number.
func TestVirtualNightsFireAlerts(t *testing.T) {
	path := promtool(t)
	rules, err := filepath.Abs(rulesFile)
	locktest.Must(t, err)
	type object = map[string]any
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	var tests []object
	outages := 0
	for _, night := range locktest.Nights() {
		got := record(t, night)
		end := time.Duration(got.scrapes-1) * scrapeEach
		input := []object{}
		for name, values := range got.series {
			input = append(input, object{"series": name, "values": strings.Join(values, " ")})
		}
		fired := []sample{}
		for _, alert := range alertsOfNight[night.Name] {
			fired = append(fired, sample{fmt.Sprintf("{alertname=%q}", alert), 1})
		}
		asked := []object{{
			"expr":      fmt.Sprintf(`count by (alertname) (sum_over_time(ALERTS{alertstate="firing"}[%v]) > 0) > bool 0`, end+time.Second),
			"eval_time": end.String(), "exp_samples": fired,
		}}
		for _, q := range dashboard(t) {
			if strings.Contains(q, "redlock_leader") {
				continue // no night has an election
			}
			q = strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "1m", "$__range", "5m").Replace(q)
			asked = append(asked, object{
				"expr":      fmt.Sprintf("count((%[1]s) == (%[1]s)) > bool 0", q), // NaN is not equal to NaN
				"eval_time": end.String(), "exp_samples": []sample{{"{}", 1}},
			})
		}
		for i := 1; i < got.scrapes; i++ {
			firing := []sample{}
			switch since := time.Duration(i-got.granted[i]) * scrapeEach; {
			case since >= 90*time.Second:
				firing = append(firing, sample{"{}", 1})
				outages++
			case since > 0:
				continue
			}
			asked = append(asked, object{
				"expr":      `count(ALERTS{alertname="RedlockNoQuorum",alertstate="firing"})`,
				"eval_time": (time.Duration(i) * scrapeEach).String(), "exp_samples": firing,
			})
		}
		tests = append(tests, object{"name": night.Name, "interval": scrapeEach.String(), "input_series": input, "promql_expr_test": asked})
	}
	if outages < 4 {
		t.Errorf("without a grant for 90 s: %d scrapes of all nights, want at least 4", outages)
	}
	text, err := json.Marshal(object{"rule_files": []string{rules}, "evaluation_interval": scrapeEach.String(), "tests": tests})
	locktest.Must(t, err)
	file := filepath.Join(t.TempDir(), "nights.yml") // JSON is YAML
	locktest.Must(t, os.WriteFile(file, text, 0o600))
	if out, err := exec.CommandContext(t.Context(), path, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// recording has the metrics of a night.
type recording struct {
	scrapes int
	series  map[string][]string // by name and labels: a value for each scrape
	granted []int               // by scrape: the last one at which more locks had been granted than before
}

// record goes through a night, and scrapes the metrics of the service.
func record(t *testing.T, night locktest.Night) (got recording) {
	got.series = make(map[string][]string)
	synctest.Test(t, func(t *testing.T) {
		metrics, registry := redlockprom.New(), prometheus.NewRegistry()
		registry.MustRegister(metrics)
		grants := 0.0
		scrape := func() {
			families, err := registry.Gather()
			if err != nil {
				t.Error(err)
			}
			before := grants
			for _, f := range families {
				for _, m := range f.Metric {
					for name, value := range values(f, m) {
						missed := slices.Repeat([]string{"_"}, got.scrapes-len(got.series[name]))
						got.series[name] = append(append(got.series[name], missed...), fmt.Sprint(value))
						if strings.HasPrefix(name, "redlock_attempts_total") && strings.Contains(name, `"granted"`) {
							grants = value
						}
					}
				}
			}
			last := got.scrapes
			if grants == before && last > 0 {
				last = got.granted[last-1]
			}
			got.granted = append(got.granted, last)
			got.scrapes++
		}
		night.Live(t, quiet, func() {
			go func() {
				for {
					scrape()
					select {
					case <-time.After(scrapeEach):
					case <-t.Context().Done():
						return
					}
				}
			}()
		}, metrics.Option(), redlock.WithLogger(nil))
	})
	return got
}

// values returns the samples of a metric as Prometheus stores them, by name and labels.
func values(f *dto.MetricFamily, m *dto.Metric) map[string]float64 {
	labels := []string{`job="shop"`, `instance="one"`}
	for _, l := range m.Label {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	name := func(suffix string, more ...string) string {
		return f.GetName() + suffix + "{" + strings.Join(slices.Concat(labels, more), ",") + "}"
	}
	switch {
	case m.Counter != nil:
		return map[string]float64{name(""): m.Counter.GetValue()}
	case m.Gauge != nil:
		return map[string]float64{name(""): m.Gauge.GetValue()}
	}
	all := map[string]float64{name("_sum"): m.Histogram.GetSampleSum(), name("_count"): float64(m.Histogram.GetSampleCount())}
	for _, b := range append(m.Histogram.Bucket, &dto.Bucket{UpperBound: new(math.Inf(1)), CumulativeCount: m.Histogram.SampleCount}) {
		all[name("_bucket", fmt.Sprintf("le=\"%v\"", b.GetUpperBound()))] = float64(b.GetCumulativeCount())
	}
	return all
}
