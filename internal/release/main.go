// Command release makes the tags of a release, which are one for each module that users get. Run it in
// the root of the repository:
//
//	go run ./internal/release v0.1.0          # checks, and prints the tags
//	go run ./internal/release -tag v0.1.0     # checks, and makes the tags
//	go run ./internal/release -notes v0.1.0   # prints the section of CHANGELOG.md
//
// It makes no tag unless the go.mod files, CHANGELOG.md and the documentation agree on the version, and
// the working tree is what was pushed as main.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/d0720281/redlock"

// The directories of the modules that users get, besides the root.
var nested = []string{vet, "redlockotel", "redlockprom"}

// vet knows the root by name only: go install takes no module with a replace.
const vet = "cmd/redlockvet"

func main() {
	if err := run(".", os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	tag := flags.Bool("tag", false, "make the tags")
	notes := flags.Bool("notes", false, "print the section of CHANGELOG.md, and check nothing else")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("usage: release [-tag | -notes] VERSION")
	}
	version := flags.Arg(0)
	tree := os.DirFS(dir)
	log, problems := readChangelog(tree, version)
	if *notes && problems == nil {
		_, err := fmt.Fprintln(out, wrapped.ReplaceAllString(log.text, "$1 $2"))
		return err
	}
	tags := []string{version}
	for _, name := range nested {
		tags = append(tags, name+"/"+version)
	}
	problems = slices.Concat(problems, disagreements(tree, version), unready(dir, log.date, tags))
	if len(problems) > 0 {
		return fmt.Errorf("%s is not ready:\n\t%s", version, strings.Join(problems, "\n\t"))
	}
	fmt.Fprintf(out, "%s: %d modules, CHANGELOG.md and the documentation agree.\n", version, len(tags))
	if !*tag {
		fmt.Fprintf(out, "With -tag it is tagged as %s.\n", strings.Join(tags, ", "))
		return nil
	}
	for _, name := range tags {
		if _, err := git(dir, "tag", "-a", "-m", "redlock "+name, name); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "Tagged. Now: git push --atomic origin %s\n", strings.Join(tags, " "))
	return nil
}

// changelog is the section of a version.
type changelog struct{ date, text string }

var (
	// The path of a module of version 2 ends in /v2.
	versions = regexp.MustCompile(`^v[01]\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)
	wrapped  = regexp.MustCompile(`([^\n])\n *([^\s#|-])`) // the page of a release keeps the ends of lines
	heading  = regexp.MustCompile(`(?m)^## (\S+)(?: \((\d{4}-\d\d-\d\d)\))?$`)
)

// readChangelog returns the first section, which must be that of the version.
func readChangelog(tree fs.FS, version string) (changelog, []string) {
	text, err := fs.ReadFile(tree, "CHANGELOG.md")
	if err != nil {
		return changelog{}, []string{err.Error()}
	}
	found := heading.FindAllSubmatchIndex(text, 2)
	if found == nil {
		return changelog{}, []string{"CHANGELOG.md has no section"}
	}
	m := found[0]
	if got := string(text[m[2]:m[3]]); got != version {
		return changelog{}, []string{"CHANGELOG.md begins with " + got}
	}
	end := len(text)
	if len(found) == 2 {
		end = found[1][0]
	}
	log := changelog{text: strings.TrimSpace(string(text[m[1]:end]))}
	if m[4] >= 0 {
		log.date = string(text[m[4]:m[5]])
	}
	if log.text == "" {
		return log, []string{"the section of CHANGELOG.md is empty"}
	}
	return log, nil
}

// disagreements returns where the go.mod files and the documentation differ from the version.
func disagreements(tree fs.FS, version string) (problems []string) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !versions.MatchString(version) {
		complain("%q is no version of this module", version)
	}
	language := value(read(tree, "go.mod"), "go")
	goVersion := strings.TrimSuffix(language, ".0")
	for file, lines := range map[string][]string{
		"README.md":          {"go get " + module + "@latest", "go install " + module + "/cmd/redlock@latest", "Go " + goVersion},
		"docs/vet.md":        {"go install " + module + "/" + vet + "@latest"},
		"redlockotel/doc.go": {"go get " + module + "/redlockotel@latest"},
		"redlockprom/doc.go": {"go get " + module + "/redlockprom@latest"},
		"contrib/Dockerfile": {"FROM golang:" + goVersion + " "},
	} {
		for _, line := range lines {
			if !strings.Contains(read(tree, file), line) {
				complain("%s does not say %q", file, line)
			}
		}
	}
	missing := slices.Clone(nested)
	tagged := regexp.MustCompile(`\bredlock[:_](latest|v\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)`) // images and archives
	pinned := regexp.MustCompile(regexp.QuoteMeta(module) + `[\w/]*@(v[0-9][^\s"` + "`" + `)]*)`)
	err := fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(file, "contrib/") && slices.Contains([]string{".md", ".yaml", ""}, path.Ext(file)) {
			for _, m := range tagged.FindAllStringSubmatch(read(tree, file), -1) {
				if m[1] != version {
					complain("%s names %s", file, m[0])
				}
			}
		}
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.Name() == "doc.go" || path.Ext(file) == ".md":
			for _, m := range pinned.FindAllStringSubmatch(read(tree, file), -1) {
				if m[1] != version {
					complain("%s names %s", file, m[0])
				}
			}
		case file == "go.mod":
			text := read(tree, file)
			if got := value(text, "module"); got != module {
				complain("go.mod is of %q", got)
			}
			if strings.Contains(text, "replace") {
				complain("go.mod has a replace, which does not hold for importers")
			}
		case entry.Name() == "go.mod":
			dir, text := path.Dir(file), read(tree, file)
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == dir })
			if got := value(text, "module"); got != module+"/"+dir {
				complain("%s is of %q", file, got)
			}
			if got := value(text, module); got != version && dir != vet {
				complain("%s requires %q of the root", file, got)
			}
			if dir == vet && strings.Contains(text, "replace") {
				complain("%s has a replace, which go install does not take", file)
			}
			if got := value(text, "go"); got != language {
				complain("%s has go %q, and the root %q", file, got, language)
			}
		}
		return nil
	})
	if err != nil {
		complain("%v", err)
	}
	for _, name := range missing {
		complain("there is no module %s", name)
	}
	slices.Sort(problems)
	return problems
}

// read returns a file, or nothing.
func read(tree fs.FS, file string) string {
	text, _ := fs.ReadFile(tree, file)
	return string(text)
}

// value returns what stands behind a word at the beginning of a line of a go.mod, perhaps behind
// require.
func value(gomod, word string) string {
	for line := range strings.Lines(gomod) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(f) >= 2 && f[0] == word {
			return f[1]
		}
	}
	return ""
}

// unready returns why HEAD cannot be tagged.
func unready(dir, date string, tags []string) (problems []string) {
	ask := func(args ...string) string {
		text, err := git(dir, args...)
		if err != nil {
			problems = append(problems, err.Error())
		}
		return text
	}
	if branch := ask("branch", "--show-current"); branch != "main" {
		problems = append(problems, fmt.Sprintf("the branch is %q, not main", branch))
	}
	if status := ask("status", "--porcelain"); status != "" {
		problems = append(problems, "the working tree is not clean: "+strings.ReplaceAll(status, "\n", ", "))
	}
	if upstream, err := git(dir, "rev-parse", "@{upstream}"); err == nil && upstream != ask("rev-parse", "HEAD") {
		problems = append(problems, "main is not what was pushed")
	}
	if there := ask(append([]string{"tag", "-l"}, tags...)...); there != "" {
		problems = append(problems, "there is a tag: "+strings.ReplaceAll(there, "\n", ", "))
	}
	if last := ask("log", "-1", "--format=%cs"); date < last { // as texts
		problems = append(problems, fmt.Sprintf("CHANGELOG.md has the date %q, and the last commit %q", date, last))
	}
	return problems
}

// git returns what a git command prints.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	text, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		err = fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(text)), err
}
