package main

import (
	"os"
	"testing"
)

// Each wrong build can be made from the files as they are, and has a name of its own.
func TestWrongBuilds(t *testing.T) {
	t.Chdir("../..")
	names := make(map[string]bool)
	for _, w := range parse(wrongBuilds) {
		text, err := w.apply()
		if whole, _ := os.ReadFile(w.file); err != nil || w.name == "" || names[w.name] || string(text) == string(whole) {
			t.Errorf("%q of %s: got error %v", w.name, w.file, err)
		}
		names[w.name] = true
	}
	if _, err := (wrong{name: "x", file: "quorum.go", old: "there is no such line\n"}).apply(); err == nil {
		t.Error("a text that stands in no file: got no error")
	}
}
