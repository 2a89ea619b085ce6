package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// table is a table of the page, with a row for each contender in each cell.
type table struct {
	name, first, second string // first and second: heads of the cells and of the contenders
	rows                []row
	columns             []column
}

// row is a cell, with its name for the reader.
type row struct{ cell, label string }

// column is a metric. in replaces a part of the name of the cell: the column is of that other cell.
type column struct {
	head, metric string
	unit         unit
	in           [2]string
	by           string // a contender: the ratio to its figure
	sum          bool   // over all rounds, as a median would hide what goes wrong in a few
}

// notQuick is the cell that a quick run leaves out.
const notQuick = "Leases/leases=100000"

var manyCallers = [2]string{"callers=1", "callers=256"}

// tables has the tables of the page.
var tables = []table{
	{"free keys", "masters", "who", []row{
		{"Cycle/N=1/trip=0s/callers=1", "1"}, {"Cycle/N=3/trip=0s/callers=1", "3"},
		{"Cycle/N=3/trip=2ms/callers=1", "3, 2 ms away"}, {"Cycle/N=5/trip=0s/callers=1", "5"},
	}, []column{
		{head: "one caller: p50", metric: "p50-us", unit: micros}, {head: "p99", metric: "p99-us", unit: micros},
		{head: "allocations", metric: "allocs"}, {head: "256 callers: turns/s", metric: "turns/s", in: manyCallers},
		{head: "client CPU", metric: "client-us", unit: micros, in: manyCallers}, {head: "masters' CPU", metric: "masters-us", unit: micros, in: manyCallers},
		{head: "bytes", metric: "sent-B", in: manyCallers}, {head: "failed", metric: "failed", unit: whole, in: manyCallers, sum: true},
	}},
	{"one key", "processes × callers, hold", "who", []row{
		{"Hot/N=5/lockers=1/callers=50/hold=0.1ms", "1 × 50, 0.1 ms"}, {"Hot/N=3/lockers=2/callers=1/hold=0", "2 × 1, 0"},
		{"Hot/N=3/lockers=2/callers=1/hold=20ms", "2 × 1, 20 ms"}, {"Hot/N=5/lockers=10/callers=5/hold=0", "10 × 5, 0"},
		{"Hot/N=5/lockers=10/callers=5/hold=1ms", "10 × 5, 1 ms"},
	}, []column{
		{head: "turns/s", metric: "turns/s"}, {head: "of the limit", metric: "limit-%", unit: percent},
		{head: "to the next process: p50", metric: "across-p50-us", unit: micros}, {head: "wait: p50", metric: "wait-p50-us", unit: micros},
		{head: "p99", metric: "wait-p99-us", unit: micros}, {head: "longest", metric: "wait-max-us", unit: micros},
		{head: "Jain", metric: "jain"}, {head: "commands", metric: "commands"}, {head: "failed", metric: "failed", unit: whole, sum: true},
		{head: "two holders", metric: "overlaps", unit: whole, sum: true},
	}},
	{"faults", "of five masters", "who", []row{
		{"Faults/killed=1", "1 killed"}, {"Faults/killed=2", "2 killed"}, {"Faults/paused=1", "1 paused"},
		{"Faults/paused=2", "2 paused"}, {"Faults/slow=1", "1 slow"}, {"Faults/slow=2", "2 slow"},
	}, []column{
		{head: "Lock: p50", metric: "lock-p50-us", unit: micros}, {head: "p99", metric: "lock-p99-us", unit: micros},
		{head: "healthy p99", metric: "healthy-lock-p99-us", unit: micros}, {head: "Extend: p99", metric: "extend-p99-us", unit: micros},
		{head: "Unlock: p99", metric: "unlock-p99-us", unit: micros}, {head: "cycles", metric: "cycles", unit: whole},
		{head: "failed", metric: "failed", unit: whole, sum: true},
	}},
	{"packages", "", "what", []row{{"Package", ""}}, []column{
		{head: "p50", metric: "p50-us", unit: micros}, {head: "times Lock's", metric: "p50-us", by: "Lock"}, {head: "allocations", metric: "allocs"},
		{head: "commands", metric: "commands"}, {head: "client CPU", metric: "client-us", unit: micros}, {head: "masters' CPU", metric: "masters-us", unit: micros},
	}},
	{"crowds", "what", "", []row{
		{"Crowd/several=1of1/lockers=3/callers=3/hold=2ms", "9 callers, 1 resource"}, {"Crowd/several=1of6/lockers=3/callers=3/hold=2ms", "9 callers, 1 of 6 resources"},
		{"Crowd/several=2of6/lockers=3/callers=3/hold=2ms", "9 callers, 2 of 6"}, {"Crowd/several=3of6/lockers=3/callers=3/hold=2ms", "9 callers, 3 of 6"},
		{"Crowd/readers=none/lockers=4/callers=8/hold=1ms", "32 callers, all write"}, {"Crowd/readers=19of20/lockers=4/callers=8/hold=1ms", "32 callers, 1 in 20 writes"},
		{"Crowd/permits=10/lockers=1/callers=100/hold=10ms", "100 callers of 1 process, 10 permits"}, {"Crowd/permits=10/lockers=4/callers=25/hold=10ms", "100 callers of 4, 10 permits"},
	}, []column{
		{head: "turns/s", metric: "turns/s"}, {head: "wait: p50", metric: "wait-p50-us", unit: micros}, {head: "p99", metric: "wait-p99-us", unit: micros},
		{head: "longest", metric: "wait-max-us", unit: micros}, {head: "in use", metric: "used-%", unit: percent}, {head: "commands", metric: "commands"},
	}},
	{"permits", "K", "", []row{
		{"Permits/K=2/how=back", "2"}, {"Permits/K=8/how=back", "8"}, {"Permits/K=100/how=back", "100"}, {"Permits/K=1000/how=back", "1,000"},
	}, []column{
		{head: "one comes back: p50", metric: "p50-us", unit: micros}, {head: "longest", metric: "max-us", unit: micros},
		{head: "one is free: p50", metric: "p50-us", unit: micros, in: [2]string{"back", "free"}}, {head: "longest", metric: "max-us", unit: micros, in: [2]string{"back", "free"}},
		{head: "masters, all held: of a core", metric: "held-%core", unit: percent, in: [2]string{"back", "idle"}},
		{head: "and one waits", metric: "waits-%core", unit: percent, in: [2]string{"back", "idle"}},
	}},
	{"leases", "leases", "", []row{{"Leases/leases=10000", "10,000"}, {notQuick, "100,000"}}, []column{
		{head: "client: cores", metric: "client-cores"}, {head: "masters: cores", metric: "masters-cores"}, {head: "MB/s to the masters", metric: "MB/s"},
		{head: "bytes of memory a lease", metric: "B/lease", unit: whole}, {head: "lost", metric: "lost", unit: whole, sum: true},
	}},
}

// text returns a table. missing are the rows that are not there, or have no figure.
func (t table) text(s set) (text string, missing []string) {
	var head []string
	for _, h := range []string{t.first, t.second} {
		if h != "" {
			head = append(head, h)
		}
	}
	words := len(head)
	for _, c := range t.columns {
		head = append(head, c.head)
	}
	var rows [][]string
	for _, r := range t.rows {
		if len(s.who[r.cell]) == 0 && (s.config["quick"] == "" || r.cell != notQuick) {
			missing = append(missing, r.cell)
		}
		for _, who := range s.who[r.cell] {
			var line []string
			if t.first != "" {
				line = append(line, r.label)
			}
			if t.second != "" {
				line = append(line, "`"+who+"`")
			}
			for _, c := range t.columns {
				line = append(line, c.text(s, r.cell, who))
			}
			if !slices.ContainsFunc(line[words:], func(text string) bool { return text != "–" }) {
				missing = append(missing, r.cell+" of "+who)
			}
			rows = append(rows, line)
		}
	}
	return markdown(head, words, rows), missing
}

// text returns a figure as the table shows it.
func (c column) text(s set, cell, who string) string {
	if c.in[0] != "" {
		cell = strings.Replace(cell, c.in[0], c.in[1], 1)
	}
	f := figure{cell, who, c.metric}
	values := s.each(f)
	if c.by != "" {
		values = s.ratios(f, figure{cell, c.by, c.metric})
	}
	if len(values) == 0 {
		return "–"
	}
	if !c.sum {
		return c.unit.text(median(values))
	}
	total := 0.0
	for _, v := range values {
		total += v
	}
	return c.unit.text(total)
}

// blocks returns all that the page has of a run, and what is missing.
func (s set) blocks() (blocks []block, missing []string) {
	blocks = []block{{"run", s.run()}}
	var rows [][]string
	for _, g := range goals {
		row, ok := g.judge(s)
		if !ok {
			missing = append(missing, "the goal "+g.what)
			continue
		}
		rows = append(rows, row)
	}
	blocks = append(blocks, block{"goals", markdown([]string{"what", "wanted", "median", "lowest … highest", ""}, 1, rows)})
	for _, t := range tables {
		text, lacks := t.text(s)
		blocks, missing = append(blocks, block{t.name, text}), append(missing, lacks...)
	}
	return blocks, missing
}

// run says what was measured, and what failed.
func (s set) run() string {
	c := s.config
	text := fmt.Sprintf("Commit %s on %s, %s cores for clients and masters together; %s, Go %s, %s, redsync %s, redislock %s, rueidislock %s, go-redis %s.\n",
		c["commit"], c["cpu"], c["cores"], c["kernel"], c["go"], c["server"], c["redsync"], c["redislock"], c["rueidislock"], c["go-redis"])
	if c["quick"] != "" {
		text += "\n**A quick run: the figures show that it works, and no more.**\n"
	}
	for _, what := range s.failed {
		text += "\n**FAILED** " + what + "\n"
	}
	for _, cell := range s.cells {
		for _, who := range s.who[cell] {
			over := column{metric: "overlaps", unit: whole, sum: true}.text(s, cell, who)
			if ok, _ := path.Match("[1-9]*", over); ok {
				text += fmt.Sprintf("\n**VIOLATION** `%s`: %s times two holders at a time (%s)\n", who, over, short(cell))
			}
		}
	}
	return text
}
