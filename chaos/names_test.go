package chaos

import (
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

// EXPERIMENT
func TestNameBackAndForth(t *testing.T) {
	r := processes(t, 3, ProcessOptions{})
	spare := redistest.Masters(t, 1)[0]
	n := r.Cluster.Nodes()[0].(*realNode)
	own := n.box.Addr()
	c, err := r.Client(r.config("a", nil))
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Client(r.config("b", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer d.Close()
	a, b := &worker{Client: c}, &worker{Client: d}
	warm := func() {
		for _, w := range []*worker{a, b} {
			for range 3 {
				if h, err := w.wait(t.Context())("warm"); err == nil {
					_ = h.Free(t.Context())
				}
			}
		}
	}
	warm()
	// The name goes to another server for a while, which is in use then and gets its vote.
	if err := n.proxy.Retarget(spare.Addr()); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		warm()
		time.Sleep(100 * time.Millisecond)
	}
	// node 2 is out of reach while a gets its lease by node 0, which is the spare, and node 1.
	if err := r.Cluster.Nodes()[2].Net(masters.Refuse); err != nil {
		t.Fatal(err)
	}
	h, err := a.try("hot")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Cluster.Nodes()[2].Net(masters.Pass); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	if err := n.proxy.Retarget(own); err != nil { // and back: a server that knows nothing of the lease
		t.Fatal(err)
	}
	var other *held
	for i := 0; i < 300 && other == nil && h.Look() > 0; i++ {
		other, _ = b.try("hot")
	}
	t.Logf("holder has %v left, another one was granted it: %v", h.Look(), other != nil)
	for _, v := range r.History.Check(r.Rules()) {
		t.Log(v)
	}
}
