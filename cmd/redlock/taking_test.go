package main

import (
	"strings"
	"testing"

	"github.com/d0720281/redlock"
)

func TestAsLabel(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"web-3:4711:nightly", "web-3:4711:nightly"},
		{"a b\tc|d\ne\x1b[2J", "a_b_c_d_e_[2J"},
		{"größe:1:\xff", "größe:1:_"},
		{strings.Repeat("ä", 40), strings.Repeat("ä", 32)},
		{strings.Repeat("x", 65), strings.Repeat("x", 64)},
	} {
		got := asLabel(test.text)
		if got != test.want {
			t.Errorf("asLabel(%q) = %q, want %q", test.text, got, test.want)
		}
		l, err := redlock.New([]string{"127.0.0.1:1"}, redlock.WithOwner(got))
		if err != nil {
			t.Errorf("the library refuses %q: %v", got, err)
			continue
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
