package redlockprom_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/telemetry"
)

const (
	rulesFile     = "../contrib/prometheus/redlock.rules.yml"
	rulesTest     = "redlock.test.yml" // beside the rules
	dashboardFile = "../contrib/grafana/redlock.json"
)

// promtool returns the path of promtool, or skips the test.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		redistest.Missing(t, "prometheus", "needs promtool on the PATH: "+err.Error())
	}
	return path
}

// The rules are well formed, and pass their own tests.
func TestRules(t *testing.T) {
	path := promtool(t)
	for _, args := range [][]string{{"check", "rules", filepath.Base(rulesFile)}, {"test", "rules", rulesTest}} {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir = filepath.Dir(rulesFile)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", cmd, err, out)
		}
	}
}

var metricName = regexp.MustCompile(`\bredlock_[a-z_]+`)

// The rules and the dashboard use existing metrics, and the dashboard uses all of them. Each
// alert has a test.
func TestNamesInContrib(t *testing.T) {
	var known []string
	for _, row := range telemetry.Table {
		known = append(known, "redlock_"+row.Prometheus)
	}
	shown := make(map[string]bool)
	names := func(text string) (list []string) {
		for _, name := range metricName.FindAllString(text, -1) {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if !slices.Contains(known, name) {
				t.Errorf("got %q, want one of %q", name, known)
			}
			list = append(list, name)
		}
		return list
	}
	for _, q := range dashboard(t) {
		for _, name := range names(q) {
			shown[name] = true
		}
	}
	for _, name := range known {
		if !shown[name] {
			t.Errorf("the dashboard lacks %s", name)
		}
	}
	rules, err := os.ReadFile(rulesFile)
	locktest.Must(t, err)
	names(string(rules))
	tests, err := os.ReadFile(filepath.Join(filepath.Dir(rulesFile), rulesTest))
	locktest.Must(t, err)
	names(string(tests))
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		fires := regexp.MustCompile(`alertname: ` + m[1] + `\n +exp_alerts`)
		if !fires.Match(tests) {
			t.Errorf("%s has no test in which it fires", m[1])
		}
	}
	page, err := os.ReadFile("../docs/what-to-do.md")
	locktest.Must(t, err)
	for _, text := range strings.Split(string(rules), "- alert: ")[1:] {
		m := regexp.MustCompile(`runbook_url: "https://github.com/d0720281/redlock/blob/main/docs/what-to-do.md#([a-z-]+)"`).FindStringSubmatch(text)
		if m == nil || !regexp.MustCompile(`(?mi)^## `+strings.ReplaceAll(m[1], "-", " ")+`$`).Match(page) {
			t.Errorf("%s leads to no place in docs/what-to-do.md: %q", strings.Fields(text)[0], m)
		}
	}
}

// The alerts ask for the outcomes of the table that they are for, and for all of them.
func TestOutcomesInRules(t *testing.T) {
	rules, err := os.ReadFile(rulesFile)
	locktest.Must(t, err)
	attempts := telemetry.Words(telemetry.OfAttempt, telemetry.Page, telemetry.Lasting)
	want := map[string][]string{
		"RedlockNoQuorum":     attempts,
		"RedlockRenewalFails": attempts,
		"RedlockRefused":      telemetry.Words(telemetry.OfAttempt, telemetry.Lasting),
		"RedlockResource":     telemetry.Words(telemetry.OfAttempt, telemetry.Ticket),
		"RedlockLeaseLost":    telemetry.Words(telemetry.OfLease, telemetry.Page, telemetry.Lasting),
	}
	for _, text := range strings.Split(string(rules), "- alert: ")[1:] {
		name, text, _ := strings.Cut(text, "\n")
		for _, m := range regexp.MustCompile(`=~"([a-z_|]+)"`).FindAllStringSubmatch(text, -1) {
			if got := strings.Split(m[1], "|"); !slices.Equal(got, want[name]) {
				t.Errorf("%s: got %q, want %q", name, got, want[name])
			}
		}
		if want[name] != nil && !strings.Contains(text, "=~") {
			t.Errorf("%s asks for no outcomes, want %q", name, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("got no alerts for %v", want)
	}
}

// dashboard returns all queries of the dashboard.
func dashboard(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	locktest.Must(t, err)
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	locktest.Must(t, json.Unmarshal(text, &board))
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	if len(queries) == 0 {
		t.Fatal("no queries")
	}
	return queries
}
