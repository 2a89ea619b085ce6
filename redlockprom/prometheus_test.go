package redlockprom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/telemetry"
	"github.com/d0720281/redlock/redlockprom"
)

const (
	rulesFile     = "../contrib/prometheus/redlock.rules.yml"
	rulesTest     = "redlock.test.yml" // beside the rules
	dashboardFile = "../contrib/grafana/redlock.json"
)

// tool returns the path of a program of Prometheus, or skips the test.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		redistest.Missing(t, "prometheus", "needs "+name+" on the PATH: "+err.Error())
	}
	return path
}

// The rules are well formed, and pass their own tests.
func TestRules(t *testing.T) {
	promtool := tool(t, "promtool")
	for _, args := range [][]string{{"check", "rules", filepath.Base(rulesFile)}, {"test", "rules", rulesTest}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
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
		for _, name := range names(q.expr) {
			shown[name] = true
		}
	}
	for _, name := range known {
		if !shown[name] {
			t.Errorf("the dashboard lacks %s", name)
		}
	}
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	names(string(rules))
	tests, err := os.ReadFile(filepath.Join(filepath.Dir(rulesFile), rulesTest))
	if err != nil {
		t.Fatal(err)
	}
	names(string(tests))
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		fires := regexp.MustCompile(`alertname: ` + m[1] + `\n +exp_alerts`)
		if !fires.Match(tests) {
			t.Errorf("%s has no test in which it fires", m[1])
		}
	}
}

// The alerts ask for the outcomes of the table that they are for, and for all of them.
func TestOutcomesInRules(t *testing.T) {
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
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

// query is a query of a dashboard.
type query struct{ panel, expr string }

// dashboard returns all queries of the dashboard.
func dashboard(t *testing.T) (queries []query) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries = append(queries, query{p.Title, target.Expr})
		}
	}
	if len(queries) == 0 {
		t.Fatal("no queries")
	}
	return queries
}

// A real Prometheus scrapes a process with real leases, while a master dies and comes back empty.
// Every query of the dashboard returns data, and the alerts fire.
func TestPrometheus(t *testing.T) {
	path := tool(t, "prometheus")
	const ttl = 3 * time.Second
	procs := redistest.Masters(t, 3)
	metrics, registry := redlockprom.New(), prometheus.NewRegistry()
	registry.MustRegister(metrics)
	target := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer target.Close()
	l, err := redlock.New(redistest.Addrs(procs), metrics.Option(), redlock.WithTTL(ttl), redlock.WithMaxTTL(ttl), redlock.WithMasterTimeout(ttl/4),
		redlock.WithoutRenewal(), redlock.WithLogger(nil))
	locktest.Must(t, err)
	defer l.Close()
	redistest.Eventually(t, 20*time.Second, func() bool { return admin.Bootstrap(t.Context(), l) == nil }, "the masters vote")
	p := startPrometheus(t, path, target.URL)

	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		for i := 0; ctx.Err() == nil; i++ {
			work(ctx, l, fmt.Sprint("job-", i%3))
		}
	}()
	defer func() { stop(); <-worked }()
	p.eventually("it scrapes", func() bool { return p.has(`sum(rate(redlock_attempts_total{outcome="granted"}[5s])) > 0`) })
	p.eventually("the rules were looked at", func() bool { return len(p.rules()) > 0 && !slices.ContainsFunc(p.rules(), rule.unknown) })
	for _, r := range p.rules() {
		if r.Health != "ok" {
			t.Errorf("rule %s: got %s %q, want ok", r.Name, r.Health, r.LastError)
		}
	}

	locktest.Must(t, procs[2].Kill())
	p.eventually("a master is down", func() bool { return p.state("RedlockMasterDown") == "pending" }) // it fires after a minute
	doomed := locktest.Lock(t, l, "doomed")
	locktest.Must(t, procs[1].Kill())
	if err := doomed.Extend(t.Context()); err == nil {
		t.Error("a lease was renewed with one master of three")
	}
	p.eventually("there is no quorum", func() bool { return p.state("RedlockNoQuorum") == "pending" })
	p.eventually("leases are lost", func() bool { return p.state("RedlockLeaseLost") == "firing" })
	p.eventually("renewal fails", func() bool { return p.has(`sum(increase(redlock_renewals_total{outcome="no_quorum"}[45s])) > 0`) }) // the lease ends before that alert
	locktest.Must(t, procs[1].Restart())
	locktest.Must(t, procs[2].Restart())
	p.eventually("masters are in quarantine", func() bool { return p.state("RedlockQuarantine") == "firing" })

	for _, q := range dashboard(t) {
		expr := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "30s", "$__range", "5m").Replace(q.expr)
		p.eventually(fmt.Sprintf("%s: %s has data", q.panel, expr), func() bool { return p.has(expr) })
	}
}

// work acquires leases in each way.
func work(ctx context.Context, l *redlock.Locker, resource string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lease, err := l.Lock(ctx, resource)
	if err != nil {
		return
	}
	next := make(chan *redlock.Lease)
	go func() {
		le, _ := l.Lock(ctx, resource)
		next <- le
	}()
	for range 3 {
		_, _ = l.TryLock(ctx, resource)
		if errors.Is(lease.Extend(ctx), redlock.ErrNoQuorum) {
			<-lease.Context().Done()
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	_ = lease.Unlock(ctx)
	if lease = <-next; lease != nil {
		_ = lease.Unlock(ctx)
	}
}

// server is a running Prometheus.
type server struct {
	t   *testing.T
	url string
}

func startPrometheus(t *testing.T, path, target string) *server {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 500ms}\n"+
		"rule_files: [%q]\nscrape_configs: [{job_name: shop, metrics_path: %q, static_configs: [{targets: [%q]}]}]\n", rules, "/", u.Host)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	port, err := masters.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("prometheus says: %s", text)
		}
	})
	s := &server{t: t, url: "http://" + addr}
	s.eventually("it is ready", func() bool {
		res, err := http.Get(s.url + "/-/ready")
		if err == nil {
			_ = res.Body.Close()
		}
		return err == nil && res.StatusCode == http.StatusOK
	})
	return s
}

func (s *server) eventually(what string, cond func() bool) {
	s.t.Helper()
	redistest.Eventually(s.t, 30*time.Second, cond, what)
}

// get sends a request to the API.
func (s *server) get(path string, args url.Values, into any) {
	s.t.Helper()
	res, err := http.Get(s.url + "/api/v1/" + path + "?" + args.Encode())
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status != "success" {
		s.t.Fatalf("%s?%s: got %v, %s", path, args.Encode(), err, text)
	}
}

// has reports whether a query returns at least one number.
func (s *server) has(expr string) bool {
	s.t.Helper()
	var found struct {
		Result []struct {
			Value [2]any
		}
	}
	s.get("query", url.Values{"query": {expr}}, &found)
	for _, r := range found.Result {
		text, _ := r.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			return true
		}
	}
	return false
}

// rule is the API's description of a rule.
type rule struct{ Name, State, Health, LastError string }

// unknown reports whether the rule has not been evaluated yet.
func (r rule) unknown() bool { return r.Health == "unknown" }

func (s *server) rules() (list []rule) {
	s.t.Helper()
	var found struct{ Groups []struct{ Rules []rule } }
	s.get("rules", nil, &found)
	for _, g := range found.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

func (s *server) state(alert string) string {
	s.t.Helper()
	for _, r := range s.rules() {
		if r.Name == alert {
			return r.State
		}
	}
	return "missing"
}
