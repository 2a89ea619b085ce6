package docs_test

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/redlocktest"
)

// Every block of Go in the README and in docs/ compiles and passes go vet. Blocks of one page with
// declarations at the top level are one package; a block with a package clause is a program of its
// own. A block without declarations is the inside of a function: it imports the packages whose names
// it uses (see pageImports), and may use what pageSetting declares. Blocks that are also in the tests
// of integrations/ compile there, with their schedulers.
func TestPagesCompile(t *testing.T) {
	redistest.TakesSeconds(t)
	sources := make(map[string]string)
	for page, text := range pages(t) {
		maps.Copy(sources, compilable(t, page, text))
	}
	if len(sources) < 4 {
		t.Errorf("got %d packages: does this test still look in the right places?", len(sources))
	}
	if out := vet(t, sources); out != "" {
		t.Errorf("got this about the blocks of Go, want nothing:\n%s", out)
	}
}

// Control: pages with blocks that do not compile.
func TestBrokenPages(t *testing.T) {
	redistest.TakesSeconds(t)
	for _, test := range []struct{ name, block, want string }{
		{"an option that does not exist", "locker, err := redlock.New(masters, redlock.WithQuorum(1))\n_, _ = locker, err\n", "undefined: redlock.WithQuorum"},
		{"no Go", "lease := \n", "expected operand"},
		{"a program", "package main\n\nfunc main() { x }\n", "undefined: x"},
		{"what vet finds", "log.Printf(\"%d\", \"a\")\n", "has arg \"a\" of wrong type"},
		{"an adapter that is not as it is compiled", "type gocronLocker struct{ *jobs.Locker }\n\nvar _ gocron.Locker = gocronLocker{}\n", "undefined: gocron"},
		{"nothing", "log.Print(locker, lease, ctx)\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := vet(t, compilable(t, "x.md", "# X\n```go\n"+test.block+"```\n"))
			if test.want == "" && out != "" || !strings.Contains(out, test.want) {
				t.Errorf("got %q, want %q", out, test.want)
			}
		})
	}
}

// pages returns the text of the README and of the pages in docs/, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("docs/*.md")
	locktest.Must(t, err)
	if len(paths) < 3 {
		t.Errorf("got %d pages in docs, want all of them", len(paths))
	}
	texts := make(map[string]string)
	for _, path := range append(paths, "README.md") {
		text, err := os.ReadFile(path)
		locktest.Must(t, err)
		texts[path] = string(text)
	}
	return texts
}

// The tests that pages name, and the targets of their links, exist.
func TestPagesNameWhatExists(t *testing.T) {
	tests := declaredTests(t)
	for page, text := range pages(t) {
		for _, problem := range strangers(page, text, tests) {
			t.Errorf("%s names %s, which does not exist", page, problem)
		}
	}
	for page := range pages(t) {
		if name, inDocs := strings.CutPrefix(page, "docs/"); inDocs && name != "README.md" && !strings.Contains(textOf(t, "docs/README.md"), "]("+name+")") {
			t.Errorf("docs/README.md lacks %s", name)
		}
	}
	for _, unknown := range []string{"`TestNothing`", "[x](nowhere.md)", "[x](#nowhere)", "[x](docs/fencing.md#nowhere)"} {
		if len(strangers("README.md", "# X\n"+unknown, tests)) != 1 {
			t.Errorf("got no complaint about %s", unknown)
		}
	}
}

// Users read of masters. The word node, for insiders, is in their texts only where the node is one of a
// Redis Cluster.
func TestPagesSayMaster(t *testing.T) {
	redistest.TakesSeconds(t)
	texts := pages(t)
	for _, dir := range publicPackages {
		cmd := exec.Command("go", "doc", "-all", ".")
		cmd.Dir = dir
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("go doc of %s: %v", dir, err)
		}
		texts["the documentation of package "+dir] = string(text)
	}
	for name, text := range texts {
		for _, node := range nodes(text) {
			t.Errorf("%s: got %q, want a master", name, node)
		}
	}
	for _, text := range []string{"the node of 3", "node\ntimeout", "WithNodeTimeout(d)", "redlock_node_up", "type NodeErrors []error", "--node-timeout"} {
		if len(nodes(text)) != 1 {
			t.Errorf("got no complaint about %q", text)
		}
	}
}

// nodes returns where a text speaks of nodes that are not those of a Redis Cluster.
func nodes(text string) (found []string) {
	insider := regexp.MustCompile(`= Level\(node\.\w+\)|= node\.\w+|#2-state-on-a-node|cluster_node|reason.ClusterNode|ErrNodeTaken|CacheNodes.NodeReplacement|node-based`) // the last are those of redsync and ElastiCache
	clusters := regexp.MustCompile(`(?i)nodes? of (a|one) (redis )?cluster`)
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "\t//", " ")), " ")
	text = clusters.ReplaceAllString(insider.ReplaceAllString(text, ""), "")
	return regexp.MustCompile(`(?i)(\S+ )?\S*node\S*( \S+)?`).FindAllString(text, -1)
}

// strangers returns the names and links of a page that lead nowhere.
func strangers(page, text string, tests map[string]bool) (unknown []string) {
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1) {
		if !tests[m[1]] {
			unknown = append(unknown, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([^):]*)\)`).FindAllStringSubmatch(text, -1) {
		path, anchor, _ := strings.Cut(m[1], "#")
		target := text
		if path != "" {
			full := filepath.Join(filepath.Dir(page), path)
			if info, err := os.Stat(full); err != nil {
				unknown = append(unknown, m[1])
				continue
			} else if info.IsDir() {
				continue
			}
			data, err := os.ReadFile(full)
			if err != nil {
				unknown = append(unknown, err.Error())
			}
			target = string(data)
		}
		if anchor != "" && !slices.Contains(anchors(target), anchor) {
			unknown = append(unknown, m[1])
		}
	}
	return unknown
}

// The functions in the picture of a vote's way are in the files that it gives.
func TestVotePicture(t *testing.T) {
	found := regexp.MustCompile(`>([\w/]+\.(?:go|lua))(?: (\w+))?<`).FindAllStringSubmatch(textOf(t, "docs/pictures/vote.svg"), -1)
	if len(found) < 10 {
		t.Fatalf("got %d files, want more: does this test still look in the right places?", len(found))
	}
	for _, m := range found {
		if code := textOf(t, m[1]); m[2] != "" && !regexp.MustCompile(`(?m)^(func (\(.*?\) )?|type )`+m[2]+`\b`).MatchString(code) {
			t.Errorf("%s has no %s", m[1], m[2])
		}
	}
}

// The sections of ALGORITHM.md that comments give as their source exist, and have the phrases that are quoted.
func TestSources(t *testing.T) {
	sections := sectionsOf(textOf(t, "ALGORITHM.md"))
	found := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{".go", ".lua", ".txt"}, filepath.Ext(path)) || path == "test/docs/docs_test.go" {
			return err
		}
		text := textOf(t, path)
		found += strings.Count(text, "Source: ")
		for _, problem := range wrongSources(text, sections) {
			t.Errorf("%s: %s", path, problem)
		}
		return nil
	})
	locktest.Must(t, err)
	if found < 200 {
		t.Errorf("got %d sources, want more: does this test still look in the right places?", found)
	}
	for text, want := range map[string]int{
		"// Source: ALGORITHM section 7.": 0, "// Source: ALGORITHM section 99.": 1, "// Source: ALGORITHM sections 7 and 99.": 1,
		"-- Source: ALGORITHM section 8,\n-- \"Membership\".": 0, "// Source: ALGORITHM section 7, \"Membership\".": 1,
		"// Source: ALGORITHM section 7; section 99, I1.": 1, "// Source: ALGORITHM section 8, \"Membership\" and \"Nowhere at all\".": 1,
	} {
		if got := wrongSources(text, sections); len(got) != want {
			t.Errorf("%s: got %q, want %d problems", text, got, want)
		}
	}
}

// sectionsOf returns the text of each section of the specification, by number.
func sectionsOf(text string) map[string]string {
	sections := make(map[string]string)
	parts := regexp.MustCompile(`(?m)^## (\d+)\. `).FindAllStringSubmatchIndex(text, -1)
	for i, m := range parts {
		end := len(text)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		sections[text[m[2]:m[3]]] = plain(text[m[0]:end])
	}
	return sections
}

// plain returns a text on one line, in small letters, without the marks of Markdown and of comments.
func plain(text string) string {
	text = regexp.MustCompile(`(?m)^\s*(//|--|#)`).ReplaceAllString(text, " ")
	return strings.ToLower(strings.Join(strings.Fields(strings.NewReplacer("*", "", "`", "").Replace(text)), " "))
}

var (
	sourceOf = regexp.MustCompile(`(?:algorithm sections?|; section) (\d+(?:(?:, | and )\d+)*)((?:,? (?:and |\()?"[^"]+"\)?)*)`)
	digits   = regexp.MustCompile(`\d+`)
	phrase   = regexp.MustCompile(`"([^"]+)"`)
)

// wrongSources returns what is wrong with the sources that a file names.
func wrongSources(text string, sections map[string]string) (problems []string) {
	for _, m := range sourceOf.FindAllStringSubmatch(plain(text), -1) {
		all := ""
		for _, n := range digits.FindAllString(m[1], -1) {
			if sections[n] == "" {
				problems = append(problems, "there is no section "+n)
			}
			all += sections[n]
		}
		for _, p := range phrase.FindAllStringSubmatch(m[2], -1) {
			for part := range strings.SplitSeq(p[1], " ... ") {
				if all != "" && !strings.Contains(all, part) {
					problems = append(problems, fmt.Sprintf("section %s has no %q", m[1], part))
				}
			}
		}
	}
	return problems
}

// Each package that a documentation site shows has an example there.
func TestPackagesHaveExamples(t *testing.T) {
	for _, dir := range publicPackages {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		locktest.Must(t, err)
		if !slices.ContainsFunc(files, func(name string) bool { return strings.Contains(textOf(t, name), "\nfunc Example") }) {
			t.Errorf("package %s has no example", dir)
		}
	}
}

// publicPackages has the packages that a documentation site shows.
var publicPackages = []string{".", "admin", "election", "fence", "jobs", "semaphore", "several", "redlockdebug", "redlocktest", "redlockotel", "redlockprom"}

// anchors returns the anchors of a page's headings.
func anchors(text string) (list []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(plain, " ", "-"))
	}
	return list
}

// declaredTests returns the names of all tests of the repository.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	locktest.Must(t, err)
	return names
}

// docs/testing.md has the same test.
func TestLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		lease, err := masters.Locker().Lock(t.Context(), "mailer")
		if err != nil {
			t.Fatal(err)
		}
		masters.Masters()[0].Kill()
		masters.Masters()[1].Hang()
		time.Sleep(redlock.DefaultTTL)
		if !errors.Is(context.Cause(lease.Context()), redlock.ErrLost) {
			t.Error("got a lease that goes on, want a lost lease")
		}
	})
}

// docs/waiting.md has the same function.

// answer tells the client of a handler what TryLock, Lock or Do returned.
func answer(w http.ResponseWriter, err error) {
	status, wait := http.StatusInternalServerError, time.Duration(0)
	var q *redlock.QuorumError
	if !errors.As(err, &q) { // as when Lock waited for another caller of this process
		q = new(redlock.QuorumError)
	}
	switch {
	case errors.Is(err, redlock.ErrClosed): // this process ends; another one may answer
		status, wait = http.StatusServiceUnavailable, time.Second
	case errors.Is(err, redlock.ErrTaken):
		status = http.StatusConflict
		_, wait = q.Holder()
		wait = max(wait, time.Second)
	case errors.Is(err, redlock.ErrNoQuorum):
		status, wait = http.StatusServiceUnavailable, time.Second
		for _, m := range q.Masters {
			wait = max(wait, m.Quarantine)
		}
	}
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	}
	http.Error(w, http.StatusText(status), status)
}

// What docs/waiting.md says of HTTP.
func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		locker, other := masters.Locker(), masters.Locker()
		if _, err := other.Lock(t.Context(), "mailer"); err != nil {
			t.Fatal(err)
		}
		check := func(when string, l *redlock.Locker, resource string, status int, seconds string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond) // a holder's ten seconds are not down to nine
			defer cancel()
			_, err := l.Lock(ctx, resource)
			w := httptest.NewRecorder()
			answer(w, err)
			if got := w.Header().Get("Retry-After"); w.Code != status || got != seconds {
				t.Errorf("%s: got %d and Retry-After %q, want %d and %q: %v", when, w.Code, got, status, seconds, err)
			}
		}
		check("another process has it", locker, "mailer", http.StatusConflict, "10")
		check("this process has it", other, "mailer", http.StatusConflict, "1")
		check("a wrong argument", locker, "", http.StatusInternalServerError, "")
		for _, m := range masters.Masters()[:2] {
			m.Kill()
		}
		check("a majority is down", locker, "free", http.StatusServiceUnavailable, "1")
		for _, m := range masters.Masters()[:2] {
			m.RestartEmpty()
		}
		time.Sleep(2 * time.Second)
		check("a majority is back empty", locker, "free", http.StatusServiceUnavailable, "9")
		time.Sleep(time.Minute)
		if _, err := other.Lock(t.Context(), "held"); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second/2, func() { _ = locker.Close() })
		check("the service ends while it waits", locker, "held", http.StatusServiceUnavailable, "1")
		check("the service has ended", locker, "held", http.StatusServiceUnavailable, "1")
	})
}

// docs/waiting.md has the same function.

// serve serves until ctx ends, and runs what works in the background with it: Elector.Run, or what calls Run of package jobs.
// Then it ends all of them, so that none works on without its lock.
func serve(ctx context.Context, ln net.Listener, server *http.Server, locker *redlock.Locker, background ...func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	start := func(run func(context.Context) error) {
		running.Go(func() { stop(run(ctx)) }) // the first that returns ends the others
	}
	start(func(context.Context) error { return server.Serve(ln) })
	for _, run := range background {
		start(run)
	}
	<-ctx.Done() // jobs and terms end now, and give their locks back
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	err := server.Shutdown(grace) // requests under way are answered, and keep their locks until then
	closed := locker.Close()      // what still waits gets ErrClosed; what holds a lock has 10 s more
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	running.Wait()
	return errors.Join(context.Cause(ctx), err, closed)
}

// A service ends: a request that holds a lock is answered, one that waits is granted its lock then, a term and a job end,
// and no lock is left.
func TestServiceEnds(outer *testing.T) {
	t := redistest.Timed(outer)
	masters := redlocktest.Start(t, 3)
	locker, other := masters.Locker(), masters.Locker()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	locktest.Must(t, err)
	url := "http://" + ln.Addr().String()
	holds, finish := make(chan struct{}), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		err := locker.Do(r.Context(), "order", func(ctx context.Context, _ *redlock.Lease) error {
			if r.URL.Path == "/holds" {
				close(holds)
				<-finish
			}
			return context.Cause(ctx)
		})
		if err != nil {
			answer(w, err)
		}
	})}
	elector, err := election.New(locker, "leader")
	locktest.Must(t, err)
	locks, err := jobs.New(locker)
	locktest.Must(t, err)
	leads, works := make(chan struct{}), make(chan struct{})
	ended := make(chan string, 2)
	ctx, stop := context.WithCancelCause(t.Context())
	errStop := errors.New("stopped")
	served := make(chan error, 1)
	go func() {
		served <- serve(ctx, ln, server, locker,
			func(ctx context.Context) error {
				return elector.Run(ctx, func(ctx context.Context, _ *redlock.Lease) error {
					close(leads)
					<-ctx.Done()
					ended <- "term"
					return nil
				})
			},
			func(ctx context.Context) error {
				return locks.Run(ctx, "job", func(ctx context.Context, _ *redlock.Lease) error {
					close(works)
					<-ctx.Done()
					ended <- "job"
					return nil
				}, jobs.At(time.Now()))
			})
	}()
	answers := make(chan string, 2)
	ask := func(path string) {
		res, err := http.Get(url + path)
		if err != nil {
			answers <- err.Error()
			return
		}
		defer res.Body.Close()
		answers <- res.Status
	}
	go ask("/holds")
	<-holds
	<-leads
	<-works
	go ask("/waits")
	for locker.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	stop(errStop)
	for range 2 {
		<-ended
	}
	for { // no new request
		res, err := http.Get(url)
		if err != nil {
			break
		}
		_ = res.Body.Close()
	}
	if _, err := other.TryLock(t.Context(), "order"); !errors.Is(err, redlock.ErrTaken) {
		t.Errorf("a request is under way: got %v, want ErrTaken", err)
	}
	close(finish)
	for range 2 {
		if got := <-answers; got != "200 OK" {
			t.Errorf("got %s, want 200 OK", got)
		}
	}
	if err := <-served; !errors.Is(err, errStop) || errors.Is(err, redlock.ErrNoQuorum) {
		t.Errorf("got %v, want %v alone", err, errStop)
	}
	for _, resource := range []string{"order", "leader"} {
		if holder := masters.Holder(resource); holder != "" {
			t.Errorf("%s: got holder %s, want none", resource, holder)
		}
	}
}

// docs/migrating.md says this of lock write, lock read, unlock write.
func TestReaderUnderAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		masters := redlocktest.Start(t, 3)
		locker := masters.Locker()
		lease, err := locker.Lock(t.Context(), "mailer")
		locktest.Must(t, err)
		if _, err := locker.Lock(lease.Context(), "mailer", redlock.Shared()); !errors.Is(err, redlock.ErrReentry) {
			t.Errorf("got %v, want ErrReentry", err)
		}
		inner, err := locker.Lock(lease.Context(), "mailer", redlock.Shared(), redlock.WithReentry())
		locktest.Must(t, err)
		if err := lease.Downgrade(t.Context()); !errors.Is(err, redlock.ErrReentry) {
			t.Errorf("got %v of a lease with two holds, want ErrReentry", err)
		}
		reader := masters.Locker()
		if _, err := reader.TryLock(t.Context(), "mailer", redlock.Shared()); !errors.Is(err, redlock.ErrTaken) {
			t.Errorf("got %v beside a second hold, which still writes, want ErrTaken", err)
		}
		locktest.Must(t, inner.Unlock(t.Context()))
		if err := lease.Downgrade(t.Context()); err != nil { // a quorum has answered, the last master perhaps not
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := reader.TryLock(t.Context(), "mailer", redlock.Shared()); err != nil {
			t.Errorf("got %v beside a reader, want a lease", err)
		}
		if _, err := locker.Lock(lease.Context(), "mailer"); redlock.Reason(err) != "upgrade" {
			t.Errorf("got %v of a reader that wants to write, want the reason upgrade", err)
		}
	})
}

func TestPagesHaveWhatRuns(t *testing.T) {
	for page, head := range map[string]string{"docs/testing.md": "func TestLeaseIsLost", "docs/waiting.md": "// answer tells", "docs/waiting.md#": "// serve serves"} {
		page = strings.TrimSuffix(page, "#")
		_, rest, _ := strings.Cut(textOf(t, page), "```go\n"+head)
		if body, _, found := strings.Cut(rest, "```\n"); !found || !strings.Contains(textOf(t, "test/docs/docs_test.go"), head+body) {
			t.Errorf("%s has another %s than the tests run:\n%s", page, head, body)
		}
	}
}

// pageSetting has what a block without declarations may use.
const pageSetting = `
func sell(context.Context, int64) error { return nil }

func block(ctx context.Context, masters []string, locker *redlock.Locker, lease *redlock.Lease) {{
%s
}}
`

// pageImports has the packages that a block may use without an import, by name.
var pageImports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "slog": "log/slog", "os": "os", "sql": "database/sql",
	"http": "net/http", "bytes": "bytes", "sha256": "crypto/sha256", "net": "net", "sync": "sync", "strconv": "strconv",
	"strings": "strings", "synctest": "testing/synctest", "testing": "testing", "time": "time", "tls": "crypto/tls",
	"redis": "github.com/redis/go-redis/v9", "redlock": self, "redlocktest": self + "/redlocktest",
	"election": self + "/election", "fence": self + "/fence", "jobs": self + "/jobs", "admin": self + "/admin", "several": self + "/several",
	"semaphore": self + "/semaphore",
}

// compilable makes packages of the blocks of Go of a page, by directory. It leaves out those that
// are compiled in the module integrations.
func compilable(t *testing.T, page, text string) map[string]string {
	t.Helper()
	adapters, err := os.ReadFile("integrations/adapters_test.go")
	locktest.Must(t, err)
	dir := strings.ToLower(regexp.MustCompile(`\W`).ReplaceAllString(page, "_"))
	sources := make(map[string]string)
	var whole strings.Builder
	for i, b := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(b[1], "package ") {
			sources[fmt.Sprintf("%s_%d", dir, i+1)] = b[1]
			continue
		}
		if strings.Contains(string(adapters), "\n\n"+b[1]) {
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+b[1], parser.SkipObjectResolution); err == nil {
			whole.WriteString(b[1] + "\n")
			continue
		}
		body := fmt.Sprintf(pageSetting, b[1])
		sources[fmt.Sprintf("%s_%d", dir, i+1)] = imports(body) + body
	}
	if whole.Len() > 0 {
		sources[dir] = imports(whole.String()) + whole.String()
	}
	return sources
}

// imports returns the head of a file that uses packages by their names.
func imports(body string) string {
	head := "package page\n\nimport (\n"
	for name, path := range pageImports {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(body) {
			head += fmt.Sprintf("\t%q\n", path)
		}
	}
	return head + ")\n\n"
}

// vet returns what go vet says about packages. They stand in a directory of this module that patterns leave out, so that what
// they import is compiled once.
func vet(t *testing.T, sources map[string]string) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go command on the PATH: ", err)
	}
	tmp, err := os.MkdirTemp("test/docs", "_pages")
	locktest.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	args := []string{"vet"}
	for dir, source := range sources {
		if strings.Contains(source, self+"/internal/") {
			return dir + " imports what only this module may"
		}
		locktest.Must(t, os.Mkdir(filepath.Join(tmp, dir), 0o700))
		locktest.Must(t, os.WriteFile(filepath.Join(tmp, dir, "page.go"), []byte(source), 0o600))
		args = append(args, "./"+filepath.Join(tmp, dir))
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	if err == nil {
		return ""
	}
	return string(out)
}

// The README begins with ten lines or so that call Do, and is short.
func TestReadmeIsShort(t *testing.T) {
	text := textOf(t, "README.md")
	if got := strings.Count(text, "\n"); got > 130 {
		t.Errorf("README.md has %d lines, want 130 at most", got)
	}
	_, rest, _ := strings.Cut(text, "```go\n")
	block, _, _ := strings.Cut(rest, "```\n")
	if got := strings.Count(block, "\n"); got > 12 || !strings.Contains(block, ".Do(") {
		t.Errorf("the first block of Go in README.md has %d lines, want 12 at most, with a call of Do", got)
	}
}

func textOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	locktest.Must(t, err)
	return string(text)
}
