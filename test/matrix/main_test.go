package main

import (
	"os"
	"strings"
	"testing"
)

// Each wrong build can be made from the files as they are, has a name of its own, and was found: found.tsv has its row.
func TestWrongBuilds(t *testing.T) {
	t.Chdir("../..")
	table, err := os.ReadFile("test/matrix/found.tsv")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, w := range parse(wrongBuilds) {
		text, err := w.apply()
		if whole, _ := os.ReadFile(w.file); err != nil || w.name == "" || names[w.name] || string(text) == string(whole) {
			t.Errorf("%q of %s: got error %v", w.name, w.file, err)
		}
		names[w.name] = true
		_, row, _ := strings.Cut(string(table), "\n"+w.name+"\t")
		if cells := strings.SplitN(row, "\t", 3); len(cells) < 3 || cells[1] == "0" {
			t.Errorf("%q: found.tsv has no test that finds it", w.name)
		}
	}
	if _, err := (wrong{name: "x", file: "quorum.go", old: "there is no such line\n"}).apply(); err == nil {
		t.Error("a text that stands in no file: got no error")
	}
}
