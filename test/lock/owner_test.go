package lock_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

const webOne = "web-1 4711 nightly"

// The error of a caller that is refused, and Inspect, tell whose lease it is and for how long.
//
// Source: ALGORITHM section 2, "label".
func TestOwner(t *testing.T) {
	c := locktest.Start(t, 3)
	holder, rival := locktest.Open(t, c.Addrs, redlock.WithOwner(webOne)), locktest.Open(t, c.Addrs)
	le := locktest.Lock(t, holder, "owned")
	redistest.Eventually(t, 5*time.Second, func() bool { return c.Count("redlock:owned") == 3 }, "all nodes have the key")
	if le.Owner() != webOne || !strings.HasSuffix(le.Token(), ";"+webOne) {
		t.Errorf("got owner %q, token %q", le.Owner(), le.Token())
	}

	_, err := rival.TryLock(t.Context(), "owned")
	var refused *redlock.QuorumError
	if !errors.As(err, &refused) || !errors.Is(err, redlock.ErrTaken) {
		t.Fatalf("got %v, want a QuorumError that matches ErrTaken", err)
	}
	owner, left := refused.Holder()
	if owner != webOne || left <= redlock.DefaultTTL/2 || left > redlock.DefaultTTL {
		t.Errorf("got owner %q for %v, want %q for up to %v", owner, left, webOne, redlock.DefaultTTL)
	}
	if text := err.Error(); !strings.Contains(text, "taken by another holder ("+webOne+")") || !strings.Contains(text, ": held by "+webOne+" for ") {
		t.Errorf("got %q, want it to name the owner", text)
	}
	named := 0 // the others had not answered when it was decided
	for _, n := range refused.Masters {
		if n.Owner == webOne && n.ExpiresIn > 0 {
			named++
		}
	}
	if named < refused.Need {
		t.Errorf("got the owner from %d nodes, want it from %d: %v", named, refused.Need, err)
	}

	in, err := admin.Inspect(t.Context(), rival, "owned")
	locktest.Must(t, err)
	if in.Owner != webOne || in.Masters[0].Owner != webOne || in.Verdict != admin.VerdictHeld || in.Token != le.Token() {
		t.Errorf("got %+v", in)
	}
	locktest.Must(t, le.Unlock(t.Context()))
	if le = locktest.Lock(t, rival, "owned", redlock.WithOwner("")); le.Owner() != "" || strings.Contains(le.Token(), ";") {
		t.Errorf("without a label: got owner %q, token %q", le.Owner(), le.Token())
	}
	if owner := locktest.Lock(t, rival, "by default").Owner(); !regexp.MustCompile(fmt.Sprintf(`^[^:]+:%d:\S+$`, os.Getpid())).MatchString(owner) {
		t.Errorf("without WithOwner: got owner %q, want host:%d:program", owner, os.Getpid())
	}
	c.Fill(t, le)
	_, err = holder.TryLock(t.Context(), "owned")
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if owner, left := refused.Holder(); owner != "" || left <= 0 {
		t.Errorf("got owner %q for %v, want none for some time", owner, left)
	}
}

// A lease has the label of the process that adopted it, and keeps it when it is broken.
func TestOwnerStays(t *testing.T) {
	c := locktest.Start(t, 3)
	l := locktest.Open(t, c.Addrs)
	le := locktest.Lock(t, l, "moved", redlock.WithOwner("web-2"))
	everywhere(c, t)
	locktest.Must(t, le.Detach())
	next, err := l.Adopt(t.Context(), "moved", le.Token(), le.Fence(), redlock.WithOwner(webOne))
	locktest.Must(t, err)
	if next.Owner() != webOne {
		t.Errorf("adopted: got owner %q, want %q", next.Owner(), webOne)
	}
	in, err := admin.Break(t.Context(), l, "moved")
	locktest.Must(t, err)
	if in.Owner != webOne {
		t.Errorf("broken: got owner %q, want %q", in.Owner, webOne)
	}
	in, err = admin.Inspect(t.Context(), l, "moved")
	locktest.Must(t, err)
	if in.Verdict != admin.VerdictBroken || in.Owner != webOne {
		t.Errorf("got %v of %q, want BROKEN of %q", in.Verdict, in.Owner, webOne)
	}
	if _, err := l.TryLock(t.Context(), "moved"); !errors.Is(err, redlock.ErrTaken) || !strings.Contains(err.Error(), webOne) {
		t.Errorf("got %v, want ErrTaken with %q", err, webOne)
	}
}
