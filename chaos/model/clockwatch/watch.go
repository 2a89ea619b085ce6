package clockwatch

import "slices"

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

type cause uint8

const (
	undecided cause = iota
	theNodes
	theClient
	either
)

// judge decides which clock stepped as soon as that is certain, and at timeUp as well as possible.
func (c Config) judge(p *client, timeUp bool) {
	var steps []uint8
	unknown := 0
	for _, l := range p.link {
		switch {
		case l.look == 0:
			unknown++
		case l.look > 1:
			steps = append(steps, l.look-1)
		}
	}
	slices.Sort(steps)
	typical := steps[len(steps)/2]
	alike := 0
	for _, s := range steps {
		if s == typical {
			alike++
		}
	}
	why := undecided
	switch {
	case alike >= quorum:
		why = theClient
	case alike+unknown < quorum:
		why = theNodes
	case timeUp && c.TrustAll:
		why = theClient
	case timeUp && c.BlameNodes:
		why = theNodes
	case timeUp:
		why = either
	}
	if why != undecided {
		c.settle(p, why, typical)
	}
}

// settle acts on a verdict.
func (c Config) settle(p *client, why cause, typical uint8) {
	p.open, p.blind = false, false
	for i := range p.link {
		l := &p.link[i]
		stepped := l.look > 1
		l.look = 0
		switch {
		case !stepped:
		case why == theNodes:
			l.mark = !c.NoMark
			l.suspect = l.mark
		case why == theClient:
			l.suspect, l.until = false, 0
		case why == either:
			l.suspect, l.until = false, uint8(c.Quarantine)
		}
	}
	if why == theNodes {
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
