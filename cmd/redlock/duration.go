package main

import (
	"errors"
	"strings"
	"time"
)

// duration is the value of a flag: 1m30s, or a number of seconds as for flock and timeout. It
// is never negative.
type duration time.Duration

var errDuration = errors.New("must be a duration such as 10s, 1m30s or 500ms, or a number of seconds, not negative, and at most 292 years")

// Set implements pflag.Value.
func (d *duration) Set(s string) error {
	if strings.Trim(s, "0123456789.") == "" {
		s += "s"
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return errDuration
	}
	*d = duration(v)
	return nil
}

// String implements pflag.Value. A default of "0" is not shown.
func (d *duration) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value: the help shows it.
func (d *duration) Type() string { return "duration" }
