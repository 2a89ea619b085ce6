package guard_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
)

// A service has five masters. A client has one of these and two others, which would be a quorum of its list. The client
// takes no lease, whether it was opened before the service took a lock or after that.
//
// Source: ALGORITHM section 8, "Membership".
func TestOneMasterRefusesTheList(t *testing.T) {
	c := locktest.StartFor(t, redlock.DefaultTTL, 7)
	service, wrong := c.Addrs[:5], []string{c.Addrs[1], c.Addrs[5], c.Addrs[6]}
	early := locktest.Open(t, wrong, redlock.WithOwner("early"))
	lease := locktest.Lock(t, locktest.Open(t, service, redlock.WithOwner("service")), "invoices")
	late := false
	// refused returns the error of a call. On a busy machine the master that refuses may answer last: then the lease is
	// lost, and the next call is refused.
	refused := func(call func(string) (*redlock.Lease, error)) (err error) {
		redistest.Eventually(t, 20*time.Second, func() bool {
			var got *redlock.Lease
			if got, err = call("invoices"); err == nil {
				late = true
				redistest.Eventually(t, 10*time.Second, func() bool { return errors.Is(got.Err(), redlock.ErrMasters) }, "the lease is lost")
				_ = got.Unlock(t.Context()) // which has its error, too
			}
			return err != nil && (!late || !errors.Is(err, redlock.ErrTaken)) // by a lease that was lost
		}, "the call is refused")
		return err
	}
	for name, l := range map[string]*redlock.Locker{"new": locktest.Open(t, wrong), "opened before": early} {
		for range 3 {
			err := refused(func(r string) (*redlock.Lease, error) { return l.TryLock(t.Context(), r) })
			if !errors.Is(err, redlock.ErrMasters) || redlock.Reason(err) != "membership" {
				t.Fatalf("%s: got %v, want ErrMasters, membership", name, err)
			}
			for _, text := range []string{wrong[1], service[0], "service"} {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: got %v, want %q named", name, err, text)
				}
			}
		}
		if err := refused(func(r string) (*redlock.Lease, error) { return l.Lock(t.Context(), r) }); !errors.Is(err, reason.Membership) {
			t.Errorf("%s: Lock: got %v, want an end", name, err)
		}
	}
	locktest.Must(t, lease.Unlock(t.Context()))
}
