package servers_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/virtual"
)

// foreign is code that a program gives to the library. What it does is told by fault, until that is nil.
type foreign struct {
	fault  atomic.Pointer[func(ctx context.Context) error]
	healed chan struct{}
	closed atomic.Int64 // connections that were returned late and closed
}

func (f *foreign) run(ctx context.Context) error {
	if fault := f.fault.Load(); fault != nil {
		return (*fault)(ctx)
	}
	return nil
}

func (f *foreign) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return auth.NewBasicCredentials("", ""), func() error { return f.run(context.Background()) }, f.run(context.Background())
}

// closeCounts counts when it is closed.
type closeCounts struct {
	net.Conn
	closed *atomic.Int64
}

func (c closeCounts) Close() error { c.closed.Add(1); return c.Conn.Close() }

// into makes the options of a node run the code.
func (f *foreign) into(option string, n *virtual.Node) *redis.Options {
	o := &redis.Options{Addr: n.Addr(), Dialer: n.Dial}
	switch option {
	case "Dialer":
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			err := f.run(ctx)
			switch {
			case errors.Is(err, errNothing):
				return nil, nil
			case errors.Is(err, errNilPointer):
				return (*tls.Conn)(nil), nil
			case err != nil:
				return (*tls.Conn)(nil), err // as tls.Dialer and go-redis return it
			}
			conn, err := n.Dial(context.WithoutCancel(ctx), network, addr)
			if err == nil && ctx.Err() != nil {
				conn = closeCounts{conn, &f.closed}
			}
			return conn, err
		}
	case "CredentialsProvider":
		o.CredentialsProvider = func() (string, string) { _ = f.run(context.Background()); return "", "" }
	case "CredentialsProviderContext":
		o.CredentialsProviderContext = func(ctx context.Context) (string, string, error) { return "", "", f.run(ctx) }
	case "StreamingCredentialsProvider":
		o.StreamingCredentialsProvider = f
	}
	return o
}

var errNothing, errNilPointer = errors.New("nothing"), errors.New("nil pointer")

// Code of the program that is slow, fails, panics or never returns is the trouble of its master alone.
// The error names it, nothing waits for it, neither callers nor Close, and when it is well again, so is the master.
func TestVirtualForeignCode(t *testing.T) {
	cells := 0
	for name, test := range map[string]struct {
		fault func(f *foreign, ctx context.Context) error
		says  map[string]string // by option; it has no such fault if there is nothing
	}{
		"slow": {func(*foreign, context.Context) error { time.Sleep(1500 * time.Millisecond); return nil }, map[string]string{
			"CredentialsProvider": "the CredentialsProvider has not answered for 1", "CredentialsProviderContext": "the CredentialsProviderContext has not answered for 1",
			"StreamingCredentialsProvider": "the StreamingCredentialsProvider has not answered for 1", "Dialer": "timeout"}},
		"hangs": {func(f *foreign, _ context.Context) error { <-f.healed; return nil }, map[string]string{
			"CredentialsProvider": "the CredentialsProvider has not answered for 10s", "CredentialsProviderContext": "the CredentialsProviderContext has not answered for 10s",
			"StreamingCredentialsProvider": "the StreamingCredentialsProvider has not answered for 10s", "Dialer": "timeout"}},
		"hangs until its context ends": {func(_ *foreign, ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, map[string]string{
			"CredentialsProviderContext": "the CredentialsProviderContext has not answered for 10s", "Dialer": "timeout"}},
		"fails": {func(*foreign, context.Context) error { return errors.New("no token") }, map[string]string{
			"CredentialsProviderContext":   "the CredentialsProviderContext has failed: no token",
			"StreamingCredentialsProvider": "the StreamingCredentialsProvider has failed: no token", "Dialer": "no token"}},
		"fails late": {func(*foreign, context.Context) error { time.Sleep(3 * time.Second); return errors.New("no token") }, map[string]string{
			"CredentialsProviderContext":   "the CredentialsProviderContext has failed: no token",
			"StreamingCredentialsProvider": "the StreamingCredentialsProvider has failed: no token", "Dialer": "timeout"}},
		"fails with a timeout of its own": {func(*foreign, context.Context) error { return context.DeadlineExceeded }, map[string]string{
			"CredentialsProviderContext":   "the CredentialsProviderContext has failed: context deadline exceeded",
			"StreamingCredentialsProvider": "the StreamingCredentialsProvider has failed: context deadline exceeded", "Dialer": "timeout"}},
		"panics": {func(*foreign, context.Context) error { panic("no luck") }, map[string]string{
			"CredentialsProvider": "the CredentialsProvider panicked: no luck (connect_virtual_test.go:", "CredentialsProviderContext": "the CredentialsProviderContext panicked: no luck (connect_virtual_test.go:",
			"StreamingCredentialsProvider": "the StreamingCredentialsProvider panicked: no luck (connect_virtual_test.go:", "Dialer": "the Dialer panicked: no luck (connect_virtual_test.go:"}},
		"returns nothing":       {func(*foreign, context.Context) error { return errNothing }, map[string]string{"Dialer": "the dialer returned no connection"}},
		"returns a nil pointer": {func(*foreign, context.Context) error { return errNilPointer }, map[string]string{"Dialer": "the dialer returned no connection"}},
	} {
		for option, says := range test.says {
			for _, on := range []int{1, 3} {
				cells++
				locktest.Subtest(t, name+", "+option+", on "+[]string{1: "one master", 3: "all"}[on], 3, func(t *testing.T, b *locktest.Bubble) {
					f := &foreign{healed: make(chan struct{})}
					fault := func(ctx context.Context) error { return test.fault(f, ctx) }
					open := func() *redlock.Locker {
						f.fault.Store(&fault)
						options := make([]*redis.Options, 3)
						for i, n := range b.Nodes {
							options[i] = (&foreign{}).into("", n)
							if i < on {
								options[i] = f.into(option, n)
							}
						}
						l, err := redlock.NewFromOptions(options, redlock.WithLogger(nil))
						locktest.Must(t, err)
						b.Vouch()
						return l
					}
					l := open()
					said, told := false, on == 1 // of the master, and by the error of a call
					for began := time.Now(); time.Since(began) < 15*time.Second; time.Sleep(200 * time.Millisecond) {
						lease, err := l.TryLock(t.Context(), "r")
						switch {
						case err == nil:
							b.Unlock(lease)
						case on == 1:
							t.Fatalf("with one master in trouble: got %v", err)
						default:
							told = told || strings.Contains(err.Error(), says)
						}
						if down := l.Stats().Masters[0].Err; down != nil {
							said = said || strings.HasPrefix(down.Error(), says)
						}
						if name == "slow" && said && told && option != "Dialer" {
							break
						}
					}
					if !said || !told {
						t.Errorf("got %v for the master, and that in the error of a call: %v; want %q", l.Stats().Masters[0].Err, told, says)
					}
					if name == "slow" && option != "Dialer" { // goes on being slow, and is waited for
						lease, err := l.Lock(t.Context(), "r")
						locktest.Must(t, err)
						b.Unlock(lease)
						synctest.Wait()
					}
					f.fault.Store(nil)
					close(f.healed)
					time.Sleep(11 * time.Second) // a provider's time, and a probe
					b.Unlock(b.Lock(l, "r"))
					for i, m := range l.Stats().Masters {
						if m.State != redlock.MasterUp {
							t.Errorf("master %d: got %v, %v when all is well again", i, m.State, m.Err)
						}
					}
					if option == "Dialer" && name == "hangs" && f.closed.Load() == 0 {
						t.Error("no connection that came late was closed")
					}
					locktest.Must(t, l.Close())

					// In trouble from a moment on at which the Locker waits, with its subscription.
					f.healed = make(chan struct{})
					l = open()
					f.fault.Store(nil)
					lease := b.Lock(l, "r")
					var waiter sync.WaitGroup
					waiter.Go(func() { _, _ = l.Lock(t.Context(), "r") })
					time.Sleep(time.Second)
					f.fault.Store(&fault)
					b.All((*virtual.Node).Reset)
					time.Sleep(5 * time.Second)
					began := time.Now()
					_ = l.Close()
					if took := time.Since(began); took > time.Second {
						t.Errorf("Close took %v while the code was in trouble", took)
					}
					if on == 1 && lease.Err() != nil && !errors.Is(lease.Err(), redlock.ErrClosed) {
						t.Errorf("the lease was lost: %v", lease.Err())
					}
					waiter.Wait()
					close(f.healed)
				})
			}
		}
	}
	t.Logf("%d cells", cells)
}
