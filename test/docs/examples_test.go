package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// Each exported name of the root package, also that of a method, stands in an example of the package.
func TestEachNameHasAnExample(t *testing.T) {
	examples := textOf(t, "example_test.go") + textOf(t, "example_program_test.go")
	names := exportedNames(t)
	if len(names) < 100 {
		t.Errorf("got %d names, want them all", len(names))
	}
	for _, name := range without(names, examples) {
		t.Errorf("no example has %s", name)
	}
	if got := without([]string{"Lock", "Nothing"}, examples); !slices.Equal(got, []string{"Nothing"}) {
		t.Errorf("the control: got %q, want Nothing alone", got)
	}
}

// without returns the names that a text does not have.
func without(names []string, text string) (missing []string) {
	for _, name := range names {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
			missing = append(missing, name)
		}
	}
	return missing
}

// exportedNames returns the names that the root package exports, but those of methods that other packages call
// by an interface of the standard library.
func exportedNames(t *testing.T) (names []string) {
	t.Helper()
	standard := []string{"Error", "Unwrap", "Format", "String", "MarshalText", "UnmarshalText", "MarshalJSON"}
	files, err := filepath.Glob("*.go")
	locktest.Must(t, err)
	add := func(name *ast.Ident) {
		if name.IsExported() && !slices.Contains(names, name.Name) && !slices.Contains(standard, name.Name) {
			names = append(names, name.Name)
		}
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		locktest.Must(t, err)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || exportedReceiver(d) {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add(s.Name)
					case *ast.ValueSpec:
						for _, name := range s.Names {
							add(name)
						}
					}
				}
			}
		}
	}
	return names
}

// exportedReceiver reports whether a method is that of an exported type.
func exportedReceiver(d *ast.FuncDecl) bool {
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	name, ok := of.(*ast.Ident)
	return ok && name.IsExported()
}
