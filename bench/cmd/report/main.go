// Command report measures this library and others on servers that it starts, and
// writes RESULTS.md and its pictures.
//
//	go run ./cmd/report                     everything, about 40 minutes
//	go run ./cmd/report -quick -only hot    to see that it works; prints the report
//	go run ./cmd/report -from raw.json     the report of an earlier run
//
// See README.md in bench.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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
	if os.Getenv(workerEnv) != "" {
		work(os.Stdin, os.Stdout)
		return
	}
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
	flags.StringVar(&only, "only", "", "comma-separated: "+strings.Join(scenarioNames(), ", "))
	flags.StringVar(&o.raw, "raw", "", "file to write every single result to, as JSON")
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
		if !slices.Contains(scenarioNames(), name) {
			return o, fmt.Errorf("report: -only %s: there are %s", name, strings.Join(scenarioNames(), ", "))
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
	var set results.Set
	if o.from != "" {
		set, err = load(o.from)
	} else {
		p := fullPlan()
		if o.quick {
			p = quickPlan()
		}
		set, err = measureAll(ctx, o, p)
	}
	if o.raw != "" { // also the records of a run that was aborted
		err = errors.Join(err, store(o.raw, set))
	}
	if err != nil {
		return err
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

func load(path string) (set results.Set, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return set, err
	}
	return set, json.Unmarshal(text, &set)
}

func store(path string, set results.Set) error {
	text, err := json.Marshal(set)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o666)
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
		f, err := os.Create(filepath.Join(folder, name, p.Name+".svg"))
		if err != nil {
			return err
		}
		if err := errors.Join(p.Write(f), f.Close()); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "RESULTS.md"), []byte(set.Markdown(name)), 0o666)
}
