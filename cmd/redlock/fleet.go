package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/masters"
)

// fleet has the masters of a run and the Redis that keeps the stock.
type fleet struct {
	given    bool // by flags, not started by the demo
	kind     string
	nodes    []*node
	store    *redis.Options
	stockKey string
	ours     []masters.Master // started here
}

// node is one master and its fate.
type node struct {
	opts   *redis.Options
	master masters.Master // nil if given
	fate   string         // the fault that it had
	since  time.Time      // when the fault began
	atEnd  string         // the result of the last look
}

// fleet starts the masters, or takes those of the flags.
func (d *demo) fleet(ctx context.Context) (*fleet, error) {
	f := &fleet{given: len(d.masters) > 0, kind: "given", stockKey: keyPrefix + "store:" + rand.Text()}
	for _, addr := range d.masters {
		o, err := parseRedis("--masters", addr)
		if err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, &node{opts: o, fate: "left alone"})
	}
	if d.store != "" {
		o, err := parseRedis("--store", d.store)
		if err != nil {
			return nil, err
		}
		f.store = o
	}
	if f.given {
		if f.store == nil {
			f.store = f.nodes[0].opts
		}
		return f, nil
	}
	started, kind, err := masters.Start(ctx, ownMasters+1)
	if err != nil {
		return nil, err
	}
	f.ours, f.kind = started, kind
	for _, m := range started[:ownMasters] {
		f.nodes = append(f.nodes, &node{opts: &redis.Options{Addr: m.Addr()}, master: m, fate: "healthy"})
	}
	if f.store == nil {
		f.store = &redis.Options{Addr: started[ownMasters].Addr()}
	}
	return f, nil
}

// parseRedis parses host:port or a URL. The value may contain a password, so the error does
// not quote it.
func parseRedis(flag, s string) (*redis.Options, error) {
	if strings.Contains(s, "://") {
		o, err := redis.ParseURL(s)
		if err != nil {
			return nil, usagef("%s: must be host:port, or a redis://, rediss:// or unix:// URL", flag)
		}
		return o, nil
	}
	host, port, err := net.SplitHostPort(s)
	if n, bad := strconv.Atoi(port); err != nil || host == "" || bad != nil || n < 1 || n > 65535 {
		return nil, usagef("%s: must be host:port, or a redis://, rediss:// or unix:// URL", flag)
	}
	return &redis.Options{Addr: s}, nil
}

// real reports whether the masters are redis-server processes.
func (f *fleet) real() bool { return f.given || f.kind == masters.KindProcess }

// describe describes the masters of the demo.
func (f *fleet) describe() string {
	switch {
	case f.given:
		return fmt.Sprintf("%d masters as given, which will be neither killed nor paused; stock on %s", len(f.nodes), f.store.Addr)
	case f.kind == masters.KindProcess:
		return fmt.Sprintf("%d masters on this machine: real redis-server processes; stock on %s", len(f.nodes), f.store.Addr)
	}
	return fmt.Sprintf("%d masters on this machine: in-process %s, for want of a redis-server on the PATH; stock on %s", len(f.nodes), f.kind, f.store.Addr)
}

func (f *fleet) options() []*redis.Options {
	var list []*redis.Options
	for _, n := range f.nodes {
		list = append(list, n.opts)
	}
	return list
}

func (f *fleet) kill(i, done int, say func(string)) error {
	n := f.nodes[i]
	n.fate, n.since = fmt.Sprintf("killed after %d attempts", done), time.Now()
	say(fmt.Sprintf("%d attempts done: %s is killed", done, n.opts.Addr))
	return n.master.Kill()
}

func (f *fleet) pause(i, done int, say func(string)) error {
	n := f.nodes[i]
	n.fate, n.since = fmt.Sprintf("paused after %d attempts", done), time.Now()
	say(fmt.Sprintf("%d attempts done: %s is paused", done, n.opts.Addr))
	return n.master.Pause()
}

// look pings every master.
func (f *fleet) look(ctx context.Context) {
	var wg sync.WaitGroup
	for _, n := range f.nodes {
		wg.Go(func() { n.atEnd = probe(ctx, n.opts) })
	}
	wg.Wait()
}

func probe(ctx context.Context, of *redis.Options) string {
	o := *of
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	c := redis.NewClient(&o)
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	err := c.Ping(ctx).Err()
	var timeout net.Error
	switch {
	case err == nil:
		return "answers"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refuses"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "silent"
	}
	return err.Error()
}

func (f *fleet) close() (err error) {
	for _, m := range f.ours {
		err = errors.Join(err, m.Close())
	}
	return err
}
