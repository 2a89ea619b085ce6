// Package chaos breaks masters while locks are held, and checks what the library
// makes of it. This is its beginning: masters in containers. The README of this
// folder says what is covered and what is still to come.
package chaos

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"

	"github.com/d0720281/redlock/internal/masters"
)

// Container is a master in a container. It keeps nothing over a restart, and its
// port, on 127.0.0.1, stays the same.
type Container struct {
	pool     *dockertest.Pool
	resource *dockertest.Resource
	addr     string

	mu     sync.Mutex
	closed bool
}

var _ masters.Master = (*Container)(nil)

// label marks our containers, so that leftovers of a run that was killed can be told
// from other people's.
const label = "redlock.chaos"

const redisPort = "6379/tcp"

// Connect finds the engine. The error says why there is none to be used.
func Connect() (*dockertest.Pool, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, err
	}
	if err := pool.Client.Ping(); err != nil {
		return nil, fmt.Errorf("no container engine answers: %w", err)
	}
	return pool, nil
}

// StartContainer starts a master from an image made by [EnsureImage].
func StartContainer(pool *dockertest.Pool, repository, tag string) (*Container, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	resource, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository: repository,
		Tag:        tag,
		Entrypoint: []string{"/usr/bin/redis-server"},
		WorkingDir: "/data",
		Cmd: []string{"--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "no",
			"--enable-debug-command", "yes"},
		Labels:       map[string]string{label: fmt.Sprint(os.Getpid())},
		ExposedPorts: []string{redisPort},
		// A random port would change at each restart, and be open to the world.
		PortBindings: map[dc.Port][]dc.PortBinding{redisPort: {{HostIP: "127.0.0.1", HostPort: port}}},
	}, func(h *dc.HostConfig) { h.PublishAllPorts = false })
	if err != nil {
		return nil, err
	}
	c := &Container{pool: pool, resource: resource, addr: net.JoinHostPort("127.0.0.1", port)}
	if err := c.await(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Addr is where the master is reached.
func (c *Container) Addr() string { return c.addr }

// Kind says what this master is.
func (c *Container) Kind() string { return "container" }

// Kill ends the server process at once, by the process id: through the engine it
// would take a tenth of a second.
func (c *Container) Kill() error {
	state, err := c.state()
	if err != nil || !state.Running {
		return err
	}
	if err := syscall.Kill(state.Pid, syscall.SIGKILL); err != nil {
		return c.signal(dc.SIGKILL) // not root, or an engine in another machine
	}
	return c.until(func(s dc.State) bool { return !s.Running })
}

// Pause freezes the container; connections to it are still accepted.
func (c *Container) Pause() error { return c.pool.Client.PauseContainer(c.resource.Container.ID) }

// Resume ends a pause.
func (c *Container) Resume() error {
	if state, err := c.state(); err != nil || !state.Paused {
		return err
	}
	return c.pool.Client.UnpauseContainer(c.resource.Container.ID)
}

// Restart starts the server again, with nothing in it.
func (c *Container) Restart() error {
	if err := c.Resume(); err != nil {
		return err
	}
	if err := c.Kill(); err != nil {
		return err
	}
	if err := c.pool.Client.StartContainer(c.resource.Container.ID, nil); err != nil {
		return err
	}
	return c.await()
}

// Close removes the container.
func (c *Container) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.pool.Purge(c.resource)
}

func (c *Container) signal(s dc.Signal) error {
	return c.pool.Client.KillContainer(dc.KillContainerOptions{ID: c.resource.Container.ID, Signal: s})
}

func (c *Container) state() (dc.State, error) {
	container, err := c.pool.Client.InspectContainer(c.resource.Container.ID)
	if err != nil {
		return dc.State{}, err
	}
	return container.State, nil
}

func (c *Container) until(is func(dc.State) bool) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if state, err := c.state(); err != nil || is(state) {
			return err
		}
	}
	return fmt.Errorf("container of %s did not get there in time", c.addr)
}

// await waits until the server answers. That a connection is accepted means little:
// the engine's proxy accepts before there is a server.
func (c *Container) await() error {
	var last error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if last = ping(c.addr); last == nil {
			return nil
		}
	}
	return fmt.Errorf("container of %s: %w", c.addr, last)
}

func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	answer := make([]byte, len("+PONG\r\n"))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if string(answer) != "+PONG\r\n" {
		return fmt.Errorf("answered %q to PING", answer)
	}
	return nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// Sweep removes containers of runs that are not alive any more.
func Sweep(pool *dockertest.Pool) error {
	list, err := pool.Client.ListContainers(dc.ListContainersOptions{All: true, Filters: map[string][]string{"label": {label}}})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		if _, err := os.Stat(filepath.Join("/proc", c.Labels[label])); err == nil {
			continue
		}
		errs = append(errs, pool.Client.RemoveContainer(dc.RemoveContainerOptions{ID: c.ID, Force: true, RemoveVolumes: true}))
	}
	return errors.Join(errs...)
}

var libraryPath = regexp.MustCompile(`/[^ )]+`)

// EnsureImage makes an image of a server binary of this machine and the libraries
// that it needs, unless there is one of the same files: no registry is asked.
func EnsureImage(pool *dockertest.Pool, binary string) (repository, tag string, err error) {
	binary, err = filepath.EvalSymlinks(binary)
	if err != nil {
		return "", "", err
	}
	libraries, err := exec.Command("ldd", binary).Output()
	if err != nil {
		return "", "", fmt.Errorf("ldd %s: %w", binary, err)
	}
	content := map[string]string{"usr/bin/redis-server": binary}
	for _, l := range libraryPath.FindAllString(string(libraries), -1) {
		content[strings.TrimPrefix(l, "/")] = l
	}
	archive, sum, err := pack(content)
	if err != nil {
		return "", "", err
	}
	repository, tag = "redlock-chaos/redis", sum[:12]
	if _, err := pool.Client.InspectImage(repository + ":" + tag); err == nil {
		return repository, tag, nil
	}
	return repository, tag, pool.Client.ImportImage(dc.ImportImageOptions{
		Source: "-", Repository: repository, Tag: tag, InputStream: archive, OutputStream: io.Discard,
	})
}

// pack makes a tar of files, with links followed, and a hash of names and contents.
func pack(content map[string]string) (*bytes.Buffer, string, error) {
	names := make([]string, 0, len(content))
	for name := range content {
		names = append(names, name)
	}
	slices.Sort(names)
	var archive bytes.Buffer
	w, hash := tar.NewWriter(&archive), sha256.New()
	for _, dir := range []string{"data/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o777}); err != nil {
			return nil, "", err
		}
	}
	for _, name := range names {
		file, err := os.ReadFile(content[name])
		if err != nil {
			return nil, "", err
		}
		fmt.Fprintln(hash, name, len(file))
		hash.Write(file)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(file))}); err != nil {
			return nil, "", err
		}
		if _, err := w.Write(file); err != nil {
			return nil, "", err
		}
	}
	return &archive, fmt.Sprintf("%x", hash.Sum(nil)), w.Close()
}
