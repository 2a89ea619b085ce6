package node

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/resp"
)

// This file is how a process hears that it is its turn, or that a lock was broken: by a
// subscription, on a connection of its own, to a channel that only it listens to, and to one for
// all. It is made when the process first has to wait at that node, or first renews a lease whose
// queue that node keeps. Without it, waiting is by asking again, and a holder hears at its next
// renewal.

const (
	lookAfter = 700 * time.Millisecond // of silence, while the process waits to be called
	pingAfter = 5 * time.Second        // of silence, while it does not
	waitsFor  = 2 * time.Second        // after it has last said so: it does about once a second
	maxDeaf   = 5 * time.Second        // largest pause between attempts to subscribe
)

// Subscription is that of one node.
type Subscription struct {
	node   *Node
	start  sync.Once
	ready  atomic.Bool  // the node has confirmed it
	wanted atomic.Int64 // when the process last said that it waits, by the node's clock.Instant
}

// NewSubscription makes one that has not begun.
func NewSubscription(n *Node) *Subscription { return &Subscription{node: n} }

// Ready reports whether the node has confirmed the subscription, so that it can call.
func (s *Subscription) Ready() bool { return s.ready.Load() }

// Start has it begin, the first time: run is to run the function that it is given. Each call
// says that the process wants to hear, so that a connection over which nothing comes any
// more is found soon.
func (s *Subscription) Start(ctx context.Context, run func(func()), heard func(channel, key string)) {
	s.wanted.Store(int64(s.node.now()))
	s.start.Do(func() { run(func() { s.serve(ctx, heard) }) })
}

// pings reports whether to ask for a sign of life after so long a silence.
func (s *Subscription) pings(silence time.Duration) bool {
	return silence >= pingAfter || s.node.now().Sub(clock.Instant(s.wanted.Load())) < waitsFor
}

// serve keeps up the subscription until ctx ends, and passes on what comes.
func (s *Subscription) serve(ctx context.Context, heard func(channel, key string)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := time.Duration(0); ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		_ = s.subscribe(ctx, heard) // a waiter asks again by itself, and learns from that
		s.ready.Store(false)
		if time.Since(began) > maxDeaf {
			pause = 0
		}
		pause = min(max(2*pause, firstPause), maxDeaf)
		timer.Reset(pause)
	}
}

// subscribe subscribes once, and returns when that is over.
func (s *Subscription) subscribe(ctx context.Context, heard func(channel, key string)) (err error) {
	opt := s.node.opt
	dialling, cancel := context.WithTimeout(ctx, opt.DialTimeout)
	defer cancel()
	conn, err := dialSafely(dialling, &opt)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in the client library: %v", p)
		}
	}()
	opt.Dialer = DialOnce(resp.Bound(conn))
	client := redis.NewClient(&opt)
	defer client.Close()
	sub := client.Subscribe(ctx, s.node.conf.Channel, s.node.conf.brokenChannel())
	defer sub.Close()
	last, pinged := time.Now(), false
	for {
		patience := lookAfter
		if pinged {
			patience = s.node.conf.Timeout
		}
		msg, err := sub.ReceiveTimeout(ctx, patience)
		switch {
		case err == nil:
			last, pinged = time.Now(), false
		case !isTimeout(err) || pinged || ctx.Err() != nil:
			return err
		case s.pings(time.Since(last)):
			pinged = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			if m.Channel == s.node.conf.Channel {
				s.ready.Store(true)
			}
		case *redis.Message:
			heard(m.Channel, m.Payload)
		}
	}
}
