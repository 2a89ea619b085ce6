package node

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// This file has the administrative requests to a node: to look at the node or at a lock, and to
// break a lock and announce that. Each takes one round trip, after the requests of attempts.

// What lua/inspect.lua replies in place of a life.
const (
	ttlNoKey   = -2
	ttlBadType = -3
)

// Look asks what the node has of a lock.
func (n *Node) Look(ctx context.Context, key string) (Held, error) {
	return upToDate(n, func() (Held, error) { return n.look(ctx, key) })
}

// upToDate asks once more, over a new connection, if the server was replaced behind the
// connection.
func upToDate[T any](n *Node, ask func() (T, error)) (T, error) {
	v, err := ask()
	if err == ErrStale {
		n.reconnect()
		v, err = ask()
	}
	return v, err
}

// reconnect gives up the connection.
func (n *Node) reconnect() {
	n.locked(func(out *outcomes) { n.dropLinkLocked(ErrStale, n.now(), out) })
	n.wake.Set()
}

func (n *Node) look(ctx context.Context, key string) (h Held, err error) {
	asked := n.now()
	a := n.askScript(ctx, &wire.Inspect, func() *task {
		return scriptTask(&wire.Inspect, true, []string{n.guard.marker, key, key + wire.FenceSuffix})
	})
	if a.err != nil {
		return h, a.err
	}
	var micros, left, ttl, waiting int64
	var value, counter string
	rest, err := scan(a.values[0], &micros, &left, &value, &ttl, &counter, &waiting)
	if err != nil {
		return h, err
	}
	sharing, readers, ok := readersIn(rest, micros)
	if !ok || !clockwatch.Plausible(micros) {
		return h, ErrBadReply
	}
	n.locked(func(out *outcomes) {
		n.observeLocked(micros, a.sent, a.received, out)
		if left >= 0 && n.guard.on {
			n.noteQuarantineLocked(time.Duration(left)*time.Millisecond, a.received, out)
		}
	})
	if left < 0 {
		return h, ErrStale
	}
	most := micros + n.conf.maxAhead().Microseconds()
	h = Held{
		Quarantine: time.Duration(left) * time.Millisecond,
		RoundTrip:  a.received.Sub(asked),
		Waiting:    int(waiting),
		Asked:      asked,
		Counter:    counterIn(counter, most),
	}
	h.Void = n.Standing().Void(a.received, true)
	// What lua/acquire.lua refuses, too.
	switch c, wrong := strconv.ParseInt(counter, 10, 64); {
	case counter == "":
	case wrong != nil || c < 0:
		h.Unfit = &KeyError{key + wire.FenceSuffix, reason.WrongType}
	case c > most:
		h.Unfit = &KeyError{key + wire.FenceSuffix, Ahead(time.Duration(min(c-micros, most)) * time.Microsecond)}
	}
	if h.Quarantine > 0 {
		h.Void = Quarantine(h.Quarantine)
	}
	switch ttl {
	case ttlBadType:
		return h, &KeyError{Key: key, Err: reason.WrongType}
	case ttlNoKey:
		return h, nil
	}
	h.setKey(value, time.Duration(ttl)*time.Millisecond, most)
	h.Sharing, h.Readers, h.For = sharing, readers, wire.HeldFor(h.Token, micros)
	return h, nil
}

// readersIn reads the last part of the reply of lua/inspect.lua, which is empty unless readers have
// the key.
func readersIn(values []any, micros int64) (count int, list []Reader, ok bool) {
	if len(values) == 0 {
		return 0, nil, true
	}
	n, ok := values[0].(int64)
	if !ok || len(values)%2 == 0 {
		return 0, nil, false
	}
	for pair := range slices.Chunk(values[1:], 2) {
		id, ok0 := pair[0].(string)
		left, ok1 := pair[1].(int64)
		if !ok0 || !ok1 {
			return 0, nil, false
		}
		list = append(list, Reader{id, wire.HeldFor(id, micros), time.Duration(left) * time.Millisecond})
	}
	return int(n), list, true
}

// Break replaces the key on the node if it has the value that was seen, and returns how long the
// new key lives. broken is false if the key has changed since.
func (n *Node) Break(ctx context.Context, key, seen, placeholder string) (life time.Duration, broken bool, err error) {
	a := n.askScript(ctx, &wire.Break, func() *task {
		return scriptTask(&wire.Break, false, []string{key}, text(seen), text(placeholder), number(Millis(n.conf.MaxTTL)))
	})
	if a.err != nil {
		return 0, false, a.err
	}
	var done, left int64
	if _, err := scan(a.values[0], &done, &left); err != nil {
		return 0, false, err
	}
	return time.Duration(left) * time.Millisecond, done == 1, nil
}

// Write sets a key that no attempt owns, by a script and a SET as for a lock, but without a vote. A
// key that is there already stays as it is.
func (n *Node) Write(ctx context.Context, key string, life time.Duration) error {
	a := n.askScript(ctx, &wire.Break, func() *task {
		return scriptTask(&wire.Break, false, []string{key}, text(""), text(wire.Placeholder(wire.Unowned)), number(Millis(life)))
	})
	if a.err != nil {
		return a.err
	}
	_, err := scan(a.values[0])
	return err
}

// scanned is about how many keys of a node one SCAN looks at.
const scanned = "500"

// Keys returns the string keys of the node that begin with the prefix of all keys. A key that comes
// or goes meanwhile may be among them or not.
func (n *Node) Keys(ctx context.Context) (keys []string, err error) {
	pattern := globless.Replace(n.conf.Prefix) + "*"
	for cursor := "0"; ; {
		a := n.ask(ctx, wordsTask("SCAN", cursor, "MATCH", pattern, "COUNT", scanned, "TYPE", "string"))
		if a.err != nil {
			return nil, a.err
		}
		var list []any
		if _, err := scan(a.values[0], &cursor, &list); err != nil {
			return nil, err
		}
		for _, v := range list {
			if key, ok := v.(string); ok {
				keys = append(keys, key)
			}
		}
		if cursor == "0" {
			return keys, nil
		}
	}
}

// globless quotes what has a meaning in a pattern of SCAN.
var globless = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "^", `\^`)

// TellBroken tells all subscribers of the node that the lock of a key was broken.
func (n *Node) TellBroken(ctx context.Context, key string) error {
	return n.publish(ctx, n.conf.brokenChannel(), key)
}

func (n *Node) publish(ctx context.Context, channel, message string) error {
	a := n.ask(ctx, wordsTask("PUBLISH", channel, message))
	if a.err != nil {
		return a.err
	}
	if refused, ok := a.values[0].(resp.Error); ok {
		return nodeFailure(refused)
	}
	return nil
}

func (c *Config) brokenChannel() string { return c.Prefix + wire.BrokenChannel }

// OnMarker looks at the marker, or vouches for it if it is still as it was seen.
func (n *Node) OnMarker(ctx context.Context, what string, seen Marker) (Marker, error) {
	return upToDate(n, func() (Marker, error) { return n.onMarker(ctx, what, seen) })
}

func (n *Node) onMarker(ctx context.Context, what string, seen Marker) (m Marker, err error) {
	a := n.askScript(ctx, &wire.Marker, func() *task { return n.markerTask(what, seen) })
	if a.err != nil {
		return m, a.err
	}
	n.locked(func(out *outcomes) { m, err = n.readMarker(a.values[0], a.sent, a.received, out) })
	return m, err
}

// Audit asks the node about itself once more. It also publishes, to a channel without subscribers, to
// find out whether the user may: the probe of a new connection does not try PUBLISH.
func (n *Node) Audit(ctx context.Context) (*Audit, error) {
	a, err := upToDate(n, func() (*Audit, error) { return n.auditOnce(ctx) })
	if err == nil && errors.Is(n.publish(ctx, n.conf.Channel+"~audit", ""), reason.Masters) {
		own := *a // the node keeps a
		for _, c := range Commands {
			if c.Name == "PUBLISH" {
				own.Lacks = append(slices.Clip(a.Lacks), c.Name+": "+c.Without)
			}
		}
		return &own, nil
	}
	return a, err
}

func (n *Node) auditOnce(ctx context.Context) (*Audit, error) {
	asked := n.now()
	info, marker := infoTask(), n.markerTask(wire.Look, Marker{})
	replies := info.replies + 1
	if n.conf.Trusted {
		replies++
	}
	all := &task{replies: replies, write: func(n *Node, l *link, median int64, b []byte) []byte {
		b = info.write(n, l, median, b)
		if n.conf.Trusted {
			b = diskTask().write(n, l, median, b)
		}
		if n.guard.on {
			return marker.write(n, l, median, b)
		}
		return n.sampleTask().write(n, l, median, b)
	}}
	told := n.ask(ctx, all)
	if told.err != nil {
		return nil, told.err
	}
	a := &Audit{RoundTrip: told.received.Sub(asked), MarkerErr: ErrGuardOff}
	var err error
	if a.Info, a.InfoErr, err = readInfo(told.values[:info.replies]); err != nil {
		return nil, err
	}
	values := told.values[info.replies:]
	if n.conf.Trusted {
		a.Info.Disk = readDisk(values[0])
		values = values[1:]
	}
	n.locked(func(out *outcomes) {
		if n.guard.on {
			a.Marker, a.MarkerErr = n.readMarker(values[0], told.sent, told.received, out)
		} else if micros, err := readTime(values[0]); err == nil {
			n.observeLocked(micros, told.sent, told.received, out)
		}
	})
	if err := a.Info.usable(); err != nil {
		n.giveUp(err)
		return nil, err
	}
	if a.MarkerErr == ErrStale {
		return nil, ErrStale
	}
	if known := n.audit.Load(); known != nil {
		a.Lacks = known.Lacks // which only a connection asks for
	}
	var out outcomes
	n.audited(a, &out)
	out.tell(n, n.now())
	return a, nil
}

// giveUp marks the node as down, because its server must not be asked.
func (n *Node) giveUp(err error) {
	now := n.now()
	n.locked(func(out *outcomes) {
		n.dropLinkLocked(err, now, out)
		n.goDownLocked(err, now, out)
	})
	n.wake.Set()
}
