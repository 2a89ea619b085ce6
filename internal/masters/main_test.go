package masters_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		orphan()
		return
	}
	goleak.VerifyTestMain(redistest.Again(m))
}

// patient bounds how long tests wait. No test waits that long unless it fails.
const patient = 10 * time.Second

// wire is a bare connection that shows each line and each failure.
type wire struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patient)
	ok(t, err)
	t.Cleanup(func() { conn.Close() })
	return &wire{t, conn, bufio.NewReader(conn)}
}

// send sends a command, given as words with spaces between them.
func (w *wire) send(format string, args ...any) {
	w.t.Helper()
	if _, err := w.Write(encode(strings.Fields(fmt.Sprintf(format, args...))...)); err != nil {
		w.t.Fatal(err)
	}
}

func encode(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, s := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(s), s)
	}
	return b
}

// recv returns the next line, or the error in its place.
func (w *wire) recv(within time.Duration) (string, error) {
	_ = w.SetReadDeadline(time.Now().Add(within))
	line, err := w.r.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (w *wire) want(reply string) {
	w.t.Helper()
	if got, err := w.recv(patient); err != nil || got != reply {
		w.t.Fatalf("got %q, %v; want %q", got, err, reply)
	}
}

// wantSilence checks that the connection is open and receives nothing for a while.
func (w *wire) wantSilence() {
	w.t.Helper()
	got, err := w.recv(50 * time.Millisecond)
	if nerr, ok := err.(net.Error); !ok || !nerr.Timeout() {
		w.t.Fatalf("got %q, %v; want silence", got, err)
	}
}

// wantBroken checks that the connection ends.
func (w *wire) wantBroken() {
	w.t.Helper()
	if got, err := w.recv(patient); err == nil || os.IsTimeout(err) {
		w.t.Fatalf("got %q, %v; want a broken connection", got, err)
	}
}

func (w *wire) hangUp() {
	w.t.Helper()
	if err := w.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// ask sends one command on a connection of its own.
func ask(t testing.TB, addr, command string) string {
	t.Helper()
	w := dial(t, addr)
	defer w.Close()
	w.send("%s", command)
	line, err := w.recv(patient)
	if strings.HasPrefix(line, "$") && line != "$-1" {
		line, err = w.recv(patient)
	}
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return line
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantKey waits until the master at addr has key with value.
func wantKey(t testing.TB, addr, key, value string) {
	t.Helper()
	redistest.Eventually(t, patient, func() bool {
		return ask(t, addr, "GET "+key) == value
	}, fmt.Sprintf("%s = %s on %s", key, value, addr))
}

// server starts one real master.
func server(t testing.TB) *masters.Process {
	t.Helper()
	return redistest.Masters(t, 1)[0]
}

func proxied(t testing.TB) (*masters.Process, *masters.Proxy) {
	t.Helper()
	list := redistest.Masters(t, 1)
	return list[0], redistest.Proxied(t, list)[0]
}

const orphanEnv = "MASTERS_TEST_ORPHAN"

// orphan is the test binary run as a child. It starts a master, prints its address and
// waits to be killed. It also ends when its input ends, in case the kill fails.
func orphan() {
	p, err := masters.StartProcess(context.Background(), masters.ProcessConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	fmt.Println(p.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
