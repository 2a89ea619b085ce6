package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// output is the format of a command's result.
type output struct {
	format string
	out    io.Writer
	style  style
}

func (o *output) register(f *pflag.FlagSet) {
	f.StringVarP(&o.format, "output", "o", "text", "`format` of the output: text or json")
}

func (o *output) open(cmd *cobra.Command) error {
	o.out, o.style = cmd.OutOrStdout(), styleOf(cmd.OutOrStdout())
	if o.format != "text" && o.format != "json" {
		return usagef("--output %q: must be text or json", o.format)
	}
	return nil
}

// json prints a value as JSON, if the flags ask for it.
func (o *output) json(v any) (shown bool, err error) {
	if o.format != "json" {
		return false, nil
	}
	e := json.NewEncoder(o.out)
	e.SetIndent("", "  ")
	return true, e.Encode(v)
}

// table prints rows without frames, so that cut and grep work on them.
func (o *output) table(header table.Row, rows []table.Row) {
	t := table.NewWriter()
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	t.Style().Box.PaddingLeft = ""
	t.Style().Box.PaddingRight = "  "
	t.AppendHeader(header)
	t.AppendRows(rows)
	for line := range strings.Lines(t.Render()) {
		fmt.Fprintln(o.out, strings.TrimRight(line, " \n"))
	}
}

// askWithin bounds the time of commands that only ask.
const askWithin = 5 * time.Second
