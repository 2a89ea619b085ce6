package contrib_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// What the Dockerfile builds needs nothing else in its image.
func TestDockerfile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("images are made on Linux")
	}
	m := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 (go build .*) -o /redlock (\S+)$`).FindStringSubmatch(read(t, "Dockerfile"))
	if m == nil {
		t.Fatal("got no static build")
	}
	path := filepath.Join(t.TempDir(), "redlock")
	argv := strings.Fields(strings.Replace(m[1], `"-s -w"`, "-s", 1))
	argv = slices.Concat(argv, []string{"-o", path, m[2]})
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("got %q, %v, want no libraries", libraries, err)
	}
}
