package chaos

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // masters are down on purpose
	if beChild() {
		return
	}
	if pool, err := Connect(); err == nil {
		if err := Sweep(pool); err != nil {
			fmt.Fprintln(os.Stderr, "chaos: leftovers of an earlier run:", err)
		}
	}
	goleak.VerifyTestMain(m,
		// The engine's client keeps idle connections.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// inContainers starts a run on containers.
func inContainers(t *testing.T, n int) *Run {
	t.Helper()
	pool, err := Connect()
	if err != nil {
		redistest.Missing(t, "docker", "needs a container engine: "+err.Error())
	}
	image, err := FindImage(pool)
	if err != nil {
		redistest.Missing(t, "docker", "needs an image: "+err.Error())
	}
	c, err := StartContainers(pool, image, n)
	return begin(t, c, err, 3*testTTL)
}

// Every fault of containers, in mid-lease, on masters in containers.
//
// Source: SCENARIOS rows 1, 3, 4, 9, 14, 17, 19, 53 and 54.
func TestContainerFaults(t *testing.T) {
	faults := FaultsOf(Containers)
	for half := range 2 {
		t.Run(fmt.Sprint("cluster ", half), func(t *testing.T) {
			t.Parallel()
			r := inContainers(t, 5)
			for _, f := range faults[half*len(faults)/2 : (half+1)*len(faults)/2] {
				t.Run(strings.ReplaceAll(f.Name, ",", ""), func(t *testing.T) {
					r.History = new(history.History)
					inflict(t, r, f)
					time.Sleep(r.Rules().Settled)
					r.Settle(12 * time.Second)
					check(t, r)
					t.Log(Measure(r.History))
				})
			}
		})
	}
}

// A random schedule of faults on containers.
//
// Source: SCENARIOS row 65.
func TestSoakContainers(t *testing.T) {
	soaks(t, Containers)
}
