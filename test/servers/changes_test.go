package servers_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// The tests of this file do what docs/operations.md, "Changes", says, step by step: a lease that is held meanwhile
// stands, and the log of its process has no warning.

// log keeps the log of a process. It is safe for concurrent use.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// changing is a process that holds a lease while something is changed under it.
type changing struct {
	t     testing.TB
	log   log
	l     *redlock.Locker
	lease *redlock.Lease
}

// hold makes a process with the options of its masters. Its lease is renewed every 0.7 s.
func hold(t testing.TB, masters []*redis.Options) *changing {
	t.Helper()
	c := &changing{t: t}
	var err error
	c.l, err = redlock.NewFromOptions(masters, redlock.WithTTL(2*time.Second), redlock.WithMasterTimeout(500*time.Millisecond),
		redlock.WithLogger(slog.New(slog.NewTextHandler(&c.log, nil))))
	locktest.Must(t, err)
	t.Cleanup(func() { locktest.Must(t, c.l.Close()) })
	redistest.Eventually(t, 20*time.Second, func() bool {
		_ = admin.Bootstrap(t.Context(), c.l) // which masters in use refuse
		c.lease, err = c.l.TryLock(t.Context(), strings.ReplaceAll(t.Name(), "/", "-")+masters[0].Password)
		return err == nil
	}, "the masters have their votes")
	time.Sleep(800 * time.Millisecond) // the first renewal begins the subscription
	return c
}

// goesOn checks that the lease stands over a few renewals, also where connections are made anew, and that the
// process can lock.
func (c *changing) goesOn(step string, nodes []*redis.Client) {
	c.t.Helper()
	for _, n := range nodes {
		for _, kind := range []string{"normal", "pubsub"} {
			locktest.Must(c.t, n.Do(c.t.Context(), "client", "kill", "type", kind, "skipme", "yes").Err())
		}
		time.Sleep(800 * time.Millisecond) // a renewal, on this master over a new connection
	}
	redistest.Eventually(c.t, 10*time.Second, func() bool { return c.lease.Extend(c.t.Context()) == nil }, step+": the lease is extended")
	locktest.Unlock(c.t, locktest.Lock(c.t, c.l, "other"))
	if said := c.log.String(); strings.Contains(said, "cannot") || strings.Contains(said, "closed network connection") || strings.Contains(said, "refused") {
		c.t.Errorf("%s: the log has %s", step, said)
	}
}

// Two passwords are valid for a while. Without that, two masters with the new one refuse a client that has the old one.
func TestPasswordChanges(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.Server(t)
	t.Parallel()
	c := locktest.Start(t, 3)
	onAll := func(args ...any) {
		t.Helper()
		for _, n := range c.Nodes {
			locktest.Must(t, n.Do(t.Context(), args...).Err())
		}
	}
	as := func(password string) (masters []*redis.Options) {
		for _, a := range c.Addrs {
			masters = append(masters, &redis.Options{Addr: a, Username: "app", Password: password})
		}
		return masters
	}
	onAll("acl", "setuser", "app", "on", ">old", "~*", "&*", "+@all")
	before := hold(t, as("old"))
	onAll("acl", "setuser", "app", ">new")
	before.goesOn("two passwords", c.Nodes)
	after := hold(t, as("new"))
	after.goesOn("the new password", c.Nodes)
	locktest.Unlock(t, before.lease) // the last client with the old password
	onAll("acl", "setuser", "app", "<old")
	after.goesOn("the new password alone", c.Nodes)
	l, err := redlock.NewFromOptions(as("old"), redlock.WithLogger(nil))
	locktest.Must(t, err)
	defer func() { locktest.Must(t, l.Close()) }()
	_, err = l.Lock(t.Context(), "other") // at once: no waiting ends that
	locktest.WantMatch(t, "Lock with the old password", err, []error{redlock.ErrMasterSetup, redlock.ErrNotAcquired})
	if err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("got %v, want what the masters say", err)
	}
}

// A new authority is trusted beside the old one first, by clients and masters. The masters get their certificates one
// at a time and without a restart, then the clients, and then the old authority goes.
func TestCertificatesChange(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.Server(t)
	t.Parallel()
	old, next := newAuthority(t), newAuthority(t)
	both := old.pool()
	both.AddCert(next.cert)
	var addrs []string
	var nodes []*redis.Client
	for range 3 {
		p, addr := old.master("--tls-auth-clients", "yes")
		addrs, nodes = append(addrs, addr), append(nodes, redistest.Client(t, p.Addr()))
	}
	as := func(trusted *x509.CertPool, own *authority) (masters []*redis.Options) {
		pair, err := tls.X509KeyPair(own.issue())
		locktest.Must(t, err)
		for _, a := range addrs {
			masters = append(masters, &redis.Options{Addr: a, TLSConfig: &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{pair}}})
		}
		return masters
	}
	during := hold(t, as(both, old))
	for i, n := range nodes {
		dir := t.TempDir()
		cert, key := next.issue()
		for name, content := range map[string][]byte{
			"ca.pem": slices.Concat(old.pem(), next.pem()), "cert.pem": cert, "key.pem": key,
		} {
			locktest.Must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
		locktest.Must(t, n.Do(t.Context(), "config", "set", "tls-ca-cert-file", filepath.Join(dir, "ca.pem"),
			"tls-cert-file", filepath.Join(dir, "cert.pem"), "tls-key-file", filepath.Join(dir, "key.pem")).Err())
		during.goesOn("a new certificate", nodes[i:i+1])
	}
	during.goesOn("the new certificates", nodes)
	locktest.Unlock(t, during.lease)
	after := hold(t, as(next.pool(), next))
	for i, n := range nodes { // the masters trust the new authority alone
		path := filepath.Join(t.TempDir(), "ca.pem")
		locktest.Must(t, os.WriteFile(path, next.pem(), 0o600))
		locktest.Must(t, n.Do(t.Context(), "config", "set", "tls-ca-cert-file", path).Err())
		after.goesOn("the new authority alone", nodes[i:i+1])
	}
	l, err := redlock.NewFromOptions(as(old.pool(), next), redlock.WithLogger(nil))
	locktest.Must(t, err)
	defer func() { locktest.Must(t, l.Close()) }()
	refused(t, l, "unknown authority")
}
