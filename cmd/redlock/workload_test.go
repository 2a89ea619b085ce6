package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// seen returns the result of four attempts at a stock of two, whose entries had the given
// tokens.
func seen(fences ...int64) *result {
	r := &result{stock: 2, attempts: 4, done: 4}
	for i, f := range fences {
		r.enter(f, time.Millisecond)
		r.leave(i < 2)
	}
	return r
}

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		name, want string
		spoil      func(*result)
		fences     []int64
	}{
		{"all is well", "", func(*result) {}, []int64{1, 2, 5, 9}},
		{"fewer attempts than items", "", func(r *result) { r.stock, r.left, r.attempts, r.sold = 10, 6, 4, 4 }, []int64{1, 2, 3, 4}},
		{"one token twice", "strictly rising: no: 1 of 4", func(*result) {}, []int64{1, 2, 2, 9}},
		{"a token falls", "strictly rising: no: 1 of 4", func(*result) {}, []int64{1, 7, 2, 9}},
		{"no tokens", "strictly rising: no: 4 of 4", func(*result) {}, []int64{0, 0, 0, 0}},
		{"two inside", "overlapping holders: 1", func(r *result) {
			r.enter(10, 0)
			r.enter(11, 0)
			r.leave(false)
			r.leave(false)
		}, []int64{1, 2, 5, 9}},
		{"one sold too many", "sold: 3 (must be 2); oversold: 1", func(r *result) { r.sold++ }, []int64{1, 2, 5, 9}},
		{"one sold too few", "sold: 1 (must be 2)", func(r *result) { r.sold-- }, []int64{1, 2, 5, 9}},
		{"a sale that is not in the store", "left in the store: 1 (must be 0)", func(r *result) { r.left = 1 }, []int64{1, 2, 5, 9}},
		{"an attempt missing", "attempts done: 3 of 4", func(r *result) { r.done = 3 }, []int64{1, 2, 5, 9}},
		{"an error", "FAILED: out of paper", func(r *result) { r.err = errors.New("out of paper") }, []int64{1, 2, 5, 9}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := seen(test.fences...)
			test.spoil(r)
			err := r.verdict()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestQuantiles(t *testing.T) {
	var r result
	for i := 200; i > 0; i-- {
		r.waits = append(r.waits, time.Duration(i)*time.Millisecond)
	}
	if got, want := r.quantiles(), "100ms / 198ms"; got != want {
		t.Errorf("of 1 to 200 ms: got %q, want %q", got, want)
	}
}
