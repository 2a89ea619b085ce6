package locktest

import (
	"os"
	"strings"
	"testing"
)

// Each scenario of testdata/wrong.txt and wrong_work.txt breaks a promise or has an error in its text. The comment of its first line is in the
// error, which says where.
func TestScenariosFail(t *testing.T) {
	text, err := os.ReadFile("testdata/wrong.txt")
	Must(t, err)
	more, err := os.ReadFile("testdata/wrong_work.txt")
	Must(t, err)
	for _, one := range strings.Split(string(text)+string(more), "\n== ")[1:] {
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
	for what, text := range map[string]string{
		"a step outside of a scenario": "sleep 1s\n== a\nsleep 1s", "a file without a scenario": "# nothing",
		"steps that no scenario has": "== given b\nsleep 1s\n== a\nsleep 1s",
	} {
		if _, err := parse("f.txt", text); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
}
