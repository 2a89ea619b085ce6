package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// A known hazard: an address leads to another server for a while, which is in use and gets
// its vote, and then to the first server again. The first server has its own marker, and
// does not know what was granted meanwhile. Together with a master that the holder could
// not reach it makes a second holder. The checker has to find that.
//
// Source: ALGORITHM section 8, "Not seen".
func TestNameThatGoesBack(t *testing.T) {
	t.Parallel()
	r := processes(t, 3, ProcessOptions{})
	spare := redistest.Masters(t, 1)[0]
	nodes := r.Cluster.Nodes()
	moved := nodes[0].(*realNode)
	home := moved.box.Addr()
	var clients [2]*worker
	for i, name := range []string{"a", "b"} {
		c, err := r.Client(r.config(name, nil))
		locktest.Must(t, err)
		defer c.Close()
		clients[i] = &worker{Client: c}
	}
	holder, rival := clients[0], clients[1]
	warm := func() {
		for _, w := range clients {
			if h, err := w.wait(t.Context())("warm"); err == nil {
				_ = h.Free(t.Context())
			}
		}
	}
	warm()
	locktest.Must(t, moved.proxy.Retarget(spare.Addr()))
	// The spare gets its vote: locks stay in use until its quarantine is over.
	for end := time.Now().Add(2 * quarantineOf(r.TTL)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		warm()
	}
	// On a busy machine the holder's renewal can be faster than the rival, and set the keys that the
	// two masters lack. Then there is no second holder, and it begins again.
	var second *held
	for range 10 {
		if second = rivalAfterReturn(t, holder, rival, moved, nodes[2], home); second != nil {
			break
		}
		locktest.Must(t, moved.proxy.Retarget(spare.Addr()))
		warm()
	}
	if second == nil {
		t.Fatal("got one holder, want two: if the hazard is gone, take it out of the README and of ALGORITHM section 8")
	}
	found := r.History.Check(r.Rules())
	if !slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == "I1" }) {
		t.Errorf("the checker found %v, want two holders", found)
	}
}

// rivalAfterReturn has the holder lock while the first address leads to the spare server, lets the
// address lead home again, and returns the rival's lease, or nil if the rival was too late.
func rivalAfterReturn(t *testing.T, holder, rival *worker, moved *realNode, third Node, home string) (second *held) {
	t.Helper()
	locktest.Must(t, third.Net(masters.Refuse))
	var h *held
	redistest.Eventually(t, 10*time.Second, func() (locked bool) { // a key of the try before may have to expire
		var err error
		h, err = holder.try("hot")
		return err == nil
	}, "the holder has its lease, by the spare and the second master")
	locktest.Must(t, third.Net(masters.Pass))
	locktest.Must(t, moved.proxy.Retarget(home))
	for until := time.Now().Add(processTTL); second == nil && h.Look() > 0 && time.Now().Before(until); {
		second, _ = rival.try("hot")
	}
	if second != nil && h.Look() <= 0 { // the holder knew of its loss by then
		_ = second.Free(t.Context())
		second = nil
	}
	if second == nil {
		_ = h.Free(t.Context())
	}
	return second
}
