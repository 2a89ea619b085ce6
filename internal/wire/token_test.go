package wire

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestLabelOf(t *testing.T) {
	for _, test := range []struct{ host, program, want string }{
		{"web-3", "nightly", "web-3:4711:nightly"},
		{"", "nightly", "unknown:4711:nightly"},
		{"a b\tc|d", "e\x1b[2J;rm", "a_b_c_d:4711:e__2J_rm"},
		{"größe", "\xff", "größe:4711:_"},
		{"payments-reconciliation-worker-production-7d9f8b6c5d-x2x9z", "api", "payments-reconcilia+on-7d9f8b6c5d-x2x9z:4711:api"},
		{strings.Repeat("x", 60), strings.Repeat("p", 60), "xxxxxxxxxxxx+xxxxxxxxxxx:4711:" + strings.Repeat("p", 18)},
		{strings.Repeat("x", 16) + "ä" + strings.Repeat("y", 40), "program", strings.Repeat("x", 16) + "+" + strings.Repeat("y", 17) + ":4711:program"},
	} {
		if got := LabelOf(test.host, 4711, test.program); got != test.want || !IsLabel(got) {
			t.Errorf("LabelOf(%q, 4711, %q) = %q, want %q, which is a label", test.host, test.program, got, test.want)
		}
	}
}

// A token is made with one allocation.
func TestToken(t *testing.T) {
	id := [16]byte{1, 2, 3}
	for _, label := range []string{"", "web-3:4711:nightly", strings.Repeat("x", MaxLabel)} {
		token := Token(id, label)
		if !IsToken(token) || OwnerOf(token) != label {
			t.Errorf("Token(%q) = %q, whose owner is %q", label, token, OwnerOf(token))
		}
		if allocs := testing.AllocsPerRun(100, func() { token = Token(id, label) }); allocs > 1 {
			t.Errorf("Token(%q): got %v allocations, want one", label, allocs)
		}
	}
	now := time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC)
	stamped, random := Token(Stamped([16]byte(bytes.Repeat([]byte{0xff}, 16)), now.UnixMilli()), "web-3"), Token(uuid.New(), "")
	for text, want := range map[string]time.Duration{
		stamped: 90 * time.Second, stamped[:9]: 90 * time.Second, // a busy reply has the head alone
		stamped[:8]: 0, random: 0, "redsync's, of whatever form": 0, Placeholder(stamped): 0, "": 0,
	} {
		if got := HeldFor(text, now.Add(90*time.Second).UnixMicro()); got != want {
			t.Errorf("HeldFor(%q): got %v, want %v", text, got, want)
		}
	}
	if got := HeldFor(stamped, now.Add(-time.Second).UnixMicro()); got != time.Millisecond {
		t.Errorf("by a clock that is behind: got %v, want the least", got)
	}
	plain := Token(id, "")
	for text, want := range map[string]bool{
		"": false, plain: true, plain[1:]: false, plain + "AA": false, plain[1:] + "-": false, plain + ";": false, plain + ";a b": true,
		plain + ";a|b": false, plain + ";a\nb": false, plain + ";\xff": false, plain + ";" + strings.Repeat("x", MaxLabel+1): false,
	} {
		if got := IsToken(text); got != want {
			t.Errorf("IsToken(%q): got %v, want %v", text, got, want)
		}
	}
}
