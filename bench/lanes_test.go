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

// BenchmarkLanes compares ways to put the commands of many goroutines on one
// connection to one node: a lane as the library has it (a goroutine that sends what
// has queued as one pipeline), and the client library's own automatic pipelines.
func BenchmarkLanes(b *testing.B) {
	addr := redistest.Masters(b, 1)[0].Addr()
	ways := []struct {
		name string
		open func(*redis.Client) (do func(context.Context, redis.Cmder) error, end func())
	}{
		{"lane", openPipelineLane},
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

// pipelineLane is the core of the library's lane, and nothing else of it.
type pipelineLane struct {
	client *redis.Client
	wake   chan struct{}
	done   sync.WaitGroup

	mu     sync.Mutex
	queue  []laneCommand
	closed bool
}

type laneCommand struct {
	cmd  redis.Cmder
	done chan error
}

func openPipelineLane(c *redis.Client) (func(context.Context, redis.Cmder) error, func()) {
	l := &pipelineLane{client: c, wake: make(chan struct{}, 1)}
	l.done.Go(l.run)
	return l.do, func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.poke()
		l.done.Wait()
	}
}

func (l *pipelineLane) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *pipelineLane) do(_ context.Context, cmd redis.Cmder) error {
	c := laneCommand{cmd, make(chan error, 1)}
	l.mu.Lock()
	l.queue = append(l.queue, c)
	l.mu.Unlock()
	l.poke()
	return <-c.done
}

func (l *pipelineLane) run() {
	conn := l.client.Conn()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for range l.wake {
		l.mu.Lock()
		batch, closed := l.queue, l.closed
		l.queue = nil
		l.mu.Unlock()
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
