package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock/internal/line"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/wire"
)

// pool is the N nodes of a Locker, with all that its leases and callers share.
//
// # Mutexes
//
// A goroutine that holds a mutex may lock those further down, and no other of the same kind.
// No callback of the caller, no log and no end of a context happens under a mutex. A build with
// the tag lockorder checks both; package lockorder has the order.
//
//	Calls      the calls under way, until Close               redlock.go
//	Lines      the callers of the process, by resource        internal/line/lines.go
//	Grant      one attempt, or one lease and its handles      acquire.go, grant.go, renew.go, release.go
//	Outage     whether the log has an outage                  log.go
//	Renewer    the leases by the time when they are due       renew.go
//	Admission  the attempts that may ask                      internal/line/admission.go
//	Node       the requests and the connection of one node    internal/node/node.go
//	Watch      what the clocks of all nodes show together     internal/clockwatch/clockwatch.go
//	Servers    which node is which server                     internal/node/identity.go
//	Events     what the observers have still to be told       observe.go
//
// # Goroutines
//
//	goroutine       number                      ends                                      waited for by
//	Node.serve      one for each node           when Set.Stop has it shut                 Set.Stop
//	Node.read       one for each connection     with the connection                       Set.Stop
//	renewer.run     one                         by renewer.close                          pool.stop
//	events.run      one                         by events.close, with all events told     Locker.stop
//	subscription    one for each queue node     by pool.deafen                            pool.stop
//	                that the process listens to
//	of node.Each    one for each node and call  with the answer, the context or Close     node.Each
//
// Nodes, renewer and events start with the first call. Every other goroutine is the caller's.
type pool struct {
	conf      *config
	set       *node.Set
	nodes     []*node.Node
	need      int                                                   // votes that make a quorum
	skew      func(node int, now instant) (err error, certain bool) // see attempt
	renewer   *renewer
	events    *events // of the Locker
	lines     *line.Lines[*grant, call]
	timers    timers
	admission line.Admission
	changes   atomic.Int64 // counts the calls of changed
	channel   string       // on which queue nodes call this process

	callsOut, renewalsOut outage // of which the log tells

	opened  context.Context // ends when no new attempt may begin
	shut    context.CancelCauseFunc
	closing <-chan struct{} // closed when opened ends

	watcher errgroup.Group // the renewer's goroutine

	hearing       context.Context // of the subscriptions; ends when no caller waits any more
	deafen        context.CancelFunc
	listeners     errgroup.Group // the goroutines of the subscriptions
	subscriptions []*node.Subscription
}

// newPool makes the pool of some masters. groups has the lists of all groups, if they are one of
// several.
func newPool(c *config, masters []redis.Options, groups [][]redis.Options, ev *events) *pool {
	p := &pool{
		conf:    c,
		need:    c.rules.Quorum(quorum(len(masters))),
		lines:   line.New[*grant, call](&line.DefaultPolicy, c.keyPrefix == ""),
		renewer: newRenewer(c.clock),
		events:  ev,
		channel: c.keyPrefix + "~inbox:" + c.newToken(""),
	}
	p.callsOut.text, p.callsOut.after = "no quorum of the masters gives a usable answer; calls of Lock go on trying", outageNotice
	p.renewalsOut.text = "renewals find no quorum of the masters; leases end unless a renewal does in time"
	p.opened, p.shut = context.WithCancelCause(context.Background())
	p.closing = p.opened.Done()
	p.hearing, p.deafen = context.WithCancel(context.Background())
	p.set = node.NewSet(node.Config{
		Timeout:   c.nodeTimeoutOfAll(),
		MaxTTL:    c.maxTTL,
		Drift:     c.drift,
		Prefix:    c.keyPrefix,
		Quorum:    p.need,
		Guard:     c.guard,
		Trusted:   c.trusted,
		Channel:   p.channel,
		Label:     c.owner,
		Clock:     c.clock,
		Events:    p.events,
		Rules:     c.rules,
		Granted:   func() bool { return ev.counts[EventAcquired].Load() > 0 },
		Changed:   p.changed,
		Corrected: p.renewer.poke,
		Groups:    groups,
	}, masters)
	p.nodes = p.set.Nodes()
	p.skew = func(i int, now instant) (error, bool) { return p.nodes[i].TooFar(now) }
	for _, n := range p.nodes {
		p.subscriptions = append(p.subscriptions, node.NewSubscription(n))
	}
	return p
}

// changed is called when a node can be asked that could not before, or was found that cannot take
// part.
func (p *pool) changed() {
	p.changes.Add(1)
	cannot := func(n *node.Node) bool { return errors.Is(n.Standing().Down, ErrMasters) }
	p.lines.Changed(p.quorumUp() || slices.ContainsFunc(p.nodes, cannot), p.queueNodeOf)
}

// quorumUp reports whether a quorum of the nodes is not known to be down.
func (p *pool) quorumUp() bool {
	up := 0
	for _, n := range p.nodes {
		if n.Standing().Down == nil {
			up++
		}
	}
	return up >= p.need
}

func (p *pool) now() instant { return p.conf.clock.Instant() }

// start starts the goroutines of the nodes and of the renewer.
func (p *pool) start() {
	p.set.Start()
	p.watcher.Go(func() error { p.renewer.run(); return nil })
}

// timers keeps idle timers for reuse.
type timers struct{ idle sync.Pool }

func (t *timers) start(d time.Duration) *time.Timer {
	if timer, ok := t.idle.Get().(*time.Timer); ok {
		timer.Reset(d)
		return timer
	}
	return time.NewTimer(d)
}

func (t *timers) stop(timer *time.Timer) {
	timer.Stop()
	t.idle.Put(timer)
}

// awaitVotes returns how long to wait for nodes in quarantine, after an attempt that lacked
// their votes. It logs that for the operator, once for each quarantine.
func (p *pool) awaitVotes(e *QuorumError) time.Duration {
	const atMost = time.Second // an operator may call Bootstrap meanwhile
	wait, voteless := atMost, make(map[*node.Node]time.Duration)
	for _, failed := range e.Masters {
		if failed.Quarantine == 0 {
			continue
		}
		wait = min(wait, failed.Quarantine)
		for _, n := range p.nodes {
			if n.Addr() == failed.Master {
				voteless[n] = failed.Quarantine
			}
		}
	}
	if p.events.waiting(p.set, voteless) {
		p.callsOut.begins(p.now())
	}
	return wait
}

// stop lets the nodes send the requests that they have, for grace at most, and waits until every
// goroutine has ended.
func (p *pool) stop(grace time.Duration) {
	p.deafen()
	_ = p.listeners.Wait()
	p.set.Stop(grace)
	p.renewer.close()
	_ = p.watcher.Wait()
}

// newToken returns a random token, with the label of its owner. The source of random numbers is
// named here and never fails. That of package uuid is a variable of the whole program, which
// another package can make deterministic.
//
// Source: ALGORITHM section 3, point 1.
func (c *config) newToken(owner string) string {
	id := uuid.Must(uuid.NewRandomFromReader(rand.Reader))
	return c.rules.ID(wire.Token(id, owner))
}

// parseMasters reads addresses: "host:port", redis://, rediss:// or unix:// URLs.
func parseMasters(masters []string) ([]*redis.Options, error) {
	opts := make([]*redis.Options, 0, len(masters))
	for i, m := range masters {
		o, err := parseMaster(strings.TrimSpace(m))
		if err != nil {
			return nil, configErrorf("master %d (%s): %v", i+1, redactMaster(m), err)
		}
		opts = append(opts, o)
	}
	return opts, nil
}

func parseMaster(master string) (*redis.Options, error) {
	if !strings.Contains(master, "://") {
		if err := checkHostPort(master); err != nil {
			return nil, err
		}
		return &redis.Options{Network: "tcp", Addr: master}, nil
	}
	const mustEncode = "the characters # / ? @ of a password must be percent-encoded in a URL"
	if strings.Contains(master, "#") {
		return nil, masterError(mustEncode)
	}
	o, err := redis.ParseURL(master)
	if err != nil {
		// The error may quote the URL with its password.
		return nil, masterError("not a redis://, rediss:// or unix:// URL that the client understands")
	}
	u, err := url.Parse(master)
	if err != nil || strings.Contains(u.EscapedPath()+u.RawQuery, "@") {
		return nil, masterError(mustEncode)
	}
	for name := range u.Query() {
		if !slices.Contains(urlParameters, name) {
			return nil, masterError("the parameter " + strconv.Quote(name) + " has no effect: only " + strings.Join(urlParameters, ", ") + " have")
		}
	}
	switch {
	case o.Network == "unix" && u.Host != "":
		return nil, masterError("the path of a unix:// URL must begin with a third slash")
	case o.Network == "tcp":
		return o, checkHostPort(o.Addr)
	}
	return o, nil
}

// urlParameters are the parameters of a URL that the library uses.
var urlParameters = []string{"client_name", "db", "skip_verify"}

type masterError string

func (e masterError) Error() string { return string(e) }

func checkHostPort(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || strings.ContainsAny(host, "@/?#") {
		return masterError("must be host:port, or a redis://, rediss:// or unix:// URL")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return masterError("port must be a number from 1 to 65535")
	}
	return nil
}

// redactMaster returns an address without user, password and parameters.
func redactMaster(master string) string {
	scheme, rest, isURL := strings.Cut(master, "://")
	switch {
	case !isURL:
		scheme, rest = "", master
	case slices.Contains([]string{"redis", "rediss", "unix"}, scheme):
		scheme += "://"
	default:
		scheme = ""
	}
	at := strings.LastIndexByte(rest, '@')
	if at >= 0 {
		rest = rest[at+1:]
	}
	cut := strings.IndexAny(rest, "?#&")
	if cut >= 0 {
		rest = rest[:cut]
	}
	return strconv.Quote(scheme + rest)
}

// checkMasters returns an error if the list of masters is wrong, as far as that can be told
// without asking a master.
func checkMasters(masters []*redis.Options) ([]redis.Options, error) {
	if len(masters) == 0 {
		return nil, configErrorf("no masters: give the address of at least one")
	}
	seen := make(map[string]int, len(masters))
	list := make([]redis.Options, 0, len(masters))
	for i, m := range masters {
		if m == nil {
			return nil, configErrorf("master %d: options are nil", i+1)
		}
		o := usedOf(m)
		if o.Addr == "" {
			return nil, configErrorf("master %d: no address", i+1)
		}
		if o.Network == "" {
			o.Network = "tcp"
			if strings.HasPrefix(o.Addr, "/") {
				o.Network = "unix"
			}
		}
		if o.Network == "tcp" && o.Dialer == nil {
			if err := checkHostPort(o.Addr); err != nil {
				return nil, configErrorf("master %d (%s): %v", i+1, redactMaster(o.Addr), err)
			}
		}
		if first, twice := seen[o.Addr]; twice {
			return nil, configErrorf("master %d has the address of master %d, %s: a quorum needs independent masters", i+1, first, o.Addr)
		}
		seen[o.Addr] = i + 1
		list = append(list, o)
	}
	return list, nil
}

// usedOf returns the options that the library uses, as [NewFromOptions] lists them. The others are
// about retries, time-outs, pools and caches, which would be wrong for a lock.
func usedOf(o *redis.Options) redis.Options {
	return redis.Options{
		Network:                      o.Network,
		Addr:                         strings.TrimSpace(o.Addr),
		Dialer:                       o.Dialer,
		TLSConfig:                    o.TLSConfig,
		ClientName:                   o.ClientName,
		Username:                     o.Username,
		Password:                     o.Password,
		CredentialsProvider:          o.CredentialsProvider,
		CredentialsProviderContext:   o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		DB:                           o.DB,
	}
}

// groupsWith returns the masters of all groups, one of which is the list of the Locker; nil if the
// masters are no group.
func (c *config) groupsWith(own []redis.Options) (groups [][]redis.Options, err error) {
	if c.groups == nil {
		return nil, nil
	}
	in, found := make(map[string]int), false
	for i, masters := range c.groups {
		parsed, err := parseMasters(masters)
		if err != nil {
			return nil, errorf("group %d: %w", i+1, err)
		}
		list, err := checkMasters(parsed)
		if err != nil {
			return nil, errorf("group %d: %w", i+1, err)
		}
		for _, m := range list {
			if first, twice := in[m.Addr]; twice {
				return nil, configErrorf("%s is in group %d and in group %d: groups must have no master in common", m.Addr, first, i+1)
			}
			in[m.Addr] = i + 1
		}
		groups = append(groups, list)
		found = found || node.Members(list) == node.Members(own)
	}
	if !found {
		return nil, configErrorf("WithGroups: no group has the masters of this Locker")
	}
	return groups, nil
}
