package redlock

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// idleLane is a lane that does not run, and what makes a release for it.
func idleLane(t *testing.T) (*lane, func(now instant) *request) {
	t.Helper()
	conf, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(conf, nil, newEvents(nil, conf.logger))
	n := newLane(p, 0, redis.Options{Addr: "a:1"}, guarding{})
	p.lanes = append(p.lanes, n)
	return n, func(now instant) *request {
		g, err := newGrant(p, "r", conf.lockConfig)
		if err != nil {
			t.Fatal(err)
		}
		return &request{op: opRelease, grant: g, end: now.add(g.timeout())}
	}
}

// What a lane has to repeat for a dead node is forgotten when the keys have expired,
// although the node never came back.
//
// Source: ALGORITHM section 5, "then dropped (the key is gone by then)".
func TestLaneForgetsReleasesOfADeadNode(t *testing.T) {
	n, release := idleLane(t)
	const enqueued = instant(time.Hour)
	sent, unsent := release(enqueued), release(enqueued)
	sent.grant.traces[0].sent = true
	n.pending = []*request{sent, unsent}
	n.goDown(errNodeTimeout, enqueued)
	if len(n.backlog) != 1 || n.backlog[0].request != sent {
		t.Fatalf("got %d releases to repeat, want the one whose attempt had reached the node", len(n.backlog))
	}
	if p := unsent.grant.places[0]; !p.unsent || !errors.Is(p.err, errUnsent) {
		t.Errorf("got %+v, want it known that the node has no key of the attempt", p)
	}
	last := sent.end.add(DefaultTTL + driftAllowance(DefaultTTL, DefaultDrift))
	n.goDown(errNodeTimeout, last-1)
	if len(n.backlog) != 1 {
		t.Error("forgotten before the key has expired")
	}
	n.goDown(errNodeTimeout, last)
	if len(n.backlog) != 0 {
		t.Error("kept after the key has expired")
	}
}

// A release that was confirmed while a lost message of its attempt could still arrive
// goes out again when that is over, and only then is done.
//
// Source: ALGORITHM section 5, "notAfter".
func TestLaneRepeatsAReleaseAfterALostMessage(t *testing.T) {
	n, release := idleLane(t)
	now := instant(time.Hour)
	r := release(now)
	tr := &r.grant.traces[0]
	tr.sent, tr.deadBy = true, now.add(100*time.Millisecond)
	n.settle(r, tr, reply{code: codeReleased}, now)
	if len(n.backlog) != 1 || n.due() != tr.deadBy {
		t.Fatalf("got %d releases to repeat, due at %d; want one at %d", len(n.backlog), n.due(), tr.deadBy)
	}
	if batch := n.batch(tr.deadBy - 1); len(batch) != 0 {
		t.Errorf("got %d requests before that, want none", len(batch))
	}
	if batch := n.batch(tr.deadBy); len(batch) != 1 || batch[0] != r {
		t.Errorf("got %d requests then, want the release", len(batch))
	}
	// The clock of a node that was not heard for long is known badly: what was lost may
	// arrive, and set the key, long after the release.
	late := release(now)
	lateTrace := &late.grant.traces[0]
	lateTrace.sent, lateTrace.deadBy = true, now.add(time.Minute)
	n.settle(late, lateTrace, reply{code: codeReleased}, now)
	n.prune(lateTrace.deadBy.add(DefaultTTL))
	if i := slices.IndexFunc(n.backlog, func(b retry) bool { return b.request == late }); i < 0 {
		t.Error("forgotten while a key that arrived late can be there")
	}
	n.dropRetry(late)
	n.settle(r, tr, reply{code: codeGone}, tr.deadBy)
	if len(n.backlog) != 0 {
		t.Error("still to be repeated, although nothing can arrive any more")
	}
	// One that failed is repeated until it is confirmed.
	n.settle(r, tr, reply{err: replyError("MISCONF no")}, tr.deadBy)
	n.settle(r, tr, reply{err: replyError("MISCONF no")}, tr.deadBy)
	if len(n.backlog) != 1 {
		t.Errorf("got %d releases to repeat, want one", len(n.backlog))
	}
}

// A renewal that waits to be sent when the lease is lost is not sent any more: it would
// set keys that nobody holds.
func TestLaneDropsRenewalsOfALostLease(t *testing.T) {
	n, release := idleLane(t)
	now := instant(time.Hour)
	r := release(now)
	r.op, r.round = opExtend, &round{}
	n.pending = []*request{r}
	if n.trim(now); len(n.pending) != 1 {
		t.Fatal("the renewal of a lease that is held was dropped")
	}
	r.grant.mu.Lock()
	r.grant.endLocked(errLostQuorum, now)
	r.grant.mu.Unlock()
	if n.trim(now); len(n.pending) != 0 {
		t.Error("the renewal is sent although the lease is lost")
	}
}
