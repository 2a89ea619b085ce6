// Command matrix builds the library wrongly, one rule at a time, and runs the tests of packages against
// each wrong build: a test is worth its lines if it alone finds one. The file wrong.txt has the wrong builds.
//
//	go run ./test/matrix                            # all of them, all packages: two hours of two cores
//	go run ./test/matrix -wrong votes ./test/lock   # those with "votes" in their names, one package
//	go run ./test/matrix -out test/matrix/found.tsv . ./internal/{node,line,clockwatch} \
//		./test/{lock,order,clocks,guard,sharing,servers} ./several ./semaphore ./jobs ./election # an hour
//
// For each wrong build and package it prints the tests that fail, and at the end the tests that alone find a wrong
// build. Its code is 1 if a wrong build is found by no test.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed wrong.txt
var wrongBuilds string

// wrong is one wrong build: a file in which one text is replaced by another.
type wrong struct {
	name, file, old, new string
}

// parse reads the wrong builds: a block for each, of "# name", the file, "- " and "+ " before the lines that are
// replaced and those in their place.
func parse(text string) (all []wrong) {
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var w wrong
		for line := range strings.Lines(block + "\n") {
			switch mark, rest, _ := strings.Cut(line, " "); mark {
			case "#":
				w.name = strings.TrimSpace(rest)
			case "-":
				w.old += rest
			case "+":
				w.new += rest
			default:
				w.file = strings.TrimSpace(line)
			}
		}
		all = append(all, w)
	}
	return all
}

// apply returns the file as it is in the wrong build.
func (w wrong) apply() ([]byte, error) {
	whole, err := os.ReadFile(w.file)
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(whole, []byte("\n"))
	for i := range lines {
		lines[i] = bytes.TrimLeft(lines[i], "\t ")
	}
	flat := bytes.Join(lines, []byte("\n"))
	if n := bytes.Count(flat, []byte(w.old)); n != 1 || w.old == "" {
		return nil, fmt.Errorf("%s: %q stands %d times in %s, want once", w.name, w.old, n, w.file)
	}
	return bytes.Replace(flat, []byte(w.old), []byte(w.new), 1), nil
}

// overlay writes the changed file, and the file that go test reads of it, into dir.
func (w wrong) overlay(dir string) (string, error) {
	text, err := w.apply()
	if err != nil {
		return "", err
	}
	file, err := filepath.Abs(w.file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "changed"+filepath.Ext(w.file))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(err, os.WriteFile(changed, text, 0o600), os.WriteFile(overlay, replace, 0o600))
}

// failing runs the tests of packages against a wrong build and returns those that fail, by package.
func failing(overlay string, packages []string) (map[string][]string, error) {
	args := []string{"test", "-json", "-short", "-vet=off", "-ldflags=-s -w", "-timeout=3m", "-overlay", overlay}
	out, _ := exec.Command("go", append(args, packages...)...).Output()
	found := make(map[string][]string)
	ran := false
	for line := range bytes.Lines(out) {
		var e struct{ Action, Package, Test, FailedBuild string }
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		ran = ran || e.Action == "run"
		if e.FailedBuild != "" {
			return nil, fmt.Errorf("%s does not compile", e.FailedBuild)
		}
		if e.Action != "fail" {
			continue
		}
		top, _, _ := strings.Cut(e.Test, "/")
		if tests := found[e.Package]; top == "" && tests == nil {
			found[e.Package] = []string{"(all)"} // a panic, or the time-out
		} else if top != "" && !slices.Contains(tests, top) {
			found[e.Package] = append(tests, top)
		}
	}
	if !ran {
		return nil, errors.New("no test ran")
	}
	return found, nil
}

func main() {
	only := flag.String("wrong", "", "wrong builds whose names contain this")
	table := flag.String("out", "", "file to write, with a row for each wrong build and a column for each package that finds one")
	flag.Parse()
	packages := listed(append([]string{"list"}, flag.Args()...))
	if flag.NArg() == 0 {
		packages = slices.DeleteFunc(listed([]string{"list", "./..."}), func(p string) bool {
			return strings.Contains(p, "/chaos/model") || strings.HasSuffix(p, "/test/docs") || strings.HasSuffix(p, "/test/matrix")
		})
	}
	dir, err := os.MkdirTemp("", "matrix")
	check(err)
	defer os.RemoveAll(dir)
	var rows []row
	for _, w := range parse(wrongBuilds) {
		if !strings.Contains(w.name, *only) {
			continue
		}
		overlay, err := w.overlay(dir)
		check(err)
		fmt.Println(w.name)
		start := time.Now()
		found, err := failing(overlay, packages)
		if err != nil {
			check(fmt.Errorf("%s: %w", w.name, err))
		}
		rows = append(rows, row{w.name, found, time.Since(start)})
		for _, pkg := range slices.Sorted(maps.Keys(found)) {
			fmt.Printf("\t%s: %s\n", short(pkg), strings.Join(found[pkg], " "))
		}
		if *table != "" {
			check(os.WriteFile(*table, []byte(tabulate(rows)), 0o644))
		}
	}
	missed := 0
	fmt.Println("\nalone:")
	for _, r := range rows {
		if r.tests() == 0 {
			missed++
		}
		for pkg, tests := range r.found {
			if r.tests() == 1 {
				fmt.Printf("\t%s %s: %s\n", short(pkg), tests[0], r.name)
			}
		}
	}
	if missed > 0 {
		fmt.Printf("\n%d wrong builds are found by no test\n", missed)
		os.Exit(1)
	}
}

// row is what the tests find of a wrong build.
type row struct {
	name  string
	found map[string][]string // by package: the tests that fail
	took  time.Duration
}

// tests counts the tests that find the wrong build.
func (r row) tests() (n int) {
	for _, tests := range r.found {
		n += len(tests)
	}
	return n
}

// tabulate returns the rows as a table: how many tests of each package find the wrong build.
func tabulate(rows []row) string {
	suites := make(map[string]bool)
	for _, r := range rows {
		for pkg := range r.found {
			suites[pkg] = true
		}
	}
	columns := slices.Sorted(maps.Keys(suites))
	var b strings.Builder
	b.WriteString("wrong build\tseconds\tall")
	for _, pkg := range columns {
		b.WriteString("\t" + short(pkg))
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "\n%s\t%.0f\t%d", r.name, r.took.Seconds(), r.tests())
		for _, pkg := range columns {
			fmt.Fprintf(&b, "\t%d", len(r.found[pkg]))
		}
	}
	return b.String() + "\n"
}

// short returns the path of a package from the root of the module.
func short(pkg string) string {
	_, path, _ := strings.Cut(pkg, "/redlock")
	return "." + path
}

// listed returns what go list prints, by line.
func listed(args []string) []string {
	out, err := exec.Command("go", args...).Output()
	check(err)
	return strings.Fields(string(out))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(2)
	}
}
