package admin

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
)

func TestLevelString(t *testing.T) {
	for l, want := range map[Level]string{
		LevelOK: "ok", LevelNotice: "notice", LevelUnknown: "unknown", LevelWarning: "warning", LevelFailure: "failure",
		LevelOK - 1: "Level(-1)", LevelFailure + 1: "Level(5)",
	} {
		if got := l.String(); got != want {
			t.Errorf("%d: got %q, want %q", int(l), got, want)
		}
		if text, err := l.MarshalText(); err != nil || string(text) != want {
			t.Errorf("%d: got the text %q, %v; want %q", int(l), text, err, want)
		}
	}
	if !slices.IsSorted([]Level{LevelOK, LevelNotice, LevelUnknown, LevelWarning, LevelFailure}) {
		t.Error("the levels do not rise from best to worst")
	}
}

func TestHints(t *testing.T) {
	for hint, err := range map[string]error{
		"once":               &node.Marked{Sentinel: reason.SameServer, Err: errors.New("x")},
		"independent":        &node.Marked{Sentinel: reason.NotMaster, Err: errors.New("x")},
		"docs/operations.md": &node.Marked{Sentinel: reason.Permission, Err: errors.New("x")},
	} {
		if got := hintFor(err); !strings.Contains(got, hint) {
			t.Errorf("%v: got %q, want %q in it", err, got, hint)
		}
	}
	if got := hintFor(errors.New("no answer")); got != "" {
		t.Errorf("got %q, want no hint", got)
	}
}
