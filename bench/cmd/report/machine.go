package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/bench/internal/results"
)

// compared are the modules whose versions matter for the figures.
var compared = []string{
	"github.com/bsm/redislock",
	"github.com/go-redsync/redsync/v4",
	"github.com/redis/go-redis/v9",
	"github.com/redis/rueidis",
}

// thisMachine describes the machine and the software of the measurement.
func thisMachine(ctx context.Context, server *redis.Client) (results.Machine, error) {
	info, err := server.Info(ctx, "server").Result()
	if err != nil {
		return results.Machine{}, fmt.Errorf("report: %w", err)
	}
	m := results.Machine{
		CPU:    after(fileText("/proc/cpuinfo"), "model name", ":"),
		Cores:  runtime.NumCPU(),
		Kernel: runtime.GOOS,
		Go:     strings.TrimPrefix(runtime.Version(), "go"),
		Redis:  after(info, "redis_version", ":"),
	}
	if v := after(info, "valkey_version", ":"); v != "" {
		m.Redis = "valkey " + v
	}
	if m.CPU == "" {
		m.CPU = runtime.GOARCH
	}
	if out, err := exec.CommandContext(ctx, "uname", "-sr").Output(); err == nil {
		m.Kernel = strings.TrimSpace(string(out))
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range build.Deps {
			if slices.Contains(compared, dep.Path) {
				m.Modules = append(m.Modules, results.Module{Path: dep.Path, Version: dep.Version})
			}
		}
	}
	return m, nil
}

func fileText(path string) string {
	text, _ := os.ReadFile(path) // not every system has this
	return string(text)
}

// after returns what follows name and separator on the first line that begins with them.
func after(text, name, separator string) string {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, separator)
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
