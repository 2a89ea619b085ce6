package results

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// sample returns two repetitions with records for each part.
func sample() Set {
	s := Set{Machine: Machine{CPU: "a processor", Cores: 2, Redis: "7", Modules: []Module{{"example.com/m", "v1"}}}, Reps: 2}
	for rep := 1; rep <= 2; rep++ {
		for i, who := range []string{Ours, Redsync, Floor} {
			v := float64(100 * (i + 1))
			for _, g := range []int{1, 16, 256} {
				s.Records = append(s.Records, Record{Rep: rep, Who: who, Cell: Cell{Scenario: Cycles, N: HotN, Goroutines: g},
					Values: map[string]float64{"p50": v, "p99": 2 * v, "rate": 1e6 / v, "cpu": v, "commands": 2, "busy": 3, "script": 2}})
			}
			s.Records = append(s.Records, Record{Rep: rep, Who: who, Cell: Cell{Scenario: Faults, N: 5, Goroutines: 1, Fault: "1 killed"},
				Values: map[string]float64{"lock.p50": v, "lock.p99": v, "healthy.lock.p99": v, "done": 10}})
			c := Cell{Scenario: Hot, N: HotN, Procs: 10, Workers: 50, Hold: NoHold}
			if who == Floor {
				s.Records = append(s.Records, Record{Rep: rep, Who: who, Cell: c, LeftOut: "it does not wait"})
				continue
			}
			s.Records = append(s.Records, Record{Rep: rep, Who: who, Cell: c, Values: map[string]float64{
				"rate": 1e4 / v, "wait.p50": v, "wait.max": v, "jain": 1, "across.p50": v, "overlaps": 0, "falls": 0}})
		}
		s.Records = append(s.Records, Record{Rep: rep, Who: Probe, Cell: Cell{Scenario: Probe},
			Values: map[string]float64{"rtt": 50, "section.0": 60, "section.1ms": 1100}})
	}
	return s
}

func TestReport(t *testing.T) {
	text := sample().Markdown("pictures")
	for _, want := range []string{
		"Repetitions: 2", "| processor | a processor, 2 cores", "| example.com/m | v1 |",
		"In each of 4 contested runs", "Left out: `floor`: it does not wait.", "![What Lock takes under a fault](pictures/faults.svg)",
		"| `ours` | 100 µs | 200 µs |", "| 1 killed | `redsync` | 200 µs |", "| 50 | `ours` | 100 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"VIOLATION", "could not be measured", "## Stock", "## Leases"} {
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
	cell := Cell{Scenario: Hot, N: 5, Procs: 3, Workers: 9, Hold: NoHold}
	s.Records = append(s.Records,
		Record{Rep: 2, Who: Redsync, Cell: cell, Values: map[string]float64{"overlaps": 2, "falls": 0}},
		Record{Rep: 2, Who: Ours, Cell: cell, Values: map[string]float64{"overlaps": 0, "falls": 1}},
		Record{Rep: 2, Who: Mutex, Cell: cell, Error: "worker process died"})
	text := s.Markdown("")
	for _, want := range []string{
		"- **VIOLATION** `redsync`: 2 times two holders at once (hot, N=5, 9 workers in 3 processes, hold 0)",
		"- **VIOLATION** `ours`: 1 times a fencing token that did not rise",
		"- `mutex`, repetition 2 (hot, N=5, 9 workers in 3 processes, hold 0): worker process died",
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
	cell := Cell{Scenario: Leases, N: HotN}
	var s Set
	for rep := 1; rep <= 5; rep++ {
		lost := 0.0
		if rep == 3 {
			lost = 1234
		}
		s.Records = append(s.Records, Record{Rep: rep, Who: Ours, Cell: cell, Values: map[string]float64{"leases": 10000, "lost": lost}})
	}
	if text := s.Markdown(""); !strings.Contains(text, "| 10,000 |") || !strings.Contains(text, "| 1,234 |") {
		t.Errorf("no 1,234 lost of 10,000 in\n%s", text)
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
	draw := func() map[string]string {
		list, err := sample().Pictures()
		if err != nil {
			t.Fatal(err)
		}
		drawn := map[string]string{}
		for _, p := range list {
			var svg bytes.Buffer
			if err := p.Write(&svg); err != nil {
				t.Fatal(err)
			}
			drawn[p.Name] = svg.String()
		}
		return drawn
	}
	first, second := draw(), draw()
	for _, name := range []string{"latency", "throughput", "hot", "faults"} {
		svg := first[name]
		if !strings.Contains(svg, "redsync") || !strings.Contains(svg, "#3b82c4") && !strings.Contains(strings.ToLower(svg), "3b82c4") {
			t.Errorf("%s: no redsync, or nothing in our colour", name)
		}
		if strings.Contains(strings.ToLower(svg), "fill:#ffffff") {
			t.Errorf("%s has something white in it, which would be a background", name)
		}
		if second[name] != svg {
			t.Errorf("%s: another picture of the same figures", name)
		}
	}
	if list, err := (Set{}).Pictures(); err != nil || len(list) != 0 {
		t.Errorf("got %d pictures of nothing, %v, want none", len(list), err)
	}
}

func TestColoursOnWhiteAndOnDark(t *testing.T) {
	white, dark := luminance(0xff, 0xff, 0xff), luminance(0x0d, 0x11, 0x17)
	readable := func(r, g, b uint8) bool {
		l := luminance(r, g, b)
		return contrast(l, white) >= 3 && contrast(l, dark) >= 3
	}
	for _, c := range palette {
		if !readable(c.R, c.G, c.B) {
			t.Errorf("%s cannot be told from a white or a dark page", c.who)
		}
	}
	if !readable(ink.R, ink.G, ink.B) {
		t.Error("text cannot be read")
	}
	for _, no := range [][3]uint8{{0xff, 0xff, 0}, {0, 0, 0x80}, {0xd0, 0xd0, 0xd0}, {0x30, 0x30, 0x30}} {
		if readable(no[0], no[1], no[2]) {
			t.Errorf("%x passes for readable", no)
		}
	}
	names := []string{}
	for _, c := range palette {
		names = append(names, c.who)
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(palette) {
		t.Error("a contender has two colours")
	}
}
