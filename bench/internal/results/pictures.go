package results

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Pictures have no background and only colours of a middle tone, so that they are readable on
// a white page and on a dark one.
var (
	ink     = color.RGBA{R: 0x80, G: 0x80, B: 0x80, A: 0xff} // text and axes
	palette = []struct {
		who string
		color.RGBA
	}{
		{"ours", color.RGBA{R: 0x3b, G: 0x82, B: 0xc4, A: 0xff}},
		{"ours-unguarded", color.RGBA{R: 0x4a, G: 0x96, B: 0x9e, A: 0xff}},
		{"redsync", color.RGBA{R: 0xc9, G: 0x50, B: 0x4b, A: 0xff}},
		{"redsync-failfast", color.RGBA{R: 0xc8, G: 0x74, B: 0x1f, A: 0xff}},
		{"redislock", color.RGBA{R: 0x8f, G: 0x6b, B: 0xc9, A: 0xff}},
		{"rueidislock", color.RGBA{R: 0xb8, G: 0x5f, B: 0x9f, A: 0xff}},
		{"floor", color.RGBA{R: 0x4f, G: 0x94, B: 0x4a, A: 0xff}},
		{"mutex", color.RGBA{R: 0x8a, G: 0x84, B: 0x3a, A: 0xff}},
	}
)

const (
	pictureWidth  = 8 * vg.Inch
	pictureHeight = 3.6 * vg.Inch
)

// Picture is a named picture.
type Picture struct {
	Name string
	plot *plot.Plot
}

// Write writes the picture as SVG. Browsers without the font use a similar one.
func (p Picture) Write(w io.Writer) error {
	const margin = vg.Length(6)
	var drawn bytes.Buffer
	canvas, err := draw.NewFormattedCanvas(pictureWidth, pictureHeight, "svg")
	if err == nil {
		p.plot.Draw(draw.Crop(draw.New(canvas), margin, -margin, margin, -margin))
		_, err = canvas.WriteTo(&drawn)
	}
	if err == nil {
		_, err = w.Write(bytes.ReplaceAll(drawn.Bytes(), []byte("font-family:Liberation Sans;"),
			[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	}
	if err != nil {
		return fmt.Errorf("results: picture %s: %w", p.Name, err)
	}
	return nil
}

// Pictures returns the pictures for which there are values.
func (s Set) Pictures() ([]Picture, error) {
	var list []Picture
	for _, make := range []func() (Picture, error){s.latencyPicture, s.throughputPicture, s.hotPicture, s.faultPicture} {
		p, err := make()
		if err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		if p.plot != nil {
			list = append(list, p)
		}
	}
	return list, nil
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	styles := []*text.Style{&p.Title.TextStyle, &p.Legend.TextStyle}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = ink, ink
		styles = append(styles, &a.Label.TextStyle, &a.Tick.Label)
	}
	for _, style := range styles {
		style.Color, style.Font.Variant = ink, "Sans"
	}
	return p
}

// colorOf returns the colour of a contender, the same in all pictures.
func colorOf(who string) color.Color {
	for _, c := range palette {
		if c.who == who {
			return c.RGBA
		}
	}
	return ink
}

// bars draws a group for each cell, with a bar for each contender, on a logarithmic scale
// that begins at floor.
func (s Set) bars(p *plot.Plot, cells []Cell, names []string, metric string, scale, floor float64) (some bool, err error) {
	names = slices.DeleteFunc(names, func(who string) bool {
		return !slices.ContainsFunc(cells, func(c Cell) bool { return len(s.Values(c, who, metric)) > 0 })
	})
	if len(names) == 0 {
		return false, nil
	}
	width := vg.Points(min(14, 400/float64(len(cells)*len(names))))
	top := floor * 10
	for i, who := range names {
		values := make(plotter.Values, len(cells))
		for j, c := range cells {
			v, ok := s.Median(c, who, metric)
			values[j] = floor // invisible
			if ok {
				values[j] = max(floor, v*scale)
				top = max(top, values[j]*1.5)
			}
		}
		bar, err := plotter.NewBarChart(values, width)
		if err != nil {
			return false, err
		}
		bar.Color, bar.LineStyle.Width = colorOf(who), 0
		bar.Offset = width * vg.Length(float64(i)-float64(len(names)-1)/2)
		p.Add(bar)
		p.Legend.Add(who, bar)
	}
	logarithmic(p, floor, top)
	p.X.Max += 1.2 // room for the legend
	return true, nil
}

func logarithmic(p *plot.Plot, low, high float64) {
	p.Y.Scale, p.Y.Tick.Marker = logScale{}, decades{}
	p.Y.Min, p.Y.Max = low, high
}

// logScale maps values below the axis, such as the feet of bars, to its end.
type logScale struct{}

// Normalize implements [plot.Normalizer].
func (logScale) Normalize(low, high, v float64) float64 {
	return math.Log(max(v, low)/low) / math.Log(high/low)
}

// decades labels the powers of ten, and marks the steps between them.
type decades struct{}

// Ticks implements [plot.Ticker].
func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for i := 1.0; i < 10; i++ {
			if v := i * power; v >= low && v <= high {
				label := ""
				if i == 1 {
					label = number(v)
				}
				ticks = append(ticks, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return ticks
}

// lines draws a line for each contender over the cells of one axis, both logarithmic, and a
// line for the limit, unless that is 0.
func (s Set) lines(p *plot.Plot, cells []Cell, at func(Cell) int, names []string, metric string, limit float64) (some bool, err error) {
	low, high := math.Inf(1), limit
	var marks []plot.Tick
	for _, who := range names {
		var points plotter.XYs
		for _, c := range cells {
			if v, ok := s.Median(c, who, metric); ok && v > 0 {
				points = append(points, plotter.XY{X: float64(at(c)), Y: v})
				low, high = min(low, v), max(high, v)
			}
		}
		if len(points) == 0 {
			continue
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return false, err
		}
		line.Color, line.Width = colorOf(who), vg.Points(2)
		dots.Color, dots.Shape, dots.Radius = colorOf(who), draw.CircleGlyph{}, vg.Points(3)
		p.Add(line, dots)
		p.Legend.Add(who, line, dots)
		some = true
	}
	if !some {
		return false, nil
	}
	for _, c := range cells {
		x := float64(at(c))
		marks = append(marks, plot.Tick{Value: x, Label: number(x)})
	}
	logarithmic(p, low/2, high*2)
	p.X.Scale, p.X.Tick.Marker = logScale{}, plot.ConstantTicks(marks)
	first, last := float64(at(cells[0])), float64(at(cells[len(cells)-1]))
	p.X.Min, p.X.Max = first/1.2, last*2.2 // room for the legend
	if limit > 0 {
		line, err := plotter.NewLine(plotter.XYs{{X: p.X.Min, Y: limit}, {X: last * 1.2, Y: limit}})
		if err != nil {
			return false, err
		}
		line.Color, line.Width, line.Dashes = ink, vg.Points(1), []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(line)
		p.Legend.Add("limit", line)
	}
	return true, nil
}

func (s Set) latencyPicture() (Picture, error) {
	alone := func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines == 1 && c.N > 0 }
	var cells []Cell
	var names []string
	for _, n := range s.axis(alone, masters) {
		cells = append(cells, Cell{Scenario: Cycles, N: n, Goroutines: 1})
		names = append(names, fmt.Sprintf("N=%d", n))
	}
	if len(cells) == 0 {
		return Picture{}, nil
	}
	p := newPlot("Lock and Unlock of a free key, one goroutine, median", "", "µs")
	p.NominalX(names...)
	some, err := s.bars(p, cells, s.who(alone), "p50", 1, 10)
	return shown("latency", p, some), err
}

func (s Set) throughputPicture() (Picture, error) {
	many := func(c Cell) bool { return c.Scenario == Cycles && c.Goroutines > 1 && c.N == HotN }
	var cells []Cell
	for _, g := range s.axis(many, goroutines) {
		cells = append(cells, Cell{Scenario: Cycles, N: HotN, Goroutines: g})
	}
	if len(cells) == 0 {
		return Picture{}, nil
	}
	p := newPlot(fmt.Sprintf("Keys of their own, N=%d", HotN), "goroutines", "cycles/s")
	some, err := s.lines(p, cells, goroutines, s.who(many), "rate", 0)
	return shown("throughput", p, some), err
}

func (s Set) hotPicture() (Picture, error) {
	wide := func(c Cell) bool { return c.Scenario == Hot && c.Procs == 10 && c.Hold == NoHold && c.N != 3 }
	var cells []Cell // of the quorum locks, and of the locks with one server
	for _, n := range s.axis(wide, masters) {
		for _, w := range s.axis(wide, workers) {
			cells = append(cells, Cell{Scenario: Hot, N: n, Procs: 10, Workers: w, Hold: NoHold})
		}
	}
	if len(cells) == 0 {
		return Picture{}, nil
	}
	slices.SortStableFunc(cells, func(a, b Cell) int { return a.Workers - b.Workers })
	p := newPlot(fmt.Sprintf("One key, 10 processes, N=%d or one server", HotN), "workers", "hand-overs/s")
	probe, limit := Cell{Scenario: Probe}, 0.0
	section, ok1 := s.Median(probe, Probe, "section."+NoHold)
	rtt, ok2 := s.Median(probe, Probe, "rtt")
	if ok1 && ok2 {
		limit = 100 / OfLimit(1, section, rtt)
	}
	some, err := s.lines(p, cells, workers, s.who(wide), "rate", limit)
	return shown("hot", p, some), err
}

func (s Set) faultPicture() (Picture, error) {
	in := scenario(Faults)
	var cells []Cell
	var names []string
	for _, r := range s.Records {
		if in(r.Cell) && r.LeftOut == "" && !slices.Contains(cells, r.Cell) {
			cells, names = append(cells, r.Cell), append(names, r.Cell.Fault)
		}
	}
	if len(cells) == 0 {
		return Picture{}, nil
	}
	p := newPlot("Lock with one or two of five masters at fault, 99th percentile", "", "ms")
	p.NominalX(names...)
	some, err := s.bars(p, cells, s.who(in), Quantile("lock", "99"), 1e-3, 0.1)
	return shown("faults", p, some), err
}

func shown(name string, p *plot.Plot, some bool) Picture {
	if !some {
		return Picture{}
	}
	return Picture{name, p}
}
