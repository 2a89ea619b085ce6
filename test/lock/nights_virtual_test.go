package lock_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// What the log of a service says of a night in which something happens to its masters: testdata/nights.txt has each
// line of the log, with the least and the most times that the log has it. The two differ where goroutines are ready
// at one moment and run in any order.
func TestVirtualNights(t *testing.T) {
	redistest.TakesSeconds(t)
	file, err := os.ReadFile("testdata/nights.txt")
	locktest.Must(t, err)
	for _, night := range locktest.Nights() {
		_, text, found := strings.Cut("\n"+string(file), "\n# "+night.Name+"\n")
		text, _, _ = strings.Cut(text, "\n#")
		if !found {
			t.Errorf("testdata/nights.txt has no night %q", night.Name)
		}
		want := make(map[string][2]int)
		for line := range strings.Lines(text) {
			var least, most int
			if n, _ := fmt.Sscanf(line, "%d-%d ", &least, &most); n == 2 {
				_, message, _ := strings.Cut(strings.TrimSpace(line), " ")
				want[message] = [2]int{least, most}
			}
		}
		synctest.Test(t, func(t *testing.T) {
			option, log := logged()
			night.Live(t, time.Minute, func(*redlock.Locker) {}, option)
			got := make(map[string]int)
			for _, line := range log("level=") {
				_, line, _ = strings.Cut(line, "level=")
				level, line, _ := strings.Cut(line, " msg=\"redlock: ")
				message, _, _ := strings.Cut(line, "\"")
				got[level+" "+message]++
			}
			for message := range got {
				if _, known := want[message]; !known {
					want[message] = [2]int{}
				}
			}
			for message, times := range want {
				if n := got[message]; n < times[0] || n > times[1] {
					t.Errorf("%s: the log says %d times, the file %d to %d: %s", night.Name, n, times[0], times[1], message)
				}
			}
		})
	}
}
