package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// limit gives each of some processes at most a part of one processor, in percent, by a control group of its
// own. That takes root. A short period keeps a process that has used its part up from waiting for long.
func limit(b *testing.B, percent int, pids []int) {
	b.Helper()
	const period = 20 * time.Millisecond
	quota := period * time.Duration(percent) / 100
	root, settings := "/sys/fs/cgroup", map[string]string{"cpu.max": fmt.Sprint(quota.Microseconds(), " ", period.Microseconds())}
	if _, err := os.Stat(root + "/cpu/cpu.cfs_quota_us"); err == nil { // version 1
		root += "/cpu"
		settings = map[string]string{"cpu.cfs_period_us": fmt.Sprint(period.Microseconds()), "cpu.cfs_quota_us": fmt.Sprint(quota.Microseconds())}
	}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0); err != nil {
			b.Fatal(err)
		}
	}
	for _, pid := range pids {
		dir, err := os.MkdirTemp(root, "redlock-bench-")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			write(filepath.Join(root, "cgroup.procs"), strconv.Itoa(pid))
			_ = os.Remove(dir)
		})
		if _, old := settings["cpu.cfs_period_us"]; old {
			write(filepath.Join(dir, "cpu.cfs_period_us"), settings["cpu.cfs_period_us"]) // before the quota
		}
		for name, text := range settings {
			write(filepath.Join(dir, name), text)
		}
		write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
	}
}
