package main

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for _, test := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"10s", 10 * time.Second, true}, {"1m30s", 90 * time.Second, true}, {"500ms", 500 * time.Millisecond, true},
		{"0", 0, true}, {"5", 5 * time.Second, true}, {"0.25", 250 * time.Millisecond, true}, {".5", 500 * time.Millisecond, true},
		{"", 0, false}, {".", 0, false}, {"1.2.3", 0, false}, {"-1s", 0, false}, {"-1", 0, false}, {"10 s", 0, false}, {"1e9", 0, false},
		{"9223372037", 0, false}, {"9223372036", 9223372036 * time.Second, true}, {"99999999999999999999", 0, false}, {"forever", 0, false},
	} {
		var d duration
		if err := d.Set(test.text); (err == nil) != test.ok || time.Duration(d) != test.want {
			t.Errorf("%q: got %v, %v; want %v, %v", test.text, time.Duration(d), err, test.want, test.ok)
		}
	}
}
