package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/node"
)

// After a second of waiting there is one line, as soon as a holder is known.
func TestNameHolder(t *testing.T) {
	const others = 10 * time.Second
	taken := func(owner string) error {
		return &redlock.QuorumError{
			Op: "lock", Need: 2, Total: 3, Reasons: []error{redlock.ErrNotAcquired, redlock.ErrTaken},
			Masters: []*redlock.MasterError{{Master: "a:1", Err: node.HeldByOther{Owner: owner}, Owner: owner}},
		}
	}
	noQuorum := &redlock.QuorumError{Op: "lock", Need: 2, Total: 3, Reasons: []error{redlock.ErrNotAcquired, redlock.ErrNoQuorum}}
	for _, test := range []struct {
		name   string
		taking taking
		taken  string        // the resource in the way
		owner  string        // its holder
		from   time.Duration // when that is known
		waits  time.Duration
		want   string
	}{
		{"a holder with a label", taking{keys: []string{"deploy"}}, "deploy", "ci-3:4711:make", 0, others, "redlock: waiting for deploy, held by ci-3:4711:make\n"},
		{"a holder without", taking{keys: []string{"deploy"}}, "deploy", "", 0, others, "redlock: waiting for deploy, held by another process\n"},
		{"less than a second", taking{keys: []string{"deploy"}}, "deploy", "x", 0, time.Second - time.Millisecond, ""},
		{"just a second", taking{keys: []string{"deploy"}}, "deploy", "x", 0, time.Second + time.Millisecond, "redlock: waiting for deploy, held by x\n"},
		{"a holder that is known late", taking{keys: []string{"deploy"}}, "deploy", "x", 5 * time.Second, others, "redlock: waiting for deploy, held by x\n"},
		{"no holder", taking{keys: []string{"deploy"}}, "another", "x", 0, others, ""},
		{"the second of two keys", taking{keys: []string{"a", "b"}}, "b", "x", 0, others, "redlock: waiting for b, held by x\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				began := time.Now()
				stop := test.taking.nameHolder(&out, func(resource string) error {
					switch {
					case resource != test.taken:
						return nil
					case time.Since(began) < test.from:
						return noQuorum
					}
					return taken(test.owner)
				})
				time.Sleep(test.waits)
				stop()
				if out.String() != test.want {
					t.Errorf("got %q, want %q", &out, test.want)
				}
			})
		})
	}
}
