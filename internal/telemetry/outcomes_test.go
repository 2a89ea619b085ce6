package telemetry

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// Each word that redlock.Reason can return has its place in the table, and the table has no other.
func TestOutcomes(t *testing.T) {
	text, err := os.ReadFile("../../reason.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	begin := regexp.MustCompile(`(?m)^func Reason\(`).FindIndex(text)
	if begin == nil {
		t.Fatal("reason.go has no func Reason")
	}
	for _, m := range regexp.MustCompile(`return "(\w+)"`).FindAllSubmatch(text[begin[0]:], -1) {
		want = append(want, string(m[1]))
	}
	for _, m := range regexp.MustCompile(`(?m)^	\{\S+, "(\w+)"\},$`).FindAllSubmatch(text[begin[0]:], -1) {
		want = append(want, string(m[1]))
	}
	var got []string
	for _, o := range Outcomes {
		got = append(got, o.Word)
	}
	slices.Sort(got)
	slices.Sort(want)
	want = slices.Compact(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
