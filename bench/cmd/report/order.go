package main

import (
	"time"

	"github.com/d0720281/redlock/bench/internal/measure"
)

// order tells a worker process what to do: one of the fields is set.
type order struct {
	Dial    *dial            `json:",omitempty"`
	Cycles  *cycles          `json:",omitempty"`
	Contest *measure.Contest `json:",omitempty"`
	Crowd   *measure.Crowd   `json:",omitempty"`
}

// dial connects to a contender. It is the first order.
type dial struct {
	Who     string
	Masters []string
	Warm    string // key to lock a few times
}

// cycles lets a crew lock and unlock for a time.
type cycles struct {
	Name       string // part of the keys
	Goroutines int
	Warm       int // cycles before anything is measured
	For        time.Duration
	Patience   time.Duration // in addition, for calls that are under way then
	Extend     bool
}

// reply is the answer of a worker process to an order.
type reply struct {
	Error   string            `json:",omitempty"`
	Cycles  *cycled           `json:",omitempty"`
	Contest *measure.Attempts `json:",omitempty"`
	Crowd   *measure.Held     `json:",omitempty"`
}

// cycled is the cost of cycles.
type cycled struct {
	measure.Summary
	Done int           // with or without success
	Took time.Duration // until all were done
	CPU  time.Duration
}
