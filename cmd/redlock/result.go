package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// journal records the critical sections of all services. A holder takes its mutex when it
// enters, so that the entries have an order.
type journal struct {
	mu          sync.Mutex
	inside      int
	overlaps    int // entries while another holder was inside
	entries     int
	lastFence   int64
	fallen      int // fencing tokens not larger than the token of the entry before
	sold        int
	unconfirmed int // releases that no quorum confirmed in time
	waits       []time.Duration
}

func (j *journal) enter(fence int64, waited time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.inside++
	if j.inside > 1 {
		j.overlaps++
	}
	if fence <= j.lastFence {
		j.fallen++
	}
	j.lastFence = fence
	j.entries++
	j.waits = append(j.waits, waited)
}

func (j *journal) leave(sold bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.inside--
	if sold {
		j.sold++
	}
}

func (j *journal) unconfirm() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unconfirmed++
}

// result is the result of a run.
type result struct {
	*journal
	stock    int
	attempts int
	done     int
	left     int // in the store at the end; -1 if it could not be read
	wall     time.Duration
	alone    []time.Duration // lock and unlock of a lock without contention
	err      error           // the error that ended the run early
}

func (r *result) oversold() int { return max(0, r.sold-r.stock) }

// finding is one line of the judgement.
type finding struct {
	name, got string
	wrong     bool
}

func (r *result) findings() []finding {
	want := min(r.stock, r.attempts)
	fences := "yes"
	if r.fallen > 0 {
		fences = fmt.Sprintf("no: %d of %d not larger than the one before it", r.fallen, r.entries)
	}
	left := fmt.Sprint(r.left)
	if r.left < 0 {
		left = "not known"
	}
	return []finding{
		{"attempts done", fmt.Sprintf("%d of %d", r.done, r.attempts), r.done != r.attempts},
		{"sold", fmt.Sprintf("%d (must be %d)", r.sold, want), r.sold != want},
		{"oversold", fmt.Sprint(r.oversold()), r.oversold() > 0},
		{"left in the store", fmt.Sprintf("%s (must be %d)", left, r.stock-want), r.left != r.stock-want},
		{"overlapping holders", fmt.Sprint(r.overlaps), r.overlaps > 0},
		{"fencing tokens strictly rising", fences, r.fallen > 0},
	}
}

// verdict returns an error that names all faults, or nil.
func (r *result) verdict() error {
	var wrong []string
	for _, f := range r.findings() {
		if f.wrong {
			wrong = append(wrong, f.name+": "+f.got)
		}
	}
	err := r.err
	if len(wrong) > 0 {
		err = errors.Join(errors.New(strings.Join(wrong, "; ")), err)
	}
	if err != nil {
		return fmt.Errorf("FAILED: %w", err)
	}
	return nil
}

// percentile returns the smallest value that p per cent of all do not exceed.
func percentile(list []time.Duration, p int) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[(len(sorted)*p+99)/100-1]
}
