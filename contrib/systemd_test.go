package contrib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/redistest"
)

const (
	unitFile = "systemd/redlock-nightly.service"
	dropIn   = "systemd/redis-server.service.d/redlock.conf"
)

// The unit's command line is taken by the command.
func TestUnitRuns(t *testing.T) {
	m := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(read(t, unitFile))
	if m == nil {
		t.Fatal("got no ExecStart")
	}
	_, addrs := servers(t, 5)
	run(t, addrs, []string{"init", "--yes", "--user", "redlock"})
	run(t, addrs, strings.Fields(m[2]))
}

// What follows each start of a master is taken by the command, and waits for that master's vote.
func TestDropInRuns(t *testing.T) {
	m := regexp.MustCompile(`(?m)^ExecStartPost=-\S+ (.*)$`).FindStringSubmatch(read(t, dropIn))
	if m == nil {
		t.Fatal("got no ExecStartPost")
	}
	urls, addrs := servers(t, 3)
	run(t, addrs, strings.Fields(strings.Replace(m[1], "${REDLOCK_SELF}", addrs[0], 1)))
	l, err := redlock.New(urls, redlock.WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var n admin.Master
	redistest.Eventually(t, 20*time.Second, func() bool {
		report, _ := admin.Check(t.Context(), l)
		n = report.Masters[0]
		return n.Err == nil
	}, "the master answers")
	if n.Quarantine > 0 {
		t.Errorf("%s: got no vote for %v, want one by now", n.Master, n.Quarantine)
	}
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
	if err != nil || len(units) != 3 {
		t.Fatalf("got %v, %v, want two units and a folder", units, err)
	}
	args := []string{"verify"}
	write := func(name, text string) {
		t.Helper()
		copied := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(copied), 0o700)
		if err == nil {
			err = os.WriteFile(copied, []byte(strings.ReplaceAll(text, "/usr/local/bin/redlock", path)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(name) == "." {
			args = append(args, copied)
		}
	}
	for _, u := range units {
		if u != filepath.Dir(dropIn) {
			write(filepath.Base(u), read(t, u))
		}
	}
	write(strings.TrimPrefix(dropIn, "systemd/"), read(t, dropIn))
	write("redis-server.service", "[Service]\nType=notify\nExecStart="+path+"\n") // with the drop-in
	out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "redlock") {
		t.Errorf("systemd-analyze: got %v, %s", err, out)
	}
}
