//go:build unix

package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// Facts that a master does not tell are unknown, which is no failure: the command INFO was
// renamed, or the user has no permission for it.
func TestDoctorWhereInfoIsHidden(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		acl  []any
	}{
		{"renamed", []string{"--rename-command", "INFO", ""}, nil},
		{"forbidden", nil, []any{"acl", "setuser", "default", "-info"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			addrs := redistest.Addrs(redistest.Masters(t, 3, test.args...))
			if test.acl != nil {
				for _, a := range addrs {
					if err := redistest.Client(t, a).Do(t.Context(), test.acl...).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			vouch(t, addrs, redlock.DefaultMaxTTL)
			for format, want := range map[string][]string{
				"text": {"\n  unknown  info         ", ": 4 checks ok\n", "\n3 of 3 masters have a vote; a quorum is 2\n"},
				"json": {`"worst": "unknown"`, `"level": "unknown"`, `"check": "info"`},
			} {
				out, err := exec.Command("redlock", "doctor", "--masters", strings.Join(addrs, ","), "-o", format, "--wait", "20s").Output()
				if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
					t.Errorf("%s: got code %d and %s, want 0", format, failed.ExitCode(), failed.Stderr)
				} else if err != nil {
					t.Fatal(err)
				}
				for _, w := range want {
					if !strings.Contains(string(out), w) {
						t.Errorf("%s: got %s, want %q in it", format, out, w)
					}
				}
				for _, unwanted := range []string{" eviction  ", " persistence  ", `"eviction"`, `"persistence"`} {
					if strings.Contains(string(out), unwanted) {
						t.Errorf("%s: got %s, want nothing about %s, which no master has told", format, out, unwanted)
					}
				}
			}
		})
	}
}
