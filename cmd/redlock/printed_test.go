//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
)

// No command prints control characters that a client or a master has written, nor the password, nor
// does a result file have them. Its own line feeds are the only ones.
func TestPrinted(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	lies := locktest.Lies()
	for _, name := range []string{
		"no lie", "a role", "a conflicting list", "the label of a holder", "the labels of readers", "no protocol",
		"an error to auth", "arguments to auth", "no permission to time", "no permission to info", "an error to marker", "an error to requests", "an error to inspect", "an error to scan", "an error to break",
	} {
		lie, known := lies[name]
		if !known {
			t.Errorf("there is no lie %q", name)
		}
		masters, addrs := locktest.Hostile(t, 3)
		for _, m := range masters {
			m.Tell(lie)
		}
		urls := make([]string, len(addrs))
		for i, addr := range addrs {
			urls[i] = "redis://default:" + locktest.Secret + "@" + addr
		}
		for way, c := range map[string]*cluster{
			"in URLs":         {env: []string{mastersEnv + "=" + strings.Join(urls, ",")}},
			"in the variable": {env: []string{mastersEnv + "=" + strings.Join(addrs, ","), passwordEnv + "=" + locktest.Secret}},
			"of redis-cli":    {env: []string{mastersEnv + "=" + strings.Join(addrs, ","), cliPasswordEv + "=" + locktest.Secret}},
		} {
			if way != "in URLs" && !strings.HasSuffix(name, "auth") {
				continue
			}
			t.Run(name+", password "+way, func(t *redistest.T) {
				t.Parallel()
				result := filepath.Join(t.TempDir(), "result")
				call := func(args []string) {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					if args[0] == "watch" {
						ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond) // which ends it by a signal
					}
					named := c.command("redlock", args...)
					cmd := exec.CommandContext(ctx, named.Path, args...)
					cmd.Env, cmd.Cancel, cmd.WaitDelay = named.Env, func() error { return cmd.Process.Signal(syscall.SIGTERM) }, 30*time.Second
					out, err := cmd.CombinedOutput()
					cancel()
					if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
						t.Errorf("%q: %v", args, err)
					}
					if leak := locktest.Leaks(string(out)); leak != "" {
						t.Errorf("%q prints %s", args, leak)
					}
				}
				var calls sync.WaitGroup
				for i, args := range [][]string{
					{"run", "r", "-w", "200ms", "--result-file", result, "--", "env"},
					{"run", "-v", "r", "-w", "1500ms", "--", "env"}, // by then it names the holder
					{"init", "--yes"}, {"acquire", "r", "-n", "--quarantine-wait", "1s"}, {"extend", "r", "AAAAAAAAAAAAAAAAAAAAAA"}, {"release", "r", "AAAAAAAAAAAAAAAAAAAAAA"},
					{"status", "r"}, {"status", "r", "-o", "json"}, {"status", "r", "--permits", "2"}, {"list"}, {"list", "-o", "json"}, {"top"},
					{"watch", "r", "--interval", "100ms"}, {"watch", "r", "-o", "json", "--interval", "100ms"},
					{"doctor", "-v", "--locks", "--trusted-disk"}, {"doctor", "-o", "json"}, {"break", "r", "--yes"},
				} {
					if i < 4 { // one after the other: init gives the votes for which acquire waits
						call(args)
					} else { // most of these wait for masters that they cannot understand
						calls.Go(func() { call(args) })
					}
				}
				calls.Wait()
				text, err := os.ReadFile(result)
				if leak := locktest.Leaks(string(text)); err != nil || leak != "" {
					t.Errorf("the result file: %v, has %s", err, leak)
				}
			})
		}
	}
}
