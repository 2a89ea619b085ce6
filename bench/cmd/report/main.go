// Command report runs the benchmarks of this module, and writes RESULTS.md and its pictures.
//
//	go run ./cmd/report                     everything, about 45 minutes
//	go run ./cmd/report -quick -only hot    to see that it works; prints the report
//	go run ./cmd/report -from raw.txt      the report of an earlier run
//
// See README.md in bench.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/d0720281/redlock/bench/internal/results"
)

// errViolation says that this library let two holders in at a time, or a fencing token fall.
var errViolation = errors.New("report: VIOLATION by this library, see the part Exclusion")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	quick     bool
	only      []string
	raw, from string
	out       string
}

func parse(args []string) (options, error) {
	var o options
	var only string
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	flags.BoolVar(&o.quick, "quick", false, "few and short cells, once: to see that it works")
	flags.StringVar(&only, "only", "", "comma-separated: "+strings.Join(scenarios, ", "))
	flags.StringVar(&o.raw, "raw", "", "file to write every single result to, as go test and benchstat have it")
	flags.StringVar(&o.from, "from", "", "file with results of an earlier run: measure nothing")
	flags.StringVar(&o.out, "out", "", "folder for RESULTS.md and pictures; where it runs, but parts and quick runs are printed")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("report: what is %q?", flags.Arg(0))
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(scenarios, name) {
			return o, fmt.Errorf("report: -only %s: there are %s", name, strings.Join(scenarios, ", "))
		}
	}
	if o.out == "" && !o.quick && len(o.only) == 0 {
		o.out = "."
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	var text []byte
	if o.from != "" {
		text, err = os.ReadFile(o.from)
	} else {
		p := fullPlan()
		if o.quick {
			p = quickPlan()
		}
		text, err = measure(ctx, o, p)
	}
	if err != nil {
		return err
	}
	set, err := results.Read(text)
	if err != nil {
		return err
	}
	if len(set.Records) == 0 {
		return errors.New("report: no results")
	}
	if err := publish(o.out, set); err != nil {
		return err
	}
	for _, r := range set.Records {
		if r.Who == results.Ours && r.Values["overlaps"]+r.Values["falls"] > 0 {
			return errViolation
		}
	}
	return nil
}

// measure runs the benchmarks of a plan, and returns what they print. The file of all results
// also has those of a run that was aborted.
func measure(ctx context.Context, o options, p plan) ([]byte, error) {
	var text bytes.Buffer
	out := io.Writer(&text)
	if o.raw != "" {
		file, err := os.Create(o.raw)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		out = io.MultiWriter(out, file)
	}
	if err := describe(ctx, out); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "reps: %d\n", p.reps)
	if o.quick {
		fmt.Fprintln(out, "quick: yes")
	}
	err := p.run(ctx, o.only, out)
	return text.Bytes(), err
}

// publish writes the report and its pictures to a folder, or prints the report.
func publish(folder string, set results.Set) error {
	if folder == "" {
		fmt.Print(set.Markdown(""))
		return nil
	}
	const name = "pictures"
	if err := os.MkdirAll(filepath.Join(folder, name), 0o777); err != nil {
		return err
	}
	for _, p := range set.Pictures() {
		if err := p.WriteFile(filepath.Join(folder, name, p.Name+".svg")); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "RESULTS.md"), []byte(set.Markdown(name)), 0o666)
}
