package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// A command whose output is lost has failed.
func TestOutputIsLost(t *testing.T) {
	for _, args := range []string{"help masters", "--version", "help"} {
		var stderr bytes.Buffer
		if code := execute(t.Context(), strings.Fields(args), fullDisk{}, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%s: got code %d, %q; want code %d and the reason", args, code, &stderr, exitFailed)
		}
	}
	// What is wrong with the masters weighs more.
	for _, args := range []string{"status k", "doctor", "break k --yes", "list"} {
		for _, format := range []string{"text", "json"} {
			var stderr bytes.Buffer
			args := append(strings.Fields(args), "--masters", "127.0.0.1:1", "-o", format)
			if code := execute(t.Context(), args, fullDisk{}, &stderr); code != exitNoQuorum {
				t.Errorf("%v: got code %d, %q; want code %d", args, code, &stderr, exitNoQuorum)
			}
		}
	}
	for _, cmd := range newRoot().Commands() {
		asks := cmd.Flags().Lookup("masters") != nil && cmd.Runnable() && cmd.Name() != runName
		want := "It is also 64 for wrong usage, 78 for masters or options that cannot work, and 1 if the output cannot be written."
		if cmd.Name() == "demo" {
			asks, want = true, "output that cannot be written"
		}
		if asks && !strings.Contains(cmd.Long, want) {
			t.Errorf("the help of %s does not tell the codes", cmd.Name())
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Without a terminal, no help is wider than 80 columns, and that of redlock itself has at most 24 lines.
func TestHelpFits80Columns(t *testing.T) {
	seen := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		seen++
		var out, stderr bytes.Buffer
		args := append([]string{"help"}, strings.Fields(cmd.CommandPath())[1:]...)
		if code := execute(t.Context(), args, &out, &stderr); code != exitOK || stderr.Len() > 0 {
			t.Errorf("%v: got code %d, %s\n%s", args, code, &stderr, &out)
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 || strings.HasSuffix(line, " \n") {
				t.Errorf("%v: got a line of %d characters, want at most 80, and no blanks at the end: %q", args, n, line)
			}
		}
		if lines := strings.Count(out.String(), "\n"); !cmd.HasParent() && lines > 23 {
			t.Errorf("got %d lines, want room for them and the prompt on a terminal of 24 lines:\n%s", lines, &out)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
	if seen < 18 {
		t.Errorf("got %d commands, want all of them", seen)
	}
}

// The flags that all commands share have a help topic, and each command names it.
func TestHelpOfSharedFlags(t *testing.T) {
	for args, want := range map[string][]string{
		"help masters":  {"--masters URLs", "--prefix string", "--cacert file"},
		"help status":   {"--masters URLs", "--exit-status", "redlock help masters"},
		"help":          {"Usage:", "redlock help masters"},
		"":              {"Usage:", "redlock help masters"},
		"--help":        {"Usage:", "redlock help masters"},
		"status --help": {"redlock help masters"},
	} {
		var out bytes.Buffer
		if code := execute(t.Context(), strings.Fields(args), &out, &out); code != exitOK {
			t.Errorf("%s: got code %d", args, code)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: got\n%s\nwant %q", args, &out, w)
			}
		}
		if strings.Contains(args, "status") && strings.Contains(out.String(), "--cacert") {
			t.Errorf("%s: got the flags for TLS, want them in their topic:\n%s", args, &out)
		}
	}
}
