package masters

import (
	"errors"
	"fmt"
	"sync"

	"github.com/alicebob/miniredis/v2"

	"github.com/d0720281/redlock/internal/virtual"
)

// Mini is a master inside this process, for machines without redis-server. Its
// keys expire by real time. Use [StartMini]; the zero value does not work.
//
// It is a miniredis behind a [Proxy], whose address is the address of the master. A black
// hole keeps requests until it is healed, as a stopped server does. The proxy keeps its
// port when a restart brings a new, empty miniredis.
type Mini struct {
	proxy *Proxy

	mu     sync.Mutex           // held for the whole of a state change
	redis  *miniredis.Miniredis // nil while down
	paused bool
	closed bool
}

// StartMini starts an in-process master on a free port.
func StartMini() (*Mini, error) {
	redis, err := runMini()
	if err != nil {
		return nil, err
	}
	proxy, err := NewProxy(redis.Addr())
	if err != nil {
		redis.Close()
		return nil, err
	}
	return &Mini{proxy: proxy, redis: redis}, nil
}

func runMini() (*miniredis.Miniredis, error) {
	redis := miniredis.NewMiniRedis()
	redis.ClockTTL(true)
	if err := redis.Start(); err != nil {
		return nil, fmt.Errorf("masters: start miniredis: %w", err)
	}
	virtual.RunScripts(redis)
	return redis, nil
}

// Addr implements [Master].
func (m *Mini) Addr() string { return m.proxy.Addr() }

// Kill implements [Master].
func (m *Mini) Kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.killLocked()
}

// Pause implements [Master].
func (m *Mini) Pause() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return ErrClosed
	case m.redis == nil:
		return fmt.Errorf("%w: miniredis on %s", errNotRunning, m.Addr())
	case m.paused:
		return nil
	}
	m.paused = true
	return m.proxy.Set(Blackhole)
}

// Resume implements [Master].
func (m *Mini) Resume() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.paused {
		return nil
	}
	m.paused = false
	return m.proxy.Set(Pass)
}

// Restart implements [Master].
func (m *Mini) Restart() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if err := m.killLocked(); err != nil {
		return err
	}
	redis, err := runMini()
	if err != nil {
		return err
	}
	m.redis = redis
	return errors.Join(m.proxy.Retarget(redis.Addr()), m.proxy.Set(Pass))
}

// Close implements [Master].
func (m *Mini) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	err := m.killLocked()
	m.proxy.Close()
	return err
}

func (m *Mini) killLocked() error {
	if m.redis == nil {
		return nil
	}
	if err := m.proxy.Set(Refuse); err != nil {
		return err
	}
	m.redis.Server().Close() // waits for running commands: a command must not find the server gone
	m.redis.Close()
	m.redis, m.paused = nil, false
	return nil
}
