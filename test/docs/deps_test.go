package docs_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The packages that an importer of the library gets with it. A new line is a decision, and goes into
// the changelog. The tests and the command may use other packages.
var wantDeps = []string{
	"github.com/cespare/xxhash/v2", // for go-redis
	"github.com/d0720281/redlock/internal/address",
	"github.com/d0720281/redlock/internal/attempt",
	"github.com/d0720281/redlock/internal/clock",
	"github.com/d0720281/redlock/internal/clockwatch",
	"github.com/d0720281/redlock/internal/door",
	"github.com/d0720281/redlock/internal/line",
	"github.com/d0720281/redlock/internal/lockorder",
	"github.com/d0720281/redlock/internal/node",
	"github.com/d0720281/redlock/internal/reason",
	"github.com/d0720281/redlock/internal/resp",
	"github.com/d0720281/redlock/internal/rules",
	"github.com/d0720281/redlock/internal/term",
	"github.com/d0720281/redlock/internal/wire",
	"github.com/google/uuid",
	"github.com/redis/go-redis/v9/...",
	"go.uber.org/atomic", // for go-redis
	"golang.org/x/sync/errgroup",
	"golang.org/x/sys/cpu", // for go-redis
}

func TestDependencies(t *testing.T) {
	const client = "github.com/redis/go-redis/v9"
	deps := strings.Fields(goOutput(t, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "."))
	for i, p := range deps {
		if p == client || strings.HasPrefix(p, client+"/") {
			deps[i] = client + "/..."
		}
	}
	slices.Sort(deps)
	if got, want := slices.Compact(deps), append(slices.Clone(wantDeps), self); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the dependencies of the library have changed: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What redlockdebug needs is not for those who only lock.
func TestRootStaysWithout(t *testing.T) {
	imports := strings.Fields(goOutput(t, "list", "-f", `{{join .Imports "\n"}}`, "."))
	for _, name := range []string{"net/http", "expvar", "html/template"} {
		if slices.Contains(imports, name) {
			t.Errorf("the library imports %s", name)
		}
	}
}

// What a package may import, except for the standard library. The packages on top know no node. Neither do the clock watch
// and the lines of callers.
var mayImport = map[string][]string{
	"election":  {".", "admin", "internal/door", "internal/inside", "internal/reason", "internal/wire"},
	"several":   {".", "internal/door", "internal/inside", "internal/wire"},
	"semaphore": {".", "several", "internal/door", "internal/inside", "internal/reason", "internal/wire"},
	"jobs":      {".", "semaphore", "internal/door", "internal/inside"},
	"fence":     {"github.com/redis/go-redis/v9", "internal/reason"},
	"admin":     {".", "internal/door", "internal/inside", "internal/node", "internal/reason", "internal/resp", "internal/wire"},

	"internal/address":    {"github.com/redis/go-redis/v9", "internal/node", "internal/reason"},
	"internal/attempt":    {"internal/clock", "internal/line", "internal/node", "internal/reason", "internal/rules", "internal/wire"},
	"internal/term":       {"internal/clock", "internal/reason", "internal/rules"},
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
	// Controls: a package that imports too much, and one that does not import the library.
	got := forbidden([]string{"context", self, self + "/several", self + "/internal/node", "golang.org/x/sync/errgroup"}, []string{".", "several"})
	if want := []string{"imports " + self + "/internal/node", "imports golang.org/x/sync/errgroup"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := forbidden([]string{"context"}, []string{"."}); len(got) != 1 {
		t.Errorf("got %q, want a complaint", got)
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

const self = "github.com/d0720281/redlock"

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
