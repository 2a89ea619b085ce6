package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/d0720281/redlock/internal/wire"
)

// output is where a command writes its result, and in which format.
type output struct {
	format  string
	out     io.Writer
	colours bool
}

func (o *output) register(f *pflag.FlagSet) {
	f.StringVarP(&o.format, "output", "o", "text", "`format` of the output: text or json")
}

func (o *output) open(cmd *cobra.Command) error {
	o.to(cmd.OutOrStdout())
	if o.format != "" && o.format != "text" && o.format != "json" { // "" without the flag
		return usagef("--output %q: must be text or json", o.format)
	}
	return nil
}

// to sets the writer. Only a terminal gets colours, and only if the environment does not forbid
// them.
func (o *output) to(out io.Writer) {
	o.out, o.colours = out, terminalOf(out) != nil && os.Getenv("NO_COLOR") == ""
}

// checkedWriter keeps the first error of its writes.
type checkedWriter struct {
	to  io.Writer
	err error
}

func (w *checkedWriter) Write(p []byte) (n int, err error) {
	if n, err = w.to.Write(p); w.err == nil {
		w.err = err
	}
	return n, err
}

// terminalOf returns the terminal that out writes to. It returns nil if out is no terminal, or a
// terminal that can only print.
func terminalOf(out io.Writer) *os.File {
	if w, ok := out.(*checkedWriter); ok {
		out = w.to
	}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		return f
	}
	return nil
}

// sizeOf returns the size of a terminal, or 80 by 24 without one.
func sizeOf(terminal *os.File) (width, height int) {
	if terminal != nil {
		width, height, _ = term.GetSize(int(terminal.Fd()))
	}
	if width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

func (o *output) good(words string) string { return o.paint(text.FgGreen, words) }
func (o *output) bad(words string) string  { return o.paint(text.FgRed, words) }

func (o *output) paint(c text.Color, words string) string {
	if !o.colours {
		return words
	}
	return c.Sprint(words)
}

// show prints a value as JSON, if the flags ask for it, and otherwise as text.
func (o *output) show(v any, asText func()) error {
	if o.format != "json" {
		asText()
		return nil
	}
	err := writeJSON(o.out, v, "  ")
	if w, ok := o.out.(*checkedWriter); ok && w.err != nil {
		return nil // as for text: execute has the error, and the exit code tells of the masters
	}
	return err
}

// name is the KEY of a lock in JSON, whose texts are UTF-8.
type name struct {
	Key   string `json:"key"`
	Bytes []byte `json:"key_base64,omitempty"` // of a KEY that is not UTF-8
}

func keyName(key string) name {
	if utf8.ValidString(key) {
		return name{Key: key}
	}
	return name{key, []byte(key)}
}

// writeJSON writes a value as JSON, on one line if indent is "". A key can have any bytes, and the
// output may be a terminal.
func writeJSON(out io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	err := e.Encode(v)
	if err == nil {
		_, err = out.Write(wire.PrintableJSON(b.Bytes()))
	}
	return err
}

// table prints rows, if there are any.
func (o *output) table(header table.Row, rows []table.Row) {
	if len(rows) > 0 {
		fmt.Fprintln(o.out, strings.Join(tableOf(header, rows, 0), "\n"))
	}
}

// tableOf returns the lines of a table. It has no frames, so that cut and grep work on it. Lines
// that are longer than width are cut; 0 cuts none.
func tableOf(header table.Row, rows []table.Row, width int, columns ...table.ColumnConfig) []string {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Box:     table.BoxStyle{PaddingRight: "  "},
		Format:  table.FormatOptions{Header: text.FormatUpper},
		Options: table.OptionsNoBordersAndSeparators,
		Size:    table.SizeOptions{WidthMax: width},
	})
	t.AppendHeader(header)
	t.AppendRows(rows)
	t.SetColumnConfigs(columns)
	t.SuppressTrailingSpaces()
	return strings.Split(t.Render(), "\n")
}

// widthOf returns the width of some columns of a table, each with two blanks behind it.
func widthOf(header table.Row, rows []table.Row, from, to int) (sum int) {
	for i := from; i < to; i++ {
		widest := len(fmt.Sprint(header[i]))
		for _, row := range rows {
			widest = max(widest, text.StringWidthWithoutEscSequences(fmt.Sprint(row[i])))
		}
		sum += widest + 2
	}
	return sum
}

// fit returns as much of a line as a width has room for; 0 cuts nothing.
func fit(line string, width int) string {
	if width == 0 {
		return line
	}
	return text.Trim(line, width)
}

// wrapped returns a text that begins behind a lead, and is wrapped at a width below its own
// beginning.
func wrapped(lead, words string, width int) string {
	indent := text.StringWidthWithoutEscSequences(lead)
	var lines []string
	for line := range strings.Lines(text.WrapSoft(words, max(width-indent, 20))) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lead + strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}

// say prints a sentence, wrapped on a terminal.
func (o *output) say(format string, args ...any) {
	fmt.Fprintln(o.out, onTerminal(o.out, "", fmt.Sprintf(format, args...)))
}

// onTerminal returns a text behind a lead, wrapped if out is a terminal.
func onTerminal(out io.Writer, lead, words string) string {
	terminal := terminalOf(out)
	if terminal == nil {
		return lead + words
	}
	width, _ := sizeOf(terminal)
	return wrapped(lead, words, width)
}

// remarks prints a table whose last column is text.
func (o *output) remarks(header table.Row, rows []table.Row, least int) {
	width := 0
	if terminal := terminalOf(o.out); terminal != nil {
		width, _ = sizeOf(terminal)
	}
	fmt.Fprintln(o.out, strings.Join(withRemarks(header, rows, width, least), "\n"))
}

// withRemarks returns the lines of a table whose last column is text. If the width has no room for it, the text follows below
// its row, and the columns from the right down to the column least are left out where they have none; 0 has room for all.
func withRemarks(header table.Row, rows []table.Row, width, least int, columns ...table.ColumnConfig) []string {
	last := len(header) - 1
	if width == 0 || widthOf(header, rows, 0, last+1)-2 <= width {
		return tableOf(header, rows, 0, columns...)
	}
	whole := last
	for whole > least && widthOf(header, rows, 0, whole)-2 > width {
		whole--
	}
	var short []table.Row
	for _, row := range rows {
		short = append(short, row[:whole])
	}
	plain := tableOf(header[:whole], short, width, columns...)
	lines := []string{plain[0]}
	for i, row := range rows {
		lines = append(lines, plain[i+1])
		if remark := fmt.Sprint(row[last]); remark != "" {
			lines = append(lines, strings.Split(wrapped("    ", remark, width), "\n")...)
		}
	}
	return lines
}

// toTheRight aligns a column.
func toTheRight(column int) table.ColumnConfig {
	return table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight}
}

// counted returns a number of things as text.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// short rounds a duration to about three digits; "" for 0.
func short(d time.Duration) string {
	if d == 0 {
		return ""
	}
	unit := time.Microsecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
