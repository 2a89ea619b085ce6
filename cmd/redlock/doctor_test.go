//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
)

// With a master down a lock that is taken and given back all the time is changing hands, and no error. A
// key that one master keeps is not. Without a quorum the owner is what one master knows.
func TestListWithAMasterDown(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := newCluster(t, 3, redlock.DefaultMaxTTL)
	ready := filepath.Join(t.TempDir(), "ready")
	holder := c.start(t, "held", "--owner", "ci-3:4711:make", "--", "beat", ready)
	redistest.Eventually(t, 10*time.Second, func() bool { return beating(ready) }, "the lock is held")
	must(t, c.list[2].Kill())
	node := redistest.Client(t, c.list[0].Addr())
	done := make(chan struct{})
	var setting sync.WaitGroup
	defer setting.Wait()
	stop := sync.OnceFunc(func() { close(done) })
	defer stop()
	setting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := node.Set(t.Context(), redlock.DefaultKeyPrefix+"busy", fmt.Sprintf("holder%d|0", i), 20*time.Second).Err(); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	redistest.Eventually(t, 10*time.Second, func() bool { return node.Exists(t.Context(), redlock.DefaultKeyPrefix+"busy").Val() == 1 }, "the lock changes hands")
	for args, want := range map[string]int{"list": 0, "doctor --locks": exitFailed, "status busy": 0, "top": 0, "status busy --exit-status": exitConflict} {
		redistest.Eventually(t, 20*time.Second, func() bool { // a busy machine may keep the key as it is between two looks
			code, out := c.look(t, strings.Fields(args)...)
			return code == want && strings.Contains(out, "changing hands") && !strings.Contains(out, "UNKNOWN")
		}, fmt.Sprintf("%s shows a lock that is changing hands, with code %d", args, want))
	}
	stop()
	setting.Wait()
	if code, out := c.look(t, "list"); code != exitNoQuorum || !strings.Contains(out, "UNKNOWN") || !strings.Contains(out, "may have the key, too") {
		t.Errorf("a key that stays: got code %d, %s; want %d, and why that is unknown", code, out, exitNoQuorum)
	}
	must(t, c.list[1].Kill())
	if code, out := c.look(t, "top"); code != exitNoQuorum || !strings.Contains(out, " ci-3:4711:make?  UNKNOWN ") {
		t.Errorf("no quorum: got code %d, %s; want %d and the owner with a mark", code, out, exitNoQuorum)
	}
	holder.signal(t, syscall.SIGKILL)
	_ = holder.cmd.Wait() // killed
}
