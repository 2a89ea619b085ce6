package redlockdebug_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlockdebug"
)

var pictures = flag.String("pictures", "", "directory for pictures of the page in a browser")

// frame is a page that has the page of the handler in a width, and says what of it is cut off, and whether it has
// refreshed itself.
const frame = `<!DOCTYPE html><iframe src="/" style="width: %[1]dpx; height: 9000px; border: 0"></iframe><pre id="found">no answer</pre><script>
onload = async () => {
  const of = () => document.querySelector('iframe').contentDocument
  const cut = [...of().querySelectorAll('body, body *')].filter(e => e.getBoundingClientRect().right > %[1]d || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
  const body = of().body
  await new Promise(then => setTimeout(then, 6000))
  document.getElementById('found').textContent = 'cut: ' + cut.map(e => e.outerHTML.slice(0, 80)).join() + ' refreshed: ' + (of().body !== body)
}</script>`

// In a browser nothing of the page is cut off, on a telephone and on a desk, with few and many leases, and the page
// refreshes itself.
func TestInABrowser(outer *testing.T) {
	redistest.OnlyLong(outer)
	browser, err := exec.LookPath("chromium")
	if err != nil {
		if browser, err = exec.LookPath("google-chrome"); err != nil {
			redistest.Missing(outer, "chromium", err.Error())
		}
	}
	t := redistest.Timed(outer)
	list := locktest.Masters(t, 3)
	l, other := locktest.Open(t, redistest.Addrs(list), redlock.WithOwner("web-1 4711 shop")), locktest.Open(t, redistest.Addrs(list), redlock.WithOwner("batch-2 17 nightly"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, resource := range []string{"stock:item-17", "a-name-without-a-place-to-break-it-" + fmt.Sprintf("%0200d", 7)} {
		locktest.Lock(t, other, resource)
		go l.Lock(ctx, resource)
	}
	redistest.Eventually(t, 10*time.Second, func() bool { return l.Stats().Waiting == 2 }, "two calls wait")
	server := http.NewServeMux()
	server.Handle("/", redlockdebug.Handler(l))
	server.HandleFunc("/in/{width}", func(w http.ResponseWriter, r *http.Request) {
		var width int
		_, _ = fmt.Sscan(r.PathValue("width"), &width)
		_, _ = fmt.Fprintf(w, frame, width)
	})
	s := httptest.NewServer(server)
	defer s.Close()
	see := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), browser, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + t.TempDir()}, args...)...).Output()
		locktest.Must(t, err)
		return string(out)
	}
	held := 0
	for _, leases := range []int{0, 5, 1000} {
		for ; held < leases; held++ {
			locktest.Lock(t, l, fmt.Sprintf("stock:item-%d", 1000+held))
		}
		if leases == 1000 {
			locktest.Must(t, list[2].Kill())
			redistest.Eventually(t, 10*time.Second, func() bool { return l.Stats().Masters[2].State == redlock.MasterDown }, "a master is down")
		}
		for _, width := range []int{400, 1100} {
			page := see("--virtual-time-budget=20000", "--dump-dom", fmt.Sprintf("%s/in/%d", s.URL, width))
			if got := regexp.MustCompile(`(?s)<pre id="found">(.*?)</pre>`).FindStringSubmatch(page); got == nil || got[1] != "cut:  refreshed: true" {
				t.Errorf("%d leases in a width of %d: got %q", leases, width, got)
			}
			if *pictures != "" {
				see(fmt.Sprintf("--window-size=%d,1400", width), "--screenshot="+filepath.Join(*pictures, fmt.Sprintf("%d-%d.png", leases, width)), s.URL)
			}
		}
	}
}
