package contrib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/redistest"
)

const (
	unitFile = "systemd/redlock-nightly.service"
	voteFile = "systemd/redlock-vote.service"
	dropIn   = "systemd/redis-server.service.d/redlock.conf"
	packaged = "/lib/systemd/system/redis-server.service" // of Debian's package
)

// The unit's command line is taken by the command.
func TestUnitRuns(outer *testing.T) {
	t := redistest.Timed(outer)
	m := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(read(t, unitFile))
	if m == nil {
		t.Fatal("got no ExecStart")
	}
	due := regexp.MustCompile(`--due (\S+)`).FindStringSubmatch(m[2])
	if due == nil || !slices.Equal(settings(read(t, "systemd/redlock-nightly.timer"), "OnCalendar"), []string{"*-*-*", due[1] + ":00"}) {
		t.Errorf("got --due %q, want the time of the timer", due)
	}
	_, addrs := servers(t, 5)
	run(t, addrs, []string{"init", "--yes", "--user", "redlock"})
	run(t, addrs, strings.Fields(m[2]))
}

// What follows each start of a master is taken by the command, and waits for that master's vote.
func TestVoteRuns(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	m := regexp.MustCompile(`(?m)^ExecStart=\S+ (.*)$`).FindStringSubmatch(read(t, voteFile))
	if m == nil {
		t.Fatal("got no ExecStart")
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

// packagedUnits returns the units of the servers by name: Debian's own for Redis, and with the names of Valkey, whose
// package has the same unit.
func packagedUnits(t testing.TB) map[string]string {
	t.Helper()
	text, err := os.ReadFile(packaged)
	if err != nil {
		redistest.Missing(t, "systemd", "needs the package redis-server of Debian: "+err.Error())
	}
	unit := string(text)
	if !strings.Contains(unit, "\nNoExecPaths=/\n") {
		t.Logf("%s lets any program be executed: %s", packaged, unit)
	}
	return map[string]string{"redis-server.service": unit, "valkey-server.service": strings.ReplaceAll(unit, "redis", "valkey")}
}

// settings returns the values of a setting of a unit, in order; drop-ins come behind the unit.
func settings(unit, name string) (values []string) {
	for _, m := range regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(unit, -1) {
		if m[1] == "" {
			values = nil // resets the list
			continue
		}
		values = append(values, strings.Fields(m[1])...)
	}
	return values
}

// mayExecute reports whether a unit may execute a program: the longest path decides.
func mayExecute(unit, program string) bool {
	longest := func(name string) (n int) {
		for _, path := range settings(unit, name) {
			path = strings.TrimLeft(path, "-+")
			if rel, err := filepath.Rel(path, program); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
				n = max(n, len(path))
			}
		}
		return n
	}
	return longest("ExecPaths") >= longest("NoExecPaths")
}

// Each program that a unit names may be executed in that unit, drop-ins included, and no failure of it is
// ignored. The start of a server starts what asks for its vote, and a failure of that does not stop the server.
func TestDropInWithPackage(t *testing.T) {
	units := map[string]string{filepath.Base(unitFile): read(t, unitFile), filepath.Base(voteFile): read(t, voteFile)}
	for name, unit := range packagedUnits(t) {
		units[name] = unit + "\n" + read(t, dropIn)
		if wants := settings(units[name], "Wants"); !slices.Contains(wants, filepath.Base(voteFile)) {
			t.Errorf("%s wants %q, want %s", name, wants, filepath.Base(voteFile))
		}
		for _, setting := range []string{"After", "PartOf"} {
			if of := settings(units[filepath.Base(voteFile)], setting); !slices.Contains(of, name) {
				t.Errorf("%s: got %s=%q, want %s", voteFile, setting, of, name)
			}
		}
	}
	command := regexp.MustCompile(`(?m)^(Exec[A-Z]\w*)=([-@:+!]*)(/\S+)`)
	for name, unit := range units {
		found := command.FindAllStringSubmatch(unit, -1)
		if len(found) == 0 {
			t.Errorf("%s executes nothing", name)
		}
		for _, m := range found {
			if strings.Contains(m[2], "-") {
				t.Errorf("%s: the failure of %s is not seen", name, m[0])
			}
			if m[1] != "ExecPaths" && !mayExecute(unit, m[3]) {
				t.Errorf("%s: %s may not be executed", name, m[3])
			}
		}
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
	if err != nil || len(units) != 4 {
		t.Fatalf("got %v, %v, want three units and a folder", units, err)
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
	for name, unit := range packagedUnits(t) {
		write(filepath.Join(name+".d", "redlock.conf"), read(t, dropIn))
		write(name, strings.NewReplacer("/usr/bin/valkey-server", path, ", man:valkey-server(1)", "").Replace(unit)) // which is not installed
	}
	out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "redlock") {
		t.Errorf("systemd-analyze: got %v, %s", err, out)
	}
}
