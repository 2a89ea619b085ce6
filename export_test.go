package redlock

import "github.com/d0720281/redlock/internal/rules"

// NewID returns an id of an attempt that no Locker makes.
func NewID() string { return (&config{rules: rules.New()}).newID() }

// QueueNodeOf returns the index of the node that keeps the queue for a resource, as far as the
// Locker knows.
func (l *Locker) QueueNodeOf(resource string) int { return l.pool.queueNodeOf(resource) }

// Lines returns the number of resources that the Locker holds, or has callers for.
func (l *Locker) Lines() int {
	l.pool.waitlines.mu.Lock()
	defer l.pool.waitlines.mu.Unlock()
	return len(l.pool.waitlines.lines)
}

// Asking returns how many attempts ask the nodes, and how many wait for admission.
func (l *Locker) Asking() (asking, waiting int) {
	a := &l.pool.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asking, len(a.waiting)
}
