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
	"time"

	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/locktest"
)

// aPage returns a page with an example of everything.
func aPage(found ...history.Violation) Page {
	h := new(history.History)
	for i := range 400 {
		op, at := uint64(i+1), time.Duration(i+1)*10*time.Millisecond
		client := fmt.Sprint("client ", i%3)
		h.Add(history.Record{Kind: history.Called, Client: client, Op: op, Resource: []string{"hot", "line", "many1"}[i%3], At: at})
		h.Add(history.Record{Kind: history.Granted, Client: client, Op: op, At: at + time.Millisecond, Fence: int64(i + 1)})
		h.Add(history.Record{Kind: history.Seen, Client: client, Op: op, At: at + time.Millisecond, Until: at + time.Second})
		h.Add(history.Record{Kind: history.Ended, Client: client, Op: op, At: at + 9*time.Millisecond})
		h.Add(history.Record{Kind: history.Freed, Client: client, Op: op, At: at + 9*time.Millisecond})
	}
	h.Faults = []history.Fault{
		{Name: "SIGSTOP <b>", On: "node 1", Node: 1, At: time.Second, Healed: 2 * time.Second, Voteless: 3 * time.Second},
		{Name: clientStopped, On: "client 1", Node: -1, At: time.Second, Healed: 2 * time.Second},
	}
	return Page{Title: "a page", Repeat: "go test", Nodes: 5, History: h, Found: found, Figures: Measure(h)}
}

func TestReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	for _, test := range []struct {
		page         Page
		want, absent string
	}{
		{aPage(), "No violation", "I1 at"},
		{aPage(history.Violation{Rule: "I1", At: time.Second, Resource: "hot", Text: "two holders"}), "I1 at 1s, &#34;hot&#34;: two holders", "No violation"},
	} {
		locktest.Must(t, Report(file, test.page))
		text, err := os.ReadFile(file)
		locktest.Must(t, err)
		page := string(text)
		if !strings.Contains(page, test.want) || strings.Contains(page, test.absent) {
			t.Errorf("got a page without %q, or with %q", test.want, test.absent)
		}
		for _, outside := range []string{"http:", "https:", "src=", "SIGSTOP <b>"} {
			if strings.Contains(page, outside) {
				t.Errorf("got %q in the page, want it to need nothing else", outside)
			}
		}
		for _, part := range []string{"node 4", `class="holder0"`, "SIGSTOP &lt;b&gt;", "class=\"latency\""} {
			if !strings.Contains(page, part) {
				t.Errorf("got a page without %q", part)
			}
		}
	}
}

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
	for _, pattern := range []string{"../*_test.go", "../*/*_test.go", "../test/*/*_test.go"} {
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
