package results

import (
	"fmt"
	"io"
	"math"
	"slices"

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
	chartHeight  = 380.0 // of a picture with lines
	rowHeight    = 19.0  // of a picture with dots
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

// axis is an axis from one pixel to another. It is logarithmic, and begins and ends at a power of ten or at
// twice or five times that; or it is linear, and begins at 0.
type axis struct{ low, high, from, to float64 }

func newAxis(low, high, from, to float64) axis {
	return axis{step(low/1.05, math.Floor), step(high*1.05, math.Ceil), from, to}
}

func linearAxis(high, from, to float64) axis { return axis{0, step(high*1.05, math.Ceil), from, to} }

func (a axis) kind() string {
	if a.low == 0 {
		return "linear"
	}
	return "logarithmic"
}

// step returns the next of 1, 2, 5, 10, 20, ... in a direction.
func step(v float64, round func(float64) float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	best := power
	for _, k := range []float64{1, 2, 5, 10} {
		if k*power <= v {
			best = k * power
		} else if round(0.5) == 1 { // up
			return k * power
		}
	}
	return best
}

func (a axis) at(v float64) float64 {
	if a.low == 0 {
		return a.from + v/a.high*(a.to-a.from)
	}
	return a.from + math.Log(v/a.low)/math.Log(a.high/a.low)*(a.to-a.from)
}

// marks returns the powers of ten on the axis; if these are few, also twice and five times them. On a linear
// axis it returns fifths.
func (a axis) marks() (marks []float64) {
	if a.low == 0 {
		for k := range 6 {
			marks = append(marks, a.high*float64(k)/5)
		}
		return marks
	}
	steps := []float64{1}
	if a.high/a.low < 100 {
		steps = []float64{1, 2, 5}
	}
	for power := math.Pow(10, math.Floor(math.Log10(a.low))); power <= a.high*1.001; power *= 10 {
		for _, k := range steps {
			if v := k * power; v >= a.low*0.999 && v <= a.high*1.001 {
				marks = append(marks, v)
			}
		}
	}
	return marks
}

// dotRow is a contender's value in one case.
type dotRow struct {
	who   string
	value float64
}

// dots draws a row for each contender in each case, with a dot at its value and the value beside it.
func dots(title, unit string, cases []string, rows [][]dotRow) *svg.Canvas {
	const labels, left, right, top = 105.0, 245.0, pictureWidth - 90, 62.0
	low, high, height := math.Inf(1), 0.0, top
	for _, its := range rows {
		for _, r := range its {
			low, high = min(low, r.value), max(high, r.value)
		}
		height += float64(len(its))*rowHeight + 12
	}
	if high == 0 {
		return nil
	}
	x := newAxis(low, high, left, right)
	if high < 10*low {
		x = linearAxis(high, left, right)
	}
	c := svg.New(pictureWidth, height+50, title)
	c.Text(20, 28, "start", svg.Ink, "bold", title)
	for _, v := range x.marks() {
		c.Line(x.at(v), top-8, x.at(v), height, svg.Grid, 1, "")
		c.Text(x.at(v), height+18, "middle", svg.Ink, "normal", number(v))
	}
	c.Text((left+right)/2, height+38, "middle", svg.Faint, "normal", unit+", "+x.kind()+" axis")
	y := top
	for i, its := range rows {
		for j, r := range its {
			at := y + rowHeight/2
			if j == 0 {
				c.Text(20, at+4, "start", svg.Ink, "bold", cases[i])
			}
			c.Text(labels, at+4, "start", colourOf(r.who), "normal", r.who)
			c.Line(left, at, x.at(r.value), at, svg.Grid, 1, "2 3")
			c.Dot(x.at(r.value), at, colourOf(r.who))
			c.Text(x.at(r.value)+9, at+4, "start", colourOf(r.who), "normal", number(r.value))
			y += rowHeight
		}
		if y += 12; i < len(rows)-1 {
			c.Line(20, y-6, right, y-6, svg.Grid, 1, "")
		}
	}
	return c
}

// dotsOf draws the dots of some cells.
func (s Set) dotsOf(title, unit string, cells []Cell, cases []string, names []string, metric string, scale float64) *svg.Canvas {
	rows := make([][]dotRow, len(cells))
	for i, c := range cells {
		for _, who := range names {
			if v, ok := s.Median(c, who, metric); ok && v > 0 {
				rows[i] = append(rows[i], dotRow{who, v * scale})
			}
		}
	}
	return dots(title, unit, cases, rows)
}

// lines draws a line for each contender over the cells of one axis, both logarithmic, with its name at
// the end; and a line for the limit, unless that is 0.
func (s Set) lines(title, below, unit string, cells []Cell, at func(Cell) int, names []string, metric string, limit float64) *svg.Canvas {
	const left, right, top, bottom = 80.0, pictureWidth - 150, 62.0, chartHeight - 60
	type series struct {
		who    string
		values [][2]float64
	}
	var all []series
	low, high := math.Inf(1), limit
	first, last := math.Inf(1), 0.0
	for _, who := range names {
		line := series{who: who}
		for _, c := range cells {
			if v, ok := s.Median(c, who, metric); ok && v > 0 {
				line.values = append(line.values, [2]float64{float64(at(c)), v})
				low, high = min(low, v), max(high, v)
				first, last = min(first, float64(at(c))), max(last, float64(at(c)))
			}
		}
		if len(line.values) > 0 {
			slices.SortFunc(line.values, func(a, b [2]float64) int { return int(a[0] - b[0]) })
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		return nil
	}
	x, y := axis{first, max(last, first*1.01), left, right}, newAxis(low, high, bottom, top)
	c := svg.New(pictureWidth, chartHeight, title)
	c.Text(20, 28, "start", svg.Ink, "bold", title)
	c.Text(20, top-16, "start", svg.Faint, "normal", unit)
	for _, v := range y.marks() {
		c.Line(left, y.at(v), right, y.at(v), svg.Grid, 1, "")
		c.Text(left-8, y.at(v)+4, "end", svg.Ink, "normal", number(v))
	}
	shown := map[int]bool{}
	for _, cell := range cells {
		if v := at(cell); !shown[v] {
			shown[v] = true
			c.Line(x.at(float64(v)), bottom, x.at(float64(v)), bottom+5, svg.Faint, 1, "")
			c.Text(x.at(float64(v)), bottom+20, "middle", svg.Ink, "normal", fmt.Sprint(v))
		}
	}
	c.Text((left+right)/2, bottom+42, "middle", svg.Faint, "normal", below+"; both axes are logarithmic")
	type label struct {
		text, colour string
		y            float64
	}
	var ends []label
	if limit > 0 {
		c.Line(left, y.at(limit), right, y.at(limit), svg.Faint, 1.5, "5 4")
		ends = append(ends, label{"limit", svg.Faint, y.at(limit)})
	}
	for _, line := range all {
		var points [][2]float64
		for _, v := range line.values {
			points = append(points, [2]float64{x.at(v[0]), y.at(v[1])})
			c.Dot(x.at(v[0]), y.at(v[1]), colourOf(line.who))
		}
		c.Path(points, colourOf(line.who))
		ends = append(ends, label{line.who, colourOf(line.who), points[len(points)-1][1]})
	}
	slices.SortStableFunc(ends, func(a, b label) int { return int(a.y - b.y) })
	const apart = 15.0
	for i := range ends { // down, and then up where there is no room below
		if i > 0 {
			ends[i].y = max(ends[i].y, ends[i-1].y+apart)
		}
	}
	for i := len(ends) - 1; i >= 0; i-- {
		if ends[i].y = min(ends[i].y, bottom); i < len(ends)-1 {
			ends[i].y = min(ends[i].y, ends[i+1].y-apart)
		}
	}
	for _, e := range ends {
		c.Text(right+10, e.y+4, "start", e.colour, "normal", e.text)
	}
	return c
}

func (s Set) latencyPicture() Picture {
	alone := func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines == 1 && c.N > 0 }
	var cells []Cell
	var cases []string
	for _, n := range s.axis(alone, masters) {
		cells = append(cells, Cell{Scenario: Cycles, N: n, Goroutines: 1})
		cases = append(cases, fmt.Sprintf("N=%d", n))
	}
	return Picture{"latency", s.dotsOf("Lock and Unlock of a free key, one goroutine, median", "µs", cells, cases, s.who(alone), "p50", 1)}
}

func (s Set) throughputPicture() Picture {
	many := func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines > 1 && c.N == HotN }
	var cells []Cell
	for _, g := range s.axis(many, goroutines) {
		cells = append(cells, Cell{Scenario: Cycles, N: HotN, Goroutines: g})
	}
	return Picture{"throughput", s.lines(fmt.Sprintf("Lock and Unlock in a second, keys of their own, N=%d", HotN), "goroutines", "cycles/s", cells, goroutines, s.who(many), "rate", 0)}
}

func (s Set) hotPicture() Picture {
	wide := func(c Cell) bool { return c.Scenario == Hot && c.Procs == 10 && c.Hold == NoHold && c.N != 3 }
	var cells []Cell // of the quorum locks, and of the locks with one server
	for _, n := range s.axis(wide, masters) {
		for _, w := range s.axis(wide, workers) {
			cells = append(cells, Cell{Scenario: Hot, N: n, Procs: 10, Workers: w, Hold: NoHold})
		}
	}
	slices.SortStableFunc(cells, func(a, b Cell) int { return a.Workers - b.Workers })
	probe, limit := Cell{Scenario: Probe}, 0.0
	section, ok1 := s.Median(probe, Probe, "section."+NoHold)
	rtt, ok2 := s.Median(probe, Probe, "rtt")
	if ok1 && ok2 {
		limit = 100 / OfLimit(1, section, rtt)
	}
	return Picture{"hot", s.lines(fmt.Sprintf("One key, 10 processes, N=%d or one server: hand-overs in a second", HotN), "workers", "hand-overs/s", cells, workers, s.who(wide), "rate", limit)}
}

func (s Set) faultPicture() Picture {
	in := scenario(Faults)
	var cells []Cell
	var cases []string
	for _, r := range s.Records {
		if in(r.Cell) && r.LeftOut == "" && !slices.Contains(cells, r.Cell) {
			cells, cases = append(cells, r.Cell), append(cases, r.Cell.Fault)
		}
	}
	return Picture{"faults", s.dotsOf("Lock while one or two of five masters are killed, paused or slow, 99th percentile", "ms", cells, cases, s.who(in), Quantile("lock", "99"), 1e-3)}
}
