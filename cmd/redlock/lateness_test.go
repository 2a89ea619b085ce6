package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// watchDelays calls worse each time that a timer of this process has run later than any before.
func watchDelays(done <-chan struct{}, worse func(late time.Duration)) {
	const pause = 2 * time.Millisecond
	var worst time.Duration
	for {
		began := time.Now()
		select {
		case <-done:
			return
		case <-time.After(pause):
		}
		if late := time.Since(began) - pause; late > worst {
			worst = late
			worse(worst)
		}
	}
}

// latenessEnv has the directory in which a redlock of the tests writes its own worst delay. redlock
// can keep its promise only while it runs itself, and a busy machine may leave a single process
// without a processor for seconds.
const latenessEnv = "REDLOCK_TEST_LATENESS"

// observedMain is redlock, which measures its own delays if the test asks for that.
func observedMain() {
	if dir := os.Getenv(latenessEnv); dir != "" {
		file := filepath.Join(dir, delayFile(os.Getpid()))
		go watchDelays(nil, func(late time.Duration) { // redlock may end at any moment; without the file the test fails
			if os.WriteFile(file+".new", []byte(late.String()), 0o600) == nil {
				_ = os.Rename(file+".new", file)
			}
		})
	}
	os.Args = patient(os.Args)
	main()
}

// patient gives a command that only looks more time than the 250 ms of the default: on a busy machine
// a master of the tests may need it.
func patient(args []string) []string {
	looks := len(args) > 1 && slices.Contains([]string{"status", "list", "init", "doctor", "top", "watch"}, args[1])
	if !looks || slices.ContainsFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "--master-timeout") || strings.HasPrefix(arg, "--max-ttl")
	}) {
		return args
	}
	return slices.Insert(slices.Clone(args), 2, "--master-timeout=2s")
}

func delayFile(pid int) string { return fmt.Sprint("delay", pid) }
