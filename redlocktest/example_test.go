package redlocktest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/redlocktest"
)

// An example of a program's tests. The program:

// mailer sends mails while no other mailer does.
type mailer struct {
	locker  *redlock.Locker
	sending atomic.Bool
}

// run sends whenever it has the lock, until ctx ends.
func (m *mailer) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = m.locker.Do(ctx, "mailer", func(ctx context.Context, _ *redlock.Lease) error {
			m.sending.Store(true)
			defer m.sending.Store(false)
			<-ctx.Done() // which is where the mails would be sent
			return nil
		})
	}
}

// And its tests:

// start runs a mailer until the end of the test.
func start(t testing.TB, m *mailer) {
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
}

func TestMailerStopsWhenTheLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		m := &mailer{locker: masters.Locker()}
		go m.run(t.Context())

		time.Sleep(time.Minute)
		if !m.sending.Load() {
			t.Fatal("the mailer does not send, although nothing is wrong with the masters")
		}
		for _, master := range masters.Masters()[:2] { // a majority
			master.Hang()
		}
		time.Sleep(redlock.DefaultTTL) // after that another mailer may send
		if m.sending.Load() {
			t.Error("the mailer goes on, although its lease is over")
		}
	})
}

func TestASecondMailerTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		// The first mailer crashes: its lease is neither renewed nor unlocked.
		crashed, err := masters.Locker().Lock(t.Context(), "mailer", redlock.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		second := &mailer{locker: masters.Locker()}
		start(t, second)

		time.Sleep(crashed.Validity())
		if second.sending.Load() {
			t.Error("got two mailers at a time, want one")
		}
		time.Sleep(time.Second)
		if !second.sending.Load() {
			t.Error("got a second mailer that waits, want it to have taken over")
		}
		if masters.Holder("mailer") == crashed.Token() {
			t.Error("got a lock that the first mailer holds, want another holder")
		}
	})
}

func TestABadMasterCostsNothing(t *testing.T) {
	for name, fault := range map[string]func(*redlocktest.Master){
		"killed":          (*redlocktest.Master).Kill,
		"emptied":         (*redlocktest.Master).Flush,
		"restarted empty": (*redlocktest.Master).RestartEmpty,
		"hung":            (*redlocktest.Master).Hang,
		"cut off":         (*redlocktest.Master).Partition,
		"deaf":            (*redlocktest.Master).LoseReplies,
		"slow":            func(m *redlocktest.Master) { m.Latency(time.Minute) },
		"in the future":   func(m *redlocktest.Master) { m.MoveClock(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				masters := redlocktest.Start(t, 3)
				locker := masters.Locker()
				warm, err := locker.Lock(t.Context(), "mailer") // a new client waits for each master once, for a master timeout at most
				if err != nil || warm.Unlock(t.Context()) != nil {
					t.Fatal(err)
				}
				fault(masters.Masters()[1])
				began := time.Now()
				err = locker.Do(t.Context(), "mailer", func(ctx context.Context, _ *redlock.Lease) error {
					time.Sleep(time.Minute)
					return ctx.Err()
				})
				if err != nil {
					t.Errorf("got %v, want a minute of work", err)
				}
				if took := time.Since(began); took != time.Minute {
					t.Errorf("got it done after %v, want no time spent on the master", took)
				}
			})
		})
	}
}

func TestNobodySendsWithoutMasters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		locker := masters.Locker()
		masters.Masters()[0].Kill()
		masters.Masters()[2].Kill()
		if _, err := locker.TryLock(t.Context(), "mailer"); !errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("got %v, want ErrNoQuorum", err)
		}
		// They come back with what they had, but have to prove that it was everything.
		masters.Masters()[0].Restart()
		masters.Masters()[2].Restart()
		m := &mailer{locker: locker}
		start(t, m)
		time.Sleep(10 * time.Second)
		if m.sending.Load() {
			t.Error("got a mailer that sends, want it to wait for the masters' quarantine")
		}
		time.Sleep(time.Second)
		if !m.sending.Load() {
			t.Error("got a mailer that waits, want it to send")
		}
	})
}
