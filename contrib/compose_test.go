package contrib_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// imageEnv is the variable of the compose file that names the image.
const imageEnv = "REDIS_IMAGE"

// The image that the comment tells how to build is the one that the services have.
func TestComposeBuildsItsImage(t *testing.T) {
	text, err := os.ReadFile("compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, built, _ := strings.Cut(string(text), "../Dockerfile -t ")
	if _, used, _ := strings.Cut(string(text), "REDLOCK_IMAGE:-"); strings.Fields(built)[0] != strings.TrimSuffix(strings.Fields(used)[0], "}") {
		t.Errorf("got the image %.20q built, and %.20q used", built, used)
	}
}

// compose is the compose file, started under a name of its own.
type compose struct {
	t    testing.TB
	argv []string
	env  []string
}

// newCompose finds what it takes, or ends the test.
func newCompose(t testing.TB) *compose {
	t.Helper()
	c := &compose{t: t, env: os.Environ()}
	if out, err := c.output("docker", "info"); err != nil {
		redistest.Missing(t, "docker", "needs a container engine: "+lastLine(out, err))
	}
	project := []string{"--project-name", fmt.Sprintf("redlock-test-%d-%s", os.Getpid(), c.name()), "--file", "compose/compose.yaml"}
	if _, err := c.output("docker", "compose", "version"); err == nil {
		c.argv = append([]string{"docker", "compose"}, project...)
	} else if out, err := c.output("docker-compose", "version"); err == nil {
		c.argv = append([]string{"docker-compose"}, project...)
	} else {
		redistest.Missing(t, "compose", "needs docker compose: "+lastLine(out, err))
	}
	return c
}

// name is that of the test, as compose and the names of images can have it: tests run side by side.
func (c *compose) name() string { return strings.ToLower(c.t.Name()) }

func lastLine(out string, err error) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return fmt.Sprintf("%v: %s", err, lines[len(lines)-1])
}

func (c *compose) output(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// do runs a subcommand of compose.
func (c *compose) do(args ...string) string {
	c.t.Helper()
	out, err := c.output(c.argv[0], append(c.argv[1:len(c.argv):len(c.argv)], args...)...)
	if err != nil {
		c.t.Fatalf("%s %q: %v\n%s", c.argv, args, err, out)
	}
	return out
}

// image is one to use: that of the environment, the default if it is there, or else one made
// of the programs of this machine, as there may be no registry.
func (c *compose) image() string {
	c.t.Helper()
	if name := os.Getenv(imageEnv); name != "" {
		return name
	}
	const published = "redis:8"
	if _, err := c.output("docker", "image", "inspect", published); err == nil {
		return published
	}
	made := "redlock-contrib/redis:" + c.name()
	c.load(made, c.pack("redis-server", "redis-cli"))
	return made
}

// load makes an image of an archive.
func (c *compose) load(name string, archive io.Reader, options ...string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "docker", append(append([]string{"import"}, options...), "-", name)...)
	cmd.Stdin = archive
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("docker import: %v: %s", err, out)
	}
	c.t.Cleanup(func() { _, _ = c.output("docker", "image", "rm", name) })
}

// redlockImage makes an image like that of the Dockerfile.
func (c *compose) redlockImage() string {
	c.t.Helper()
	made := "redlock-contrib/redlock:" + c.name()
	path, err := command()
	if err != nil {
		c.t.Fatal(err)
	}
	program := []byte(read(c.t, path))
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "redlock", Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = w.Write(program)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		c.t.Fatal(err)
	}
	c.load(made, &archive, "--change", `ENTRYPOINT ["/redlock"]`)
	return made
}

var libraryPath = regexp.MustCompile(`/[^ )]+`)

// pack makes a tar of programs and the libraries that they need.
func (c *compose) pack(programs ...string) *bytes.Buffer {
	c.t.Helper()
	files := make(map[string]string) // by path in the image
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			redistest.Missing(c.t, "server", "needs "+name+" on the PATH, or an image in "+imageEnv)
		}
		files["usr/bin/"+name] = path
		libraries, err := c.output("ldd", path)
		if err != nil {
			c.t.Fatalf("ldd %s: %v: %s", path, err, libraries)
		}
		for _, l := range libraryPath.FindAllString(libraries, -1) {
			files[strings.TrimPrefix(l, "/")] = l
		}
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(h tar.Header, text []byte) {
		h.Size = int64(len(text))
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "data/", Mode: 0o777}, nil)
	for name, path := range files {
		add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, []byte(read(c.t, path)))
	}
	if err := w.Close(); err != nil {
		c.t.Fatal(err)
	}
	return &archive
}

// freePort returns a port on which no process listens at the moment.
func freePort(t testing.TB) string {
	t.Helper()
	port, err := masters.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// masters has compose publish the masters on free ports, and cleans up after the test.
func (c *compose) masters() (addrs []string) {
	c.t.Helper()
	for i := range 5 {
		port := freePort(c.t)
		c.env = append(c.env, fmt.Sprintf("REDLOCK_PORT_%d=%s", i+1, port))
		addrs = append(addrs, "127.0.0.1:"+port)
	}
	c.t.Cleanup(func() {
		out, err := c.output(c.argv[0], append(c.argv[1:len(c.argv):len(c.argv)], "down", "--volumes", "--timeout", "2")...)
		switch {
		case err == nil:
		case strings.Contains(out, "has active endpoints") && c.do("ps", "--quiet") == "":
			c.t.Log("the engine does not remove a network that no container has: ", out) // seen with 20.10, once
		default:
			c.t.Errorf("down: %v: %s", err, out)
		}
	})
	return addrs
}

// A service of the compose file with the profile development is granted locks as soon as the masters
// answer: after a cold start, and after a restart of all masters. Without the profile, votes ends when the
// masters vote.
func TestComposeProfiles(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCompose(t)
	c.env = append(c.env, imageEnv+"="+c.image(), "REDLOCK_IMAGE="+c.redlockImage())
	more := filepath.Join(t.TempDir(), "app.yaml")
	app := `services:
  app:
    image: ${REDLOCK_IMAGE}
    environment: {REDLOCK_MASTERS: "master-1:6379,master-2:6379,master-3:6379,master-4:6379,master-5:6379", REDLOCK_PASSWORD: secret}
    command: [run, app, -v, --user, redlock, --trusted-disk, --, /redlock, --version]
    depends_on: {init: {condition: service_completed_successfully}}
    profiles: [development]
`
	if err := os.WriteFile(more, []byte(app), 0o600); err != nil {
		t.Fatal(err)
	}
	c.argv = append(c.argv, "--file", more)
	plain := c.argv
	c.masters()
	c.argv = append(plain[:len(plain):len(plain)], "--profile", "development")
	waited := func() time.Duration {
		t.Helper()
		var log string
		redistest.Eventually(t, time.Minute, func() bool {
			log = c.do("logs", "--no-color", "app")
			return strings.Contains(log, "msg=released")
		}, "the service has had its lock")
		m := regexp.MustCompile(`msg="holding the lock".* waited=(\S+)`).FindAllStringSubmatch(log, -1)
		if m == nil {
			t.Fatalf("got no lock: %s", log)
		}
		d, err := time.ParseDuration(m[len(m)-1][1])
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	start := time.Now()
	c.do("up", "--detach")
	t.Logf("cold start: %v until the service waited for its lock, which took %v", time.Since(start), waited())
	if d := waited(); d > 5*time.Second {
		t.Errorf("cold start: the service waited %v for its lock, want no quarantine", d)
	}
	c.do("restart", "--timeout", "2", "master-1", "master-2", "master-3", "master-4", "master-5")
	c.do("rm", "--force", "app")
	start = time.Now()
	c.do("up", "--detach", "--no-deps", "app")
	if d := waited(); d > 5*time.Second {
		t.Errorf("after a restart of all masters: the service waited %v for its lock, want no quarantine", d)
	}
	t.Logf("restart of all masters: the service had its lock %v after it was started, and waited %v for it", time.Since(start), waited())

	c.argv = append(plain[:len(plain):len(plain)], "--profile", "votes")
	c.do("up", "--detach", "votes")
	redistest.Eventually(t, time.Minute, func() bool {
		return strings.Contains(c.do("logs", "--no-color", "votes"), "5 of 5 masters have a vote")
	}, "the masters vote")
}

// The masters of the compose file pass Check, and grant locks with two of five killed. A master that
// comes back has its keys and its vote.
func TestCompose(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCompose(t)
	c.env = append(c.env, imageEnv+"="+c.image())
	addrs := c.masters()
	c.do("up", "--detach")
	urls := withUser(addrs)
	wantGood(t, urls)
	redistest.Eventually(t, time.Minute, func() bool { return strings.Count(c.do("ps"), "(healthy)") == 5 }, "all masters are healthy")

	l, err := redlock.New(urls, redlock.WithTrustedDisk(), redlock.WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lease, err := l.Lock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	c.do("kill", "master-1", "master-2")
	lockOnce(t, l)
	c.do("start", "master-1", "master-2")
	redistest.Eventually(t, 20*time.Second, func() bool {
		report, err := admin.Check(t.Context(), l)
		return err == nil && report.Voting == 5
	}, "the masters have their votes back")
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend: got %v, want no error", err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: got %v, want no error", err)
	}
}
