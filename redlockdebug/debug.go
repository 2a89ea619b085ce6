// Package redlockdebug shows the state of a [redlock.Locker]: whether locks can be had, as far as it knows, who waits for
// what, its leases, its masters and its counters, as a page, as JSON and by package expvar. The package asks no master and
// changes nothing.
//
// The package stands apart, because net/http and expvar do not belong in every program that
// locks: importing expvar registers a handler with http.DefaultServeMux.
package redlockdebug

import (
	"cmp"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	_ "embed"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/wire"
)

// Handler answers GET and HEAD with the present [redlock.Stats] of a Locker: as JSON if the query has
// format=json or the Accept header prefers that, else as a page, which is read again every two seconds and takes nothing from elsewhere. Handler panics if the Locker is nil, or was not made by New.
// Durations are seconds in JSON. Tokens are shortened to 8 characters, which is enough to compare
// them with the output of "redlock status". The state of a master is untried, up or down, and closed
// after [redlock.Locker.Close]. A resource that is not UTF-8 also has a resource_base64. Names of
// resources are shown in full: restrict the access to the handler to people who may see them.
func Handler(l *redlock.Locker) http.Handler {
	inside.Of(l) // panics now, and not at the first request, if New has not made the Locker
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "redlockdebug: only GET and HEAD are answered", http.StatusMethodNotAllowed)
			return
		}
		v := viewOf(l, time.Now())
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Vary", "Accept")
		h.Set("X-Content-Type-Options", "nosniff")
		switch format := r.URL.Query().Get("format"); {
		case format == "json" || format == "" && prefersJSON(r.Header.Values("Accept")):
			h.Set("Content-Type", "application/json")
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			_ = e.Encode(v) // the client has gone
		case format == "" || format == "html":
			h.Set("Content-Type", "text/html; charset=utf-8")
			_ = page.Execute(w, v)
		default:
			http.Error(w, fmt.Sprintf("redlockdebug: format %q is neither html nor json", format), http.StatusBadRequest)
		}
	})
}

// Publish publishes the present [redlock.Stats] of a Locker in package expvar, in the form of
// [Handler]'s JSON. It panics if the name is published already. Package expvar cannot remove a
// name: publish only Lockers that live as long as the process.
func Publish(name string, l *redlock.Locker) { expvar.Publish(name, Var(l)) }

// Var returns the variable that [Publish] publishes, for an expvar.Map or a test. Both panic if the Locker is nil, or was not made by New.
func Var(l *redlock.Locker) expvar.Var {
	inside.Of(l) // panics now, and not at the first request, if New has not made the Locker
	return expvar.Func(func() any { return viewOf(l, time.Now()) })
}

// prefersJSON reports whether an Accept header ranks JSON above HTML.
func prefersJSON(accept []string) bool {
	var forJSON, forHTML float64
	for _, one := range strings.Split(strings.Join(accept, ","), ",") {
		kind, params, err := mime.ParseMediaType(one)
		if err != nil {
			continue
		}
		q := 1.0
		if given, err := strconv.ParseFloat(params["q"], 64); err == nil {
			q = given
		}
		switch kind {
		case "application/json":
			forJSON = max(forJSON, q)
		case "text/html":
			forHTML = max(forHTML, q)
		}
	}
	return forJSON > forHTML
}

// view is Stats as it is shown.
type view struct {
	Time    time.Time         `json:"time"`
	Votes   int               `json:"votes"`  // masters that have a vote, as far as the Locker knows
	Quorum  int               `json:"quorum"` // votes that a lock needs
	Leases  []lease           `json:"leases"`
	Masters []node            `json:"masters"`
	Waiting int               `json:"waiting"`
	Waits   []wait            `json:"waits"`
	Counts  map[string]uint64 `json:"counts"` // by the name of the kind
}

// MarshalJSON implements json.Marshaler: a resource can have any bytes, and people read the JSON on
// terminals.
func (v view) MarshalJSON() ([]byte, error) {
	type fields view
	text, err := json.Marshal(fields(v))
	return wire.PrintableJSON(text), err
}

// Verdict says whether locks can be had.
func (v view) Verdict() string {
	switch {
	case !slices.ContainsFunc(v.Masters, func(n node) bool { return n.State != "closed" }):
		return "Closed: no locks can be had"
	case !slices.ContainsFunc(v.Masters, func(n node) bool { return n.State != "untried" }):
		return "No master was asked yet"
	case v.Votes < v.Quorum:
		return "No locks can be had"
	}
	return "Locks can be had"
}

// Bad reports that a Locker that is in use can have no locks.
func (v view) Bad() bool { return strings.HasPrefix(v.Verdict(), "No locks") }

// wait is what calls of the process wait for.
type wait struct {
	Resource string  `json:"resource"`
	Bytes    []byte  `json:"resource_base64,omitempty"`
	Mode     string  `json:"mode"`
	Calls    int     `json:"calls"`
	Longest  seconds `json:"longest"`
	Holder   string  `json:"holder,omitempty"` // as far as the last attempt has heard
	Reason   string  `json:"reason,omitempty"` // of the last attempt, a word of redlock.Reason
	Error    string  `json:"error,omitempty"`  // of the last attempt, unless another holder is in the way
}

type lease struct {
	Resource string  `json:"resource"`
	Owner    string  `json:"owner,omitempty"`
	Bytes    []byte  `json:"resource_base64,omitempty"` // of a resource that is not UTF-8
	Mode     string  `json:"mode"`
	Token    string  `json:"token"`
	Fence    int64   `json:"fence,string"` // more than a float of JavaScript can tell apart
	Age      seconds `json:"age"`
	TTL      seconds `json:"ttl"`
	Validity seconds `json:"validity"`
	Renewals int     `json:"renewals"`
	Holds    int     `json:"holds"`
}

type node struct {
	Master     string     `json:"master"`
	State      string     `json:"state"`
	Error      string     `json:"error,omitempty"` // of now or of the last time
	ErrorTime  *time.Time `json:"error_time,omitempty"`
	Quarantine seconds    `json:"quarantine"`
	Skewed     bool       `json:"skewed"`
	RoundTrip  seconds    `json:"round_trip"`
}

// seconds is a duration that JSON has as a number.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

func (s seconds) String() string {
	switch d := time.Duration(s); {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

// bytesOf returns the bytes of a resource that is not UTF-8.
func bytesOf(resource string) []byte {
	if utf8.ValidString(resource) {
		return nil
	}
	return []byte(resource)
}

func waitsOf(l *redlock.Locker, now time.Time) []wait {
	all := []wait{}
	for _, w := range inside.Of(l).Waiting() {
		shown := wait{Resource: w.Resource, Bytes: bytesOf(w.Resource), Mode: w.Mode, Calls: w.Calls, Longest: seconds(now.Sub(w.Since))}
		quorum := (*redlock.QuorumError)(nil)
		switch {
		case w.Own:
			shown.Holder, shown.Reason = "this process", redlock.Reason(redlock.ErrTaken)
		case errors.Is(w.Why, redlock.ErrTaken) && errors.As(w.Why, &quorum):
			shown.Reason = redlock.Reason(w.Why)
			shown.Holder, _ = quorum.Holder()
		case w.Why != nil:
			shown.Reason, shown.Error = redlock.Reason(w.Why), w.Why.Error()
		}
		all = append(all, shown)
	}
	slices.SortFunc(all, func(a, b wait) int {
		return cmp.Or(cmp.Compare(b.Longest, a.Longest), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

func viewOf(l *redlock.Locker, now time.Time) view {
	s := l.Stats()
	v := view{Time: now, Quorum: len(s.Masters)/2 + 1, Leases: []lease{}, Masters: []node{}, Waiting: s.Waiting, Waits: waitsOf(l, now), Counts: make(map[string]uint64)}
	for _, l := range s.Leases {
		shown := lease{
			Resource: l.Resource,
			Bytes:    bytesOf(l.Resource),
			Owner:    wire.OwnerOf(l.Token),
			Mode:     string(l.Mode),
			Token:    wire.Short(l.Token),
			Fence:    l.Fence,
			Age:      seconds(now.Sub(l.Since)),
			TTL:      seconds(l.TTL),
			Validity: seconds(l.Validity),
			Renewals: l.Renewals,
			Holds:    l.Holds,
		}
		v.Leases = append(v.Leases, shown)
	}
	for _, n := range s.Masters {
		shown := node{
			Master:     n.Master,
			State:      n.State.String(),
			Quarantine: seconds(n.Quarantine),
			Skewed:     n.Skewed,
			RoundTrip:  seconds(n.RoundTrip),
		}
		switch {
		case errors.Is(n.Err, redlock.ErrClosed):
			shown.State = "closed" // the Locker, not the master
		case n.Err != nil:
			shown.Error = n.Err.Error()
		}
		if n.State != redlock.MasterDown && n.Quarantine == 0 && !n.Skewed {
			v.Votes++
		}
		if !n.ErrTime.IsZero() {
			shown.ErrorTime = &n.ErrTime
		}
		v.Masters = append(v.Masters, shown)
	}
	for k, n := range s.Counts {
		v.Counts[k.String()] = n
	}
	return v
}

var (
	//go:embed page.html
	pageText string

	page = template.Must(template.New("page").Funcs(template.FuncMap{"printable": wire.Printable}).Parse(pageText))
)
