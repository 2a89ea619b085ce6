package servers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
)

// authority is a private certificate authority.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	locktest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "private authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	locktest.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	locktest.Must(t, err)
	return &authority{t, cert, key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// pem returns the authority's own certificate.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue makes a certificate for 127.0.0.1 and masters.test, for servers and clients.
func (a *authority) issue() (certPEM, keyPEM []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	locktest.Must(a.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "master"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"masters.test"},
	}, a.cert, &key.PublicKey, a.key)
	locktest.Must(a.t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	locktest.Must(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// master starts a master that also listens with TLS, and returns that address, too.
func (a *authority) master(args ...string) (p *masters.Process, tlsAddr string) {
	a.t.Helper()
	dir := a.t.TempDir()
	certPEM, keyPEM := a.issue()
	for name, content := range map[string][]byte{
		"ca.pem": a.pem(), "cert.pem": certPEM, "key.pem": keyPEM,
	} {
		locktest.Must(a.t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	port, err := masters.FreePort()
	locktest.Must(a.t, err)
	p = redistest.Masters(a.t, 1, append([]string{"--tls-port", strconv.Itoa(port), "--tls-ca-cert-file", filepath.Join(dir, "ca.pem"),
		"--tls-cert-file", filepath.Join(dir, "cert.pem"), "--tls-key-file", filepath.Join(dir, "key.pem")}, args...)...)[0]
	return p, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Masters use TLS and ask for a client certificate: with a valid certificate everything works, with an
// invalid one no request gets through.
func TestTLS(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.Server(t)
	ca := newAuthority(t)
	var addrs []string
	for range 3 {
		_, addr := ca.master("--tls-auth-clients", "yes")
		addrs = append(addrs, addr)
	}
	client, err := tls.X509KeyPair(ca.issue())
	locktest.Must(t, err)
	with := func(c *tls.Config) *redlock.Locker {
		var list []*redis.Options
		for _, a := range addrs {
			client := redis.NewClient(&redis.Options{Addr: a, TLSConfig: c, Protocol: 3, PoolSize: 20}) // as a service has it
			t.Cleanup(func() { _ = client.Close() })
			list = append(list, client.Options())
		}
		l, err := redlock.NewFromOptions(list)
		locktest.Must(t, err)
		t.Cleanup(func() { locktest.Must(t, l.Close()) })
		return l
	}
	for _, name := range []string{"", "masters.test"} { // the address, and a name of the certificate
		l := with(&tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{client}, ServerName: name})
		redistest.Eventually(t, 20*time.Second, func() bool { return admin.Bootstrap(t.Context(), l) == nil }, "the masters have their votes")
		le := locktest.Lock(t, l, "r")
		locktest.Must(t, le.Extend(t.Context()))
		locktest.Unlock(t, le)
	}
	for name, wrong := range map[string]struct {
		config *tls.Config
		says   string
	}{
		"another authority":     {&tls.Config{RootCAs: newAuthority(t).pool(), Certificates: []tls.Certificate{client}}, "unknown authority"},
		"another host name":     {&tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{client}, ServerName: "other.test"}, "not other.test"},
		"no client certificate": {&tls.Config{RootCAs: ca.pool()}, "certificate required"},
		"a version before 1.2":  {&tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{client}, MaxVersion: tls.VersionTLS11}, "no supported versions"},
	} {
		t.Run(name, func(t *redistest.T) {
			l := with(wrong.config)
			refused(t, l, wrong.says)
			_, err := l.Lock(t.Context(), "r") // no waiting ends that
			locktest.WantErr(t, err, redlock.ErrMasterSetup)
		})
	}
	t.Run("rediss:// with the authorities of the system", func(t *redistest.T) {
		refused(t, locktest.Open(t, []string{"rediss://" + addrs[0]}), "unknown authority")
	})
}

// refused waits until the error of TryLock gives the reason: the first call may return before the end
// of the handshake.
func refused(t testing.TB, l *redlock.Locker, says string) {
	t.Helper()
	redistest.Eventually(t, 10*time.Second, func() bool {
		_, err := l.TryLock(t.Context(), "r")
		locktest.WantErr(t, err, redlock.ErrNotAcquired, redlock.ErrNoQuorum)
		return strings.Contains(err.Error(), says)
	}, "TryLock is refused with "+says)
}

// Neither the password nor the token of a lease is in any error, in any event, or in what go-redis
// logs.
func TestSecretsAreNotTold(outer *testing.T) {
	t := redistest.Timed(outer)
	const password = "correct-horse-battery"
	c := locktest.Start(t, 3)
	for _, n := range c.Nodes {
		locktest.Must(t, n.Do(t.Context(), "acl", "setuser", "app", "on", ">"+password, "~*", "+@all").Err())
	}
	told := locktest.RedisLog(t)
	observer := redlock.WithObserver(func(e redlock.Event) { fmt.Fprintf(told, "%v %+v %v\n", e.Kind, e, e.Err) })
	locker := func(user, password string) *redlock.Locker {
		var urls []string
		for _, a := range c.Addrs {
			urls = append(urls, fmt.Sprintf("redis://%s:%s@%s", user, password, a))
		}
		return locktest.Open(t, urls, observer)
	}
	failed := func(err error) { fmt.Fprintf(told, "%v %+v\n", err, err) }

	l := locker("app", password)
	le := locktest.Lock(t, l, "r", redlock.WithTTL(300*time.Millisecond))
	id, _, _ := strings.Cut(le.Token(), ";") // with it a key can be released; the rest is the label
	secrets := []string{password, "wrong-" + password, id}
	_, err := l.TryLock(t.Context(), "r")
	failed(err)
	for _, n := range c.Nodes {
		locktest.Must(t, n.FlushAll(t.Context()).Err())
	}
	failed(le.Extend(t.Context()))
	failed(le.Unlock(t.Context()))
	failed(context.Cause(le.Context()))
	_, err = locker("app", "wrong-"+password).Lock(t.Context(), "r")
	locktest.WantErr(t, err, reason.Permission)
	failed(err)
	for _, p := range c.Procs {
		locktest.Must(t, p.Kill())
	}
	_, err = l.TryLock(t.Context(), "r")
	failed(err)
	_, err = redlock.New([]string{"redis://app:" + password + "@nowhere:0"})
	locktest.WantErr(t, err, redlock.ErrConfig)
	failed(err)
	_ = l.Close() // no master confirms anything; after Close all events have been delivered
	text := told.String()
	for _, want := range []string{"acquired", "taken", "lost", "down", "WRONGPASS", "the port must be"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q was not told of: the test does not see what it looks through", want)
		}
	}
	for _, s := range secrets {
		if i := strings.Index(text, s); i >= 0 {
			t.Errorf("a secret was told: ...%q...", text[max(0, i-80):i+len(s)])
		}
	}
}
