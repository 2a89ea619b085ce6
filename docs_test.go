package redlock_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every block of Go in the README and in docs/ compiles, and go vet has nothing to say. The
// blocks of one page that declare something at the top level are one package. One that does
// not is the inside of a function: it has its imports by the names it uses (see pageImports),
// and may use what pageSetting declares.
func TestPagesCompile(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	sources := make(map[string]string)
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for name, source := range compilable(t, page, string(text)) {
			sources[name] = source
			blocks++
		}
	}
	if len(pages) < 3 || blocks < 8 {
		t.Errorf("got %d packages of %d pages: does this test still look in the right places?", blocks, len(pages)+1)
	}
	if out := vet(t, sources); out != "" {
		t.Errorf("got this about the blocks of Go, want nothing:\n%s", out)
	}
}

// Control: pages with blocks that do not compile.
func TestBrokenPages(t *testing.T) {
	for _, test := range []struct{ name, block, want string }{
		{"an option that does not exist", "locker, err := redlock.New(masters, redlock.WithQuorum(1))\n_, _ = locker, err\n", "undefined: redlock.WithQuorum"},
		{"too few arguments", "lease, err := locker.Lock(\"a\")\n_, _ = lease, err\n", "not enough arguments"},
		{"no Go", "lease := \n", "expected operand"},
		{"a function", "func f() int { }\n", "missing return"},
		{"what vet finds", "log.Printf(\"%d\", \"a\")\n", "has arg \"a\" of wrong type"},
		{"nothing", "log.Print(locker, lease, ctx)\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := vet(t, compilable(t, "x.md", "# X\n```go\n"+test.block+"```\n"))
			if test.want == "" && out != "" || !strings.Contains(out, test.want) {
				t.Errorf("got %q, want %q", out, test.want)
			}
		})
	}
}

// pageSetting is what a block that is the inside of a function may use.
const pageSetting = `
func sell(context.Context, int64) {}

func block(ctx context.Context, masters []string, locker *redlock.Locker, lease *redlock.Lease) {{
%s
}}
`

// pageImports is the packages that a block may use without saying so, by name.
var pageImports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "slog": "log/slog", "os": "os", "sql": "database/sql",
	"strings": "strings", "synctest": "testing/synctest", "testing": "testing", "time": "time", "tls": "crypto/tls",
	"redis": "github.com/redis/go-redis/v9", "redlock": self, "redlocktest": self + "/redlocktest",
}

// compilable makes packages of the blocks of Go of a page, by directory.
func compilable(t *testing.T, page, text string) map[string]string {
	t.Helper()
	dir := strings.ToLower(regexp.MustCompile(`\W`).ReplaceAllString(page, "_"))
	sources := make(map[string]string)
	var whole strings.Builder
	for i, b := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+b[1], parser.SkipObjectResolution); err == nil {
			whole.WriteString(b[1] + "\n")
			continue
		}
		body := fmt.Sprintf(pageSetting, b[1])
		sources[fmt.Sprintf("%s_%d", dir, i+1)] = imports(body) + body
	}
	if whole.Len() > 0 {
		sources[dir] = imports(whole.String()) + whole.String()
	}
	return sources
}

// imports is the head of a file that uses packages by their names.
func imports(body string) string {
	head := "package page\n\nimport (\n"
	for name, path := range pageImports {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(body) {
			head += fmt.Sprintf("\t%q\n", path)
		}
	}
	return head + ")\n\n"
}

// vet is what go vet says about packages, in a module that uses this one as any other does.
func vet(t *testing.T, sources map[string]string) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command on the PATH: ", err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	files := map[string]string{
		"go.mod": strings.Replace(string(mod), "module "+self, "module pages", 1) +
			fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %[1]s => %q\n", self, root),
		"go.sum": string(sum),
	}
	for dir, source := range sources {
		files[filepath.Join(dir, "page.go")] = source
	}
	for name, text := range files {
		name = filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), path, "vet", "./...")
	cmd.Dir = tmp
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatalf("%s: %v", cmd, err)
	}
	if err == nil {
		return ""
	}
	return string(out)
}
