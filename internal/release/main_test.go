package main

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// this returns the files of this tree that a release looks at, and the version that is tagged next.
func this(t *testing.T) (fstest.MapFS, string) {
	t.Helper()
	root, tree := os.DirFS(filepath.Join("..", "..")), fstest.MapFS{}
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if entry.IsDir() || !slices.Contains([]string{"go.mod", "doc.go", "README.md", "CHANGELOG.md", "Dockerfile", "compose.yaml", "init.yaml", "vet.md"}, path.Base(file)) {
			return err
		}
		text, err := fs.ReadFile(root, file)
		tree[file] = &fstest.MapFile{Data: text, Mode: 0o644}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m := heading.FindStringSubmatch(read(tree, "CHANGELOG.md"))
	if m == nil {
		t.Fatal("CHANGELOG.md has no section")
	}
	return tree, m[1]
}

// Modules, changelog and documentation agree on the version that is tagged next.
func TestThisTree(t *testing.T) {
	_, version := this(t)
	tree := os.DirFS(filepath.Join("..", ".."))
	_, problems := readChangelog(tree, version)
	if problems = append(problems, disagreements(tree, version)...); len(problems) > 0 {
		t.Errorf("got %q, want no problem", problems)
	}
}

// Control: trees with one mistake.
func TestDisagreements(t *testing.T) {
	for _, test := range []struct{ name, file, old, new, want string }{
		{"a changelog of another version", "CHANGELOG.md", `## v\S+`, "## v9.9.9", "CHANGELOG.md begins with v9.9.9"},
		{"no section", "CHANGELOG.md", `(?m)^## v`, "v", "CHANGELOG.md has no section"},
		{"an empty section", "CHANGELOG.md", `(?s)(## v[^\n]*\n).*`, "$1", "the section of CHANGELOG.md is empty"},
		{"another version of the root", "redlockprom/go.mod", `redlock v\S+`, "redlock v0.0.9", `redlockprom/go.mod requires "v0.0.9" of the root`},
		{"another version in a module that is not tagged", "docs/fencing/go.mod", `redlock v\S+`, "redlock v0.0.9", `docs/fencing/go.mod requires "v0.0.9" of the root`},
		{"a nested module that does not require the root", "redlockotel/go.mod", `redlock v\S+`, "blue v1.0.0", `redlockotel/go.mod requires "" of the root`},
		{"another path of a module", "redlockotel/go.mod", `module \S+`, "module example.com/otel", `redlockotel/go.mod is of "example.com/otel"`},
		{"another Go", "redlockotel/go.mod", `go 1\.\S+`, "go 1.25.0", `redlockotel/go.mod has go "1.25.0", and the root "1.26.0"`},
		{"a module that is gone", "redlockprom/go.mod", "", "", "there is no module redlockprom"},
		{"another path of the root", "go.mod", `module \S+`, "module example.com/redlock", `go.mod is of "example.com/redlock"`},
		{"a replace", "go.mod", `require \(`, "replace a => ../a\n\nrequire (", "go.mod has a replace, which does not hold for importers"},
		{"a replace in a command", "cmd/redlockvet/go.mod", `require `, "replace a => ../a\n\nrequire ", "cmd/redlockvet/go.mod has a replace, which go install does not take"},
		{"an install line of another path", "README.md", "go install github.com", "go install example.com",
			`README.md does not say "go install github.com/d0720281/redlock/cmd/redlock@latest"`},
		{"another image", "contrib/compose/compose.yaml", `:-redlock:v[\d.]+`, ":-redlock:latest", "contrib/compose/compose.yaml names redlock:latest"},
		{"an image of another version", "contrib/kubernetes/init.yaml", `redlock:v[\d.]+`, "redlock:v0.0.9", "contrib/kubernetes/init.yaml names redlock:v0.0.9"},
		{"an old version in a page", "README.md", `(install [^ ]*/cmd/redlock)@latest`, "$1@latest or " + module + "@v0.0.9", "README.md names " + module + "@v0.0.9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree, version := this(t)
			before := read(tree, test.file)
			if test.old == "" {
				delete(tree, test.file)
			} else {
				tree[test.file].Data = []byte(regexp.MustCompile(test.old).ReplaceAllString(before, test.new))
			}
			_, problems := readChangelog(tree, version)
			problems = append(problems, disagreements(tree, version)...)
			if !slices.Equal(problems, []string{test.want}) {
				t.Errorf("got %q, want %q", problems, test.want)
			}
		})
	}
	if got := disagreements(fstest.MapFS{}, "v2.0.0"); !slices.Contains(got, `"v2.0.0" is no version of this module`) {
		t.Errorf("got %q, want a complaint about the version", got)
	}
}

var (
	aJob    = regexp.MustCompile(`(?m)^  [\w-]+:.*$`)
	anyUse  = regexp.MustCompile(`uses: (.*)`)
	pinned  = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d`)
	ownCode = regexp.MustCompile(`actions/checkout|run: .*(\.ci/|\./|go run|make )`)
)

// loose returns what is wrong with the rights of a workflow.
func loose(workflow string) (problems []string) {
	for _, m := range anyUse.FindAllStringSubmatch(workflow, -1) {
		if !pinned.MatchString(m[1]) {
			problems = append(problems, m[1]+" is not pinned by a hash")
		}
	}
	if a, b := strings.Count(workflow, "actions/checkout@"), strings.Count(workflow, "persist-credentials: false"); a != b {
		problems = append(problems, "a checkout keeps the token")
	}
	head, jobs, found := strings.Cut(workflow, "\njobs:\n")
	if !found || !strings.Contains(head, "\npermissions:\n  contents: read\n") {
		problems = append(problems, "the workflow may do more than read")
	}
	starts := aJob.FindAllStringIndex(jobs, -1)
	for i, at := range starts {
		end := len(jobs)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		if job := jobs[at[0]:end]; strings.Contains(job, ": write\n") && ownCode.MatchString(job) {
			problems = append(problems, "a job that may write runs the repository's code")
		}
	}
	return problems
}

// No workflow gives more rights to the code that it runs than that needs. The release says where its files come from.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", ".github", "workflows", "*.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("got %q, %v, want three workflows", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if problems := loose(string(text)); len(problems) > 0 {
			t.Errorf("%s: %q", file, problems)
		}
		if filepath.Base(file) != "release.yml" {
			continue
		}
		for _, want := range []string{"attest-build-provenance@", "--status success", "sha256sum -c SHA256SUMS", "needs: build"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q", file, want)
			}
		}
		for _, change := range []struct{ old, new, want string }{ // controls
			{"    needs: build\n", "    needs: build\n    run: go run ./x\n", "a job that may write runs the repository's code"},
			{"          persist-credentials: false\n", "", "a checkout keeps the token"},
			{"permissions:\n  contents: read\n", "", "the workflow may do more than read"},
			{"# v5.0.0", "", "is not pinned by a hash"},
		} {
			changed := strings.Replace(string(text), change.old, change.new, 1)
			if got := loose(changed); len(got) != 1 || !strings.Contains(got[0], change.want) {
				t.Errorf("without %q: got %q, want %q", change.old, got, change.want)
			}
		}
	}
}

// The tags are made of a clean main alone, once, and not without -tag.
func TestTags(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git on the PATH: ", err)
	}
	for _, name := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+name+"_NAME", "a")
		t.Setenv("GIT_"+name+"_EMAIL", "a@example.com")
		t.Setenv("GIT_"+name+"_DATE", "2001-02-03T12:00:00Z")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	dir := t.TempDir()
	do := func(args ...string) string {
		t.Helper()
		text, err := git(dir, args...)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	tree, version := this(t)
	dated := func(date string) []byte {
		return heading.ReplaceAll(tree["CHANGELOG.md"].Data, []byte("## $1"+date))
	}
	log := filepath.Join(dir, "CHANGELOG.md")
	tree["CHANGELOG.md"].Data = dated(" (2001-02-02)")
	if err := os.CopyFS(dir, tree); err != nil {
		t.Fatal(err)
	}
	do("init", "-q", "-b", "main")
	do("add", "-A")
	do("commit", "-q", "-m", "a")

	refused := func(want string) {
		t.Helper()
		err := run(dir, []string{"-tag", version}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") != 1 {
			t.Errorf("got %v, want only %q", err, want)
		}
	}
	refused(`CHANGELOG.md has the date "2001-02-02", and the last commit "2001-02-03"`)
	if err := os.WriteFile(log, dated(""), 0o644); err != nil {
		t.Fatal(err)
	}
	do("commit", "-q", "-a", "-m", "b")
	refused(`CHANGELOG.md has the date ""`)
	if err := os.WriteFile(log, dated(" (2001-02-03)"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused("the working tree is not clean: M CHANGELOG.md")
	do("commit", "-q", "-a", "-m", "c")
	do("switch", "-q", "-c", "other")
	refused(`the branch is "other", not main`)
	do("switch", "-q", "main")
	do("branch", "-q", "pushed", "HEAD~")
	do("branch", "-q", "-u", "pushed")
	refused("main is not what was pushed")
	do("branch", "-q", "--unset-upstream")

	var out strings.Builder
	want := "cmd/redlockvet/" + version + "\nredlockotel/" + version + "\nredlockprom/" + version + "\n" + version
	if err := run(dir, []string{version}, &out); err != nil || do("tag") != "" || !strings.Contains(out.String(), "With -tag it is tagged as") {
		t.Errorf("got %v, %q and the tags %q, want none yet", err, out.String(), do("tag"))
	}
	if err := run(dir, []string{"-tag", version}, &out); err != nil || do("tag") != want {
		t.Errorf("got %v and the tags %q, want %q", err, do("tag"), want)
	}
	refused("there is a tag: ")

	out.Reset()
	text := "## " + version + "\n\nA line\ngoes on.\n\n### X\n\n- one\n  goes on\n- two\n\n## v0.0.9\n\n- old\n"
	if err := os.WriteFile(log, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want = "A line goes on.\n\n### X\n\n- one goes on\n- two\n"
	if err := run(dir, []string{"-notes", version}, &out); err != nil || out.String() != want {
		t.Errorf("got %v and the notes %q, want %q", err, out.String(), want)
	}
}
