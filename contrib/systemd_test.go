package contrib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/redistest"
)

const unitFile = "systemd/redlock-nightly.service"

// The unit's command line is taken by the command.
func TestUnitRuns(t *testing.T) {
	m := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(read(t, unitFile))
	if m == nil {
		t.Fatal("got no ExecStart")
	}
	_, addrs := servers(t, 5)
	run(t, addrs, []string{"init", "--user", "redlock"})
	run(t, addrs, strings.Fields(m[2]))
}

// systemd has nothing to say against the units, where the programs are there.
func TestUnitsVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		redistest.Missing(t, "systemd", "needs systemd-analyze on the PATH: "+err.Error())
	}
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	units, err := filepath.Glob("systemd/*")
	if err != nil || len(units) != 2 {
		t.Fatalf("got %v, %v, want two units", units, err)
	}
	args := []string{"verify"}
	for _, u := range units {
		text := strings.ReplaceAll(read(t, u), "/usr/local/bin/redlock", path)
		copied := filepath.Join(dir, filepath.Base(u))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, copied)
	}
	out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "redlock") {
		t.Errorf("systemd-analyze: got %v, %s", err, out)
	}
}
