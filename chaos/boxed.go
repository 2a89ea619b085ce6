package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
	"github.com/redis/go-redis/v9"
)

// StartContainers starts n masters in containers, behind fault proxies. A restart keeps
// their append-only files.
func StartContainers(pool *dockertest.Pool, image Image, n int) (Cluster, error) {
	return startReal(Containers, n, func() (box, error) { return startBoxed(pool, image) })
}

// boxed makes a container a box.
type boxed struct{ *Container }

func startBoxed(pool *dockertest.Pool, image Image) (box, error) {
	c, err := StartContainer(pool, image, "--appendonly", "yes", "--enable-protected-configs", "yes")
	return boxed{c}, err
}

func (b boxed) marked(*redis.Client) error { return nil }
func (b boxed) step(time.Duration) error   { return ErrUnable }
func (b boxed) drift(int) error            { return ErrUnable }

func (b boxed) another(context.Context) (box, error) {
	return startBoxed(b.pool, b.image)
}

// restart keeps the data, or replaces the container by a new one.
func (b boxed) restart(d Data) error {
	switch d {
	case Kept:
		return b.Restart()
	case Empty:
		b.mu.Lock()
		old := b.resource
		b.mu.Unlock()
		if err := b.pool.Purge(old); err != nil {
			return err
		}
		return b.start()
	}
	return ErrUnable
}

// Unplug disconnects the container from its network: the engine ends the connections.
func (b boxed) Unplug() error {
	return b.pool.Client.DisconnectNetwork("bridge", dc.NetworkConnectionOptions{Container: b.id(), Force: true})
}

// Plug connects it again.
func (b boxed) Plug() error {
	if err := b.pool.Client.ConnectNetwork("bridge", dc.NetworkConnectionOptions{Container: b.id()}); err != nil {
		return err
	}
	return b.await()
}

// Crash kills the server as another program on this machine may, and waits until the
// engine has restarted it, as configured.
func (b boxed) Crash() error {
	policy := func(p dc.RestartPolicy) error {
		return b.pool.Client.UpdateContainer(b.id(), dc.UpdateContainerOptions{RestartPolicy: p})
	}
	if err := policy(dc.RestartPolicy{Name: "always"}); err != nil {
		return err
	}
	state, err := b.state()
	if err != nil {
		return err
	}
	if err := killPid(state.Pid); err != nil {
		return fmt.Errorf("%w: %w", ErrUnable, err) // not root, or an engine in another machine
	}
	if err := b.until(func(s dc.State) bool { return s.Running && s.Pid != state.Pid }); err != nil {
		return err
	}
	return errors.Join(b.await(), policy(dc.RestartPolicy{Name: "no"}))
}
