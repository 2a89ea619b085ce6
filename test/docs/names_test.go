package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

var (
	backquoted = regexp.MustCompile("`([^`]+)`")                          // a name in the code
	inLua      = regexp.MustCompile("^(?:,? `[^`]+`)* in ([a-z]+\\.lua)") // behind a name: the Lua file that has it
)

// A name of internal/README.md stands in the code: in the package that it is written with, or in the root package.
func TestNamesOfTheSpecification(t *testing.T) {
	page, err := os.ReadFile("internal/README.md")
	locktest.Must(t, err)
	names := 0
	for line := range strings.Lines(string(page)) {
		columns := strings.Split(line, " | ")
		if len(columns) < 3 || strings.Contains(line, "---") {
			continue
		}
		if strings.Contains(columns[1], "ARGV") {
			t.Errorf("internal/README.md: %s: want the name that the script has for it", columns[1])
		}
		for i, column := range columns[1:] {
			for _, at := range backquoted.FindAllStringSubmatchIndex(column, -1) {
				name, lua := column[at[2]:at[3]], ""
				if file := inLua.FindStringSubmatch(column[at[1]:]); file != nil {
					lua = file[1]
				}
				if i == 0 && lua == "" {
					continue // a part of a key or a message
				}
				for _, missing := range missingNames(t, name, lua) {
					t.Errorf("internal/README.md: %s: no %q", name, missing)
				}
				names++
			}
		}
	}
	if names < 120 {
		t.Errorf("got %d names, want them all", names)
	}
	for name, want := range map[string]int{"node.Set": 0, "node.members": 1, "grant.gone.forEver": 1, "node.Key.Counter": 1, "node.Key.traffic": 0, "quorum": 0, "wire.Nothing": 1} { // the control
		if got := missingNames(t, name, ""); len(got) != want {
			t.Errorf("%s: got %q missing, want %d", name, got, want)
		}
	}
}

// missingNames returns those parts of a name that no file of its package has, or not the Lua file.
func missingNames(t *testing.T, name, lua string) (missing []string) {
	dir, pattern := ".", "*.go"
	words := strings.FieldsFunc(name, func(r rune) bool { return !strings.ContainsRune("_~", r) && !isLetter(r) })
	if _, err := os.Stat(filepath.Join("internal", words[0])); err == nil && len(words) > 1 {
		dir, words = filepath.Join("internal", words[0]), words[1:]
	}
	if lua != "" {
		dir, pattern = "internal/wire/lua", lua
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
		locktest.Must(t, err)
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
	if lua == "" && len(words) == 2 && words[0] != "len" && len(missing) == 0 { // a type and its method or field
		of, member := regexp.QuoteMeta(words[0]), regexp.QuoteMeta(words[1])
		method := `(?m)^func \(\w+ \*?` + of + `(?:\[[^\]]*\])?\) ` + member + `\(`
		field := `(?ms)^type ` + of + `(?:\[[^\]]*\])? struct \{\n[^}]*^\s+(?:\w+, )*` + member + `\b`
		if !regexp.MustCompile(method + `|` + field).MatchString(code.String()) {
			missing = append(missing, words[1])
		}
	}
	return missing
}

func isLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}
