package chaos

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"

	"github.com/d0720281/redlock/internal/masters"
)

// Container is a master in a container. By default a restart loses its data. Its port, on
// 127.0.0.1, stays the same.
type Container struct {
	pool  *dockertest.Pool
	image Image
	args  []string
	addr  string

	mu       sync.Mutex
	resource *dockertest.Resource // guarded by mu; replaced by a restart without data
	closed   bool                 // guarded by mu
}

// label marks the containers of these tests, so that leftovers of a killed run can be told
// from containers of other users.
const label = "redlock.chaos"

const (
	redisPort    = "6379/tcp"
	engineWithin = time.Minute // an engine on a busy machine takes tens of seconds
)

// starts bounds how many containers start at a time. Thirty at once are no faster, and each takes as long
// as all of them.
var starts = make(chan struct{}, 4)

// Connect finds the engine. The error says why none can be used.
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

// StartContainer starts a master, with args added to its command line.
func StartContainer(pool *dockertest.Pool, image Image, args ...string) (*Container, error) {
	port, err := masters.FreePort()
	if err != nil {
		return nil, err
	}
	c := &Container{pool: pool, image: image, args: args, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// start makes the container, and waits for its server.
func (c *Container) start() error {
	starts <- struct{}{}
	defer func() { <-starts }()
	_, port, err := net.SplitHostPort(c.addr)
	if err != nil {
		return err
	}
	resource, err := c.pool.RunWithOptions(&dockertest.RunOptions{
		Repository: c.image.Repository,
		Tag:        c.image.Tag,
		Entrypoint: []string{c.image.Server},
		WorkingDir: "/data",
		Cmd: append([]string{"--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "no",
			"--enable-debug-command", "yes"}, c.args...),
		Labels:       map[string]string{label: fmt.Sprint(os.Getpid())},
		ExposedPorts: []string{redisPort},
		// A random port would change at each restart, and be open to the world.
		PortBindings: map[dc.Port][]dc.PortBinding{redisPort: {{HostIP: "127.0.0.1", HostPort: port}}},
	}, func(h *dc.HostConfig) { h.PublishAllPorts = false })
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.resource = resource
	c.mu.Unlock()
	return c.await()
}

func (c *Container) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resource.Container.ID
}

// Addr returns the address of the master.
func (c *Container) Addr() string { return c.addr }

// Kill ends the server process at once, by its process id. Through the engine this would
// take a tenth of a second.
func (c *Container) Kill() error {
	state, err := c.state()
	if err != nil || !state.Running {
		return err
	}
	if err := killPid(state.Pid); err != nil {
		return c.signal(dc.SIGKILL) // not root, or an engine in another machine
	}
	return c.until(func(s dc.State) bool { return !s.Running })
}

// Pause freezes the container. Connections to it are still accepted. On a busy machine the engine
// may give up, and says "unable to freeze": it leaves it to the caller to try again
// (github.com/moby/moby/issues/48205).
func (c *Container) Pause() (err error) {
	for range 5 {
		err = c.pool.Client.PauseContainer(c.id())
		if err == nil || !strings.Contains(err.Error(), "unable to freeze") {
			break
		}
	}
	return err
}

// Resume ends a pause.
func (c *Container) Resume() error {
	if state, err := c.state(); err != nil || !state.Paused {
		return err
	}
	return c.pool.Client.UnpauseContainer(c.id())
}

// Restart starts the server again. Its data is lost unless it was configured to persist.
func (c *Container) Restart() error {
	if err := c.Resume(); err != nil {
		return err
	}
	if err := c.Kill(); err != nil {
		return err
	}
	if err := c.pool.Client.StartContainer(c.id(), nil); err != nil {
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
	if c.resource == nil {
		return nil
	}
	return c.pool.Purge(c.resource)
}

func (c *Container) signal(s dc.Signal) error {
	return c.pool.Client.KillContainer(dc.KillContainerOptions{ID: c.id(), Signal: s})
}

func (c *Container) state() (dc.State, error) {
	container, err := c.pool.Client.InspectContainer(c.id())
	if err != nil {
		return dc.State{}, err
	}
	return container.State, nil
}

func (c *Container) until(is func(dc.State) bool) error {
	for deadline := time.Now().Add(engineWithin); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if state, err := c.state(); err != nil || is(state) {
			return err
		}
	}
	return fmt.Errorf("container of %s did not get there in time", c.addr)
}

// await waits until the server answers. An accepted connection proves little: the engine's
// proxy accepts connections before the server runs.
func (c *Container) await() error {
	var last error
	for deadline := time.Now().Add(engineWithin); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
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

// Sweep removes the containers of runs that have ended.
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
