package servers_test

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// plain is a client in another language, as docs/other-languages.md has it: it runs the scripts of that page.
type plain struct {
	t                        testing.TB
	nodes                    []*redis.Client
	acquire, extend, release *redis.Script
}

func newPlain(t testing.TB, nodes []*redis.Client, maxTTL time.Duration) *plain {
	t.Helper()
	page, err := os.ReadFile("../../docs/other-languages.md")
	locktest.Must(t, err)
	scripts := regexp.MustCompile("(?ms)^```lua\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(scripts) != 3 {
		t.Fatalf("got %d scripts on the page, want acquire, extend and release", len(scripts))
	}
	script := func(i int) *redis.Script {
		return redis.NewScript(strings.ReplaceAll(string(scripts[i][1]), "10000", strconv.FormatInt(maxTTL.Milliseconds(), 10)))
	}
	return &plain{t, nodes, script(0), script(1), script(2)}
}

// votes runs a script on all masters and returns how many reply 1.
func (p *plain) votes(s *redis.Script, args ...any) (n int) {
	p.t.Helper()
	for _, node := range p.nodes {
		one, err := s.Run(p.t.Context(), node, []string{redlock.DefaultKeyPrefix + "r", redlock.DefaultKeyPrefix + "~guard"}, args...).Int()
		locktest.Must(p.t, err)
		n += one
	}
	return n
}

func (p *plain) want(n int, s *redis.Script, args ...any) {
	p.t.Helper()
	if got := p.votes(s, args...); got != n {
		p.t.Errorf("%v: got %d votes, want %d", args, got, n)
	}
}

// The clients exclude each other, and neither releases the other's lock.
func TestOtherLanguages(outer *testing.T) {
	t := redistest.Timed(outer)
	c := locktest.StartFor(t, redlock.DefaultTTL, 3)
	p, l := newPlain(t, c.Nodes, redlock.DefaultMaxTTL), locktest.Open(t, c.Addrs)
	p.want(3, p.acquire, "plain", 9000)
	p.want(0, p.acquire, "another", 9000)
	if _, err := l.TryLock(t.Context(), "r"); !errors.Is(err, redlock.ErrTaken) {
		t.Fatalf("TryLock beside the lock of a plain client: got %v, want ErrTaken", err)
	}
	locked := make(chan *redlock.Lease, 1)
	go func() {
		lease, _ := l.Lock(t.Context(), "r")
		locked <- lease
	}()
	redistest.Eventually(t, 5*time.Second, func() bool { return l.Stats().Waiting == 1 }, "Lock waits")
	p.want(3, p.extend, "plain", 9000)
	p.want(0, p.release, "another")
	p.want(3, p.release, "plain")
	lease := <-locked
	if lease == nil {
		t.Fatal("got no lease after the release")
	}
	c.Fill(t, lease) // a quorum may be two of three
	p.want(0, p.acquire, "plain", 9000)
	p.want(0, p.extend, "plain", 9000)
	p.want(0, p.release, "plain")
	locktest.Must(t, lease.Extend(t.Context()))
	locktest.Must(t, lease.Unlock(t.Context()))

	c.Empty(t, redlock.DefaultKeyPrefix+"r")
	p.want(3, p.acquire, "plain", 9000)
	if _, err := admin.Break(t.Context(), l, "r"); err != nil {
		t.Fatal(err)
	}
	p.want(0, p.extend, "plain", 9000)
	p.want(0, p.release, "plain")
}

// A master that restarted has no vote for a plain client either: neither with old data, nor
// empty, nor when a client of this library has begun its quarantine. Nor has a master a vote for a TTL that is longer
// than its quarantine.
func TestOtherLanguagesInAQuarantine(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	const ttl = 3 * time.Second
	c := locktest.StartFor(t, ttl, 3)
	p := newPlain(t, c.Nodes, ttl)
	p.want(0, p.acquire, "long", 2*ttl.Milliseconds())
	p.want(3, p.release, "long")
	p.want(3, p.acquire, "plain", ttl.Milliseconds())
	p.want(3, p.release, "plain")
	marker := redlock.DefaultKeyPrefix + "~guard"
	own := c.Nodes[0].HGet(t.Context(), marker, "run").Val()
	locktest.Must(t, c.Nodes[0].HSet(t.Context(), marker, "run", "another").Err()) // as after a restart with old data
	p.want(2, p.acquire, "plain", ttl.Milliseconds())
	p.want(3, p.release, "plain")
	locktest.Must(t, c.Nodes[0].HSet(t.Context(), marker, "run", own).Err())
	c.Restart(t, 0)
	p.want(2, p.acquire, "plain", ttl.Milliseconds())
	p.want(3, p.release, "plain")
	l := locktest.Open(t, c.Addrs, redlock.WithMaxTTL(ttl))
	began := time.Now()
	redistest.Eventually(t, 20*time.Second, func() bool {
		_, _ = admin.Check(t.Context(), l) // the contact that begins the quarantine
		defer p.votes(p.release, "plain")
		return p.votes(p.acquire, "plain", ttl.Milliseconds()) == 3
	}, "the master votes")
	if took := time.Since(began); took < ttl {
		t.Errorf("the quarantine took %v, want more than the TTL of %v", took, ttl)
	}
}
