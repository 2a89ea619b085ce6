package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/d0720281/redlock/internal/redistest"
)

// BenchmarkConnection compares ways to send the commands of many goroutines over one
// connection to one node: in batches as the library does (a goroutine sends all queued
// commands as one pipeline), and by the automatic pipelines of go-redis.
func BenchmarkConnection(b *testing.B) {
	addr := redistest.Masters(b, 1)[0].Addr()
	ways := []struct {
		name string
		open func(*redis.Client) (do func(context.Context, redis.Cmder) error, end func())
	}{
		{"batches", openBatches},
		{"autopipeline", func(c *redis.Client) (func(context.Context, redis.Cmder) error, func()) {
			return autoPipeline(b, c, false)
		}},
		{"autopipeline-fullduplex", func(c *redis.Client) (func(context.Context, redis.Cmder) error, func()) {
			return autoPipeline(b, c, true)
		}},
	}
	for _, way := range ways {
		for _, g := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("way=%s/g=%d", way.name, g), func(b *testing.B) {
				c := redis.NewClient(&redis.Options{
					Addr: addr, Protocol: 2, PoolSize: 1, MaxRetries: -1, DisableIdentity: true,
					MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
				})
				defer c.Close()
				do, end := way.open(c)
				defer end()
				var left atomic.Int64
				left.Store(int64(b.N))
				var workers sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for w := range g {
					key := fmt.Sprint("k", w)
					workers.Go(func() {
						for left.Add(-1) >= 0 {
							cmd := redis.NewStatusCmd(b.Context(), "set", key, "v", "px", 10000)
							if err := do(b.Context(), cmd); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				workers.Wait()
			})
		}
	}
}

func autoPipeline(b *testing.B, c *redis.Client, fullDuplex bool) (func(context.Context, redis.Cmder) error, func()) {
	o := *redis.DefaultBlockingAutoPipelineOptions()
	o.FullDuplex = fullDuplex
	ap, err := c.AutoPipelineWithOptions(&o)
	if err != nil {
		b.Fatal(err)
	}
	return ap.Process, func() { _ = ap.Close() }
}

// batches is the core of the library's connection to a node, without anything else.
type batches struct {
	client *redis.Client
	wake   chan struct{}
	done   sync.WaitGroup

	mu     sync.Mutex
	queue  []queuedCommand
	closed bool
}

type queuedCommand struct {
	cmd  redis.Cmder
	done chan error
}

func openBatches(c *redis.Client) (func(context.Context, redis.Cmder) error, func()) {
	b := &batches{client: c, wake: make(chan struct{}, 1)}
	b.done.Go(b.run)
	return b.do, func() {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		b.poke()
		b.done.Wait()
	}
}

func (b *batches) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *batches) do(_ context.Context, cmd redis.Cmder) error {
	c := queuedCommand{cmd, make(chan error, 1)}
	b.mu.Lock()
	b.queue = append(b.queue, c)
	b.mu.Unlock()
	b.poke()
	return <-c.done
}

func (b *batches) run() {
	conn := b.client.Conn()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for range b.wake {
		b.mu.Lock()
		batch, closed := b.queue, b.closed
		b.queue = nil
		b.mu.Unlock()
		if len(batch) > 0 {
			pipe := conn.Pipeline()
			for _, c := range batch {
				_ = pipe.Process(ctx, c.cmd)
			}
			_, _ = pipe.Exec(ctx) // each command has its own error
			for _, c := range batch {
				c.done <- c.cmd.Err()
			}
		}
		if closed {
			return
		}
	}
}
