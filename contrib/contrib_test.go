package contrib_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/redistest"
)

const password = "secret"

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The users are those that docs/operations.md recommends, with the right that WithTrustedDisk
// needs.
func TestUsers(t *testing.T) {
	const begin = "ACL SETUSER "
	lines := strings.Split(read(t, "../docs/operations.md"), "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, begin) })
	if i < 0 {
		t.Fatalf("docs/operations.md has no line that begins with %q", begin)
	}
	user := strings.TrimPrefix(lines[i], begin)
	want := "user default off\nuser " + user + " +config|get\n"
	if got := read(t, "compose/users.acl"); got != want {
		t.Errorf("compose/users.acl: got %q, want %q", got, want)
	}
	secret := the[corev1.Secret](t, build(t, "base"), "Secret")
	if got := string(secret.Data["users.acl"]); got != want {
		t.Errorf("kubernetes/base/users.acl: got %q, want %q", got, want)
	}
	if got := string(secret.Data["password"]); !strings.Contains(user, ">"+password+" ") || got != password {
		t.Errorf("got password %q in the Secret, want %q as in %q", got, password, user)
	}
}

// servers starts masters with compose/redis.conf and compose/users.acl.
func servers(t testing.TB, n int) (urls, addrs []string) {
	t.Helper()
	acl, err := filepath.Abs("compose/users.acl")
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for line := range strings.Lines(read(t, "compose/redis.conf")) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch fields[0] {
		case "dir", "bind": // the test's own
			continue
		case "aclfile":
			fields[1] = acl
		}
		args = append(args, "--"+fields[0])
		for _, f := range fields[1:] {
			args = append(args, strings.Trim(f, `"`))
		}
	}
	addrs = redistest.Addrs(redistest.Masters(t, n, args...))
	return withUser(addrs), addrs
}

func withUser(addrs []string) (urls []string) {
	for _, a := range addrs {
		urls = append(urls, "redis://redlock:"+password+"@"+a)
	}
	return urls
}

// wantGood checks that masters are what the library wants them to be, and locks on them.
func wantGood(t testing.TB, urls []string) {
	t.Helper()
	l, err := redlock.New(urls, redlock.WithTrustedDisk(), redlock.WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	redistest.Eventually(t, 20*time.Second, func() bool { return admin.Bootstrap(t.Context(), l) == nil }, "the masters vote")
	wrong := "not looked at"
	defer func() {
		if t.Failed() {
			t.Log(wrong)
		}
	}()
	redistest.Eventually(t, 20*time.Second, func() bool { // on a busy machine a master is too late for a look
		report, err := admin.Check(t.Context(), l)
		if wrong = ""; err != nil {
			wrong = err.Error()
		}
		for _, n := range report.Masters {
			for _, f := range n.Findings {
				if f.Level != admin.LevelOK {
					wrong += fmt.Sprintf("\n%s: %v, %s: %s", n.Master, f.Level, f.Check, f.Text)
				}
			}
		}
		return wrong == ""
	}, "Check finds all masters with votes and all in order")
	lockOnce(t, l)
}

func lockOnce(t testing.TB, l *redlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := l.Lock(ctx, "contrib")
	if err == nil {
		err = lease.Unlock(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Servers with the configuration are good masters.
func TestConfiguration(outer *testing.T) {
	t := redistest.Timed(outer)
	urls, _ := servers(t, 5)
	wantGood(t, urls)
}

// command builds the command redlock, which needs no libraries.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "redlock-contrib-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "redlock")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/redlock")
	cmd.Dir, cmd.Stderr, cmd.Env = "..", os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	return path, cmd.Run()
})

func TestMain(m *testing.M) {
	code := redistest.Again(m).Run()
	if path, err := command(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// tooSlow is the exit code of redlock if too few masters answer in time. On a busy machine they may
// take longer than a master timeout.
const tooSlow = 69

// run runs redlock with a command line of some file: what comes after -- there is replaced. It
// tries again while the masters are too slow, ten times at most.
func run(t testing.TB, addrs, args []string, env ...string) {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.Index(args, "--"); i >= 0 {
		args = append(slices.Clone(args[:i+1]), "true")
	}
	if i := slices.Index(args, "--at-least"); i >= 0 {
		args = slices.Concat(args[:i], []string{"--at-least", "1s"}, args[i+2:])
	}
	if i := slices.Index(args, "--due"); i >= 0 {
		args = slices.Concat(args[:i], []string{"--due", time.Now().Format(time.RFC3339)}, args[i+2:])
	}
	for try := 1; ; try++ {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(slices.Concat(os.Environ(), env), "REDLOCK_MASTERS="+strings.Join(addrs, ","), "REDLOCK_PASSWORD="+password)
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			return
		case cmd.ProcessState.ExitCode() != tooSlow || try == 10:
			t.Fatalf("%q: got %v, want exit code 0: %s", args, err, out)
		}
		t.Logf("%q, try %d: %s", args, try, out)
	}
}
