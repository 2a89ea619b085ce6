package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/jobs"
)

// machine has a scheduler. Its clock is ahead of the others by ahead, which is negative for a clock that is
// behind. While it sleeps, no due time is noticed: its scheduler begins these runs when it wakes.
type machine struct {
	jobs   *jobs.Locker
	uplink *locktest.Uplink
	ahead  time.Duration
	sleeps [][2]time.Time
	dies   time.Time
}

// awake returns the first moment from at on at which the machine does not sleep.
func (m *machine) awake(at time.Time) time.Time {
	for _, s := range m.sleeps {
		if !at.Before(s[0]) && at.Before(s[1]) {
			at = s[1]
		}
	}
	return at
}

// schedule is a job, with what became of each due time. All fields behind mu are guarded by it.
type schedule struct {
	name  string
	dues  []time.Time
	takes time.Duration // a run

	mu      sync.Mutex
	running int
	begun   int
	runs    map[time.Time]int
	asked   map[time.Time]bool // a machine called in time, and lived on until the call returned
	excused map[time.Time]bool // another run was under way, or the machine died during the run
}

const window = redlock.DefaultMaxTTL / 2

// call is how a scheduler has a job run.
type call func(j *jobs.Locker, job string, due time.Time, run func()) error

func runAt(j *jobs.Locker, job string, due time.Time, run func()) error {
	return j.Run(context.Background(), job, func(context.Context, *redlock.Lease) error { run(); return nil }, jobs.At(due))
}

func runAtWithPermit(j *jobs.Locker, job string, due time.Time, run func()) error {
	return j.Run(context.Background(), job, func(context.Context, *redlock.Lease) error { run(); return nil }, jobs.At(due), jobs.Permits(1))
}

// runWithoutDue is the negative control: the lock of the job, with a minimum hold.
func runWithoutDue(j *jobs.Locker, job string, _ time.Time, run func()) error {
	return j.Run(context.Background(), job, func(context.Context, *redlock.Lease) error { run(); return nil })
}

// follow makes a machine's calls for a schedule, each when the machine's clock shows the due time.
func (s *schedule) follow(m *machine, do call) {
	var calls sync.WaitGroup
	for _, due := range s.dues {
		time.Sleep(time.Until(m.awake(due.Add(-m.ahead))))
		if !time.Now().Before(m.dies) {
			break
		}
		calls.Go(func() {
			late := time.Since(due) + m.ahead
			s.mu.Lock()
			busy, begun := s.running > 0, s.begun
			s.mu.Unlock()
			err := do(m.jobs, s.name, due, func() {
				s.mu.Lock()
				s.runs[due]++
				s.running++
				s.begun++
				s.mu.Unlock()
				time.Sleep(s.takes)
				s.mu.Lock()
				s.running--
				s.mu.Unlock()
			})
			s.mu.Lock()
			defer s.mu.Unlock()
			switch dead := !time.Now().Before(m.dies); {
			case dead || busy || begun != s.begun:
				s.excused[due] = true
			case late <= window && !errors.Is(err, jobs.ErrLate):
				s.asked[due] = true
			}
		})
	}
	calls.Wait()
}

// outcome counts due times.
type outcome struct{ total, twice, never, excused int }

// simulate has machines follow schedules in a bubble, and returns what became of their due times.
func simulate(t *testing.T, seed uint64, schedules int, do call, opts ...redlock.LockOption) (o outcome) {
	locktest.InBubble(t, 3, func(t *testing.T, b *locktest.Bubble) {
		random := rand.New(rand.NewPCG(seed, 1))
		upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
		b.All(func(n *virtual.Node) { n.Latency(upTo(2*time.Millisecond), upTo(2*time.Millisecond)) })
		all := make([]*machine, 2+random.IntN(3))
		for i := range all {
			m := &machine{uplink: new(locktest.Uplink)}
			m.jobs = newLockerWith(t, locktest.LockerBy(b, m.uplink, redlock.WithLogger(nil)), opts...)
			all[i] = m
		}
		begin := time.Now().Add(10 * time.Second).Truncate(time.Second)
		end := begin.Add(time.Minute)
		for i, m := range all {
			m.dies = end.Add(time.Hour)
			if random.IntN(2) == 0 {
				m.ahead = upTo(4*time.Second) - 2*time.Second
			}
			for at := begin; at.Before(end); {
				at = at.Add(upTo(20 * time.Second))
				wakes := at.Add(upTo([]time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}[random.IntN(3)]))
				m.sleeps = append(m.sleeps, [2]time.Time{at, wakes})
				at = wakes.Add(time.Second)
			}
			if i > 0 && random.IntN(3) == 0 {
				m.dies = begin.Add(upTo(time.Minute))
				time.AfterFunc(time.Until(m.dies), func() { m.uplink.Dead.Store(true) })
			}
			m.jobs.SetClock(func() time.Time { return time.Now().Add(m.ahead) })
		}
		list := make([]*schedule, schedules)
		var following sync.WaitGroup
		for i := range list {
			s := &schedule{
				name: fmt.Sprint("job", i), takes: upTo(50 * time.Millisecond),
				runs: make(map[time.Time]int), asked: make(map[time.Time]bool), excused: make(map[time.Time]bool),
			}
			every := time.Duration(2+random.IntN(9)) * time.Second
			for at := begin.Add(upTo(every).Truncate(time.Millisecond)); at.Before(end) && len(s.dues) < 6; at = at.Add(every) {
				s.dues = append(s.dues, at)
			}
			list[i] = s
			for _, m := range all {
				following.Go(func() { s.follow(m, do) })
			}
		}
		following.Wait()
		for _, s := range list {
			for _, due := range s.dues {
				o.total++
				switch n := s.runs[due]; {
				case n > 1:
					o.twice++
				case n == 1:
				case s.excused[due]:
					o.excused++
				case s.asked[due]:
					o.never++
				}
			}
		}
	})
	return o
}

func newLockerWith(t testing.TB, l *redlock.Locker, opts ...redlock.LockOption) *jobs.Locker {
	t.Helper()
	j, err := jobs.New(l, opts...)
	locktest.Must(t, err)
	return j
}

// Machines sleep, stop, die, and have clocks that are behind or ahead. With its due time each run is made
// once over all machines. Without, as the control shows, runs are made twice and runs are left out.
func TestVirtualSchedules(t *testing.T) {
	redistest.TakesSeconds(t)
	for name, test := range map[string]struct {
		do      call
		hold    time.Duration
		seeds   int
		control bool
	}{
		"At":                      {do: runAt, seeds: redistest.Rounds(1, 50)},
		"At and Permits":          {do: runAtWithPermit, seeds: redistest.Rounds(1, 5)},
		"control: the lock alone": {do: runWithoutDue, hold: time.Second, seeds: 10, control: true},
	} {
		t.Run(name, func(t *testing.T) {
			var sum outcome
			for seed := range uint64(test.seeds) {
				if test.control && sum.twice > 0 && sum.never > 0 {
					break
				}
				o := simulate(t, seed, 20, test.do, redlock.WithMinHold(test.hold), redlock.WithTTL(max(time.Second, test.hold)))
				if !test.control && o.twice+o.never > 0 {
					t.Errorf("seed %d: got %+v, want no due time run twice or never", seed, o)
				}
				sum = outcome{sum.total + o.total, sum.twice + o.twice, sum.never + o.never, sum.excused + o.excused}
			}
			t.Logf("%+v", sum)
			if test.control && (sum.twice == 0 || sum.never == 0) {
				t.Errorf("got %+v, want due times run twice, and others never", sum)
			}
			if !test.control && sum.excused > sum.total/50 {
				t.Errorf("got %+v, want few excuses", sum)
			}
		})
	}
}
