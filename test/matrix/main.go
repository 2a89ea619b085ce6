// Command matrix builds the library wrongly, one rule at a time, and runs the tests of packages against
// each wrong build: a test is worth its lines if it alone finds one. The file wrong.txt has the wrong builds.
//
//	go run ./test/matrix                          # all of them, all packages: some hours
//	go run ./test/matrix -wrong votes ./test/lock # those with "votes" in their names, one package
//
// For each wrong build and package it prints the tests that fail, and at the end the tests that alone find a wrong
// build. Its code is 1 if a wrong build is found by no test.
package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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

// failing runs the tests of a package against a wrong build and returns those that fail.
func failing(overlay, pkg string) (tests []string, err error) {
	cmd := exec.Command("go", "test", "-json", "-short", "-vet=off", "-count=1", "-timeout=3m", "-overlay", overlay, pkg)
	out, runErr := cmd.Output()
	built := false
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		var e struct{ Action, Test, FailedBuild string }
		if json.Unmarshal(s.Bytes(), &e) != nil {
			continue
		}
		built = built || e.Action == "run"
		if e.FailedBuild != "" {
			return nil, fmt.Errorf("%s does not compile", e.FailedBuild)
		}
		if top, _, _ := strings.Cut(e.Test, "/"); e.Action == "fail" && top != "" && !slices.Contains(tests, top) {
			tests = append(tests, top)
		}
	}
	if runErr != nil && len(tests) == 0 {
		tests = []string{"(all)"} // a panic, or the time-out
	}
	if !built {
		return nil, errors.New("no test ran")
	}
	return tests, nil
}

func main() {
	only := flag.String("wrong", "", "wrong builds whose names contain this")
	flag.Parse()
	packages := listed(append([]string{"list"}, flag.Args()...))
	if flag.NArg() == 0 {
		packages = slices.DeleteFunc(listed([]string{"list", "./..."}), func(p string) bool {
			return strings.Contains(p, "/chaos/model") || strings.HasSuffix(p, "/test/docs") || strings.HasSuffix(p, "/test/matrix")
		})
	}
	module := listed([]string{"list", "-m"})[0]
	dir, err := os.MkdirTemp("", "matrix")
	check(err)
	defer os.RemoveAll(dir)
	alone := make(map[string][]string) // by test: the wrong builds that it alone finds
	missed := 0
	for _, w := range parse(wrongBuilds) {
		if !strings.Contains(w.name, *only) {
			continue
		}
		text, err := w.apply()
		check(err)
		overlay := filepath.Join(dir, "overlay.json")
		file, err := filepath.Abs(w.file)
		check(err)
		changed := filepath.Join(dir, "changed"+filepath.Ext(w.file))
		check(os.WriteFile(changed, text, 0o600))
		replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
		check(err)
		check(os.WriteFile(overlay, replace, 0o600))
		fmt.Printf("%s\n", w.name)
		var finders []string
		for _, pkg := range packages {
			start := time.Now()
			tests, err := failing(overlay, pkg)
			if err != nil && err.Error() != "no test ran" {
				check(fmt.Errorf("%s: %w", w.name, err))
			}
			if len(tests) == 0 {
				continue
			}
			name := "." + strings.TrimPrefix(pkg, module)
			for _, test := range tests {
				finders = append(finders, name+" "+test)
			}
			fmt.Printf("\t%s: %s (%.0f s)\n", name, strings.Join(tests, " "), time.Since(start).Seconds())
		}
		switch len(finders) {
		case 0:
			missed++
			fmt.Println("\tMISSED")
		case 1:
			alone[finders[0]] = append(alone[finders[0]], w.name)
		}
	}
	fmt.Println("\nalone:")
	for test, builds := range alone {
		fmt.Printf("\t%s: %s\n", test, strings.Join(builds, "; "))
	}
	if missed > 0 {
		fmt.Printf("\n%d wrong builds are found by no test\n", missed)
		os.Exit(1)
	}
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
