//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/svg"
)

const lifeTTL = 2 * time.Second

// life has the events of one lease, in time since its grant.
type life struct {
	left    []sample // of the validity
	renewed []time.Duration
	killed  time.Duration // all masters
	ended   time.Duration // the context of the lease
	invalid time.Duration // the end of the validity
}

type sample struct{ at, left time.Duration }

// live watches a lease from its grant to its end. After three renewals all masters are killed.
func live() (l life, err error) {
	f, err := start()
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	var mu sync.Mutex
	var begin time.Time
	locker, err := f.locker(redlock.WithMaxTTL(lifeTTL), redlock.WithObserver(func(e redlock.Event) {
		if e.Kind == redlock.EventExtended {
			mu.Lock()
			defer mu.Unlock()
			l.renewed = append(l.renewed, e.Time.Sub(begin))
		}
	}))
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	mu.Lock()
	lease, err := locker.Lock(context.Background(), "life")
	begin = time.Now()
	mu.Unlock()
	if err != nil {
		return l, err
	}
	for ; l.invalid == 0; time.Sleep(5 * time.Millisecond) {
		now, left := time.Since(begin), lease.Validity()
		l.left = append(l.left, sample{now, max(left, 0)})
		if l.ended == 0 && lease.Context().Err() != nil {
			l.ended = now
		}
		if left <= 0 {
			l.invalid = now
		}
		mu.Lock()
		enough := len(l.renewed) == 3
		mu.Unlock()
		if enough && l.killed == 0 && now > l.renewed[2]+300*time.Millisecond {
			l.killed = now
			for _, p := range f.list {
				err = errors.Join(err, p.Kill())
			}
		}
	}
	return l, err
}

func drawLife(file string) error {
	l, err := live()
	if err != nil {
		return err
	}
	const left, right, top, bottom = 70.0, 850.0, 70.0, 300.0
	c := svg.New(880, 360, "The life of a lease")
	span := (l.invalid + time.Second).Seconds()
	x := func(d time.Duration) float64 { return left + d.Seconds()/span*(right-left) }
	y := func(d time.Duration) float64 { return bottom - d.Seconds()/2.2*(bottom-top) }
	c.Text(20, 28, "start", svg.Ink, "bold", "The life of a lease with a TTL of 2 s: how long it is still valid for its holder")
	for s := 0; s <= 2; s++ {
		at := y(time.Duration(s) * time.Second)
		c.Line(left, at, right, at, svg.Grid, 1, "")
		c.Text(left-8, at+4, "end", svg.Ink, "normal", fmt.Sprintf("%d s", s))
	}
	for s := 0; float64(s) < span; s++ {
		at := x(time.Duration(s) * time.Second)
		c.Line(at, bottom, at, bottom+5, svg.Faint, 1, "")
		c.Text(at, bottom+20, "middle", svg.Ink, "normal", fmt.Sprintf("%d s", s))
	}
	c.Text((left+right)/2, bottom+42, "middle", svg.Faint, "normal", "time since the grant")
	c.Text(right, y(lifeTTL)-6, "end", svg.Faint, "normal", "TTL: the masters keep the keys that long after each renewal")
	var points [][2]float64
	for _, s := range l.left {
		points = append(points, [2]float64{x(s.at), y(s.left)})
	}
	mark := func(at, from time.Duration, where, colour string, texts ...string) {
		c.Line(x(at), y(from), x(at), bottom, colour, 1.5, "4 3")
		shift := map[string]float64{"start": 8, "end": -8}[where]
		for i, t := range texts {
			c.Text(x(at)+shift, y(from)+12+float64(i)*17, where, colour, "normal", t)
		}
	}
	mark(l.killed, 1800*time.Millisecond, "end", svg.Ink)
	for i, t := range []string{"all masters are killed:", "no renewal succeeds"} {
		c.Text(x(l.killed)-8, y(850*time.Millisecond)+float64(i)*17, "end", svg.Ink, "normal", t)
	}
	mark(l.ended, 1700*time.Millisecond, "start", svg.Red, "the context ends,", fmt.Sprintf("%d ms before", (l.invalid-l.ended).Milliseconds()), "the validity:", "stop the work")
	mark(l.invalid, 700*time.Millisecond, "start", svg.Ink, "the validity ends:", "another holder", "can get the lock")
	c.Path(points, svg.Blue)
	c.Dot(x(0), y(l.left[0].left), svg.Blue)
	for i, t := range []string{"granted, and valid for", fmt.Sprintf("%.2f s: the TTL less", l.left[0].left.Seconds()), "1 % and 2 ms for drift"} {
		c.Text(x(0)+8, y(850*time.Millisecond)+float64(i)*17, "start", svg.Blue, "normal", t)
	}
	for i, at := range l.renewed {
		c.Dot(x(at), y(lifeTTL-22*time.Millisecond), svg.Green)
		text := ""
		if i == 1 {
			text = "renewed each third of the TTL"
		}
		c.Text(x(at), y(lifeTTL)-24, "middle", svg.Green, "normal", text)
	}
	return c.WriteFile(file)
}
