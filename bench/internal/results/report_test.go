package results

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/internal/svg"
)

// sample returns two repetitions with results for each part.
func sample() Set {
	s := Set{Config: map[string]string{"cpu": "a processor", "cores": "2", "reps": "2", "github.com/redis/rueidis": "v1"}}
	for rep := 1; rep <= 2; rep++ {
		for i, who := range []string{Ours, Redsync, Floor} {
			v := float64(100 * (i + 1))
			for _, g := range []int{1, 16, 256} {
				s.Records = append(s.Records, Record{rep, who, fmt.Sprintf("Cycle/N=5/g=%d", g), map[string]float64{
					"p50-us": v, "p99-us": 2 * v, "cycles/s": 1e6 / v, "client-cpu-us/op": v, "commands/op": 2, "busy-us/op": 3, "script-us/op": 2}})
			}
			s.Records = append(s.Records, Record{rep, who, "Faults/killed=1/g=1", map[string]float64{
				"lock-p50-us": v, "lock-p99-us": v, "healthy-lock-p99-us": v, "cycles": 10}})
			if who == Floor {
				continue
			}
			s.Records = append(s.Records, Record{rep, who, "Hot/hold=0/procs=10/workers=50", map[string]float64{
				"hand-overs/s": 1e4 / v, "wait-p50-us": v, "wait-max-us": v, "jain": 1, "across-p50-us": v, "overlaps": 0, "falls": 0,
				"rtt-us": 50, "section-us": 60}})
		}
	}
	return s
}

func TestReport(t *testing.T) {
	text := sample().Markdown("pictures")
	for _, want := range []string{
		"Repetitions: 2", "| processor | a processor, 2 cores", "| github.com/redis/rueidis | v1 |",
		"In each of 4 contested runs", "Left out: `floor`: it does not wait", "![What Lock takes while masters are killed, paused or slow](pictures/faults.svg)",
		"| N=5 | `ours` | 100 µs | 200 µs |", "| 1 killed | `redsync` | 200 µs |", "| 50 | `ours` | 100 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"VIOLATION", "What failed", "## Stock"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%q in a report without it", unwanted)
		}
	}
	if text := sample().Markdown(""); strings.Contains(text, ".svg") {
		t.Error("a picture in a report that is to have none")
	}
}

func TestViolationsAreLoud(t *testing.T) {
	s := sample()
	const cell = "Hot/hold=0/procs=3/workers=9"
	s.Records = append(s.Records,
		Record{Rep: 2, Who: Redsync, Cell: cell, Values: map[string]float64{"overlaps": 2, "falls": 0}},
		Record{Rep: 2, Who: Ours, Cell: cell, Values: map[string]float64{"overlaps": 0, "falls": 1}})
	s.Failures = []string{cell + "/who=mutex"}
	text := s.Markdown("")
	for _, want := range []string{
		"- **VIOLATION** `redsync`: 2 times two holders at once (Hot/hold=0/procs=3/workers=9)",
		"- **VIOLATION** `ours`: 1 times a fencing token that did not rise",
		"## What failed\n\n- Hot/hold=0/procs=3/workers=9/who=mutex\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(text, "no two at a time") {
		t.Error("and it says that there are none")
	}
}

// A median does not hide the failures of one repetition of five.
func TestFailuresOfOneRepetitionShow(t *testing.T) {
	var s Set
	for rep := 1; rep <= 5; rep++ {
		lost := 0.0
		if rep == 3 {
			lost = 1234
		}
		s.Records = append(s.Records, rec(rep, Ours, stock, "failed", lost), rec(rep, Ours, leases, "lost", lost))
	}
	if text := s.Markdown(""); !strings.Contains(text, "| 1,234 |") {
		t.Errorf("no 1,234 failed in\n%s", text)
	}
	if got := find(t, s, "lost, in the worst repetition").Verdict(); got != "**missed**" {
		t.Errorf("got %s, want missed", got)
	}
}

// The later order of the contenders does not show.
func TestLayoutIsTheSame(t *testing.T) {
	s := sample()
	want := s.Markdown("pictures")
	half := len(s.Records) / 2
	later := s.Records[half:]
	rand.Shuffle(len(later), func(i, j int) { later[i], later[j] = later[j], later[i] })
	if got := s.Markdown("pictures"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPictures(t *testing.T) {
	draw := func() (names []string, drawn map[string]string) {
		drawn = map[string]string{}
		for _, p := range sample().Pictures() {
			var text bytes.Buffer
			if _, err := p.WriteTo(&text); err != nil {
				t.Fatal(err)
			}
			names, drawn[p.Name] = append(names, p.Name), text.String()
		}
		return names, drawn
	}
	names, first := draw()
	_, second := draw()
	if want := []string{"faults", "hot", "throughput", "latency"}; !slices.Equal(names, want) {
		t.Errorf("got pictures %q, want %q", names, want)
	}
	for _, name := range names {
		text := first[name]
		if !strings.Contains(text, ">redsync</text>") || !strings.Contains(text, colourOf("ours")) {
			t.Errorf("%s: no redsync, or nothing in our colour", name)
		}
		if !strings.Contains(text, `fill="`+svg.Paper+`"`) {
			t.Errorf("%s has no background", name)
		}
		if second[name] != text {
			t.Errorf("%s: another picture of the same figures", name)
		}
	}
	if list := (Set{}).Pictures(); len(list) != 0 {
		t.Errorf("got %d pictures of nothing, want none", len(list))
	}
}

// An axis begins and ends at round values around the data.
func TestAxis(t *testing.T) {
	for _, test := range []struct{ low, high, from, to float64 }{
		{0.229, 5030, 0.2, 10000}, {166, 474, 100, 500}, {1.04, 1.9, 0.5, 2}, {3500, 73400, 2000, 100000}, {10, 10, 5, 20},
	} {
		a := newAxis(test.low, test.high, 0, 100)
		low, high := a.steps[0], a.steps[len(a.steps)-1]
		if math.Abs(low/test.from-1) > 1e-9 || math.Abs(high/test.to-1) > 1e-9 {
			t.Errorf("%v to %v: got an axis from %v to %v, want %v to %v", test.low, test.high, low, high, test.from, test.to)
		}
		if marks := a.marks(); len(marks) < 2 || len(marks) > 8 {
			t.Errorf("%v to %v: got marks %v, want some", test.low, test.high, marks)
		}
		if a.at(low) != 0 || math.Abs(a.at(high)-100) > 1e-9 || a.at(test.low) < 0 || a.at(test.high) > 100 {
			t.Errorf("%v to %v: got them at %v and %v", test.low, test.high, a.at(test.low), a.at(test.high))
		}
	}
}

// Text of each colour can be read on the background of the pictures.
func TestColours(t *testing.T) {
	of := func(colour string) float64 {
		var r, g, b uint8
		if _, err := fmt.Sscanf(colour, "#%02x%02x%02x", &r, &g, &b); err != nil {
			t.Fatalf("%s: %v", colour, err)
		}
		return luminance(r, g, b)
	}
	names, colours := []string{}, []string{svg.Ink, svg.Faint}
	for _, c := range palette {
		names, colours = append(names, c.who), append(colours, c.colour)
	}
	for _, c := range colours {
		if got := contrast(of(c), of(svg.Paper)); got < 4.5 {
			t.Errorf("%s: got a contrast of %.1f with the background, want 4.5", c, got)
		}
	}
	if contrast(of("#d0d0d0"), of(svg.Paper)) >= 4.5 {
		t.Error("a light grey passes for readable")
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(palette) {
		t.Error("a contender has two colours")
	}
}
