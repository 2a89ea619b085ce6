package docs_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The packages that an importer of the library gets with it. A new line is a decision, and goes into
// the changelog. The tests and the command may use other packages.
var wantDeps = []string{
	"github.com/cespare/xxhash/v2", // for go-redis
	"github.com/d0720281/redlock/internal/clock",
	"github.com/d0720281/redlock/internal/clockwatch",
	"github.com/d0720281/redlock/internal/door",
	"github.com/d0720281/redlock/internal/line",
	"github.com/d0720281/redlock/internal/lockorder",
	"github.com/d0720281/redlock/internal/node",
	"github.com/d0720281/redlock/internal/reason",
	"github.com/d0720281/redlock/internal/resp",
	"github.com/d0720281/redlock/internal/rules",
	"github.com/d0720281/redlock/internal/wire",
	"github.com/google/uuid",
	"github.com/redis/go-redis/v9/...",
	"go.uber.org/atomic", // for go-redis
	"golang.org/x/sync/errgroup",
	"golang.org/x/sys/cpu", // for go-redis
}

func TestDependencies(t *testing.T) {
	out := goOutput(t, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	if diff := diffDeps(dependencies(strings.Fields(out)), wantDeps); diff != "" {
		t.Error("the dependencies of the library have changed:", diff)
	}
}

// What a package may import, except for the standard library. The packages on top are built on the exported API
// alone. The clock watch and the lines of callers know no node.
var mayImport = map[string][]string{
	"election":  {".", "admin"},
	"several":   {"."},
	"semaphore": {".", "several"},
	"sharded":   {".", "github.com/redis/go-redis/v9"},
	"jobs":      {".", "semaphore"},
	"fence":     {"github.com/redis/go-redis/v9"},
	"admin":     {".", "internal/door", "internal/node", "internal/reason", "internal/resp", "internal/wire"},

	"internal/clockwatch": {"internal/clock", "internal/lockorder", "internal/rules"},
	"internal/line":       {"internal/lockorder", "internal/wire"},
}

func TestPackagesImportWhatTheyMay(t *testing.T) {
	for pkg, allowed := range mayImport {
		imports := strings.Fields(goOutput(t, "list", "-f", `{{join .Imports "\n"}}`, "./"+pkg))
		for _, problem := range forbidden(imports, allowed) {
			t.Errorf("package %s %s", pkg, problem)
		}
	}
	// Control: a package that imports too much.
	got := forbidden([]string{"context", self, self + "/several", self + "/internal/node", "golang.org/x/sync/errgroup"}, []string{".", "several"})
	if want := []string{"imports " + self + "/internal/node", "imports golang.org/x/sync/errgroup"}; !slices.Equal(got, want) {
		t.Errorf("control: got %q, want %q", got, want)
	}
	if got := forbidden([]string{"context"}, []string{"."}); len(got) != 1 {
		t.Errorf("control: got %q of a package that does not import the library, want a complaint", got)
	}
	got = forbidden([]string{"sync/atomic", self + "/internal/clock", self + "/internal/node", self}, mayImport["internal/clockwatch"])
	if want := []string{"imports " + self + "/internal/node", "imports " + self}; !slices.Equal(got, want) {
		t.Errorf("control: got %q of a clock watch that knows nodes, want %q", got, want)
	}
}

// forbidden returns what is wrong with a list of imports.
func forbidden(imports, allowed []string) (problems []string) {
	for _, path := range imports {
		short := strings.TrimPrefix(path, self+"/")
		if path == self {
			short = "."
		}
		if strings.Contains(path, ".") && !slices.Contains(allowed, short) { // paths of the standard library have no dot
			problems = append(problems, "imports "+path)
		}
	}
	if slices.Contains(allowed, ".") && !slices.Contains(imports, self) {
		problems = append(problems, "does not import the library")
	}
	return problems
}

// Control of the guard: lists that differ by one line.
func TestDependencyGuard(t *testing.T) {
	seen := []string{"example.com/z", self, "github.com/redis/go-redis/v9", "github.com/redis/go-redis/v9/push", "github.com/redis/go-redis/v9x"}
	if got, want := fmt.Sprint(dependencies(seen)), "[example.com/z github.com/redis/go-redis/v9/... github.com/redis/go-redis/v9x]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, test := range []struct {
		name string
		got  []string
		want string
	}{
		{"the same", wantDeps, ""},
		{"an extra package", slices.Concat(wantDeps, []string{"example.com/left-pad"}), `got "example.com/left-pad", which is not wanted`},
		{"a missing package", wantDeps[1:], `want "github.com/cespare/xxhash/v2", got none`},
		{"a package of our own that is none of the library's", dependencies([]string{self, self + "/internal/masters"}),
			`got "github.com/d0720281/redlock/internal/masters", which is not wanted`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := diffDeps(test.got, wantDeps); got != test.want && (test.want == "" || !strings.Contains(got, test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

const self = "github.com/d0720281/redlock"

// dependencies sorts a list of packages, removes the library itself, and makes the packages of
// go-redis one entry.
func dependencies(pkgs []string) []string {
	const client = "github.com/redis/go-redis/v9"
	var deps []string
	for _, p := range pkgs {
		switch {
		case p == self:
			continue
		case p == client || strings.HasPrefix(p, client+"/"):
			p = client + "/..."
		}
		deps = append(deps, p)
	}
	slices.Sort(deps)
	return slices.Compact(deps)
}

// diffDeps returns the differences of the lists; "" if there are none.
func diffDeps(got, want []string) string {
	var lines []string
	for _, p := range got {
		if !slices.Contains(want, p) {
			lines = append(lines, fmt.Sprintf("got %q, which is not wanted", p))
		}
	}
	for _, p := range want {
		if !slices.Contains(got, p) {
			lines = append(lines, fmt.Sprintf("want %q, got none", p))
		}
	}
	return strings.Join(lines, "; ")
}

// goOutput returns the output of the go command.
func goOutput(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command on the PATH: ", err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}
