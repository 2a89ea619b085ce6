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
)

const (
	module  = "github.com/d0720281/redlock"
	version = "v0.0.1"
)

// The command is installed as users do it: go install module/cmd/redlock@version, from a module
// proxy. This works only with what is in go.mod, which must have no replace. The test loads and
// type-checks all packages. It does not compile them, which takes long; with REDLOCK_INSTALL set
// it also builds and runs the command.
func TestInstall(t *testing.T) {
	whole := os.Getenv("REDLOCK_INSTALL") != ""
	gobin, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command on the PATH: ", err)
	}
	out, err := exec.Command(gobin, "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(strings.TrimSpace(string(out)), "cache", "download")
	if _, err := os.Stat(cache); err != nil {
		t.Skip("needs a module cache with what was downloaded: ", err)
	}
	proxy, bin, mod := t.TempDir(), t.TempDir(), t.TempDir()
	publish(t, filepath.Join("..", ".."), proxy)

	args := []string{"install", "-modcacherw", "-n", module + "/cmd/redlock@" + version}
	if whole {
		args = slices.Delete(args, 2, 3)
	}
	cmd := exec.Command(gobin, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+mod, "GOFLAGS=", "GO111MODULE=", "GOWORK=off", "GOARCH=",
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(cache), "GONOSUMDB=*", "GONOPROXY=none", "GOPRIVATE=")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text[max(0, len(text)-4000):])
	}
	if !whole {
		return
	}
	text, err := exec.Command(filepath.Join(bin, "redlock"), "run", "--help").Output()
	if err != nil || !strings.Contains(string(text), "redlock run KEY [flags] [--] command [args...]") {
		t.Errorf("got %q, %v; want the help of the command", text, err)
	}
	text, err = exec.Command(filepath.Join(bin, "redlock"), "--version").Output()
	if err != nil || string(text) != "redlock "+version+"\n" {
		t.Errorf("--version: got %q, %v; want %s", text, err, version)
	}
	text, err = exec.Command(gobin, "version", "-m", filepath.Join(bin, "redlock")).Output()
	if err != nil || !strings.Contains(string(text), "mod\t"+module+"\t"+version) {
		t.Errorf("got %q, %v; want version %s of the module", text, err, version)
	}
}

// publish lays out the module as a proxy does.
func publish(t *testing.T, root, proxy string) {
	t.Helper()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	info, err := json.Marshal(map[string]string{"Version": version})
	if err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, version+".info"), info, 0o644),
		os.WriteFile(filepath.Join(dir, version+".mod"), gomod, 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(file)
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(root, path)
		switch {
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case e.IsDir() && rel != "." && (e.Name() == ".git" || isModule(path)): // a proxy leaves these out
			return filepath.SkipDir
		case !e.Type().IsRegular():
			return nil
		}
		return add(w, path, module+"@"+version+"/"+filepath.ToSlash(rel))
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
