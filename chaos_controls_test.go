package redlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/chaos/history"
)

// The checker of package chaos has to notice the same wrong builds as that of this
// package, by what clients saw alone. It cannot switch a rule off from where it is, so
// that is done here.

// found is the rules that it must find broken, one of them at the least.
var found = map[string][]string{
	"guard off":                           {"I1", "lock"},
	"quarantine shorter than the TTL":     {"I1", "lock"},
	"quarantined votes counted":           {"I1", "lock"},
	"quarantined fills counted":           {"I1", "lock"},
	"run id of the first connection kept": {"I1", "lock"},
	"clock steps ignored":                 {"I1", "lock"},
	"owner id reused across tries":        {"I1", "lock"},
	"validity from the last reply":        {"I1", "lock"},
	"late extension":                      {"I1", "I8"},
	"token without second round":          {"I2", "lock"},
	"raise by id only, with retries":      {"I2", "lock"},
	"raise without hold":                  {"I2", "lock"},
	"lost counter starts anew":            {"I2", "lock"},
	"q = N/2":                             {"I1", "lock"},
	"lists of 3 and 5 masters":            {"I1", "lock"},
	"lists with one master exchanged":     {"I1", "lock"},
}

// Source: ALGORITHM section 13, "Negative controls".
func TestControlsInTheHistory(t *testing.T) {
	for _, c := range controls() {
		t.Run(c.name, func(t *testing.T) {
			for _, wrong := range []bool{false, true} {
				name := map[bool]string{false: "as it is", true: "built wrongly"}[wrong]
				t.Run(name, func(t *testing.T) {
					b := newBook()
					_ = c.runFor(t, wrong, b)
					got := rulesOf(b.Check(history.Rules{}))
					switch {
					case !wrong && len(got) > 0:
						t.Errorf("got violations of %v, want none", b.Check(history.Rules{}))
					case wrong && !slices.ContainsFunc(found[c.name], func(rule string) bool { return slices.Contains(got, rule) }):
						t.Errorf("got violations of %v, want one of %v", got, found[c.name])
					}
				})
			}
		})
	}
}

func rulesOf(list []history.Violation) (rules []string) {
	for _, v := range list {
		if !slices.Contains(rules, v.Rule) {
			rules = append(rules, v.Rule)
		}
	}
	return rules
}

// book is a history that is written while a schedule is carried out.
type book struct {
	history.History
	client *history.Client

	mu   sync.Mutex
	held map[*redlock.Lease]*history.Held[*redlock.Lease] // guarded by mu
}

func newBook() *book {
	b := &book{held: make(map[*redlock.Lease]*history.Held[*redlock.Lease])}
	b.client = &history.Client{Name: "c", Sink: b.Add, Now: func() time.Duration { return time.Duration(time.Now().UnixNano()) }, Why: why}
	return b
}

// why tells the one reason apart for which a lease is valid to its very end.
func why(err error) string {
	if errors.Is(err, redlock.ErrExpired) {
		return history.Expired
	}
	return "other"
}

// take has try get a lease, and writes down what comes of it.
func (b *book) take(try func() (*redlock.Lease, error)) (*redlock.Lease, error) {
	b.look()
	h, err := history.Take(b.client, "r", false, try)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.held[h.Lease] = h
	b.mu.Unlock()
	b.look() // others may have become longer meanwhile
	return h.Lease, nil
}

// free gives a lease back.
func (b *book) free(ctx context.Context, lease *redlock.Lease) error {
	b.mu.Lock()
	h := b.held[lease]
	delete(b.held, lease)
	b.mu.Unlock()
	return h.Free(ctx)
}

// look has every holder look at its lease.
func (b *book) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.held {
		h.Look()
	}
}
