package node

import "errors"

// This file is for tests of the exported package, with nodes that do not run.

// Unsent takes the requests that wait to be sent, in the order in which they would be sent.
func (n *Node) Unsent() (list []*Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue.drop(func(r *Request) bool {
		list = append(list, r)
		return true
	})
	return list
}

// TakeDown marks the node as down.
func (n *Node) TakeDown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.standLocked(func(s *Standing) { s.Down = errors.New("taken down") })
}
