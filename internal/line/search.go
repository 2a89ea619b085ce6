package line

// This file has what a search of all states needs of a line, beside its events. Nothing else uses
// it.

// First returns the head; nil if no caller waits.
func (l *Line[H, C]) First() *Caller[H, C] { return l.first }

// Rear returns the last caller.
func (l *Line[H, C]) Rear() *Caller[H, C] { return l.rear }

// Next returns the caller behind c.
func (c *Caller[H, C]) Next() *Caller[H, C] { return c.next }

// Idle reports whether the caller makes no attempt just now.
func (c *Caller[H, C]) Idle() bool { return c.idle }

// Served reports whether the caller has a lease that was handed over to it.
func (c *Caller[H, C]) Served() bool { return c.served }

// Relink makes a copy of a line stand for itself: same returns the copy of each of its callers, and
// callers has all copies.
func (l *Line[H, C]) Relink(callers []*Caller[H, C], same func(*Caller[H, C]) *Caller[H, C]) {
	l.first, l.rear = same(l.first), same(l.rear)
	for _, c := range callers {
		c.line, c.ahead, c.next = l, same(c.ahead), same(c.next)
	}
}
