package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// backquoted is a name in the code, and the Lua file that the text behind it names, if any.
var backquoted = regexp.MustCompile("`([^`]+)`(?:(?:,? `[^`]+`)* in ([a-z]+\\.lua))?")

// A name of internal/README.md stands in the code: in the package that it is written with, or in the root package.
func TestNamesOfTheSpecification(t *testing.T) {
	page, err := os.ReadFile("internal/README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for line := range strings.Lines(string(page)) {
		columns := strings.Split(line, " | ")
		if len(columns) < 3 || strings.Contains(line, "---") {
			continue
		}
		in := strings.Join(columns[2:], " | ")
		for _, match := range backquoted.FindAllStringSubmatch(in, -1) {
			for _, missing := range missingNames(t, match[1], match[2]) {
				t.Errorf("internal/README.md: %s: no %q", match[1], missing)
			}
			names++
		}
	}
	if names < 120 {
		t.Errorf("got %d names, want them all", names)
	}
	for name, want := range map[string]int{"node.Set": 0, "node.members": 1, "grant.gone.forEver": 1, "quorum": 0, "wire.Nothing": 1} { // the control
		if got := missingNames(t, name, ""); len(got) != want {
			t.Errorf("%s: got %q missing, want %d", name, got, want)
		}
	}
}

// missingNames returns those parts of a name that no file of its package has. A name in a Lua file may stand in any of them.
func missingNames(t *testing.T, name, lua string) (missing []string) {
	dir, pattern := ".", "*.go"
	words := strings.FieldsFunc(name, func(r rune) bool { return !strings.ContainsRune("_~", r) && !isLetter(r) })
	if _, err := os.Stat(filepath.Join("internal", words[0])); err == nil && len(words) > 1 {
		dir, words = filepath.Join("internal", words[0]), words[1:]
	}
	if lua != "" || strings.HasPrefix(name, "ARGV") || strings.HasSuffix(name, ".lua") {
		dir, pattern = "internal/wire/lua", "*.lua"
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files: %v", dir, err)
	}
	var code strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	for _, w := range words {
		if w == "len" || w == "lua" {
			continue
		}
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(w) + `\b`).MatchString(code.String()) {
			missing = append(missing, w)
		}
	}
	return missing
}

func isLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}
