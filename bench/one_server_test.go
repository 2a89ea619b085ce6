package bench

import (
	"context"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// The claims of the README's table about the two libraries that lock on one Redis. If one of these tests
// fails after an update of a library, the table is wrong.

func rueidisLocker(t testing.TB, addr string) rueidislock.Locker {
	t.Helper()
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}})
	must(t, err)
	t.Cleanup(l.Close)
	return l
}

// front starts a Redis, and a proxy in front of it.
func front(t testing.TB) (*masters.Process, *masters.Proxy) {
	t.Helper()
	list := redistest.Masters(t, 1)
	return list[0], redistest.Proxied(t, list)[0]
}

// The only Redis restarts empty: another client gets the lock, and the holder's lock still has most of its TTL.
func TestRedislockRestart(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	server, _ := front(t)
	first, second := redislock.New(redistest.Client(t, server.Addr())), redislock.New(redistest.Client(t, server.Addr()))
	if _, err := first.Obtain(t.Context(), "r", time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	must(t, server.Restart())
	if _, err := second.Obtain(t.Context(), "r", time.Minute, nil); err != nil {
		t.Errorf("got %v, want a second holder within the TTL of the first", err)
	}
}

// The same: another client gets the lock, and the holder's context ends, because its connection broke.
func TestRueidislockRestart(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	server, _ := front(t)
	began := time.Now()
	held, release, err := rueidisLocker(t, server.Addr()).WithContext(t.Context(), "r")
	must(t, err)
	defer release()
	must(t, server.Restart())
	_, release, err = rueidisLocker(t, server.Addr()).WithContext(t.Context(), "r")
	must(t, err)
	defer release()
	if took := time.Since(began); took > 5*time.Second {
		t.Fatalf("the restart took %v: the machine is too slow for this", took)
	}
	ends(t, held)
}

// The holder is cut off. Its key expires after 5 s. Its context ends when a renewal has failed, which is later.
func TestRueidislockCutOff(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	server, proxy := front(t)
	held, release, err := rueidisLocker(t, proxy.Addr()).WithContext(t.Context(), "r")
	must(t, err)
	go func() { <-t.Context().Done(); release() }() // it waits for the cut-off Redis
	must(t, proxy.Set(masters.Blackhole))
	_, releaseOther, err := rueidisLocker(t, server.Addr()).WithContext(t.Context(), "r")
	must(t, err)
	defer releaseOther()
	if held.Err() != nil {
		t.Error("the holder's context ended before another client had the lock, want a time with two holders")
	}
	ends(t, held)
}

// ends waits for the end of a holder's context.
func ends(t testing.TB, held context.Context) {
	t.Helper()
	began := time.Now()
	select {
	case <-held.Done():
		t.Logf("the holder's context ended %v after another client had the lock", time.Since(began).Round(time.Millisecond))
	case <-time.After(patience):
		t.Errorf("not within %v: the holder's context ends", patience)
	}
}

// The context of a call ends while the Redis hangs. redislock's request is carried out afterwards, and no
// release follows it: the key stays for its TTL.
func TestRedislockLeavesAKey(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	server := redistest.Masters(t, 1)[0]
	c := redislock.New(redistest.Client(t, server.Addr()))
	left := afterAHang(t, server, "r", func(ctx context.Context, name string) error {
		_, err := c.Obtain(ctx, name, time.Minute, nil)
		return err
	})
	if left < 50*time.Second {
		t.Errorf("got a key for another %v, want nearly a minute", left)
	}
}

// The same: rueidislock deletes its keys when the Redis answers again.
func TestRueidislockLeavesNoKey(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	server := redistest.Masters(t, 1)[0]
	l := rueidisLocker(t, server.Addr())
	const key = "rueidislock:0:r"
	left := afterAHang(t, server, key, func(ctx context.Context, name string) error {
		_, _, err := l.WithContext(ctx, name)
		return err
	})
	client := redistest.Client(t, server.Addr())
	for began := time.Now(); left > 0 && time.Since(began) < 3*time.Second; time.Sleep(5 * time.Millisecond) { // its TTL is 5 s
		left = client.PTTL(t.Context(), key).Val()
	}
	if left > 0 {
		t.Errorf("got a key for another %v, want none", left)
	}
}

// afterAHang locks r while a Redis hangs, and returns how long the key of that call lives afterwards.
func afterAHang(t testing.TB, server *masters.Process, key string, lock func(ctx context.Context, name string) error) time.Duration {
	t.Helper()
	must(t, lock(t.Context(), "warm-up"))
	must(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := lock(ctx, "r"); err == nil {
		t.Fatal("got a lock of a Redis that hangs")
	}
	must(t, server.Resume())
	time.Sleep(settled)
	return redistest.Client(t, server.Addr()).PTTL(t.Context(), key).Val()
}
