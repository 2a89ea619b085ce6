package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// Entry is a call of a package that takes a lease with options.
type Entry struct {
	Resource string   // that is locked; "r" by default
	Waits    bool     // for masters in quarantine, whatever the options
	Parts    bool     // the lease has several: its context ends at the end of WithMaxHold, and that of a lock before it
	Refuses  []string // the options that are refused, by name

	// Take takes a lease by a new Locker, and begins to work under it.
	Take func(b *Bubble, opts ...redlock.LockOption) (Held, error)
}

// Held is a lease, and the work under it.
type Held struct {
	Locker *redlock.Locker // of the resource
	Lease  HeldLease
	Work   context.Context
	End    func()                                        // ends the work, and the package gives the lease back
	Nest   func(context.Context) (*redlock.Lease, error) // takes the lease again; needed by an Entry that allows WithReentry
}

// HeldLease has the methods that the leases of all packages have.
type HeldLease interface {
	Validity() time.Duration
	Err() error
}

// Run makes a call that calls work under a lease. It returns when work has begun, or with the error
// of the call; ErrTaken if there was none. The work goes on until End is called, or the test ends.
func (h *Held) Run(t *testing.T, call func(work func(context.Context, HeldLease) error) error) error {
	begun, done := make(chan struct{}), make(chan error, 1)
	over, end := context.WithCancel(t.Context())
	go func() {
		done <- call(func(ctx context.Context, lease HeldLease) error {
			h.Work, h.Lease = ctx, lease
			close(begun)
			<-over.Done()
			return nil
		})
	}()
	h.End = func() { end(); <-done }
	select {
	case <-begun:
		return nil
	case err := <-done:
		end()
		return cmp.Or(err, redlock.ErrTaken)
	}
}

// EachOption checks that each option of a lock means for an Entry what it means for a lock, or that it
// is refused before a node is asked.
func EachOption(t *testing.T, nodes int, e Entry) {
	eachOption(t, nodes, e, func(t *testing.T, option, what string) { t.Errorf("%s: %s", option, what) })
}

// eachOption calls problem for each difference.
func eachOption(t *testing.T, nodes int, e Entry, problem func(t *testing.T, option, what string)) {
	e.Resource = cmp.Or(e.Resource, "r")
	const long = 20 * time.Second
	for _, test := range []struct {
		option  string
		with    redlock.LockOption
		restart bool // all nodes, which have no vote then
		check   func(*optionTest)
	}{
		{"WithTTL", redlock.WithTTL(3 * time.Second), false, func(o *optionTest) {
			for _, n := range o.b.Nodes {
				n.Inside(func(r *miniredis.Miniredis, _ time.Time) {
					if got := r.TTL(redlock.DefaultKeyPrefix + e.Resource); got > 3*time.Second {
						o.problem("a node keeps the key for %v", got)
					}
				})
			}
		}},
		{"WithoutRenewal", redlock.WithoutRenewal(), false, func(o *optionTest) { o.wantEnd(Validity-Lead, reason.Expired) }},
		{"WithMaxHold", redlock.WithMaxHold(long), false, func(o *optionTest) {
			if e.Parts {
				o.wantEnd(long, redlock.ErrMaxHold)
			} else {
				o.wantEnd(long-Lead, redlock.ErrMaxHold)
			}
		}},
		{"WithMinHold", redlock.WithMinHold(long), false, func(o *optionTest) {
			time.Sleep(time.Second)
			o.End()
			time.Sleep(long - time.Second - time.Millisecond)
			o.wantKey(true)
			time.Sleep(time.Millisecond)
			o.wantKey(false)
		}},
		{"WithGrace", redlock.WithGrace(time.Second), false, func(o *optionTest) {
			if got := o.Lease.Validity(); got > Validity-time.Second {
				o.problem("validity of %v", got)
			}
		}},
		{"WithOwner", redlock.WithOwner("boss"), false, func(o *optionTest) {
			in, err := admin.Inspect(o.b.T.Context(), o.Locker, e.Resource)
			if owner, _, _ := strings.Cut(in.Owner, ":"); err != nil || owner != "boss" { // that of a permit has more
				o.problem("owner %q and error %v", in.Owner, err)
			}
		}},
		{"WithQuarantineWait", redlock.WithQuarantineWait(Quarantine + time.Second), true, func(o *optionTest) {
			if o.err != nil {
				o.problem("error %v after %v", o.err, o.took)
			}
		}},
		{"WithQuarantineWait", redlock.WithQuarantineWait(Quarantine - time.Second), true, func(o *optionTest) {
			if !e.Waits && (!errors.Is(o.err, redlock.ErrQuarantine) || o.took > 2*time.Second) {
				o.problem("shorter than the quarantine: error %v after %v", o.err, o.took)
			}
		}},
		{"WithReentry", redlock.WithReentry(), false, func(o *optionTest) {
			inner, err := o.Nest(o.Work)
			if err != nil {
				o.problem("re-entry fails: %v", err)
				return
			}
			o.b.Unlock(inner)
			o.wantKey(true)
		}},
		{"Shared", redlock.Shared(), false, func(o *optionTest) {
			if _, err := e.Take(o.b, redlock.Shared()); err != nil {
				o.problem("a second reader is refused: %v", err)
			}
		}},
	} {
		t.Run(test.option, func(t *testing.T) {
			InBubble(t, nodes, func(t *testing.T, b *Bubble) {
				o := &optionTest{b: b, key: e.Resource, tell: func(what string) { problem(t, test.option, what) }}
				if test.restart {
					b.Vouch()
					b.All((*virtual.Node).RestartEmpty)
				}
				began := time.Now()
				o.Held, o.err = e.Take(b, test.with)
				o.took = time.Since(began)
				synctest.Wait()
				switch asked := slices.ContainsFunc(b.Nodes, func(n *virtual.Node) bool { return n.Conns() > 0 }); {
				case slices.Contains(e.Refuses, test.option):
					if !errors.Is(o.err, redlock.ErrConfig) || asked {
						o.problem("error %v, and nodes were asked: %t", o.err, asked)
					}
				case o.err != nil && !test.restart:
					o.problem("error %v", o.err)
				default:
					test.check(o)
				}
			})
		})
	}
}

type optionTest struct {
	Held
	err  error // of Take, and how long it took
	took time.Duration
	b    *Bubble
	key  string
	tell func(what string)
}

func (o *optionTest) problem(format string, args ...any) { o.tell(fmt.Sprintf(format, args...)) }

// wantEnd checks when the lease ends, and why.
func (o *optionTest) wantEnd(after time.Duration, why error) {
	time.Sleep(after - time.Millisecond)
	if err := errors.Join(o.Lease.Err(), context.Cause(o.Work)); err != nil {
		o.problem("before the end: %v", err)
	}
	time.Sleep(time.Millisecond)
	synctest.Wait()
	if cause := context.Cause(o.Work); !errors.Is(cause, redlock.ErrLost) || !errors.Is(cause, why) {
		o.problem("at the end: %v", cause)
	}
}

// wantKey checks whether a node has the key.
func (o *optionTest) wantKey(want bool) {
	synctest.Wait()
	if got := slices.ContainsFunc(o.b.Nodes, func(n *virtual.Node) bool { return n.Value(o.key) != "" }); got != want {
		o.problem("the resource is taken: %t", got)
	}
}
