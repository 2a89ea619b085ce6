package chaos

import (
	"fmt"
	"os"
	"path/filepath"
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
