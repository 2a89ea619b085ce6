//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/svg"
)

// holderName is the argument with which this program is a holder in a process of its own, that can
// be paused.
const holderName = "holder"

const (
	pauseTTL = time.Second
	pauseFor = 1900 * time.Millisecond
)

// fenced reads or writes the amount if the token is not smaller than the largest that came before.
var fenced = redis.NewScript(`
if tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') > tonumber(ARGV[1]) then return 'refused' end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'amount', ARGV[2]) end
return redis.call('HGET', KEYS[1], 'amount')`)

// note has one act of a holder, and its time.
type note struct {
	What  string
	At    time.Time
	Until time.Time // of the validity
	Fence int64
	Text  string // amount, or refused
}

// holder sells one item under the lock, and prints what it does. Between the read and the write it
// is paused if it is told to.
func holder(args []string) (err error) {
	store, pause, check := args[0], args[1] == "pause", args[2] == "fenced"
	l, err := redlock.New(args[3:], redlock.WithMaxTTL(pauseTTL), redlock.WithLogger(nil))
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // of the paused holder, it can fail
	db := redis.NewClient(&redis.Options{Addr: store})
	defer db.Close()
	ctx := context.Background()
	tell := func(n note) { n.At = time.Now(); _ = json.NewEncoder(os.Stdout).Encode(n) }
	lease, err := l.Lock(ctx, "stock")
	if err != nil {
		return err
	}
	tell(note{What: "granted", Until: time.Now().Add(lease.Validity()), Fence: lease.Fence()})
	use := func(amount string) (string, error) {
		if check {
			return fenced.Run(ctx, db, []string{"stock"}, lease.Fence(), amount).Text()
		}
		if amount != "" {
			return amount, db.HSet(ctx, "stock", "amount", amount).Err()
		}
		return db.HGet(ctx, "stock", "amount").Result()
	}
	read, err := use("")
	if err != nil {
		return err
	}
	tell(note{What: "read", Text: read})
	if pause {
		time.Sleep(150 * time.Millisecond) // the work
		if lease.Context().Err() != nil {
			return errors.New("the lease was over before the pause")
		}
		tell(note{What: "paused", Until: time.Now().Add(lease.Validity())})
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // until the other has sold
	} else {
		time.Sleep(250 * time.Millisecond)
	}
	var amount int
	if _, err := fmt.Sscan(read, &amount); err != nil {
		return err
	}
	got, err := use(fmt.Sprint(amount - 1))
	if err != nil {
		return err
	}
	tell(note{What: "wrote", Text: got})
	_ = lease.Unlock(ctx)
	tell(note{What: "released"})
	return nil
}

// story has the notes of both holders, by what they did.
type story struct {
	a, b    map[string]note
	resumed time.Time
	stock   string // at the end
}

// sell lets two holders sell one item each. The first is paused past the end of its lease.
func sell(check bool) (s story, err error) {
	f, err := start()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	l, err := f.locker(redlock.WithMaxTTL(pauseTTL))
	if err != nil {
		return s, err
	}
	if err := l.Close(); err != nil {
		return s, err
	}
	ctx := context.Background()
	db := redis.NewClient(&redis.Options{Addr: f.store.Addr()})
	defer db.Close()
	if err := db.HSet(ctx, "stock", "amount", 10).Err(); err != nil {
		return s, err
	}
	mode := map[bool]string{true: "fenced", false: "plain"}[check]
	run := func(pause string) (*exec.Cmd, *bufio.Scanner, error) {
		cmd := exec.Command(os.Args[0], append([]string{holderName, f.store.Addr(), pause, mode}, f.addrs...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, nil, err
		}
		return cmd, bufio.NewScanner(io.Reader(out)), cmd.Start()
	}
	first, lines, err := run("pause")
	if err != nil {
		return s, err
	}
	defer func() { _ = first.Process.Kill() }()
	s.a, s.b = make(map[string]note), make(map[string]note)
	take := func(into map[string]note, lines *bufio.Scanner, until string) error {
		for lines.Scan() {
			var n note
			if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
				return err
			}
			if into[n.What] = n; n.What == until {
				return nil
			}
		}
		return fmt.Errorf("a holder ended before it had %s", until)
	}
	if err := take(s.a, lines, "paused"); err != nil {
		return s, err
	}
	second, others, err := run("")
	if err != nil {
		return s, err
	}
	if err := errors.Join(take(s.b, others, "released"), second.Wait()); err != nil {
		return s, err
	}
	time.Sleep(time.Until(s.a["paused"].At.Add(pauseFor)))
	s.resumed = time.Now()
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		return s, err
	}
	if err := errors.Join(take(s.a, lines, "wrote"), first.Wait()); err != nil {
		return s, err
	}
	s.stock, err = db.HGet(ctx, "stock", "amount").Result()
	return s, err
}

func drawPause(file string) error {
	c := svg.New(880, 372, "A paused holder, without and with the fencing token")
	for i, check := range []bool{false, true} {
		s, err := sell(check)
		if err != nil {
			return err
		}
		if refused := s.a["wrote"].Text == "refused"; refused != check {
			return fmt.Errorf("with a check %v: the write of the paused holder came to %q", check, s.a["wrote"].Text)
		}
		s.draw(c, 20+float64(i)*435, check)
	}
	c.Line(440, 20, 440, 352, svg.Grid, 1, "")
	return c.WriteFile(file)
}

func (s story) draw(c *svg.Canvas, left float64, check bool) {
	const width, laneA, laneB, laneStock = 405.0, 90.0, 170.0, 262.0
	begin := s.a["granted"].At
	span := s.a["wrote"].At.Sub(begin).Seconds() + 0.3
	x := func(t time.Time) float64 { return left + 62 + t.Sub(begin).Seconds()/span*(width-72) }
	if check {
		c.Text(left, 30, "start", svg.Green, "bold", "Right: the store checks the fencing token")
	} else {
		c.Text(left, 30, "start", svg.Red, "bold", "Wrong: the store takes every write")
	}
	for lane, y := range map[string]float64{"holder A": laneA, "holder B": laneB, "stock": laneStock} {
		c.Text(left, y+5, "start", svg.Ink, "bold", lane)
		c.Line(left+62, y, left+width, y, svg.Grid, 1, "")
	}
	end := s.a["paused"].Until
	c.Rect(x(begin), laneA-11, x(end)-x(begin), 22, svg.Pale, svg.Blue)
	c.Line(x(s.a["paused"].At), laneA, x(s.resumed), laneA, svg.Red, 4, "2 4")
	c.Text(x(begin)+2, laneA-18, "start", svg.Blue, "normal", "lease, token "+token(s.a["granted"].Fence))
	c.Text((x(end)+x(s.resumed))/2+10, laneA-18, "middle", svg.Red, "normal", "the process is paused")
	bBegin, bEnd := s.b["granted"].At, s.b["released"].At
	c.Rect(x(bBegin), laneB-11, max(x(bEnd)-x(bBegin), 4), 22, svg.Mint, svg.Green)
	c.Text(x(bBegin), laneB-18, "middle", svg.Green, "normal", "lease, token "+token(s.b["granted"].Fence))
	b, a := s.b["wrote"], s.a["wrote"]
	c.Arrow(x(b.At), laneB+11, laneStock-12, svg.Green)
	colour, mark := svg.Red, "A writes 9 again"
	if check {
		mark = "A's write is refused"
	}
	c.Arrow(x(a.At), laneA+11, laneStock-12, colour)
	c.Text(x(begin)+20, laneStock-6, "middle", svg.Ink, "normal", "10")
	c.Text(x(b.At)+10, laneStock-18, "start", svg.Green, "normal", "B writes 9")
	c.Text(left+width, laneStock+24, "end", colour, "normal", mark)
	if check {
		c.Text(x(a.At), laneStock+5, "middle", colour, "bold", "✕")
		c.Text(left, 320, "start", svg.Ink, "normal", "The token of A is smaller than the last that the store has seen.")
		c.Text(left, 340, "start", svg.Green, "bold", "One item sold, stock "+s.stock+". A is told, and sells nothing.")
		return
	}
	c.Text(left, 320, "start", svg.Ink, "normal", "A read 10 before the pause, and cannot know how long it was.")
	c.Text(left, 340, "start", svg.Red, "bold", "Two items sold, stock "+s.stock+": one sale is lost.")
}

// token returns the last digits of a fencing token.
func token(fence int64) string {
	text := fmt.Sprint(fence)
	return "…" + strings.TrimLeft(text[max(0, len(text)-6):], "")
}
