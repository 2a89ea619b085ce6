package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// The files that decide, and which other files of their package each may name: they know nothing of the files that carry
// the decisions out.
var mayName = map[string][]string{
	"clock.go":  {},
	"errors.go": {},
	"quorum.go": {"errors.go"},

	"internal/node/trust.go":    {"standing.go"},
	"internal/node/standing.go": {"trust.go"},
	"internal/node/refusal.go":  {"standing.go"},
	"internal/node/request.go":  {"refusal.go", "reply.go"},
	"internal/node/reply.go":    {"refusal.go", "request.go", "standing.go"},
	"internal/node/retry.go":    {"request.go"},
}

func TestFilesNameWhatTheyMay(t *testing.T) {
	named := map[string]map[string]map[string][]string{".": namedIn(t, "."), "internal/node": namedIn(t, "internal/node")}
	for path, allowed := range mayName {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		names := named[filepath.Dir(path)][filepath.Base(path)]
		for _, of := range slices.Sorted(maps.Keys(names)) {
			if !slices.Contains(allowed, of) {
				t.Errorf("%s names %q of %s", path, names[of], of)
			}
		}
	}
	// Control: a name, a method and a field of another file are found.
	if got := named["."]["acquire.go"]["pool.go"]; !slices.Contains(got, "pool") || !slices.Contains(got, "now") || !slices.Contains(got, "need") {
		t.Errorf("got %q of pool.go in acquire.go, want pool, now and need", got)
	}
}

// namedIn returns, for each file of a package, what the file names of each other file.
func namedIn(t *testing.T, dir string) map[string]map[string][]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	locktest.Must(t, err)
	set := token.NewFileSet()
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, p, nil, 0)
		locktest.Must(t, err)
		files = append(files, f)
	}
	uses := make(map[*ast.Ident]types.Object)
	conf := types.Config{Importer: nothing{}, Error: func(error) {}} // what other packages have is not known
	pkg, _ := conf.Check("it", set, files, &types.Info{Uses: uses})
	named := make(map[string]map[string][]string)
	for id, o := range uses {
		in, of := filepath.Base(set.Position(id.Pos()).Filename), filepath.Base(set.Position(o.Pos()).Filename)
		if o.Pkg() != pkg || in == of {
			continue
		}
		if named[in] == nil {
			named[in] = make(map[string][]string)
		}
		if !slices.Contains(named[in][of], o.Name()) {
			named[in][of] = append(named[in][of], o.Name())
		}
	}
	return named
}

// nothing imports packages as empty ones.
type nothing struct{}

func (nothing) Import(of string) (*types.Package, error) {
	pkg := types.NewPackage(of, path.Base(of))
	pkg.MarkComplete()
	return pkg, nil
}
