package chaos

import (
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/d0720281/redlock/chaos/history"
)

// Page has the contents of a report.
type Page struct {
	Title, Repeat string
	Nodes         int
	History       *history.History
	Found         []history.Violation
	Figures       Figures
}

//go:embed report.html
var reportHTML string

var reportPage = template.Must(template.New("report").Parse(reportHTML))

// Report writes a self-contained page: the verdict, a time line of nodes, faults, holders,
// fences and latencies, and the figures.
func Report(file string, p Page) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("chaos: report: %w", err)
	}
	if err := reportPage.Execute(f, drawing(p)); err != nil {
		_ = f.Close()
		return fmt.Errorf("chaos: report: %w", err)
	}
	return f.Close()
}

// The size of the picture, in pixels.
const (
	drawnWidth = 1600
	laneHeight = 14
	plotHeight = 120
	leftMargin = 130
)

// bar is a period in a lane.
type bar struct {
	X, W  float64
	Class string
	Title string
}

// lane is one line of the picture.
type lane struct {
	Name string
	Y    int
	Bars []bar
}

// dot is one value at one time.
type dot struct {
	X, Y  float64
	Class string
}

// plot is values over time.
type plot struct {
	Name     string
	Y        int
	Top, Low string
	Dots     []dot
}

// drawn is the data of the template.
type drawn struct {
	Page
	OK            bool
	Lanes         []lane
	Plots         []plot
	Width, Height int
	To            string
	Text          string
	Faults        []history.Fault
}

// drawing computes the positions.
func drawing(p Page) drawn {
	h := p.History
	from, to := span(h)
	scale := float64(drawnWidth-leftMargin-10) / max(1, float64(to-from))
	at := func(t time.Duration) float64 { return leftMargin + float64(t-from)*scale }
	d := drawn{Page: p, OK: len(p.Found) == 0, Width: drawnWidth, Text: p.Figures.String(), To: (to - from).Round(time.Millisecond).String()}
	y := 10
	add := func(name string, bars []bar) {
		d.Lanes = append(d.Lanes, lane{name, y, merge(bars)})
		y += laneHeight + 3
	}
	for i := range p.Nodes {
		bars := []bar{}
		for _, f := range h.Faults {
			if f.Node != i {
				continue
			}
			title := fmt.Sprintf("%s, %v to %v", f.Name, (f.At - from).Round(time.Millisecond), (f.Healed - from).Round(time.Millisecond))
			bars = append(bars, bar{at(f.At), at(f.Healed) - at(f.At), "fault", title})
			if f.Voteless > f.Healed {
				bars = append(bars, bar{at(f.Healed), at(f.Voteless) - at(f.Healed), "voteless", "without a vote after: " + f.Name})
			}
		}
		add(fmt.Sprint("node ", i), bars)
	}
	for name, bars := range clientFaults(h, at) {
		add(name, bars)
	}
	for _, resource := range drawnResources(h) {
		var bars []bar
		classes := make(map[string]string)
		for _, a := range h.Done {
			if a.Resource != resource || !a.Held || a.End() <= a.Return {
				continue
			}
			if classes[a.Client] == "" {
				classes[a.Client] = fmt.Sprint("holder", len(classes)%6)
			}
			bars = append(bars, bar{at(a.Return), at(a.End()) - at(a.Return), classes[a.Client],
				fmt.Sprintf("%s has %q with fence %d from %v to %v", a.Client, resource, a.Fence, (a.Return - from).Round(time.Millisecond), (a.End() - from).Round(time.Millisecond))})
		}
		add(resource, bars)
	}
	var fences, latencies []dot
	largest, slowest, least := int64(0), time.Duration(1), int64(1<<62)
	for _, a := range h.Done {
		if a.Held && a.Resource == "hot" {
			largest, least = max(largest, a.Fence), min(least, a.Fence)
		}
		if a.Held && !a.Waits {
			slowest = max(slowest, a.Return-a.Call)
		}
	}
	for _, a := range h.Done {
		if !a.Held {
			continue
		}
		if a.Resource == "hot" {
			share := float64(a.Fence-least) / max(1, float64(largest-least))
			fences = append(fences, dot{at(a.Return), plotHeight * (1 - share), "fence"})
		}
		if !a.Waits {
			latencies = append(latencies, dot{at(a.Return), plotHeight * (1 - float64(a.Return-a.Call)/float64(slowest)), "latency"})
		}
	}
	for _, pl := range []plot{
		{Name: "fences of hot", Top: fmt.Sprint(largest), Low: fmt.Sprint(min(least, largest)), Dots: thin(fences)},
		{Name: "TryLock took", Top: slowest.Round(10 * time.Microsecond).String(), Low: "0", Dots: thin(latencies)},
	} {
		pl.Y = y + 8
		d.Plots = append(d.Plots, pl)
		y += plotHeight + 24
	}
	d.Height = y + 10
	d.Faults = h.Faults
	return d
}

func span(h *history.History) (from, to time.Duration) {
	for i, a := range h.Done {
		if i == 0 || a.Call < from {
			from = a.Call
		}
		to = max(to, a.Return, a.Freed)
	}
	for _, f := range h.Faults {
		to = max(to, f.Voteless)
	}
	return from, to
}

// clientFaults yields the faults of clients, by client.
func clientFaults(h *history.History, at func(time.Duration) float64) func(func(string, []bar) bool) {
	lanes := make(map[string][]bar)
	var names []string
	for _, f := range h.Faults {
		if f.Node >= 0 {
			continue
		}
		if lanes[f.On] == nil {
			names = append(names, f.On)
		}
		lanes[f.On] = append(lanes[f.On], bar{at(f.At), at(f.Healed) - at(f.At), "fault", f.Name})
	}
	slices.Sort(names)
	return func(yield func(string, []bar) bool) {
		for _, n := range names {
			if !yield(n, lanes[n]) {
				return
			}
		}
	}
}

// drawnResources returns the resources that have a lane: those that are not one of many.
func drawnResources(h *history.History) (list []string) {
	for _, a := range h.Done {
		if a.Held && !strings.HasPrefix(a.Resource, "many") && !strings.HasPrefix(a.Resource, "free") && a.Permits < 10 && !slices.Contains(list, a.Resource) {
			list = append(list, a.Resource)
		}
	}
	slices.Sort(list)
	return list
}

// merge joins bars that are too small to be told apart, so that a page of a million leases
// can still be opened.
func merge(bars []bar) (list []bar) {
	slices.SortStableFunc(bars, func(a, b bar) int {
		switch {
		case a.X < b.X:
			return -1
		case a.X > b.X:
			return 1
		}
		return 0
	})
	for _, b := range bars {
		b.W = max(b.W, 0.5)
		if n := len(list); n > 0 && b.Class != "fault" && b.W < 1 && list[n-1].W < 3 && b.X-list[n-1].X-list[n-1].W < 0.5 {
			list[n-1].W = max(list[n-1].W, b.X+b.W-list[n-1].X)
			list[n-1].Title = "several"
			continue
		}
		list = append(list, b)
	}
	return list
}

// thin keeps one dot for each square of two by two pixels.
func thin(dots []dot) (list []dot) {
	seen := make(map[[2]int]bool)
	for _, d := range dots {
		place := [2]int{int(d.X / 2), int(d.Y / 2)}
		if !seen[place] {
			seen[place] = true
			list = append(list, d)
		}
	}
	return list
}
