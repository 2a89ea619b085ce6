package redlockprom_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

var documented = regexp.MustCompile(`(?m)^//\t(redlock_[a-z_]+)`)

// documentedMetrics returns the metrics that the package comment lists, in order.
func documentedMetrics(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range documented.FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}
