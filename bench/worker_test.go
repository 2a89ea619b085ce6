package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/redistest"
)

// workerEnv is set for the processes that this program starts from itself: to the name of the
// contender that they use.
const workerEnv = "REDLOCK_BENCH_WORKER"

// work takes part in a contest: an order for the masters, a result without anything when all
// is warm, an order for the contest, and its result. Orders come from the standard input, which
// also ends when the parent dies.
func work(who string) error {
	c, ok := contender.ByName(who)
	if !ok {
		return fmt.Errorf("who is %s?", who)
	}
	orders, results := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var masters []string
	if err := orders.Decode(&masters); err != nil {
		return err
	}
	l, err := c.Dial(masters)
	if err != nil {
		return err
	}
	crew := measure.NewCrew(l, fmt.Sprintf("warm:%s:%d", who, os.Getpid()), 1, false)
	crew.Run(context.Background(), 5, grace, grace)
	if s := crew.Summary(); s.Failed > 0 {
		return fmt.Errorf("%s: warming up: %s", who, s.Err)
	}
	if err := results.Encode(measure.Attempts{}); err != nil {
		return err
	}
	var contest measure.Contest
	if err := orders.Decode(&contest); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), contest.For+grace)
	defer cancel()
	return errors.Join(results.Encode(contest.Run(ctx, l)), l.Close())
}

// worker is a worker process, seen from its parent.
type worker struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	orders  *json.Encoder
	results *json.Decoder
	errors  strings.Builder // what it wrote to its standard error
}

func startWorker(ctx context.Context, who string) (*worker, error) {
	w := &worker{cmd: exec.CommandContext(ctx, os.Args[0])}
	w.cmd.Env, w.cmd.Stderr = append(os.Environ(), workerEnv+"="+who), &w.errors
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	w.stdin, w.orders, w.results = in, json.NewEncoder(in), json.NewDecoder(out)
	return w, w.cmd.Start()
}

// call gives an order, and waits for the result.
func (w *worker) call(order any) (result measure.Attempts, err error) {
	if err = w.orders.Encode(order); err == nil {
		err = w.results.Decode(&result)
	}
	return result, err
}

// end returns when the process is gone, and what it said in the end. It may have to be killed:
// some contenders do not close while a call is stuck.
func (w *worker) end() error {
	_ = w.stdin.Close()
	overdue := time.AfterFunc(3*time.Second, func() { _ = w.cmd.Process.Kill() })
	defer overdue.Stop()
	if err := w.cmd.Wait(); w.errors.Len() > 0 {
		return fmt.Errorf("worker process: %v: %s", err, w.errors.String())
	}
	return nil
}

// team has worker processes that use the same contender.
type team []*worker

// startTeam starts n processes, and returns when each has used the masters.
func startTeam(ctx context.Context, n int, who string, masters []string) (t team, err error) {
	for range n {
		w, err := startWorker(ctx, who)
		if err != nil {
			return t, errors.Join(err, t.end())
		}
		t = append(t, w)
	}
	if err := t.each(func(_ int, w *worker) error { _, err := w.call(masters); return err }); err != nil {
		return t, errors.Join(err, t.end())
	}
	return t, nil
}

// contest lets shares of workers begin at one moment.
func (t team) contest(c measure.Contest, shares []int) (measure.History, error) {
	c.Start = measure.Now() + 30*time.Millisecond + time.Duration(len(t))*10*time.Millisecond
	seen := make([]measure.Attempts, len(t))
	err := t.each(func(i int, w *worker) (err error) {
		mine := c
		mine.Workers = shares[i]
		seen[i], err = w.call(mine)
		return err
	})
	if err != nil {
		return measure.History{}, err
	}
	return measure.NewHistory(c, shares, seen), nil
}

// each does something with all processes at the same time.
func (t team) each(do func(i int, w *worker) error) error {
	var all errgroup.Group
	for i, w := range t {
		all.Go(func() error { return do(i, w) })
	}
	return all.Wait()
}

func (t team) end() error {
	return t.each(func(_ int, w *worker) error { return w.end() })
}

// share divides workers as evenly as possible.
func share(workers, procs int) []int {
	shares := make([]int, procs)
	for i := range shares {
		shares[i] = workers*(i+1)/procs - workers*i/procs
	}
	return shares
}

func TestWorkers(t *testing.T) {
	mutex, err := startTeam(t.Context(), 2, "mutex", nil)
	if err != nil {
		t.Fatal(err)
	}
	plain := redistest.Minis(t, 1)[0].Addr()
	h, err := mutex.contest(measure.Contest{Key: "k", Rounds: 5, For: time.Minute, Plain: plain}, []int{2, 1})
	if err != nil || h.HandOvers != 15 || h.Failed != 0 {
		t.Errorf("got %+v, %v, want 15 hand-overs", h, err)
	}
	if err := mutex.end(); err != nil {
		t.Errorf("the end: %v", err)
	}
	if _, err := startTeam(t.Context(), 1, "nobody", nil); err == nil || !strings.Contains(err.Error(), "who is nobody?") {
		t.Errorf("an unknown contender: got %v", err)
	}
	if _, err := startTeam(t.Context(), 2, "floor", []string{"127.0.0.1:1"}); err == nil {
		t.Error("a team without servers")
	}
}

func TestKilledWorker(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	one, err := startTeam(ctx, 1, "mutex", nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := one.contest(measure.Contest{}, []int{1}); err == nil {
		t.Error("a process that is dead takes part in a contest")
	}
	if err := one.end(); err != nil {
		t.Errorf("the end of it: %v", err)
	}
}

func TestShare(t *testing.T) {
	for _, test := range []struct {
		workers, procs int
		want           []int
	}{
		{10, 1, []int{10}}, {10, 3, []int{3, 3, 4}}, {200, 3, []int{66, 67, 67}}, {10, 10, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		if got := share(test.workers, test.procs); !slices.Equal(got, test.want) {
			t.Errorf("%d in %d: got %v, want %v", test.workers, test.procs, got, test.want)
		}
	}
}

func TestWrongStock(t *testing.T) {
	for _, test := range []struct {
		name               string
		sold, left, undone int
		want               int
	}{
		{"as it should be", 200, 0, 0, 0},
		{"too many sold", 231, 0, 0, 31},
		{"some never sold", 190, 10, 0, 10},
		{"not done, and in order", 120, 80, 900, 0},
		{"not done, and sold twice", 130, 80, 900, 10},
	} {
		if got := wrong(200, test.sold, test.left, test.undone); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

func TestOfLimit(t *testing.T) {
	// A section of 1 ms and two round trips of 250 µs: at most 666.7 a second.
	if got := ofLimit(333.33, time.Millisecond, 250*time.Microsecond); got < 49.9 || got > 50.1 {
		t.Errorf("got %v %%, want 50", got)
	}
}
