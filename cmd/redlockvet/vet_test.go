package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

const root = "../.."

// TestMain has packages compiled as the other tests of the repository do, which need no C compiler.
func TestMain(m *testing.M) {
	if err := os.Setenv("CGO_ENABLED", "0"); err != nil {
		log.Fatal(err)
	}
	m.Run()
}

// program makes a module of the packages in testdata, which uses the library of this repository.
func program(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	top, err := filepath.Abs(root)
	must(t, err)
	must(t, os.CopyFS(dir, os.DirFS("testdata")))
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		must(t, err)
		if name == "go.mod" {
			text = []byte(strings.Replace(string(text), "module "+module, "module example.com/program", 1) +
				"\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + top + "\n")
		}
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir
}

// Each check reports what the packages in testdata say, and nothing else. No check reports anything of package clean.
func TestChecks(t *testing.T) {
	all := &analysis.Analyzer{Name: "all", Doc: "all checks", Requires: inspected, Run: func(pass *analysis.Pass) (any, error) {
		for _, check := range checks {
			if _, err := check.Run(pass); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}}
	analysistest.Run(t, program(t), all, "./...")
}

// docs/vet.md counts what is found of the planted mistakes, and what is missed on purpose.
func TestPlanted(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "vet.md"))
	must(t, err)
	for dir, name := range map[string]string{
		"http": "HTTP service", "workers": "pool of workers", "grpc": "server of remote calls", "cron": "scheduled jobs", "cli": "command line", "tests": "tests",
	} {
		files, err := filepath.Glob(filepath.Join("testdata", "shapes", dir, "*.go"))
		must(t, err)
		text, err := os.ReadFile(files[0])
		must(t, err)
		row := fmt.Sprintf("| %s | %d | %d |", name, strings.Count(string(text), "// want "), strings.Count(strings.ToLower(string(text)), "// missed: "))
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/vet.md lacks %s", row)
		}
	}
}

// As users run it: go vet finds the mistakes of each check in a program.
func TestVetTool(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "redlockvet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", "-vettool="+tool, "./...")
	cmd.Dir = program(t)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("go vet: got no error, want one")
	}
	for _, of := range []string{"outercontext", "lostlease", "droppederror", "shapes/http", "shapes/grpc", "shapes/workers"} {
		if !strings.Contains(string(out), filepath.FromSlash(of+"/a.go:")) {
			t.Errorf("got no mistake in %s:\n%s", of, out)
		}
	}
}

// There is no false alarm in this repository and its examples, and in the adapters for schedulers.
func TestThisRepository(t *testing.T) {
	seen := 0
	for _, dir := range []string{root, filepath.Join(root, "integrations")} {
		pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax | packages.NeedModule, Tests: true, Dir: dir}, "./...")
		must(t, err)
		graph, err := checker.Analyze(checks, pkgs, nil)
		must(t, err)
		for _, action := range graph.Roots {
			seen++
			if action.Err != nil {
				t.Errorf("%v: %v", action, action.Err)
			}
			for _, d := range action.Diagnostics {
				t.Errorf("%s: %s: got %q, want nothing", action.Package.Fset.Position(d.Pos), action.Analyzer, d.Message)
			}
		}
	}
	if seen < 100*len(checks) {
		t.Errorf("got %d packages, want more: does this test still look in the right places?", seen/len(checks))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
