package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/redistest"
)

const module = "github.com/d0720281/redlock"

// The modules that users get, by their directories.
var modules = map[string]string{".": module, "redlockprom": module + "/redlockprom", "redlockotel": module + "/redlockotel"}

// The command is installed as users do it: go install module/cmd/redlock@latest, from a module
// proxy. This works only with what is in go.mod, which must have no replace. The test loads all
// packages. It does not compile them, which takes long; with REDLOCK_INSTALL set it also builds and
// runs the command.
func TestInstall(t *testing.T) {
	t.Parallel()
	redistest.OnlyOnce(t, "go loads all packages once more")
	r := release(t)
	bin := t.TempDir()
	dir := t.TempDir()
	if !r.whole {
		r.goRun(t, dir, "GOBIN="+bin, "install", "-n", module+"/cmd/redlock@latest")
		return
	}
	r.goRun(t, dir, "GOBIN="+bin, "install", module+"/cmd/redlock@latest")
	command := filepath.Join(bin, "redlock")
	text, err := exec.Command(command, "run", "--help").Output()
	if err != nil || !strings.Contains(string(text), "redlock run KEY [flags] [--] command [args...]") {
		t.Errorf("got %q, %v; want the help of the command", text, err)
	}
	text, err = exec.Command(command, "--version").Output()
	if err != nil || string(text) != "redlock "+r.version+"\n" {
		t.Errorf("--version: got %q, %v; want %s", text, err, r.version)
	}
	if text := r.goRun(t, dir, "", "version", "-m", command); !strings.Contains(text, "mod\t"+module+"\t"+r.version) {
		t.Errorf("got %q, want version %s of the module", text, r.version)
	}
}

// A program with all packages for importers builds with what go get fetches. This needs what is in the
// go.mod of the nested modules, without their replace. As TestInstall the test loads all packages; with
// REDLOCK_INSTALL set it also compiles them, and runs the test of the program.
func TestImporter(t *testing.T) {
	redistest.OnlyOnce(t, "go loads all packages once more")
	r := release(t)
	get := []string{"get"}
	for dir, path := range modules {
		get = append(get, path+"@latest")
		if r.whole {
			continue
		}
		cmd := exec.Command(r.gobin, "list", "-deps", ".")
		cmd.Dir = filepath.Join("..", "..", dir)
		cmd.Env = append(os.Environ(), "GOPROXY=off")
		if out, err := cmd.CombinedOutput(); dir == "." || err == nil {
			continue
		} else if !strings.Contains(string(out), "GOPROXY=off") {
			t.Fatalf("%s: %v\n%s", dir, err, out)
		}
		t.Skipf("needs the modules of %s in the module cache: cd %s && go mod download", dir, dir)
	}
	dir := t.TempDir()
	err := errors.Join(os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "importer"))),
		os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/importer\n\ngo 1.26\n"), 0o644))
	must(t, err)
	r.goRun(t, dir, "", get...)
	r.goRun(t, dir, "", "get", "-t", "./...") // as go mod tidy, without what tests of other modules need
	got := r.goRun(t, dir, "", "list", "-m", "-f", "{{.Path}} {{.Version}}", "all")
	for _, path := range modules {
		if want := path + " " + r.version; !slices.Contains(strings.Split(got, "\n"), want) {
			t.Errorf("got the modules %q, want %q among them", got, want)
		}
	}
	if !r.whole {
		r.goRun(t, dir, "", "list", "-test", "-deps", "./...")
		return
	}
	r.goRun(t, dir, "", "vet", "./...")
	r.goRun(t, dir, "", "test", "./...")
}

// required returns the version of the root that a nested module requires.
func required(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", dir, "go.mod"))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == module {
			return f[1]
		}
	}
	t.Fatalf("%s/go.mod does not require %s", dir, module)
	return ""
}

// released is a module proxy on which each of modules has one version.
type released struct {
	gobin, version string
	whole          bool // compile and run, and download what is missing
	env            []string
}

// release makes the proxy. It skips without the go command, or if nothing was ever downloaded.
func release(t *testing.T) released {
	t.Helper()
	gobin, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command on the PATH: ", err)
	}
	out, err := exec.Command(gobin, "env", "GOMODCACHE", "GOPROXY").Output()
	must(t, err)
	values := strings.Split(strings.ReplaceAll(string(out), "\r", ""), "\n")
	cache := filepath.Join(values[0], "cache", "download")
	if _, err := os.Stat(cache); err != nil {
		t.Skip("needs a module cache with what was downloaded: ", err)
	}
	r := released{gobin: gobin, version: required(t, "redlockprom"), whole: os.Getenv("REDLOCK_INSTALL") != ""}
	proxy := t.TempDir()
	for dir, path := range modules {
		publish(t, filepath.Join("..", "..", dir), proxy, path, r.version)
	}
	from := "file://" + filepath.ToSlash(proxy) + ",file://" + filepath.ToSlash(cache)
	if r.whole {
		from += "," + values[1]
	}
	r.env = append(os.Environ(), "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw -trimpath", "GO111MODULE=", "GOWORK=off", "GOARCH=",
		"GOPROXY="+from, "GONOSUMDB=*", "GONOPROXY=none", "GOPRIVATE=")
	return r
}

// goRun runs the go command in a directory, with another variable if that is not empty, and returns its
// output.
func (r released) goRun(t *testing.T, dir, variable string, args ...string) string {
	t.Helper()
	cmd := exec.Command(r.gobin, args...)
	cmd.Dir, cmd.Env = dir, r.env
	if variable != "" {
		cmd.Env = append(slices.Clip(r.env), variable)
	}
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text[max(0, len(text)-4000):])
	}
	return string(text)
}

// publish lays out a version of a module as a proxy does.
func publish(t *testing.T, root, proxy, path, version string) {
	t.Helper()
	dir := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	info, err := json.Marshal(map[string]string{"Version": version})
	must(t, err)
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must(t, err)
	err = errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, version+".info"), info, 0o644),
		os.WriteFile(filepath.Join(dir, version+".mod"), gomod, 0o644),
	)
	must(t, err)
	file, err := os.Create(filepath.Join(dir, version+".zip"))
	must(t, err)
	w := zip.NewWriter(file)
	err = filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(root, file)
		switch {
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case e.IsDir() && rel != "." && (e.Name() == ".git" || isModule(file)): // a proxy leaves these out
			return filepath.SkipDir
		case !e.Type().IsRegular():
			return nil
		}
		return add(w, file, path+"@"+version+"/"+filepath.ToSlash(rel))
	})
	if err = errors.Join(err, w.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func add(w *zip.Writer, path, name string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := w.Create(name)
	if err == nil {
		_, err = io.Copy(out, in)
	}
	return err
}
