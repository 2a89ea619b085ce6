//go:build lockorder

package lockorder

import (
	"strings"
	"testing"
)

// panics returns the text with which f panics, "" if it does not panic.
func panics(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = r.(string)
		}
	}()
	f()
	return ""
}

func TestOrder(t *testing.T) {
	var lines Mutex[Lines]
	var grant, other Mutex[Grant]
	var node Mutex[Node]
	for _, test := range []struct {
		name string
		do   func()
		want string
	}{
		{"in order", func() {
			lines.Lock()
			grant.Lock()
			node.Lock()
			node.Unlock()
			grant.Unlock()
			lines.Unlock()
		}, ""},
		{"one after the other", func() { node.Lock(); node.Unlock(); grant.Lock(); grant.Unlock() }, ""},
		{"unlocked in another order", func() {
			lines.Lock()
			grant.Lock()
			lines.Unlock()
			node.Lock()
			node.Unlock()
			grant.Unlock()
		}, ""},
		{"out of order", func() { node.Lock(); defer node.Unlock(); grant.Lock() }, "the mutex Grant is locked while Node is"},
		{"two of one place", func() { grant.Lock(); defer grant.Unlock(); other.Lock() }, "the mutex Grant is locked while Grant is"},
		{"a callback", func() { grant.Lock(); defer grant.Unlock(); MustBeFree() }, "called with the mutexes [Grant] locked"},
		{"a callback without", MustBeFree, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := panics(test.do); got != test.want && !(test.want != "" && strings.Contains(got, test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	held.places.Range(func(id, places any) bool {
		t.Errorf("goroutine %v at the end: got %v locked, want none", id, *places.(*[]place))
		return true
	})
}
