package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file is how a process hears that it is its turn: by a subscription, on a
// connection of its own, to a channel that only it listens to. It is made when the
// process first has to wait at that node. Without it, waiting is by asking again.

const (
	pingAfter = 5 * time.Second // of silence
	maxDeaf   = 5 * time.Second // largest pause between attempts to subscribe
)

// inbox is the subscription at one node.
type inbox struct {
	lane    *lane
	channel string
	start   sync.Once
	ready   atomic.Bool // the node has confirmed it
}

// serve keeps up the subscription until ctx ends, and passes on what comes.
func (in *inbox) serve(ctx context.Context, called func(key string)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := time.Duration(0); ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		_ = in.subscribe(ctx, called) // whoever waits asks again by itself, and learns from that
		in.ready.Store(false)
		if time.Since(began) > maxDeaf {
			wait = 0
		}
		wait = min(max(2*wait, firstBackoff), maxDeaf)
		timer.Reset(wait)
	}
}

// subscribe subscribes once, and returns when that is over.
func (in *inbox) subscribe(ctx context.Context, called func(key string)) error {
	opt := in.lane.opt
	dialling, cancel := context.WithTimeout(ctx, opt.DialTimeout)
	defer cancel()
	conn, err := dialer(&opt)(dialling, opt.Network, opt.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	opt.Dialer = dialOnce(conn)
	client := redis.NewClient(&opt)
	defer client.Close()
	sub := client.Subscribe(ctx, in.channel)
	defer sub.Close()
	for silent := false; ; {
		msg, err := sub.ReceiveTimeout(ctx, pingAfter)
		switch {
		case err == nil:
			silent = false
		case isTimeout(err) && !silent && ctx.Err() == nil:
			silent = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		switch m := msg.(type) {
		case *redis.Subscription:
			in.ready.Store(true)
		case *redis.Message:
			called(m.Payload)
		}
	}
}
