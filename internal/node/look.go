package node

import (
	"context"
	"slices"
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
	var out outcomes
	n.mu.Lock()
	n.dropLinkLocked(ErrStale, n.now(), &out)
	n.mu.Unlock()
	out.tell(n, n.now())
	n.poke()
}

func (n *Node) look(ctx context.Context, key string) (h Held, err error) {
	asked := n.now()
	reply, sent, received, err := n.askScript(ctx, &wire.Inspect, func() *task {
		return scriptTask(&wire.Inspect, []string{n.guard.marker, key, key + wire.FenceSuffix}, noTTL)
	})
	if err != nil {
		return h, err
	}
	var micros, left, ttl, waiting int64
	var value, counter string
	rest, err := scan(reply, &micros, &left, &value, &ttl, &counter, &waiting)
	if err != nil {
		return h, err
	}
	sharing, readers, ok := readersIn(rest)
	if !ok || !clockwatch.Plausible(micros) {
		return h, ErrBadReply
	}
	var out outcomes
	n.mu.Lock()
	n.observeLocked(micros, sent, received, &out)
	if left >= 0 && n.guard.on {
		n.noteQuarantineLocked(time.Duration(left)*time.Millisecond, received, &out)
	}
	n.mu.Unlock()
	out.tell(n, n.now())
	if left < 0 {
		return h, ErrStale
	}
	most := micros + n.conf.maxAhead().Microseconds()
	h = Held{
		Quarantine: time.Duration(left) * time.Millisecond,
		RoundTrip:  received.Sub(asked),
		Waiting:    int(waiting),
		Asked:      asked,
		Counter:    counterIn(counter, most),
	}
	h.Void = n.Standing().Void(received, true)
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
	h.Sharing, h.Readers = sharing, readers
	return h, nil
}

// readersIn reads the last part of the reply of lua/inspect.lua, which is empty unless readers have
// the key.
func readersIn(values []any) (count int, list []Reader, ok bool) {
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
		list = append(list, Reader{id, time.Duration(left) * time.Millisecond})
	}
	return int(n), list, true
}

// Break replaces the key on the node if it has the value that was seen, and returns how long the
// new key lives. broken is false if the key has changed since.
func (n *Node) Break(ctx context.Context, key, seen, placeholder string) (life time.Duration, broken bool, err error) {
	reply, _, _, err := n.askScript(ctx, &wire.Break, func() *task {
		return scriptTask(&wire.Break, []string{key}, headless, text(seen), text(placeholder), number(Millis(n.conf.MaxTTL)))
	})
	if err != nil {
		return 0, false, err
	}
	var done, left int64
	if _, err := scan(reply, &done, &left); err != nil {
		return 0, false, err
	}
	return time.Duration(left) * time.Millisecond, done == 1, nil
}

// Write sets a key that no attempt owns, by a script and a SET as for a lock, but without a vote. A
// key that is there already stays as it is.
func (n *Node) Write(ctx context.Context, key string, life time.Duration) error {
	reply, _, _, err := n.askScript(ctx, &wire.Break, func() *task {
		return scriptTask(&wire.Break, []string{key}, headless, text(""), text(wire.Placeholder(wire.Unowned)), number(Millis(life)))
	})
	if err == nil {
		_, err = scan(reply)
	}
	return err
}

// scanned is about how many keys of a node one SCAN looks at.
const scanned = 500

// Keys returns the string keys of the node that begin with the prefix of all keys. A key that comes
// or goes meanwhile may be among them or not.
func (n *Node) Keys(ctx context.Context) (keys []string, err error) {
	pattern := globless.Replace(n.conf.Prefix) + "*"
	for cursor := "0"; ; {
		values, _, _, err := n.ask(ctx, &task{replies: 1, write: func(_ *Node, _ *link, _ int64, b []byte) []byte {
			b = resp.AppendCommand(b, 8)
			for _, arg := range []string{"SCAN", cursor, "MATCH", pattern, "COUNT"} {
				b = resp.AppendString(b, arg)
			}
			b = resp.AppendInt(b, scanned)
			return resp.AppendString(resp.AppendString(b, "TYPE"), "string")
		}})
		if err != nil {
			return nil, err
		}
		var list []any
		if _, err := scan(values[0], &cursor, &list); err != nil {
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
	values, _, _, err := n.ask(ctx, &task{replies: 1, write: func(n *Node, _ *link, _ int64, b []byte) []byte {
		b = resp.AppendCommand(b, 3)
		b = resp.AppendString(b, "PUBLISH")
		b = resp.AppendString(b, n.conf.brokenChannel())
		return resp.AppendString(b, key)
	}})
	if err != nil {
		return err
	}
	if refused, ok := values[0].(resp.Error); ok {
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
	reply, sent, received, err := n.askScript(ctx, &wire.Marker, func() *task { return n.markerTask(what, seen) })
	if err != nil {
		return m, err
	}
	var out outcomes
	n.mu.Lock()
	m, err = n.readMarker(reply, sent, received, &out)
	n.mu.Unlock()
	out.tell(n, n.now())
	return m, err
}

// Audit asks the node about itself once more.
func (n *Node) Audit(ctx context.Context) (*Audit, error) {
	return upToDate(n, func() (*Audit, error) { return n.auditOnce(ctx) })
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
	values, sent, received, err := n.ask(ctx, all)
	if err != nil {
		return nil, err
	}
	a := &Audit{RoundTrip: received.Sub(asked), MarkerErr: ErrGuardOff}
	if a.Info, a.InfoErr, err = readInfo(values[:info.replies]); err != nil {
		return nil, err
	}
	values = values[info.replies:]
	if n.conf.Trusted {
		a.Info.Disk = readDisk(values[0])
		values = values[1:]
	}
	var out outcomes
	n.mu.Lock()
	if n.guard.on {
		a.Marker, a.MarkerErr = n.readMarker(values[0], sent, received, &out)
	} else if micros, err := readTime(values[0]); err == nil {
		n.observeLocked(micros, sent, received, &out)
	}
	n.mu.Unlock()
	if err := a.Info.usable(); err != nil {
		out.tell(n, n.now())
		n.giveUp(err)
		return nil, err
	}
	if a.MarkerErr == ErrStale {
		out.tell(n, n.now())
		return nil, ErrStale
	}
	if known := n.audit.Load(); known != nil {
		a.Lacks = known.Lacks // which only a connection asks for
	}
	n.audited(a, &out)
	out.tell(n, n.now())
	return a, nil
}

// giveUp marks the node as down, because its server must not be asked.
func (n *Node) giveUp(err error) {
	var out outcomes
	now := n.now()
	n.mu.Lock()
	n.dropLinkLocked(err, now, &out)
	n.goDownLocked(err, now, &out)
	n.mu.Unlock()
	out.tell(n, n.now())
	n.poke()
}
