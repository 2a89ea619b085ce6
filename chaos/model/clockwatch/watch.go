package clockwatch

import (
	"time"

	"github.com/d0720281/redlock/internal/clockwatch"
)

// The watch of a client.

// observe takes the shift of a node's clock since the last sample, and reports whether the
// clock ran as it should.
func (c Config) observe(p *client, n int, seen uint8, now bool) bool {
	l := &p.link[n]
	l.shift -= seen
	if !l.known || c.NoWatch {
		l.known = true
		return true
	}
	if seen > 0 && !p.open {
		p.open = true
		for i := range p.link {
			p.link[i].look = 0
		}
	}
	if !p.open {
		return true
	}
	if seen > 0 {
		l.suspect = true
	}
	if seen > 0 || l.look == 0 && (now || c.OldLooks) {
		l.look = seen + 1
		c.judge(p, false)
	}
	return seen == 0
}

// tick is how long a tick is for the library: long enough that drift cannot explain a step.
const tick = time.Second

// judge decides which clock stepped as soon as that is certain, and at timeUp as well as possible.
// The decision is that of the library.
func (c Config) judge(p *client, timeUp bool) {
	var known [nodes]clockwatch.Shift
	var shifts [nodes]*clockwatch.Shift
	for i, l := range p.link {
		if l.look > 0 {
			size := time.Duration(l.look-1) * tick
			known[i] = clockwatch.Shift{Least: size, Most: size}
			shifts[i] = &known[i]
		}
	}
	why, typical := clockwatch.WhoseStep(quorum, shifts[:], timeUp)
	switch {
	case why == clockwatch.CauseOpen:
		return
	case why == clockwatch.CauseEither && c.TrustAll:
		why = clockwatch.CauseLocal
	case why == clockwatch.CauseEither && c.BlameNodes:
		why = clockwatch.CauseNodes
	}
	c.settle(p, why, uint8(typical.Least/tick))
}

// settle acts on a verdict.
func (c Config) settle(p *client, why clockwatch.Cause, typical uint8) {
	p.open, p.blind = false, false
	for i := range p.link {
		l := &p.link[i]
		stepped := l.look > 1
		l.look = 0
		switch {
		case !stepped:
		case why == clockwatch.CauseNodes:
			l.mark = !c.NoMark
			l.suspect = l.mark
		case why == clockwatch.CauseLocal:
			l.suspect, l.until = false, 0
		case why == clockwatch.CauseEither:
			l.suspect, l.until = false, uint8(c.Quarantine)
		}
	}
	if why == clockwatch.CauseNodes {
		return
	}
	// The client's clock is corrected, and all samples become useless.
	p.left -= min(p.left, typical)
	p.elapsed = min(p.elapsed+typical, uint8(c.TTL))
	p.since = min(p.since+typical, uint8(c.TTL))
	for i := range p.link {
		l := &p.link[i]
		l.known, l.shift, l.seen = false, 0, 0
	}
}
