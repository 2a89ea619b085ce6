package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/d0720281/redlock/internal/resp"
)

// This file finds the credentials of a node's connections. If a provider has them, the node asks it
// before each connection. A streaming provider is asked once: it tells its new credentials by
// itself, and the node sends them by AUTH on its connection.

type credentials struct{ user, password string }

// append appends AUTH. A password without a user is that of the default user.
func (c credentials) append(b []byte) []byte {
	if c.user == "" {
		return appendWords(b, "auth", c.password)
	}
	return appendWords(b, "auth", c.user, c.password)
}

// authRefused returns the error of a reply to AUTH. A server without a password takes any, as it does
// with the AUTH of HELLO.
func authRefused(reply any) error {
	if err, ok := reply.(resp.Error); ok && !Says(err, "ERR AUTH <password> called without any password ") {
		return nodeFailure(err)
	}
	return nil
}

// provider has the credentials of a node. If several are set, the first of the options below counts,
// as for go-redis.
type provider struct {
	name   string // of the option; "" for credentials that are fixed
	ask    func(context.Context) (credentials, error)
	stream *stream // nil unless new credentials come by themselves
	asking *asking // the question that has no answer yet; nil if there is none. For serve alone
}

func newProvider(n *Node, o *redis.Options) provider {
	switch {
	case o.StreamingCredentialsProvider != nil:
		s := &stream{node: n, from: o.StreamingCredentialsProvider}
		return provider{name: streamName, ask: s.subscribe, stream: s}
	case o.CredentialsProviderContext != nil:
		return provider{name: "CredentialsProviderContext", ask: func(ctx context.Context) (c credentials, err error) {
			c.user, c.password, err = o.CredentialsProviderContext(ctx)
			return c, err
		}}
	case o.CredentialsProvider != nil:
		return provider{name: "CredentialsProvider", ask: func(context.Context) (c credentials, err error) {
			c.user, c.password = o.CredentialsProvider()
			return c, nil
		}}
	}
	fixed := credentials{o.Username, o.Password}
	return provider{ask: func(context.Context) (credentials, error) { return fixed, nil }}
}

// providerTime is how long a provider may take for one answer. No caller of the library waits for
// it: meanwhile the node is down.
const providerTime = 10 * time.Second

// asking is a question to a provider.
type asking struct {
	outside[credentials]
	name  string
	since time.Time
	ctx   context.Context // of the provider; ends after providerTime
	end   context.CancelFunc
}

// begin asks the provider for credentials.
func (p *provider) begin(ctx context.Context) *asking {
	ctx, end := context.WithTimeout(ctx, providerTime)
	call := callOutside(p.name, func() (credentials, error) { return p.ask(ctx) })
	return &asking{call, p.name, time.Now(), ctx, end}
}

// result returns the answer of the provider. The error names the provider and matches no error of
// the provider's own: a timeout or a certificate there says nothing about the master.
func (a *asking) result(ctx context.Context) (c credentials, answered bool, err error) {
	r, answered := a.await(ctx)
	_, panicked := r.err.(panicError)
	switch {
	case answered && (r.err == nil || panicked):
		return r.value, true, r.err
	case !answered || errors.Is(a.ctx.Err(), context.DeadlineExceeded):
		waited := min(time.Since(a.since), providerTime).Round(time.Second / 10)
		return c, answered, fmt.Errorf("the %s has not answered for %v", a.name, waited)
	}
	return c, true, fmt.Errorf("the %s has failed: %v", a.name, r.err)
}

// credentials returns those of the next connection. While the provider is slow, each call waits for
// the answer as long as ctx lasts, until the provider has had its time or quit ends.
func (p *provider) credentials(ctx, quit context.Context) (credentials, error) {
	if p.name == "" {
		return p.ask(ctx)
	}
	if p.asking == nil {
		p.asking = p.begin(quit)
	}
	c, answered, err := p.asking.result(ctx)
	if answered || p.asking.ctx.Err() != nil {
		p.asking.end()
		p.asking = nil
	}
	return c, err
}

// ofSubscription returns the credentials of the next connection of a subscription. It waits for
// the provider.
func (p *provider) ofSubscription(ctx context.Context) (credentials, error) {
	switch s := p.stream; {
	case p.name == "":
		return p.ask(ctx)
	case s != nil:
		if c := s.latest.Load(); c != nil {
			return *c, nil
		}
		return credentials{}, fmt.Errorf("the %s has not answered yet", p.name)
	}
	a := p.begin(ctx)
	defer a.end()
	c, _, err := a.result(a.ctx)
	return c, err
}

// hasNewer reports whether a streaming provider has told newer credentials.
func (p *provider) hasNewer(than credentials) bool {
	return p.stream != nil && *p.stream.latest.Load() != than
}

// stream is the one subscription of a node to a streaming provider.
type stream struct {
	node   *Node
	from   auth.StreamingCredentialsProvider
	latest atomic.Pointer[credentials] // nil before the first

	cancel atomic.Pointer[auth.UnsubscribeFunc] // nil while there is no subscription
	ended  atomic.Bool
	renew  atomic.Bool // the next connection subscribes again
}

const streamName = "StreamingCredentialsProvider"

// subscribe subscribes at its first call, and again when the provider had an error or a server has
// refused the credentials: a provider that has given up begins anew by that. It returns the latest
// credentials.
func (s *stream) subscribe(context.Context) (credentials, error) {
	known := s.latest.Load()
	if known != nil && s.cancel.Load() != nil && !s.renew.Swap(false) {
		return *known, nil
	}
	first, cancel, err := s.from.Subscribe(s)
	if err != nil {
		return credentials{}, err
	}
	if cancel != nil {
		s.cancel.Store(&cancel)
	}
	if s.ended.Load() { // the set has stopped meanwhile
		_, err := s.unsubscribe()
		return credentials{}, errors.Join(ErrClosed, err)
	}
	if first == nil {
		return credentials{}, errors.New("no credentials")
	}
	var c credentials
	c.user, c.password = first.BasicAuth()
	s.latest.CompareAndSwap(known, &c) // newer ones may have come already
	return *s.latest.Load(), nil
}

func (s *stream) unsubscribe() (struct{}, error) {
	if cancel := s.cancel.Swap(nil); cancel != nil {
		return struct{}{}, (*cancel)()
	}
	return struct{}{}, nil
}

// OnNext takes new credentials. The provider calls it.
func (s *stream) OnNext(next auth.Credentials) {
	switch {
	case s.ended.Load():
	case next == nil:
		s.OnError(errors.New("no credentials"))
	default:
		var c credentials
		c.user, c.password = next.BasicAuth()
		s.latest.Store(&c)
		s.node.mu.Lock()
		s.renewLocked()
		s.node.mu.Unlock()
		s.node.wake.Set()
	}
}

// OnError takes an error of the provider. The provider calls it.
func (s *stream) OnError(err error) {
	if !s.ended.Load() {
		s.renew.Store(true)
		s.node.conf.Events.Warning(s.node, s.node.printable(fmt.Errorf("the %s has no new credentials: %w", streamName, err)))
	}
}

// renewLocked orders an AUTH if the connection has older credentials.
func (s *stream) renewLocked() {
	if l := s.node.link; l != nil && l.login != *s.latest.Load() {
		s.node.queue.tasks = append(s.node.queue.tasks, s.authTask())
	}
}

// authTask authenticates the connection anew, between two exchanges. If the node refuses, its
// connection ends: the next one has the latest credentials of that time.
func (s *stream) authTask() *task {
	var on *link
	return &task{
		replies: 1,
		write: func(_ *Node, l *link, _ int64, b []byte) []byte {
			latest := s.latest.Load()
			on, l.login = l, *latest
			s.node.sent.Store(&latest.password)
			return l.login.append(b)
		},
		done: func(a answers) {
			if a.err != nil {
				return // the next connection has the latest, too
			}
			if err := authRefused(a.values[0]); err != nil {
				s.renew.Store(true)
				s.node.conf.Events.Warning(s.node, fmt.Errorf("the new credentials of the %s are refused: %w", streamName, err))
				s.node.broken(on, err, new(outcomes))
			}
		},
	}
}

// end ends the subscription to the provider. It waits for that until ctx ends.
func (p *provider) end(ctx context.Context, n *Node) {
	s := p.stream
	if s == nil {
		return
	}
	s.ended.Store(true)
	r, _ := callOutside(p.name, s.unsubscribe).await(ctx)
	if r.err != nil {
		n.conf.Events.Warning(n, n.printable(fmt.Errorf("unsubscribed from the %s: %w", p.name, r.err)))
	}
}
