package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/d0720281/redlock/bench/internal/results"
)

// goBenchmarks records the results of Go benchmarks of this module.
func (b *bench) goBenchmarks(scenario string, list []benchmark) error {
	for _, each := range list {
		if each.once && b.rep > 1 {
			continue
		}
		cmd := exec.CommandContext(b.ctx, "go", "test", "-timeout", "1h", "-run", "^$",
			"-bench", each.pattern, "-benchtime", fmt.Sprintf("%dx", each.times), "github.com/d0720281/redlock/bench")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
		if err := errors.Join(err, b.read(scenario, out)); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", each.pattern, err, out)
			b.measured(results.Cell{Scenario: scenario, Bench: each.pattern}, results.Ours, nil, err.Error())
		}
	}
	return nil
}

// read records the results in the output of go test.
func (b *bench) read(scenario string, out []byte) error {
	r := benchfmt.NewReader(bytes.NewReader(out), "go test")
	for r.Scan() {
		switch line := r.Result().(type) {
		case *benchfmt.SyntaxError:
			return line
		case *benchfmt.Result:
			cell, who := cellOf(scenario, line.Name)
			values := map[string]float64{}
			for _, v := range line.Values {
				values[cmp.Or(v.OrigUnit, v.Unit)] = cmp.Or(v.OrigValue, v.Value)
			}
			b.measured(cell, who, values, "")
		}
	}
	return r.Err()
}

// cellOf takes the contender out of the name of a benchmark, and the number of processors.
func cellOf(scenario string, name benchfmt.Name) (cell results.Cell, who string) {
	base, parts := name.Parts()
	cell, who = results.Cell{Scenario: scenario, Bench: string(base)}, results.Ours
	for _, part := range parts {
		if its, ok := strings.CutPrefix(string(part), "/who="); ok {
			who = its
		} else if part[0] == '/' {
			cell.Bench += string(part)
		}
	}
	return cell, who
}
