package node

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/resp"
)

// This file subscribes the process to two channels of a queue node, on a connection of their
// own. By the channel of the process the node calls it when it is its turn. By the common channel
// processes hear that a lock was broken. The subscription begins when the process first waits at
// that node, or first renews a lease whose queue the node keeps. Without a subscription a waiting
// process asks again from time to time, and a holder learns of a Break at its next renewal.

const (
	lookAfter = 700 * time.Millisecond // silence before a ping, while the process waits to be called
	pingAfter = 5 * time.Second        // silence before a ping otherwise
	waitsFor  = 2 * time.Second        // the process counts as waiting for so long after Start; a waiting process calls Start about once a second
	maxDeaf   = time.Second            // largest pause between attempts to subscribe
	warnAfter = 2 * time.Second        // without a subscription, while the node answers requests
)

// Subscription is the subscription to one node.
type Subscription struct {
	node   *Node
	start  sync.Once
	ready  atomic.Bool  // the node has confirmed it
	wanted atomic.Int64 // when the process last said that it waits, by the node's clock.Instant
}

// NewSubscription returns a subscription that has not begun.
func NewSubscription(n *Node) *Subscription { return &Subscription{node: n} }

// Ready reports whether the node has confirmed the subscription, so that it can call.
func (s *Subscription) Ready() bool { return s.ready.Load() }

// Start begins the subscription at its first call. run must run the function that it gets in a
// goroutine. Each call says that the process waits, so that a connection that has died is found
// soon.
func (s *Subscription) Start(ctx context.Context, run func(func()), heard func(channel, key string)) {
	s.wanted.Store(int64(s.node.now()))
	s.start.Do(func() { run(func() { s.serve(ctx, heard) }) })
}

// pings reports whether to send a ping after so long a silence.
func (s *Subscription) pings(silence time.Duration) bool {
	return silence >= pingAfter || s.node.now().Sub(clock.Instant(s.wanted.Load())) < waitsFor
}

// serve keeps up the subscription until ctx ends, and passes on the messages.
func (s *Subscription) serve(ctx context.Context, heard func(channel, key string)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	deafSince, warned := time.Now(), false
	for pause := time.Duration(0); ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		err := s.subscribe(ctx, heard)
		switch {
		case s.ready.Swap(false):
			pause, deafSince, warned = 0, time.Now(), false
		case s.node.Standing().Down != nil: // which the log reports
			deafSince = time.Now()
		case warned || ctx.Err() != nil || time.Since(deafSince) < warnAfter:
		case s.node.ask(ctx, s.node.sampleTask()).err != nil: // an idle node has not found out that the master is down
			deafSince = time.Now()
		default:
			warned = true
			s.node.conf.Events.Warning(s.node, fmt.Errorf("the master cannot call this process, which polls while it waits for a lock: its subscription fails: %w", s.node.printable(err)))
		}
		pause = min(max(2*pause, firstPause), maxDeaf)
		timer.Reset(pause)
	}
}

// subscribe subscribes once, and returns when the subscription has ended.
func (s *Subscription) subscribe(ctx context.Context, heard func(channel, key string)) error {
	n := s.node
	login, err := n.provider.ofSubscription(ctx)
	if err != nil {
		return err
	}
	addrs, err := lookUp(ctx, &n.opt)
	if err != nil {
		return err
	}
	dialling, cancel := context.WithTimeout(ctx, n.opt.DialTimeout)
	defer cancel()
	conn, err := dialWithin(dialling, &n.opt, addrs)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	in := resp.NewReader(conn)
	n.sent.Store(&login.password)
	in.Hide = func(text string) string { return without(login.password, n.withoutPassword(text)) }
	if err := logIn(dialling, conn, in, login, &n.opt, n.conf.Timeout); err != nil {
		return err
	}
	send := func(words ...string) error {
		if err := conn.SetWriteDeadline(time.Now().Add(n.conf.Timeout)); err != nil {
			return err
		}
		_, err := conn.Write(appendWords(nil, words...))
		return err
	}
	if err := send("subscribe", n.conf.Channel, n.conf.brokenChannel()); err != nil {
		return err
	}
	last, pinged := time.Now(), false
	for !n.provider.hasNewer(login) { // RESP 2 has no AUTH while one is subscribed
		patience := lookAfter
		if pinged {
			patience = n.conf.Timeout
		}
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		err := in.Wait()
		switch {
		case err == nil:
			if err := conn.SetReadDeadline(time.Now().Add(n.conf.Timeout)); err != nil { // of the rest
				return err
			}
			message, err := in.Value()
			if err != nil {
				return err
			}
			if refused, ok := message.(resp.Error); ok {
				return nodeFailure(refused)
			}
			s.take(message, heard)
			last, pinged = time.Now(), false
		case !IsTimeout(err) || pinged || ctx.Err() != nil:
			return err
		case s.pings(time.Since(last)):
			pinged = true
			if err := send("ping"); err != nil {
				return err
			}
		}
	}
	return nil
}

// take takes a message of the server: what it is, the channel, and the payload.
func (s *Subscription) take(message any, heard func(channel, key string)) {
	parts, _ := message.([]any)
	if len(parts) != 3 {
		return
	}
	channel, _ := parts[1].(string)
	switch payload, _ := parts[2].(string); {
	case parts[0] == "subscribe" && channel == s.node.conf.Channel:
		s.ready.Store(true)
	case parts[0] == "message":
		heard(channel, payload)
	}
}
