package chaos

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/locktest"
)

// A workload whose calls all fail is found, also one whose resources have another name.
func TestUngranted(t *testing.T) {
	h := &history.History{Done: []*history.Acquisition{{Resource: "hot", Held: true}, {Resource: "pool2~1", Held: true},
		{Resource: "long0", Held: true}, {Resource: "part1"}, {Resource: "book"}}}
	got := ungranted(h, map[string]int{"hot": 1, "rival": 1, "pool2": 1, "book": 1, "several": 1})
	if slices.Sort(got); !slices.Equal(got, []string{"book", "several"}) {
		t.Errorf("got %v, want book and several", got)
	}
}

// The documents agree on the number of kinds of faults.
func TestKindsOfFaults(t *testing.T) {
	kinds := len(Faults()) + len(ClientFaults)
	for file, sentence := range map[string]string{"../README.md": "%d kinds of faults", "../docs/failures.md": "faults of %d kinds"} {
		text, err := os.ReadFile(file)
		locktest.Must(t, err)
		if want := fmt.Sprintf(sentence, kinds); !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %q", file, want)
		}
	}
}

// Every test that the README names exists, and its table has all faults and no others.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	locktest.Must(t, err)
	exists := make(map[string]bool)
	for _, pattern := range []string{"../*_test.go", "../*/*_test.go", "../test/*/*_test.go", "../internal/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		locktest.Must(t, err)
		for _, f := range files {
			source, err := os.ReadFile(f)
			locktest.Must(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
				exists[string(m[1])] = true
			}
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(text, -1)
	if len(named) < 40 {
		t.Errorf("got %d tests named, want the table of scenarios", len(named))
	}
	for _, m := range named {
		if !exists[string(m[1])] {
			t.Errorf("the README names %s, which does not exist", m[1])
		}
	}
	if got, want := tableOfFaults(string(text)), listOfFaults(); !maps.Equal(got, want) {
		t.Errorf("the README has the faults\n%q, want\n%q", got, want)
	}
}

// tableOfFaults returns by fault what the README says: its tiers and its cost.
func tableOfFaults(text string) map[string]string {
	faults := make(map[string]string)
	_, table, _ := strings.Cut(text, "| fault | virtual |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		var tiers Tier
		for i, tier := range []Tier{Virtual, Processes, Containers} {
			if strings.TrimSpace(cells[1+i]) == "x" {
				tiers |= tier
			}
		}
		for name := range strings.SplitSeq(strings.TrimSpace(cells[0]), "; ") {
			faults[name] = fmt.Sprint(tiers, ": ", strings.TrimSpace(cells[4]))
		}
	}
	return faults
}

// listOfFaults returns the same from the code.
func listOfFaults() map[string]string {
	faults := make(map[string]string)
	for _, f := range Faults() {
		faults[f.Name] = fmt.Sprint(f.Tiers, ": ", []string{Free: "free", Vote: "vote", Loss: "loss"}[f.Cost])
	}
	for _, name := range ClientFaults {
		faults[name] = fmt.Sprint(Real, ": ")
	}
	return faults
}
