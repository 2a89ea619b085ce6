package redlock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file is the client's side of the restart guard: the marker of a node, what is
// asked of it, and the start of a new deployment. The guard itself is in lua/guard.lua.

// guardSuffix, behind the key prefix, is the name of the marker. No resource may end
// like that.
const guardSuffix = "~guard"

// unknownRun stands for the identity of a server that does not tell it.
const unknownRun = "?"

// quarantine is how long a node that may have lost keys has no vote: until every key that
// it can have lost would have expired.
//
// Source: distlock, "Performance, Crash Recovery and fsync"; ALGORITHM section 1.
func quarantine(maxTTL time.Duration, factor float64) time.Duration {
	return time.Duration(math.Ceil(float64(maxTTL)*stretch(factor))) + 100*time.Millisecond
}

// stretch is the length of a quarantine in largest TTLs, but for a constant.
func stretch(factor float64) float64 { return 1 + 2*factor }

// guarding is what every script is told first: what the guard and the counters need.
// The values go to the client library boxed once.
type guarding struct {
	marker string
	args   [6]any
	list   string // fingerprint of the list of masters
}

func newGuarding(c *config, addrs []string) guarding {
	return guarding{
		marker: c.keyPrefix + guardSuffix,
		args: [6]any{millis(c.counterTTL()), fenceBlock, "", millis(c.maxTTL),
			strconv.FormatFloat(stretch(c.drift), 'f', -1, 64), 0},
		list: fingerprint(addrs),
	}
}

// identify is the same for a server with that identity. The guard is off where it is "".
func (g *guarding) identify(run string, trusted bool) {
	g.args[2], g.args[5] = run, 0
	if trusted {
		g.args[5] = 1
	}
}

func (g *guarding) on() bool { return g.args[2] != "" }

// fingerprint tells one list of masters from another, whatever their order.
func fingerprint(addrs []string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join(slices.Sorted(slices.Values(addrs)), "\n"))) // a hash takes everything
	return fmt.Sprintf("%d:%016x", len(addrs), h.Sum64())
}

// marker is what a node says of itself by its marker.
type marker struct {
	left   time.Duration // without a vote
	maxTTL time.Duration // the largest of any client
	list   string        // fingerprint of the last client's list of masters; "" = none yet

	run, born string // as they are there, for vouching
}

// What can be done about a marker; lua/marker.lua has more.
const (
	markerLook  = "look"
	markerVouch = "vouch"
	markerMark  = "mark"
)

// markerOn has a node's marker looked at, or changed, and reads its clock on the way.
func (n *lane) markerOn(ctx context.Context, conn redis.Cmdable, what string, seen marker) (marker, error) {
	args := append(slices.Clone(n.guarding.args[:]), what, n.guarding.list, seen.run, seen.born)
	sent := n.moment()
	values, err := conn.Eval(ctx, markerScript, []string{n.guarding.marker}, args...).Slice()
	if err != nil {
		return marker{}, nodeFailure(err)
	}
	if len(values) != 6 {
		return marker{}, errBadReply
	}
	micros, ok0 := values[0].(int64)
	left, ok1 := values[1].(int64)
	longest, ok2 := values[2].(int64)
	list, ok3 := values[3].(string)
	run, ok4 := values[4].(string)
	born, ok5 := values[5].(string)
	if !ok0 || !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return marker{}, errBadReply
	}
	n.observeClock(micros, sent, n.now())
	if left < 0 {
		return marker{}, errStale
	}
	m := marker{left: time.Duration(left) * time.Millisecond, maxTTL: time.Duration(longest) * time.Millisecond, list: list, run: run, born: born}
	n.noteQuarantine(m.left, n.now())
	return m, nil
}

// noteQuarantine keeps until when the node has no vote, as it says itself.
func (n *lane) noteQuarantine(left time.Duration, now instant) {
	if left <= 0 {
		n.votesAt.Store(math.MinInt64)
		return
	}
	if until := instant(n.votesAt.Load()); until < now {
		n.warned.Store(false)
		n.events.nodeQuarantined(n.addr, left)
	}
	n.votesAt.Store(int64(now.add(left)))
}

// mark has the node's quarantine begin, for every client. A node that cannot be told has
// no vote here for as long.
func (n *lane) mark() error {
	ctx := context.Background() // bounded by the client's time-outs
	err := errGuardOff
	if n.guarding.on() {
		_, err = n.markerOn(ctx, n.conn, markerMark, marker{})
	}
	if err != errGuardOff && !survives(err) {
		return err
	}
	if err != nil {
		n.distrust(n.now().add(quarantine(n.conf.maxTTL, n.conf.drift)))
		if err != errGuardOff {
			n.events.warning(n.addr, fmt.Errorf("evidence of lost keys could not be noted: %w", err))
		}
	}
	n.view.marking, n.view.suspect = false, false
	return nil
}

// Bootstrap gives the masters of a new deployment their votes at once. A master that is
// seen for the first time could be one that lost its data, and has no vote for a little
// longer than the value of [WithMaxTTL]; Bootstrap vouches for it. It is for whoever sets
// a deployment up, once, and never for the start of a service: at that time masters that
// restarted empty look the same, and vouching for them while somebody holds a lease makes
// two holders.
//
// All masters must answer, or nothing is done and the error is a [*QuorumError] that
// matches [ErrNoQuorum]. One that is lost between the question and the order to vote sits
// out its quarantine. If they are in use already nothing is left to do. If some are in
// use and others in quarantine nothing is done either: those others have been added, or
// have lost data, and waiting is the only safe way; the error then matches
// [ErrQuarantine]. With [WithoutRestartGuard] there is nothing to bootstrap: [ErrConfig].
//
// Source: ALGORITHM section 8, "First start of a deployment".
func (l *Locker) Bootstrap(ctx context.Context) error {
	switch {
	case ctx == nil:
		return configErrorf("Bootstrap: ctx is nil")
	case !l.conf.guard:
		return configErrorf("Bootstrap: WithoutRestartGuard leaves nothing to vouch for")
	}
	if !l.calls.enter() {
		return ErrClosed
	}
	defer l.calls.leave()
	l.pool.start()
	markers, waiting := l.onMarkers(ctx, markerLook, make([]marker, len(l.pool.lanes)))
	if waiting == nil || waiting.Granted > 0 || !errors.Is(waiting, ErrQuarantine) {
		return waiting.orNil()
	}
	_, waiting = l.onMarkers(ctx, markerVouch, markers)
	return waiting.orNil()
}

// onMarkers does the same about the markers of all nodes, which were seen like that before.
// The error is nil if all have a vote then, and matches ErrQuarantine if all answered.
func (l *Locker) onMarkers(ctx context.Context, what string, seen []marker) ([]marker, *QuorumError) {
	n := len(l.pool.lanes)
	e := &QuorumError{Op: "bootstrap", Need: n, of: n, reasons: []error{ErrQuarantine}}
	markers, errs := onEach(ctx, l.pool, func(ctx context.Context, lane *lane) (marker, error) {
		return lane.markerOn(ctx, lane.conn, what, seen[lane.index])
	})
	for i, err := range errs {
		left := markers[i].left
		switch {
		case err != nil:
			e.reasons = []error{ErrNoQuorum}
		case left == 0:
			e.Granted++
			continue
		default:
			err = quarantined(left)
		}
		e.Nodes = append(e.Nodes, &NodeError{Node: l.pool.lanes[i].addr, Op: what, Err: err, Quarantine: left})
	}
	if e.Granted == n {
		return markers, nil
	}
	if ctx.Err() != nil {
		e.reasons = append(e.reasons, contextError(ctx))
	}
	return markers, e
}

var errGuardOff = errors.New("the restart guard is off")
