package virtual_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
)

// newNode returns a node, for the rest of a bubble, and a client of it.
func newNode(t testing.TB) (*virtual.Node, *redis.Client) {
	n := virtual.New("10.0.0.1:6379")
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), Dialer: n.Dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
	t.Cleanup(func() {
		_ = c.Close()
		n.Close()
		time.Sleep(10 * time.Second) // for pending dials
	})
	return n, c
}

func TestMain(m *testing.M) { os.Exit(redistest.Again(m).Run()) }
