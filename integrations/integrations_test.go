package integrations

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/jobs"
)

const ttl = time.Second

// An Elector fits gocron without an adapter.
var _ gocron.Elector = (*election.Elector)(nil)

// start starts three masters that have their votes. The test runs beside others, as all of them wait for most of their time.
func start(t *redistest.T) (addrs []string, list []*masters.Process) {
	t.Helper()
	t.Parallel()
	list = redistest.Masters(t, 3)
	addrs = redistest.Addrs(list)
	l := open(t, addrs)
	redistest.Eventually(t, 30*time.Second, func() bool { return admin.Bootstrap(t.Context(), l) == nil }, "the masters have their votes")
	return addrs, list
}

func open(t testing.TB, addrs []string, opts ...redlock.Option) *redlock.Locker {
	t.Helper()
	opts = append([]redlock.Option{redlock.WithTTL(ttl), redlock.WithMasterTimeout(200 * time.Millisecond)}, opts...)
	l, err := redlock.New(addrs, opts...)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newLocker returns a Locker of jobs with its own connections, as on a machine of its own.
func newLocker(t testing.TB, addrs []string, opts ...redlock.Option) *jobs.Locker {
	t.Helper()
	locks, err := jobs.New(open(t, addrs, opts...))
	must(t, err)
	return locks
}

func started(t testing.TB, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	must(t, err)
	t.Cleanup(func() { _ = s.Shutdown() })
	s.Start()
	return s
}

func every(t testing.TB, s gocron.Scheduler, d time.Duration, task any, opts ...gocron.JobOption) {
	t.Helper()
	_, err := s.NewJob(gocron.DurationJob(d), gocron.NewTask(task), append(opts, gocron.WithName("job"))...)
	must(t, err)
}

// locked has a scheduler of its own take the locks for a job, as on a machine of its own. The runs are in step
// with the due times, but for after.
func locked(t testing.TB, addrs []string, d, after time.Duration, task any) {
	t.Helper()
	start := time.Now().Truncate(d).Add(2*d + after)
	every(t, started(t), d, task, gocron.WithStartAt(gocron.WithStartDateTime(start)),
		gocron.WithDistributedJobLocker(gocronLocker{newLocker(t, addrs), jobs.Every(d)}))
}

// book records when and where a job runs.
type book struct {
	mu       sync.Mutex
	running  int
	most     int
	began    []time.Time
	atPlaces map[int]int
}

// run returns a job that takes the time d at a place.
func (b *book) run(place int, d time.Duration) func() {
	return func() {
		b.mu.Lock()
		b.running++
		b.most = max(b.most, b.running)
		b.began = append(b.began, time.Now())
		if b.atPlaces == nil {
			b.atPlaces = make(map[int]int)
		}
		b.atPlaces[place]++
		b.mu.Unlock()
		time.Sleep(d) // the work
		b.mu.Lock()
		b.running--
		b.mu.Unlock()
	}
}

func (b *book) runs() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.began)
}

func (b *book) wantOneAtATime(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most != 1 {
		redistest.Broken(t, fmt.Sprintf("%d runs at a time", b.most))
	}
}

// wantOnce checks that there were no more runs than due times: one a second.
func (b *book) wantOnce(t testing.TB, since time.Time) {
	t.Helper()
	runs := b.runs()
	if due := time.Now().Unix() - since.Unix(); int64(runs) > due {
		t.Errorf("got %d runs, want one for each of %d due times at most", runs, due)
	}
}

// Two schedulers have the same job. There are never two runs at a time, even if a run takes
// several TTLs.
func TestGocronOneAtATime(outer *testing.T) {
	t := redistest.Timed(outer)
	for name, takes := range map[string]time.Duration{"short": 20 * time.Millisecond, "longer than the TTL": 5 * ttl / 2} {
		t.Run(name, func(t *redistest.T) {
			addrs, _ := start(t)
			var b book
			for place := range 2 {
				locked(t, addrs, 100*time.Millisecond, 0, b.run(place, takes))
			}
			redistest.Eventually(t, 30*time.Second, func() bool { return b.runs() >= 4 }, "4 runs")
			b.wantOneAtATime(t)
		})
	}
}

// A fast job runs once at each due time, although the clock of a machine is behind.
func TestGocronClocksDiffer(outer *testing.T) {
	t := redistest.Timed(outer)
	addrs, _ := start(t)
	var b book
	begin := time.Now()
	for place := range 2 {
		locked(t, addrs, time.Second, time.Duration(place)*600*time.Millisecond, b.run(place, 0))
	}
	redistest.Eventually(t, 30*time.Second, func() bool { return b.runs() >= 4 }, "4 runs")
	b.wantOneAtATime(t)
	b.wantOnce(t, begin)
}

// A job that is cut off from the masters is told before the job can run elsewhere.
func TestGocronLossInMidJob(outer *testing.T) {
	t := redistest.Timed(outer)
	addrs, list := start(t)
	proxies := redistest.Proxied(t, list)
	causes := make(chan error, 1)
	var b book
	locks := newLocker(t, redistest.Addrs(proxies), redlock.WithTTL(4*time.Second)) // a goroutine may be 60 ms late
	cutOff := func(ctx context.Context, _ *redlock.Lease) error {
		for _, p := range proxies {
			if err := p.Set(masters.Blackhole); err != nil {
				return err
			}
		}
		b.run(0, 0)()
		b.mu.Lock()
		b.running++
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
		b.running--
		b.mu.Unlock()
		select {
		case causes <- context.Cause(ctx):
		default:
		}
		return nil
	}
	every(t, started(t), 50*time.Millisecond, func(ctx context.Context) error { return locks.Run(ctx, "job", cutOff) })
	redistest.Eventually(t, 20*time.Second, func() bool { return b.runs() == 1 }, "the first run")
	locked(t, addrs, 100*time.Millisecond, 0, b.run(1, 0))
	redistest.Eventually(t, 20*time.Second, func() bool { return b.runs() >= 3 }, "a run elsewhere")
	b.wantOneAtATime(t)
	select {
	case cause := <-causes:
		if !errors.Is(cause, redlock.ErrLost) {
			t.Errorf("cause: got %v, want ErrLost", cause)
		}
	default:
		t.Error("the job was not told of the loss")
	}
}

// Only the scheduler of the leader runs jobs. After the leader is killed, the other scheduler does.
func TestGocronElectorKilled(outer *testing.T) {
	t := redistest.Timed(outer)
	addrs, _ := start(t)
	exe, err := os.Executable()
	must(t, err)
	child := exec.CommandContext(t.Context(), exe, "-test.run=^TestLeaderProcess$", "-test.v")
	child.Env = append(os.Environ(), "REDLOCK_LEADER="+strings.Join(addrs, ","))
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	defer func() { _ = child.Wait() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "the leader runs the job") {
	}
	if lines.Err() != nil || lines.Text() == "" {
		t.Fatalf("the other process did not lead: %v", lines.Err())
	}

	var b book
	elector := lead(t, addrs)
	every(t, started(t, gocron.WithDistributedElector(elector)), 20*time.Millisecond, b.run(0, 0))
	time.Sleep(2 * ttl) // without a leader the elector would lead by then
	if got := b.runs(); got != 0 || elector.Leading() {
		t.Errorf("while the other process leads: got %d runs, leading %t; want none, false", got, elector.Leading())
	}
	if err := elector.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeader) || !errors.Is(err, redlock.ErrTaken) {
		t.Errorf("IsLeader: got %v, want ErrNotLeader and ErrTaken", err)
	}
	must(t, child.Process.Kill())
	redistest.Eventually(t, 20*time.Second, func() bool { return b.runs() > 0 }, "a run after the leader was killed")
	if !elector.Leading() {
		t.Error("Leading: got false, want true")
	}
}

// lead runs an Elector until the test ends.
func lead(t testing.TB, addrs []string) *election.Elector {
	t.Helper()
	elector, err := election.New(open(t, addrs), "leader")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := elector.Run(ctx, func(ctx context.Context, _ *redlock.Lease) error { <-ctx.Done(); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run: got %v, want context.Canceled", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return elector
}

// TestLeaderProcess is the process that TestGocronElectorKilled kills.
func TestLeaderProcess(outer *testing.T) {
	t := redistest.Timed(outer)
	list := os.Getenv("REDLOCK_LEADER")
	if list == "" {
		t.Skip("is run by another test")
	}
	elector := lead(t, strings.Split(list, ","))
	every(t, started(t, gocron.WithDistributedElector(elector)), 20*time.Millisecond, func() { fmt.Println("the leader runs the job") })
	time.Sleep(time.Minute) // until the other process kills it
}

// schedule makes a new cron, as on a machine of its own, run a job every second.
func schedule(t testing.TB, job cron.Job) {
	t.Helper()
	c := cron.New()
	c.Schedule(cron.Every(time.Second), job)
	c.Start()
	t.Cleanup(func() { <-c.Stop().Done() })
}

// Two crons have the same job at the same second. One of them runs it, even if it takes several
// TTLs.
func TestCronOnce(outer *testing.T) {
	t := redistest.Timed(outer)
	for name, takes := range map[string]time.Duration{"short": 0, "longer than the TTL": 5 * ttl / 2} {
		t.Run(name, func(t *redistest.T) {
			addrs, _ := start(t)
			var b book
			begin := time.Now()
			for place := range 2 {
				wrapper := once(newLocker(t, addrs), "job", jobs.Every(time.Second))
				schedule(t, cron.NewChain(wrapper).Then(cron.FuncJob(b.run(place, takes))))
			}
			redistest.Eventually(t, 30*time.Second, func() bool { return b.runs() >= 4 }, "4 runs")
			b.wantOneAtATime(t)
			b.wantOnce(t, begin)
		})
	}
}

// A job that must learn of a loss calls Run itself. Run tells the job when it is cut off from the masters.
func TestCronLossInMidJob(outer *testing.T) {
	t := redistest.Timed(outer)
	_, list := start(t)
	proxies := redistest.Proxied(t, list)
	locks := newLocker(t, redistest.Addrs(proxies))
	causes := make(chan error, 10)
	schedule(t, cron.FuncJob(func() {
		_ = locks.Run(context.Background(), "job", func(ctx context.Context, _ *redlock.Lease) error {
			for _, p := range proxies {
				if err := p.Set(masters.Blackhole); err != nil {
					t.Error(err)
				}
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
	}))
	select {
	case cause := <-causes:
		if !errors.Is(cause, redlock.ErrLost) {
			t.Errorf("cause: got %v, want ErrLost", cause)
		}
	case <-time.After(20 * time.Second):
		t.Error("the job was not told of the loss")
	}
}

func TestMain(m *testing.M) { os.Exit(redistest.Again(m).Run()) }
