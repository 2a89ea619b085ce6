//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// selfSigned writes a self-signed certificate for 127.0.0.1 and masters.test, and its key.
func selfSigned(t testing.TB, life time.Duration) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "masters"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"masters.test"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err = errors.Join(err,
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// The flags for TLS work as in redis-cli, with a master that requires a client certificate and
// a user.
func TestTLSAndUser(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.Server(t)
	cert, key := selfSigned(t, time.Hour)
	port, err := masters.FreePort()
	must(t, err)
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	plain := redistest.Masters(t, 1, "--tls-port", strconv.Itoa(addr.Port), "--tls-auth-clients", "yes",
		"--tls-ca-cert-file", cert, "--tls-cert-file", cert, "--tls-key-file", key,
		"--user", "locks", "on", ">s3cret", "~redlock:*", "+@all")[0].Addr()
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	l, err := redlock.NewFromOptions([]*redis.Options{{Addr: addr.String(), TLSConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{pair},
	}}})
	must(t, err)
	redistest.Eventually(t, 20*time.Second, func() bool { return admin.Bootstrap(t.Context(), l) == nil }, "the master has its vote")
	must(t, l.Close())
	c := &cluster{env: []string{passwordEnv + "=s3cret", mastersEnv + "=" + addr.String()}}
	both := " --cert " + cert + " --key " + key
	tests := []struct {
		name, flags string
		code        int
		says        string
	}{
		{"all of them", "--tls --user locks --cacert " + cert + both, exitOK, ""},
		{"rediss://", "--masters rediss://" + addr.String() + " --user locks --cacert " + cert + both, exitOK, ""},
		{"a user in the URL", "--masters rediss://locks:s3cret@" + addr.String() + " --user other --cacert " + cert + both, exitOK, ""},
		{"a user in the URL with the password of the environment", "--masters rediss://locks@" + addr.String() + " --user other --cacert " + cert + both, exitOK, ""},
		{"another name in the certificate", "--tls --user locks --sni masters.test --cacert " + cert + both, exitOK, ""},
		{"a name that is not in it", "--tls --user locks --sni other.test --cacert " + cert + both, exitConfig, "not other.test"},
		{"authorities of the system", "--tls --user locks" + both, exitConfig, "unknown authority"},
		{"unchecked", "--tls --user locks --insecure" + both, exitOK, ""},
		{"no certificate of the client", "--tls --user locks --cacert " + cert, exitConfig, "127.0.0.1"},
		{"no TLS", "--user locks", exitConfig, "write rediss://" + addr.String() + ", or add --tls"},
		{"TLS where there is none", "--tls --masters " + plain, exitConfig, "write redis:// for rediss://, or leave --tls out"},
		{"another user", "--tls --user other --cacert " + cert + both, exitConfig, "WRONGPASS"},
	}
	runs := make([]*process, len(tests)) // in parallel: those that fail do so only after the wait
	for i, test := range tests {
		args := append([]string{test.name, "-w", "4s"}, strings.Fields(test.flags)...)
		runs[i] = c.start(t, append(args, "--", "true")...)
	}
	for i, test := range tests {
		p := runs[i]
		if code, _ := p.wait(t); code != test.code || !strings.Contains(p.all(), test.says) || strings.Contains(p.all(), "s3cret") {
			t.Errorf("%s: got code %d, %q; want %d and %q", test.name, code, p.all(), test.code, test.says)
		}
	}
	for _, test := range []struct{ args, says string }{
		{"doctor --user locks --masters " + addr.String(), "write rediss://" + addr.String() + ","},
		{"status k --user locks --masters " + addr.String(), "write rediss://" + addr.String() + ","},
		{"doctor --master-timeout 500ms --user locks --masters rediss://" + plain, "write redis:// for"},
		{"status k --master-timeout 500ms --user locks --masters rediss://" + plain, "write redis:// for"},
	} {
		out, err := c.command("redlock", strings.Fields(test.args)...).CombinedOutput()
		var failed *exec.ExitError
		if !errors.As(err, &failed) || failed.ExitCode() != exitConfig || !strings.Contains(strings.Join(strings.Fields(string(out)), " "), test.says) {
			t.Errorf("%s: got %v\n%s\nwant code %d and %q", test.args, err, out, exitConfig, test.says)
		}
	}
}

// The row of operations.md about going from plain to TLS: a client that holds a lock goes on, and so do clients with the
// list of before and of after each step.
func TestFromPlainToTLS(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.Server(t)
	if redistest.IsRedisBefore(t, 7, 0) {
		t.Skip("needs CONFIG SET port, of Redis 7.0")
	}
	page, err := os.ReadFile("../../docs/operations.md")
	must(t, err)
	command := regexp.MustCompile("`(CONFIG SET port 0 tls-port 6379)`").FindStringSubmatch(string(page))
	if command == nil {
		t.Fatal("operations.md has no command that changes the port")
	}
	cert, key := selfSigned(t, time.Hour)
	list := redistest.Masters(t, 3, "--tls-auth-clients", "no", "--tls-ca-cert-file", cert, "--tls-cert-file", cert, "--tls-key-file", key)
	urls := redistest.Addrs(list)
	vouch(t, urls, redlock.DefaultMaxTTL)
	c := &cluster{list: list}
	use := func() { c.env = []string{mastersEnv + "=" + strings.Join(urls, ","), "REDLOCK_CACERT=" + cert} }
	locks := func(when string) {
		t.Helper()
		if code, rec := c.start(t, "short", "-w", "20s", "--", "true").wait(t); code != exitOK {
			t.Errorf("%s: got code %d, %+v; want a lock", when, code, rec)
		}
	}
	c.env = []string{mastersEnv + "=" + strings.Join(urls, ",")}
	for i, m := range list {
		file := filepath.Join(t.TempDir(), "beat")
		holder := c.start(t, fmt.Sprint("long", i), "--ttl", "2s", "--", "beat", file)
		redistest.Eventually(t, 20*time.Second, func() bool { return beating(file) }, "a lock is held")
		_, port, _ := net.SplitHostPort(m.Addr())
		do(t, m, strings.Replace(command[1], "6379", port, 1))
		locks("before the client knows")
		urls[i] = "rediss://" + m.Addr()
		use()
		locks("with the new list")
		if code, out := c.look(t, "doctor", "--wait", "20s", "--ignore-warnings"); code != exitOK {
			t.Errorf("doctor: got code %d, %s; want three votes", code, out)
		}
		time.Sleep(3 * time.Second) // a TTL without renewals is over
		if holder.ended() {
			t.Errorf("the lock that was held is lost: %s", holder.all())
		}
		holder.signal(t, syscall.SIGKILL)
		_ = holder.cmd.Wait()
	}
}

// A certificate that ends within 14 days is a warning.
func TestCertificatesThatEnd(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	redistest.Server(t)
	for life, want := range map[time.Duration]int{13 * 24 * time.Hour: exitFailed, 15 * 24 * time.Hour: exitOK} {
		cert, key := selfSigned(t, life)
		port, err := masters.FreePort()
		must(t, err)
		plain := redistest.Masters(t, 1, "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
			"--tls-ca-cert-file", cert, "--tls-cert-file", cert, "--tls-key-file", key)[0].Addr()
		vouch(t, []string{plain}, redlock.DefaultMaxTTL)
		cmd := exec.Command("redlock", "doctor", "--tls", "--cacert", cert, "--masters", "127.0.0.1:"+strconv.Itoa(port), "--wait", "20s")
		out, err := cmd.CombinedOutput()
		warned := strings.Contains(string(out), "  warning  certificate ") && strings.Contains(string(out), "ends in 13.0 days")
		if cmd.ProcessState.ExitCode() != want || warned != (want == exitFailed) {
			t.Errorf("a life of %v: got %v, %s; want code %d", life, err, out, want)
		}
	}
}
