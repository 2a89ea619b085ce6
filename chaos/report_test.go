package chaos

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/d0720281/redlock/chaos/history"
	"github.com/d0720281/redlock/internal/redistest"
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
		if err := Report(file, test.page); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
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

// A browser draws the page: it shows the colours of the verdict, of faults and of holders.
func TestReportRenders(t *testing.T) {
	t.Parallel()
	redistest.NotShort(t, "browser")
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		redistest.Missing(t, "browser", "needs chromium on the PATH")
	}
	dir := t.TempDir()
	for name, page := range map[string]Page{"good": aPage(), "bad": aPage(history.Violation{Rule: "I1"})} {
		file, shot := filepath.Join(dir, name+".html"), filepath.Join(dir, name+".png")
		if err := Report(file, page); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--user-data-dir="+filepath.Join(dir, name), "--window-size=1700,1200", "--screenshot="+shot, "file://"+file)
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("%s: %v\n%s", browser, err, out)
		}
		got := coloursOf(t, shot)
		green, red := [3]uint32{0x18, 0x79, 0x4e}, [3]uint32{0xc6, 0x2a, 0x2f}
		verdict, other := green, red
		if name == "bad" {
			verdict, other = red, green
		}
		if got[verdict] < 5000 || got[other] > 0 {
			t.Errorf("%s: got %d pixels of its verdict and %d of the other, want thousands and none", name, got[verdict], got[other])
		}
		for what, colour := range map[string][3]uint32{"faults": {0xd6, 0x35, 0x3b}, "nodes without a vote": {0xf2, 0xb8, 0xa0}, "holders": {0x2b, 0x6c, 0xb0}, "lanes": {0xf2, 0xf4, 0xf2}} {
			if got[colour] < 100 {
				t.Errorf("%s: got %d pixels of %s, want more", name, got[colour], what)
			}
		}
	}
}

func coloursOf(t *testing.T, file string) map[[3]uint32]int {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var img image.Image
	if img, err = png.Decode(f); err != nil {
		t.Fatal(err)
	}
	seen := make(map[[3]uint32]int)
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, _ := img.At(x, y).RGBA()
			seen[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	return seen
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
