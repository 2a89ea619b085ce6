package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"

	"github.com/d0720281/redlock/bench/internal/results"
	"github.com/d0720281/redlock/internal/masters"
)

// describe writes what go test does not say about the machine and the software, in lines that the
// Go benchmark format has for that.
func describe(ctx context.Context, out io.Writer) error {
	server, err := masters.LookPath()
	if err != nil {
		return err
	}
	version, err := said(ctx, server, "--version") // "Redis server v=7.0.15 sha=..."
	if err != nil {
		return err
	}
	name, rest, _ := strings.Cut(version, " server v=")
	number, _, _ := strings.Cut(rest, " ")
	kernel, _ := said(ctx, "uname", "-sr") // not everywhere
	fmt.Fprintf(out, "cores: %d\nkernel: %s\ngo: %s\nredis: %s\n",
		runtime.NumCPU(), kernel, strings.TrimPrefix(runtime.Version(), "go"), strings.TrimPrefix(name+" "+number, "Redis "))
	modules, err := said(ctx, "go", append([]string{"list", "-m", "-f", "{{.Path}}: {{.Version}}"}, results.Compared...)...)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, modules)
	return nil
}

// said runs a command, and returns its output.
func said(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("report: %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
