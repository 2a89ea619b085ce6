// Command report puts the figures of a run of the benchmarks into the tables of RESULTS.md.
//
//	go test -run '^$' -bench . -benchtime 1x -timeout 1h . >results.txt
//	go run ./cmd/report results.txt
//
// It fails if this library had two holders at a time, or a fencing token fell; and if figures of a goal or
// a table are missing, unless it prints the tables: with -print. A goal that is missed only shows.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

var (
	errViolation = errors.New("report: VIOLATION: this library had two holders at a time, or a fencing token that did not rise")
	errMissing   = errors.New("report: figures are missing")
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	page := flags.String("page", "RESULTS.md", "the page whose tables are written")
	show := flags.Bool("print", false, "print the tables, also of a part of a run, and write no page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("report: say where the results are: go run ./cmd/report results.txt")
	}
	text, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	set, err := read(text)
	if err != nil {
		return err
	}
	blocks, missing := set.blocks()
	if *show {
		for _, b := range blocks {
			fmt.Printf("%s\n\n%s\n", b.name, b.text)
		}
		return set.violation()
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s", errMissing, strings.Join(missing, "; "))
	}
	old, err := os.ReadFile(*page)
	if err != nil {
		return err
	}
	written, err := fill(old, blocks)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(*page, written, 0o666), set.violation())
}

// block is a part of the page that this program writes.
type block struct{ name, text string }

// fill replaces what is between the markers of each block.
func fill(page []byte, blocks []block) ([]byte, error) {
	for _, b := range blocks {
		from := []byte("<!-- " + b.name + " -->\n")
		to := []byte("<!-- end -->\n")
		before, rest, found := bytes.Cut(page, from)
		_, after, closed := bytes.Cut(rest, to)
		if !found || !closed {
			return nil, fmt.Errorf("report: the page has no place for %q", b.name)
		}
		page = bytes.Join([][]byte{before, from, []byte(b.text), to, after}, nil)
	}
	return page, nil
}
