package locktest

import (
	"os"
	"strings"
	"testing"
)

// Each scenario of testdata/wrong.txt breaks a promise or has an error in its text. The comment of its first line is in the
// error, which says where.
func TestScenariosFail(t *testing.T) {
	text, err := os.ReadFile("testdata/wrong.txt")
	Must(t, err)
	for _, one := range strings.Split(string(text), "\n== ")[1:] {
		name, _, _ := strings.Cut(one, "\n")
		name, want, _ := strings.Cut(name, " # ")
		InBubble(t, 3, func(t *testing.T, b *Bubble) {
			all, err := parse("f.txt", "\n== "+one)
			if err == nil {
				err = all[0].play(b)
			}
			if err == nil || want == "" || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f.txt:") {
				t.Errorf("%s: got %v, want %q and the line", name, err, want)
			}
		})
	}
	if _, err := parse("f.txt", "sleep 1s"); err == nil {
		t.Error("a step outside of a scenario: got no error")
	}
	if _, err := parse("f.txt", "# nothing"); err == nil {
		t.Error("a file without a scenario: got no error")
	}
}
