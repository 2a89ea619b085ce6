package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// style says what an output can show.
type style struct{ terminal bool }

// styleOf allows colours and movement only on a terminal, and only if the user's environment
// does not forbid them.
func styleOf(out io.Writer) style {
	return style{terminalOf(out) != nil && os.Getenv("NO_COLOR") == ""}
}

// terminalOf returns the terminal that out writes to. It returns nil if out is no terminal, or a
// terminal that can only print.
func terminalOf(out io.Writer) *os.File {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		return f
	}
	return nil
}

func (s style) good(words string) string { return s.paint(text.FgGreen, words) }
func (s style) bad(words string) string  { return s.paint(text.FgRed, words) }

func (s style) paint(c text.Color, words string) string {
	if !s.terminal {
		return words
	}
	return c.Sprint(words)
}

// report prints the findings, and the fate of the masters.
func (d *demo) report(r *result, f *fleet, reports *nodeReports) {
	t := d.table("under the lock", "", "")
	for _, x := range r.findings() {
		mark := d.style.good("ok")
		if x.wrong {
			mark = d.style.bad("WRONG")
		}
		t.AppendRow(table.Row{x.name, x.got, mark})
	}
	t.AppendSeparator()
	t.AppendRow(table.Row{"wait for the lock, p50 / p99", quantiles(r.waits)})
	t.AppendRow(table.Row{"lock + unlock uncontended, p50 / p99", quantiles(r.alone)})
	t.AppendRow(table.Row{"releases not confirmed in time", r.unconfirmed})
	t.AppendRow(table.Row{"wall time of the run", short(r.wall)})
	fmt.Fprintln(d.out, t.Render())

	t = d.table("master\n("+f.kind+")", "in this run", "at the end", "reported by\nthe library")
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 2, WidthMax: 16, WidthMaxEnforcer: text.WrapSoft},
		{Number: 3, WidthMax: 16, WidthMaxEnforcer: text.WrapSoft},
		{Number: 4, WidthMax: 28, WidthMaxEnforcer: text.WrapSoft},
	})
	for _, n := range f.nodes {
		t.AppendRow(table.Row{n.opts.Addr, n.fate, n.atEnd, reports.about(n)})
	}
	fmt.Fprintln(d.out, t.Render())
}

func (d *demo) table(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	return t
}

func quantiles(list []time.Duration) string {
	if len(list) == 0 {
		return "not measured"
	}
	return short(percentile(list, 50)) + " / " + short(percentile(list, 99))
}

// short rounds a duration to about three digits.
func short(d time.Duration) string {
	unit := time.Microsecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
