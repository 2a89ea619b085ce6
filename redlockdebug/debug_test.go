package redlockdebug_test

import (
	"context"
	"encoding/json"
	"expvar"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlockdebug"
)

// start is a Locker that holds a lease, and whose third master is down.
func start(t testing.TB, resource string) (*redlock.Locker, *redlock.Lease) {
	t.Helper()
	minis := redistest.Minis(t, 3)
	l, err := redlock.New(redistest.Addrs(minis), redlock.WithoutRestartGuard(), redlock.WithLogger(nil), redlock.WithMasterTimeout(2*time.Second))
	locktest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	locktest.Must(t, minis[2].Kill())
	lease, err := l.Lock(t.Context(), resource)
	locktest.Must(t, err)
	redistest.Eventually(t, 10*time.Second, func() bool { return l.Stats().Masters[2].State == redlock.MasterDown }, "a master that is down")
	return l, lease
}

func get(t testing.TB, l *redlock.Locker, method, target, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	redlockdebug.Handler(l).ServeHTTP(w, r)
	return w
}

type waiting struct {
	Resource, Mode, Holder, Reason, Error string
	Calls                                 int
	Longest                               float64
}

// shown is the JSON that is promised.
type shown struct {
	Time   time.Time
	Leases []struct {
		Resource, Owner, Mode, Token, Fence string
		Age, TTL, Validity                  float64
		Renewals, Holds                     int
	}
	Masters []struct {
		Master, State, Error string
		ErrorTime            *time.Time `json:"error_time"`
		Quarantine           float64
		Skewed               bool
		RoundTrip            float64 `json:"round_trip"`
	}
	Votes, Quorum int
	Waiting       *int
	Waits         []waiting
	Counts        map[string]uint64
}

func wantShown(t testing.TB, text []byte, lease *redlock.Lease) {
	t.Helper()
	var s shown
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if len(s.Leases) != 1 || s.Leases[0].Resource != lease.Resource() || s.Leases[0].Token != lease.Token()[14:22] ||
		s.Leases[0].Fence != fmt.Sprint(lease.Fence()) || s.Leases[0].TTL != 10 || s.Leases[0].Validity <= 0 ||
		s.Leases[0].Validity > 10 || s.Leases[0].Age < 0 || s.Leases[0].Holds != 1 || s.Leases[0].Mode != "exclusive" {
		t.Errorf("leases: got %+v, want that of %q", s.Leases, lease.Resource())
	}
	if len(s.Masters) != 3 || s.Masters[0].State != "up" || s.Masters[0].RoundTrip <= 0 || s.Masters[0].Error != "" || s.Masters[0].ErrorTime != nil {
		t.Errorf("masters: got %+v, want three, the first up", s.Masters)
	} else if s.Masters[2].State != "down" || s.Masters[2].Error == "" || s.Masters[2].ErrorTime == nil {
		t.Errorf("masters: got %+v, want the third down, with the reason", s.Masters[2])
	}
	if s.Counts["acquired"] != 1 || s.Counts["master_down"] == 0 || s.Counts["extended"] != 0 || s.Waiting == nil || s.Time.IsZero() {
		t.Errorf("got %s, want 1 lease acquired, a master that went down", text)
	}
}

// The query chooses the form, or else the Accept header.
func TestHandlerForms(outer *testing.T) {
	t := redistest.Timed(outer)
	l, lease := start(t, "stock:<b>1</b>")
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, test := range []struct{ target, accept, want string }{
		{"/", "", "text/html; charset=utf-8"},
		{"/", browser, "text/html; charset=utf-8"},
		{"/", "*/*", "text/html; charset=utf-8"},
		{"/", "application/json", "application/json"},
		{"/", "application/json, text/html;q=0.9", "application/json"},
		{"/", "application/json;q=0.5, text/html", "text/html; charset=utf-8"},
		{"/?format=json", browser, "application/json"},
		{"/?format=html", "application/json", "text/html; charset=utf-8"},
	} {
		w := get(t, l, http.MethodGet, test.target, test.accept)
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != test.want {
			t.Errorf("%s, Accept %q: got %d, %q, want 200, %q", test.target, test.accept, w.Code, got, test.want)
			continue
		}
		if test.want == "application/json" {
			wantShown(t, w.Body.Bytes(), lease)
			continue
		}
		for _, want := range []string{"stock:&lt;b&gt;1&lt;/b&gt;", lease.Token()[14:22], fmt.Sprint(lease.Fence()), "attempt_failed", `class="bad"`, `<td title="state">down</td>`} {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("page: got none of %q, want it in %s", want, w.Body)
			}
		}
		if strings.Contains(w.Body.String(), lease.Token()) {
			t.Error("page: got the whole token, want it shortened")
		}
	}
}

// The name of a resource often comes from a request, and people read the page on terminals, too.
func TestResourceOfAnyBytes(outer *testing.T) {
	t := redistest.Timed(outer)
	resource := strings.ToValidUTF8(locktest.Mark, "")
	l, _ := start(t, resource)
	for _, target := range []string{"/", "/?format=json"} {
		if leak := locktest.Leaks(get(t, l, "GET", target, "").Body.String()); leak != "" {
			t.Errorf("%s has %s", target, leak)
		}
	}
	text := redlockdebug.Var(l).String()
	var s shown
	if err := json.Unmarshal([]byte(text), &s); err != nil || len(s.Leases) != 1 || s.Leases[0].Resource != resource || locktest.Leaks(text) != "" {
		t.Errorf("the variable: got %s, %v, want %q in it, escaped", text, err, resource)
	}
}

// The resource is shown whole even if JSON has no text for it, and Close takes no master down.
func TestNotUTF8AndClosed(outer *testing.T) {
	t := redistest.Timed(outer)
	l, _ := start(t, "a\xff")
	if text := redlockdebug.Var(l).String(); !strings.Contains(text, `"resource_base64":"Yf8="`) {
		t.Errorf("got no resource_base64 in %s", text)
	}
	locktest.Must(t, l.Close())
	if text := redlockdebug.Var(l).String(); strings.Count(text, `"state":"closed"`) != 3 || strings.Contains(text, `"error":`) {
		t.Errorf("after Close: got %s", text)
	}
	if page := get(t, l, "GET", "/", "").Body.String(); strings.Contains(page, `class="bad"`) {
		t.Errorf("after Close: got %s", page)
	}
}

// The page says first whether locks can be had, and who waits for what.
func TestWaits(outer *testing.T) {
	t := redistest.Timed(outer)
	list := locktest.Masters(t, 3)
	l, other := locktest.Open(t, redistest.Addrs(list)), locktest.Open(t, redistest.Addrs(list), redlock.WithOwner("batch-2"))
	if page := get(t, l, "GET", "/", "").Body.String(); !strings.Contains(page, "<b>No master was asked yet</b>") {
		t.Errorf("at first: got %s", page)
	}
	locktest.Lock(t, l, "own", redlock.Shared())
	locktest.Lock(t, other, "r")
	for _, resource := range []string{"own", "r", "r"} {
		go l.Lock(t.Context(), resource)
	}
	var s shown
	redistest.Eventually(t, 20*time.Second, func() bool {
		s = shown{}
		locktest.Must(t, json.Unmarshal([]byte(redlockdebug.Var(l).String()), &s))
		slices.SortFunc(s.Waits, func(a, b waiting) int { return strings.Compare(a.Resource, b.Resource) })
		return len(s.Waits) == 2 && s.Waits[0].Holder == "this process" && s.Waits[1].Holder == "batch-2" && s.Waits[1].Calls == 2 && s.Waits[1].Reason == "taken"
	}, "two calls wait for another process, one for its own")
	if page := get(t, l, "GET", "/", "").Body.String(); s.Votes != 3 || s.Quorum != 2 || !strings.Contains(page, "<b>Locks can be had</b>") || !strings.Contains(page, "batch-2") {
		t.Errorf("got %+v, want 3 votes: %s", s, page)
	}
	for _, m := range list[1:] {
		locktest.Must(t, m.Kill())
	}
	redistest.Eventually(t, 20*time.Second, func() bool {
		return strings.Contains(get(t, l, "GET", "/", "").Body.String(), "<b>No locks can be had</b>: 1 of 3")
	}, "no quorum is up")
}

func TestHandlerRefuses(outer *testing.T) {
	t := redistest.Timed(outer)
	l, _ := start(t, "r")
	if w := get(t, l, http.MethodPost, "/", ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: got %d, Allow %q, want 405, GET, HEAD", w.Code, w.Header().Get("Allow"))
	}
	if w := get(t, l, http.MethodGet, "/?format=yaml", ""); w.Code != http.StatusBadRequest {
		t.Errorf("format=yaml: got %d, want 400", w.Code)
	}
	if w := get(t, l, http.MethodHead, "/", ""); w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("HEAD: got %d, Cache-Control %q, want 200, no-store", w.Code, w.Header().Get("Cache-Control"))
	}
}

func TestPublish(outer *testing.T) {
	t := redistest.Timed(outer)
	l, lease := start(t, "r")
	name := fmt.Sprint("redlock-test", time.Now().UnixNano()) // -count has the test publish again
	redlockdebug.Publish(name, l)
	wantShown(t, []byte(expvar.Get(name).String()), lease)
	locktest.Must(t, lease.Unlock(t.Context()))
	if got := expvar.Get(name).String(); !strings.Contains(got, `"leases":[]`) {
		t.Errorf("after Unlock: got %s, want no leases, as a list", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("Publish under the same name: got no panic, want that of expvar")
		}
	}()
	defer log.SetOutput(log.Writer())
	log.SetOutput(t.Output()) // where expvar says so first
	redlockdebug.Publish(name, l)
}

func ExampleHandler() {
	locker, err := redlock.New([]string{"10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"})
	if err != nil {
		log.Panic(err)
	}
	defer locker.Close()
	http.Handle("GET /debug/redlock", redlockdebug.Handler(locker))
	redlockdebug.Publish("redlock", locker) // at /debug/vars
	_, _ = locker.TryLock(context.Background(), "stock:item-1")
	go func() { log.Print(http.ListenAndServe("127.0.0.1:6060", nil)) }()
}

func TestMain(m *testing.M) { os.Exit(redistest.Again(m).Run()) }
