package results

import (
	"fmt"
	"io"
	"math"

	"github.com/d0720281/redlock/internal/svg"
)

// palette has the colour of each contender, the same in all pictures.
var palette = []struct{ who, colour string }{
	{"ours", "#0969da"},
	{"ours-unguarded", "#1b7c83"},
	{"redsync", "#cf222e"},
	{"redsync-failfast", "#bc4c00"},
	{"redislock", "#8250df"},
	{"rueidislock", "#bf3989"},
	{"floor", "#57606a"},
	{"mutex", "#7d4e00"},
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

// Picture is a named picture.
type Picture struct {
	Name   string
	canvas *svg.Canvas
}

// Write writes the picture as SVG. Browsers without the font use a similar one.
func (p Picture) Write(w io.Writer) error {
	if _, err := p.canvas.WriteTo(w); err != nil {
		return fmt.Errorf("results: picture %s: %w", p.Name, err)
	}
	return nil
}

// Pictures returns the pictures for which there are values, the most important first.
func (s Set) Pictures() (list []Picture) {
	for _, p := range []Picture{s.faultPicture(), s.hotPicture(), s.throughputPicture(), s.latencyPicture()} {
		if p.canvas != nil {
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

// group returns a case with the medians of a figure in some cells.
func (s Set) group(name string, metric string, scale float64, cells ...Cell) group {
	g := group{name: name}
	for _, c := range cells {
		for _, who := range s.who(func(other Cell) bool { return other == c }) {
			if v, ok := s.Median(c, who, metric); ok && v > 0 {
				g.rows = append(g.rows, row{who, v * scale})
			}
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
	for _, n := range s.axis(func(c Cell) bool { return c.Scenario == Cycles && c.N > 0 }, masters) {
		groups = append(groups, s.group(fmt.Sprintf("N=%d", n), "p50", 1, Cell{Scenario: Cycles, N: n, Goroutines: 1}))
	}
	return draw("latency", "Lock and Unlock of a free key, one goroutine, median", "µs", groups)
}

func (s Set) throughputPicture() Picture {
	var groups []group
	for _, g := range s.axis(func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines > 1 }, goroutines) {
		groups = append(groups, s.group(fmt.Sprint(g, " callers"), "rate", 1, Cell{Scenario: Cycles, N: HotN, Goroutines: g}))
	}
	return draw("throughput", fmt.Sprintf("Lock and Unlock in a second, keys of their own, N=%d", HotN), "cycles/s", groups)
}

func (s Set) hotPicture() Picture {
	const procs = 10
	limit := 0.0
	section, ok1 := s.Median(Cell{Scenario: Probe}, Probe, "section."+NoHold)
	rtt, ok2 := s.Median(Cell{Scenario: Probe}, Probe, "rtt")
	if ok1 && ok2 {
		limit = 100 / OfLimit(1, section, rtt)
	}
	var groups []group
	for _, n := range s.axis(func(c Cell) bool { return c.Scenario == Hot && c.Procs == procs && c.Hold == NoHold }, workers) {
		c := Cell{Scenario: Hot, N: HotN, Procs: procs, Workers: n, Hold: NoHold}
		one := c
		one.N = 1
		g := s.group(fmt.Sprint(n, " workers"), "rate", 1, c, one)
		if limit > 0 {
			g.rows = append(g.rows, row{"limit", limit})
		}
		groups = append(groups, g)
	}
	return draw("hot", fmt.Sprintf("One key, %d processes, N=%d or one server: hand-overs in a second", procs, HotN), "hand-overs/s", groups)
}

func (s Set) faultPicture() Picture {
	var groups []group
	for _, c := range s.cells(scenario(Faults)) {
		groups = append(groups, s.group(faultName(c), "lock-p99-us", 1e-3, c))
	}
	return draw("faults", "Lock while one or two of five masters are killed, paused or slow, 99th percentile", "ms", groups)
}
