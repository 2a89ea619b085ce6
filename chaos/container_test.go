package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/d0720281/redlock/internal/redistest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // unless -parallel is given: most tests wait
	redis.SetLogger(silent{})          // masters are down on purpose
	if beChild() {
		return
	}
	if pool, err := Connect(); err == nil {
		if err := Sweep(pool); err != nil {
			fmt.Fprintln(os.Stderr, "chaos: leftovers of an earlier run:", err)
		}
	}
	goleak.VerifyTestMain(redistest.Again(m),
		// The engine's client keeps idle connections.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// inContainers starts a run on containers.
func inContainers(t testing.TB, n int) *Run {
	t.Helper()
	redistest.NotShort(t, "docker")
	pool, err := Connect()
	if err != nil {
		redistest.Missing(t, "docker", "needs a container engine: "+err.Error())
	}
	image, err := FindImage(pool)
	if err != nil {
		redistest.Missing(t, "docker", "needs an image: "+err.Error())
	}
	c, err := StartContainers(pool, image, n)
	return begin(t, c, err, containerTTL)
}

// The faults that only containers have, in mid-lease, on masters in containers; with
// REDLOCK_LONG those that processes have, too.
//
// Source: SCENARIOS rows 1, 3, 4, 9, 14, 17, 19, 53 and 54.
func TestContainerFaults(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	clusters := redistest.Rounds(2, 6) // beside each other: they wait more than they compute
	faults := FaultsOf(Containers)
	if !redistest.Long() {
		faults = slices.DeleteFunc(faults, func(f Fault) bool { return f.Tiers != Containers })
	}
	for part := range clusters {
		t.Run(fmt.Sprint("cluster ", part), func(t *redistest.T) {
			t.Parallel()
			r := inContainers(t, 5)
			for _, f := range faults[part*len(faults)/clusters : (part+1)*len(faults)/clusters] {
				t.Run(strings.ReplaceAll(f.Name, ",", ""), func(t *redistest.T) {
					withstands(t, r, f)
				})
			}
		})
	}
}

// A random schedule of faults on containers.
//
// Source: SCENARIOS row 65.
func TestSoakContainers(outer *testing.T) {
	t := redistest.Timed(outer)
	soaks(t, Containers)
}
