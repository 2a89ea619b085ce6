package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
)

// Scenarios plays a text file: a scenario behind each line "== name", one step a line. scenario_words.go has the words.
//
//	for T N                   first, for a table: the scenario is played once for each indented row below, with its words for $T and $N
//	masters 5                 then; 3 if it is missing
//	given NAME                the steps of the scenario "given NAME" above, which is not played by itself
//	30 times                  the indented lines below, so often
//	lockers a b [with WORDS]  a warm Locker for each name, with an uplink of its own
//	sleep T                   as all times: 20ms, ttl, validity+1s
//	X = a.try [WORDS]         TryLock of "r"; WORDS are options, name=other, in=Y (the context of lease Y), deadline=T, canceled
//	X = a.lock [WORDS]        Lock of "r" in a goroutine; so is a.try with meanwhile, and X = Y.unlock, or another method of a lease
//	X waits, X got, X failed  whether that has returned; the last two wait for it, for 20 s
//	X.unlock, X.fence > Y     methods and values of a lease; a.close, of a Locker
//	0 1 kill                  of nodes: by number; all, queue (the queue node of "r"), others (than that)
//	X,Y,Z.unlock              the step for each of them
//
// Behind "->" stands the outcome: "taken" and other errors that the step's error matches, "not lost" for one that it must not
// match, or ok; "in T", "within T" or "after T" for how long the step took, or for got and failed, when that call returned, from
// the beginning of the last step that was an act, and no wait or check; last "says TEXT", which is in the error. An error without
// a name fails.
func Scenarios(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	Must(t, err)
	all, err := parse(file, string(text))
	Must(t, err)
	for _, s := range all {
		Subtest(t, s.name, s.masters, func(t *testing.T, b *Bubble) {
			if err := s.play(b); err != nil {
				t.Error(err)
			}
		})
	}
}

// fault is an error of the text, or a promise that is broken. It is thrown, unlike errors of the library.
type fault string

func throw(format string, args ...any) { panic(fault(fmt.Sprintf(format, args...))) }

// catch calls do, and returns what it throws as an error.
func catch(at string, do func()) (err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case fault:
			err = fmt.Errorf("%s: %s", at, string(f))
		default:
			panic(f)
		}
	}()
	do()
	return nil
}

// scenario is one of a file.
type scenario struct {
	at, name string
	masters  int
	steps    []scenarioStep
}

type scenarioStep struct{ at, text string }

// parse returns the scenarios of a file, those of a table one for each row.
func parse(file, text string) (all []scenario, err error) {
	var read []scenario
	given, unused := make(map[string][]scenarioStep), make(map[string]bool)
	n := 0
	for line := range strings.Lines(text) {
		n++
		at := fmt.Sprintf("%s:%d", file, n)
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimRight(line, " \t\n")
		switch name, found := strings.CutPrefix(line, "== "); {
		case found:
			read = append(read, scenario{at: at, name: name, masters: 3})
		case line == "":
		case len(read) == 0:
			return nil, fmt.Errorf("%s: %q is in no scenario", at, line)
		default:
			s, more := &read[len(read)-1], given[line]
			delete(unused, line)
			if more == nil {
				more = []scenarioStep{{at, line}}
			}
			if s.steps = append(s.steps, more...); strings.HasPrefix(s.name, "given ") {
				given[s.name], unused[s.name] = s.steps, true
			}
		}
	}
	for _, s := range read {
		if given[s.name] != nil {
			continue
		}
		if err := catch(s.at, func() { all = append(all, s.rows()...) }); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 || len(unused) > 0 {
		return nil, fmt.Errorf("%s: no scenario, or none with %v", file, unused)
	}
	return all, nil
}

// cells returns the words of a row, or what stands between | in it; "-" is an empty cell.
func cells(row string) (list []string) {
	if !strings.Contains(row, " |") {
		return strings.Fields(row)
	}
	for cell := range strings.SplitSeq(strings.TrimSuffix(row, " |"), " | ") {
		if cell = strings.TrimSpace(cell); cell == "-" {
			cell = ""
		}
		list = append(list, cell)
	}
	return list
}

// rows returns the scenario for each row of its table, or itself.
func (s scenario) rows() (all []scenario) {
	var columns []string
	rows := [][]string{nil}
	if len(s.steps) > 0 && strings.HasPrefix(s.steps[0].text, "for ") {
		columns, rows = cells(strings.TrimPrefix(s.steps[0].text, "for ")), nil
		var table []scenarioStep
		for table, s.steps = indented(s.steps[1:]); len(table) > 0; table = table[1:] {
			rows = append(rows, cells(table[0].text))
		}
	}
	for _, row := range rows {
		if len(row) != len(columns) {
			throw("got the row %v for the columns %v", row, columns)
		}
		one := scenario{s.at, strings.TrimSpace(s.name + " " + strings.Join(row, " ")), s.masters, slices.Clone(s.steps)}
		words := make(map[string]string)
		for i, column := range columns {
			words[column] = row[i]
		}
		for i := range one.steps {
			one.steps[i].text = os.Expand(one.steps[i].text, func(column string) string { return known(words, column) })
		}
		one.steps = slices.DeleteFunc(one.steps, func(s scenarioStep) bool { return s.text == "" }) // of an empty cell
		if n, found := strings.CutPrefix(append(one.steps, scenarioStep{})[0].text, "masters "); found {
			one.masters, one.steps = number(n), one.steps[1:]
		}
		for i := 0; i < len(one.steps); i++ {
			if n, found := strings.CutSuffix(one.steps[i].text, " times"); found {
				block, rest := indented(one.steps[i+1:])
				for k := range block {
					block[k].text = strings.TrimSpace(block[k].text)
				}
				one.steps = slices.Concat(one.steps[:i], slices.Repeat(block, number(n)), rest)
			}
		}
		all = append(all, one)
	}
	if len(all) == 0 || len(all[0].steps) == 0 {
		throw("no steps, or a table without rows")
	}
	return all
}

// indented returns the indented lines at the beginning of some, and the others.
func indented(steps []scenarioStep) (block, rest []scenarioStep) {
	n := slices.IndexFunc(append(steps, scenarioStep{}), func(s scenarioStep) bool { return !strings.HasPrefix(s.text, " ") })
	return slices.Clone(steps[:n]), steps[n:]
}

// numbers returns the numbers of nodes: 0,2.
func (p *play) numbers(text string) []int {
	list, _ := p.nodes([]string{text, "only"})
	return list
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		throw("%v", err)
	}
	return n
}

// play is a scenario on its nodes.
type play struct {
	*Bubble
	lockers map[string]*locker
	first   *locker
	leases  map[string]*redlock.Lease
	calls   map[string]*call
	ctx     context.Context // of the present step
	things  map[string]thing
	works   map[string]*work
	fences  map[string]int64 // the last of some resources
	mark    time.Time        // of start
	acted   time.Time        // when the last act began
	notes   map[string]string
}

type locker struct {
	*redlock.Locker
	*Uplink
	clock *JumpClock
	log   *Records

	mu     sync.Mutex
	events []redlock.Event // about clocks
}

// call is a call in a goroutine.
type call struct {
	*Waiter
	name   string
	cancel context.CancelFunc
	seen   bool // a step says whether it waits, got or failed
}

// play returns the first fault.
func (s scenario) play(b *Bubble) error {
	p := &play{Bubble: b, lockers: map[string]*locker{}, leases: map[string]*redlock.Lease{}, calls: map[string]*call{}, things: map[string]thing{}, works: map[string]*work{}, fences: map[string]int64{}, notes: map[string]string{}}
	for _, step := range s.steps {
		if err := catch(step.at+": "+strings.TrimSpace(step.text), func() { p.step(step.text) }); err != nil {
			return err
		}
	}
	for name, c := range p.calls {
		if !c.seen {
			return fmt.Errorf("%s: no step says whether %s waits, got or failed", s.at, name)
		}
	}
	return nil
}

// step does a step, for each of its subjects, and checks the outcome.
func (p *play) step(text string) {
	text, want, hasWant := strings.Cut(text, "->")
	w := strings.Fields(text)
	if strings.HasPrefix(text, " ") || len(w) == 0 || hasWant && strings.TrimSpace(want) == "" {
		throw("no step: it is indented, or nothing stands before or behind ->")
	}
	began, names, words := time.Now(), strings.Split(w[0], ","), p.context(w[1:])
	word, do := "", func(string) error { return nil }
	methods, method, dotted := strings.Cut(w[0], ".")
	switch {
	case alone[w[0]].do != nil:
		word, do = w[0], func(string) error { return run(p, alone, word, p, words) }
	case dotted:
		word, names = method, strings.Split(methods, ",")
		do = func(name string) error { return p.of(name, word, words) }
	case len(words) > 1 && words[0] == "=":
		word, do = "=", func(name string) error { return p.begin(name, words[1], words[2:]) }
	case p.calls[names[0]] != nil && len(words) > 0:
		word, do = words[0], func(name string) error { return run(p, ofCall, word, known(p.calls, name), words[1:]) }
	default:
		nodes, rest := p.nodes(w)
		word, do = rest[0], func(string) (err error) {
			for _, n := range nodes {
				err = cmp.Or(err, run(p, ofNode, word, p.Nodes[n], rest[1:]))
			}
			return err
		}
	}
	for _, name := range names {
		start := time.Now()
		err := do(name)
		at := time.Now()
		took := at.Sub(start)
		if word == "got" || word == "failed" {
			at = p.calls[name].At
			took = at.Sub(p.acted)
		}
		synctest.Wait()
		check(p.further(want, at, err), took, err)
	}
	if !slices.Contains(looks, word) {
		p.acted = began
	}
}

// A verb names what a step does with its subject. It takes so many words; -1 for any number.
type verb[T any] struct {
	words int
	do    func(p *play, of T, w []string) error
}

// run does what a table says for a word.
func run[T any](p *play, table map[string]verb[T], word string, of T, words []string) error {
	verb, found := table[word]
	if !found || verb.words >= 0 && len(words) != verb.words {
		throw("unknown word %q, or not with %d words behind it", word, len(words))
	}
	return verb.do(p, of, words)
}

// known returns what has a name.
func known[T any](all map[string]T, name string) T {
	got, found := all[name]
	if !found {
		throw("nothing of this kind has the name %q", name)
	}
	return got
}

// of does a step of a lease or Locker.
func (p *play) of(name, word string, words []string) error {
	if t := p.things[name]; t != nil {
		return known(t, word)("", words)
	}
	if l := p.lockers[name]; l != nil && things[word] != nil {
		return things[word](p, "", l.Locker, words)
	} else if l != nil {
		return run(p, ofLocker, word, l, words)
	}
	lease := known(p.leases, name)
	if values[word] == nil || len(words) != 2 {
		return run(p, ofLease, word, lease, words)
	}
	op, want := words[0], words[1]
	name, plus, _ := strings.Cut(want, "+") // Y+1: Y's value and 1
	other := p.leases[name]
	switch got := values[word](lease).(type) {
	case string:
		if other != nil {
			want = values[word](other).(string)
		}
		holds(word, got, op, want)
	case time.Duration:
		holds(word, got, op, duration(want))
	case int64:
		holds(word, got, op, values[word](known(p.leases, name)).(int64)+int64(number(cmp.Or(plus, "0"))))
	}
	return nil
}

// begin makes a call that returns a lease, or, in a goroutine, one of a lease's methods.
func (p *play) begin(name, what string, words []string) error {
	who, method, _ := strings.Cut(what, ".")
	if c := p.calls[name]; c != nil && !c.seen || p.lockers[name] != nil {
		throw("%q is in use", name)
	}
	delete(p.calls, name)
	delete(p.things, name)
	if t := p.things[who]; t != nil {
		return known(t, method)(name, words)
	}
	if l := p.lockers[who]; l != nil && things[method] != nil {
		return things[method](p, name, l.Locker, words)
	}
	if of := p.leases[who]; of != nil && method == "within" {
		return p.within(name, of)
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.T.Cleanup(cancel)
	waits, resource := method != "try" && method != "adopt", "r"
	var opts []redlock.LockOption
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); {
		case key == "name":
			resource = value
		case word == "meanwhile":
			waits = true
		case word == "exclusive": // not shared; for tables
		default:
			opt, of := option(word).(redlock.LockOption)
			if !of {
				throw("%q is no option of a lock", word)
			}
			opts = append(opts, opt)
		}
	}
	var get func() (*redlock.Lease, error)
	if of := p.leases[who]; of != nil && ofLease[method].words == 0 && len(words) == 0 {
		do := known(ofLease, method).do
		get = func() (*redlock.Lease, error) { return of, do(&play{ctx: ctx}, of, nil) }
	} else {
		l, take := known(p.lockers, who), known(takes, method)
		get = func() (*redlock.Lease, error) { return take(l.Locker, ctx, resource, opts...) }
	}
	delete(p.leases, name)
	if waits {
		p.calls[name] = &call{Waiter: Begin(get), name: name, cancel: cancel}
		return nil
	}
	lease, err := get()
	if err == nil {
		p.leases[name] = lease
	}
	return err
}

// context takes the words for the context of a step out of its words.
func (p *play) context(words []string) (rest []string) {
	ctx := p.T.Context()
	for _, word := range words {
		cancel := func() {}
		switch key, value, _ := strings.Cut(word, "="); {
		case key == "in" && value != "":
			ctx = p.contextOf(value)
		case key == "after" && value != "": // that of a lease, which does not end with it
			ctx = context.WithoutCancel(p.contextOf(value))
		case key == "deadline":
			ctx, cancel = context.WithTimeout(ctx, duration(value))
		case key == "because" && value != "": // it ends after that, with a cause
			why, drop := context.WithCancelCause(ctx)
			ctx = why
			if d := duration(value); d > 0 {
				time.AfterFunc(d, func() { drop(errDropped) })
			} else {
				drop(errDropped)
			}
		case word == "canceled":
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		default:
			rest = append(rest, word)
		}
		p.T.Cleanup(cancel)
	}
	p.ctx = ctx
	return rest
}

// nodes returns the nodes that a step names, and the words behind them.
func (p *play) nodes(words []string) (list []int, rest []string) {
	for i, word := range words {
		n, err := strconv.Atoi(word)
		switch {
		case strings.Contains(word, ",") && !strings.Contains(word, " "): // in a table: 0,1
			more, _ := p.nodes(append(strings.Split(word, ","), "end"))
			list = append(list, more...)
		case word == "all" || (word == "queue" || word == "others") && p.first != nil:
			for n := range p.Nodes {
				if word == "all" || (word == "queue") == (n == QueueNodeOf(p.first.Locker, "r")) {
					list = append(list, n)
				}
			}
		case err == nil && n >= 0 && n < len(p.Nodes):
			list = append(list, n)
		case i > 0:
			return list, words[i:]
		default:
			throw("%q is no word, name or node", word)
		}
	}
	throw("nothing behind the nodes")
	return nil, nil
}

// check compares the outcome of a step with what is promised.
func check(want string, took time.Duration, err error) {
	named := err == nil
	want, says, _ := strings.Cut(want, "says ")
	if !strings.Contains(fmt.Sprint(err), strings.TrimSpace(says)) {
		throw("got %v, want %q in it", err, says)
	}
	words := strings.Fields(want)
	for i := 0; i < len(words); i++ {
		op, not := map[string]string{"in": "=", "within": "<=", "after": ">="}[words[i]], words[i] == "not"
		if not || op != "" {
			i++
		}
		if i == len(words) {
			throw("nothing behind %q", words[i-1])
		}
		switch {
		case op != "":
			holds("time", took, op, duration(words[i]))
		case words[i] == "ok":
		default:
			named = named || !not
			if errors.Is(err, known(sentinels, words[i])) == not {
				throw("got %v", err)
			}
		}
	}
	if !named {
		throw("got %v, want no error, or its name", err)
	}
}

// holds checks a comparison.
func holds[T cmp.Ordered](what string, got T, op string, want T) {
	if d, is := any(got).(time.Duration); is && op == "~" {
		if away := d - any(want).(time.Duration); away.Abs() > nearly {
			throw("%s: got %v, want about %v", what, got, want)
		}
	} else if !known(map[string]bool{"=": got == want, "!=": got != want, ">": got > want, ">=": got >= want, "<": got < want, "<=": got <= want}, op) {
		throw("%s: got %v, want %s %v", what, got, op, want)
	}
}

// duration returns a time, or a sum: validity+1s-1ns.
func duration(text string) (sum time.Duration) {
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "-", "+-"), "+") {
		word, less := strings.CutPrefix(part, "-")
		d, err := time.ParseDuration(cmp.Or(word, "0s"))
		if err != nil {
			d = known(durations, word)
		}
		if less {
			d = -d
		}
		sum += d
	}
	return sum
}
