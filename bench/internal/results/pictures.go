package results

import (
	"math"

	"github.com/d0720281/redlock/internal/svg"
)

// palette has the colour of each contender, the same in all pictures, in the order of the tables.
var palette = []struct{ who, colour string }{
	{"mutex", "#7d4e00"},
	{"ours", "#0969da"},
	{"ours-unguarded", "#1b7c83"},
	{"redsync", "#cf222e"},
	{"redsync-failfast", "#bc4c00"},
	{"redislock", "#8250df"},
	{"rueidislock", "#bf3989"},
	{"floor", "#57606a"},
}

func colourOf(who string) string {
	for _, c := range palette {
		if c.who == who {
			return c.colour
		}
	}
	return svg.Ink
}

const (
	pictureWidth = 880.0
	rowHeight    = 19.0
	groupGap     = 12.0
)

// Picture is a named picture. Browsers without its font use a similar one.
type Picture struct {
	Name string
	*svg.Canvas
}

// Pictures returns the pictures for which there are values, the most important first.
func (s Set) Pictures() (list []Picture) {
	for _, p := range []Picture{s.faultPicture(), s.hotPicture(), s.throughputPicture(), s.latencyPicture()} {
		if p.Canvas != nil {
			list = append(list, p)
		}
	}
	return list
}

// axis is a logarithmic axis from one pixel to another. It begins and ends at a power of ten or at
// twice or five times that.
type axis struct {
	from, to float64
	steps    []float64 // 1, 2, 5, 10, 20, ... around the data
}

func newAxis(low, high, from, to float64) axis {
	steps := []float64{0}
	for power := math.Pow(10, math.Floor(math.Log10(low/1.05))); steps[len(steps)-1] < high*1.05; power *= 10 {
		for _, k := range []float64{1, 2, 5} {
			if v := k * power; v <= low/1.05 {
				steps = []float64{v}
			} else if steps[len(steps)-1] < high*1.05 {
				steps = append(steps, v)
			}
		}
	}
	return axis{from, to, steps}
}

func (a axis) at(v float64) float64 {
	low, high := a.steps[0], a.steps[len(a.steps)-1]
	return a.from + math.Log(v/low)/math.Log(high/low)*(a.to-a.from)
}

// marks returns the steps; if these are many, each tenfold of the first one.
func (a axis) marks() (marks []float64) {
	if len(a.steps) <= 8 {
		return a.steps
	}
	for i := 0; i < len(a.steps); i += 3 {
		marks = append(marks, a.steps[i])
	}
	return marks
}

// group is a case of a picture, with the values of some contenders.
type group struct {
	name string
	rows []row
}

type row struct {
	who   string
	value float64
}

// group returns a case with the medians of a figure of one cell.
func (s Set) group(name, cell, metric string, scale float64) group {
	g := group{name: name}
	for _, who := range s.who(cell) {
		if v, ok := s.Median(cell, who, metric); ok && v > 0 {
			g.rows = append(g.rows, row{who, v * scale})
		}
	}
	return g
}

// draw draws a row for each contender in each case, with a dot at its value and the value beside it.
func draw(name, title, unit string, groups []group) Picture {
	const labels, left, right, top = 125.0, 260.0, pictureWidth - 90, 62.0
	low, high, height := math.Inf(1), 0.0, top
	for _, g := range groups {
		for _, r := range g.rows {
			low, high = min(low, r.value), max(high, r.value)
		}
		height += float64(len(g.rows))*rowHeight + groupGap
	}
	if high == 0 {
		return Picture{Name: name}
	}
	x := newAxis(low, high, left, right)
	c := svg.New(pictureWidth, height+50, title)
	c.Text(20, 28, "start", svg.Ink, "bold", title)
	for _, v := range x.marks() {
		c.Line(x.at(v), top-8, x.at(v), height, svg.Grid, 1, "")
		c.Text(x.at(v), height+18, "middle", svg.Ink, "normal", number(v))
	}
	c.Text((left+right)/2, height+38, "middle", svg.Faint, "normal", unit+", logarithmic axis")
	y := top
	for i, g := range groups {
		c.Text(20, y+rowHeight/2+4, "start", svg.Ink, "bold", g.name)
		for _, r := range g.rows {
			at := y + rowHeight/2
			c.Text(labels, at+4, "start", colourOf(r.who), "normal", r.who)
			c.Line(left, at, x.at(r.value), at, svg.Grid, 1, "2 3")
			c.Dot(x.at(r.value), at, colourOf(r.who))
			c.Text(x.at(r.value)+9, at+4, "start", colourOf(r.who), "normal", number(r.value))
			y += rowHeight
		}
		if y += groupGap; i < len(groups)-1 {
			c.Line(20, y-groupGap/2, right, y-groupGap/2, svg.Grid, 1, "")
		}
	}
	return Picture{name, c}
}

func (s Set) latencyPicture() Picture {
	var groups []group
	for _, c := range s.cells("Cycle/N=[1-9]/g=1") {
		groups = append(groups, s.group(cluster(c), c, "p50-us", 1))
	}
	return draw("latency", "Lock and Unlock of a free key, one goroutine, median", "µs", groups)
}

func (s Set) throughputPicture() Picture {
	var groups []group
	for _, c := range s.cells("Cycle/N=5/" + manyGoroutines) {
		groups = append(groups, s.group(param(c, "g")+" callers", c, "cycles/s", 1))
	}
	return draw("throughput", "Lock and Unlock in a second, keys of their own, N=5", "cycles/s", groups)
}

func (s Set) hotPicture() Picture {
	var groups []group
	for _, c := range s.cells("Hot/hold=0/procs=10/*") {
		g := s.group(param(c, "workers")+" workers", c, "hand-overs/s", 1)
		section, _ := s.Median(c, Ours, "section-us")
		if rtt, ok := s.Median(c, Ours, "rtt-us"); ok {
			g.rows = append(g.rows, row{"limit", 1e6 / (section + 2*rtt)})
		}
		groups = append(groups, g)
	}
	return draw("hot", "One key, 10 processes, N=5 or one server: hand-overs in a second", "hand-overs/s", groups)
}

func (s Set) faultPicture() Picture {
	var groups []group
	for _, c := range s.cells(faultCells) {
		groups = append(groups, s.group(faultName(c), c, "lock-p99-us", 1e-3))
	}
	return draw("faults", "Lock while one or two of five masters are killed, paused or slow, 99th percentile", "ms", groups)
}
