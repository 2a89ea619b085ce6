package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The documents agree on the number of kinds of faults.
func TestKindsOfFaults(t *testing.T) {
	kinds := len(Faults()) + len(ClientFaults)
	for file, sentence := range map[string]string{"../README.md": "%d kinds of\nfaults", "../docs/failures.md": "faults of %d kinds"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(sentence, kinds); !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %q", file, want)
		}
	}
}

// Every test that the README names exists, and it lists all faults and no others.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := make(map[string]bool)
	for _, pattern := range []string{"../*_test.go", "../*/*_test.go", "../test/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
				exists[string(m[1])] = true
			}
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(text, -1)
	if len(named) < 40 {
		t.Errorf("got %d tests named, want the table of scenarios", len(named))
	}
	for _, m := range named {
		if !exists[string(m[1])] {
			t.Errorf("the README names %s, which does not exist", m[1])
		}
	}
	plain := strings.ToLower(string(text))
	for _, f := range Faults() {
		for _, word := range strings.FieldsFunc(strings.ToLower(f.Name), func(r rune) bool { return r == ',' || r == ' ' }) {
			if !strings.Contains(plain, word) {
				t.Errorf("the README does not know the fault %q", f.Name)
				break
			}
		}
	}
}
