package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
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

var cpuModel = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

// thisMachine describes the machine and the software of the measurement.
func thisMachine(ctx context.Context, server *redis.Client) (results.Machine, error) {
	info, err := server.InfoMap(ctx, "server").Result()
	if err != nil {
		return results.Machine{}, fmt.Errorf("report: %w", err)
	}
	m := results.Machine{
		CPU:    runtime.GOARCH,
		Cores:  runtime.NumCPU(),
		Kernel: runtime.GOOS,
		Go:     strings.TrimPrefix(runtime.Version(), "go"),
		Redis:  info["Server"]["redis_version"],
	}
	if v := info["Server"]["valkey_version"]; v != "" {
		m.Redis = "valkey " + v
	}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo") // only Linux has it
	if found := cpuModel.FindSubmatch(cpuinfo); found != nil {
		m.CPU = string(found[1])
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
