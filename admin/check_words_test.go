package admin

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
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
		if got := hintFor(err, false); !strings.Contains(got, hint) {
			t.Errorf("%v: got %q, want %q in it", err, got, hint)
		}
	}
	if got := hintFor(errors.New("no answer"), false); got != "" {
		t.Errorf("got %q, want no hint", got)
	}
}

// What a server says of itself before it refuses to write is a warning.
func TestWriteFinding(t *testing.T) {
	for _, test := range []struct {
		name string
		info node.Info
		err  error
		want Level
		text string
	}{
		{"well", node.Info{Used: "1000", Memory: "0", Policy: "noeviction", Save: "ok", Append: "ok"}, nil, LevelOK, "can be written"},
		{"nothing told", node.Info{}, nil, LevelOK, "can be written"},
		{"nearly full", node.Info{Used: "90", Memory: "100", Policy: "noeviction"}, nil, LevelWarning, "90% of maxmemory"},
		{"not so full", node.Info{Used: "89", Memory: "100", Policy: "noeviction"}, nil, LevelOK, "can be written"},
		{"a server that evicts", node.Info{Used: "100", Memory: "100", Policy: "allkeys-lru"}, nil, LevelOK, "can be written"},
		{"append-only file", node.Info{Append: "err"}, nil, LevelWarning, "append-only file has failed"},
		{"snapshot", node.Info{Save: "err"}, nil, LevelWarning, "snapshot has failed"},
		{"no replica", node.Info{Replicas: "0"}, nil, LevelWarning, "no replica"},
		{"replicas", node.Info{Replicas: "1"}, nil, LevelOK, "can be written"},
		{"a refusal outweighs", node.Info{Save: "err"}, resp.Error("OOM command not allowed."), LevelFailure, "no key can be written: OOM command not allowed."},
		{"no answer", node.Info{}, node.ErrTimeout, LevelUnknown, "is not known"},
	} {
		if f := writeFinding(test.info, test.err); f.Level != test.want || !strings.Contains(f.Text, test.text) || strings.Contains(f.Text, "script") {
			t.Errorf("%s: got %+v, want %v and %q", test.name, f, test.want, test.text)
		}
	}
}
