package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// In the shell blocks of the README and docs/, every line that calls this command has a
// subcommand, flags and arguments that exist. The test runs none of them.
func TestPagesCallTheCommand(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	found := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, line := range calls(string(text)) {
			found++
			if err := understood(line); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(page), line, err)
			}
		}
	}
	if found < 10 {
		t.Errorf("got %d calls of the command, want all of them", found)
	}
	for _, wrong := range []string{
		"redlock rum nightly", "redlock status nightly --colour", "redlock run nightly --ttl soon -- true", "redlock list now then",
		"go run ./cmd/redlock demo --no-such-flag", "handle=$(redlock acquire deploy --ttl)",
	} {
		for _, line := range calls("```sh\n" + wrong + "\n```\n") {
			if understood(line) == nil {
				t.Errorf("got no complaint about %q", line)
			}
		}
		if len(calls("```sh\n"+wrong+"\n```\n")) != 1 {
			t.Errorf("got no call in %q", wrong)
		}
	}
}

// calls returns the arguments with which a page's shell blocks call this command.
func calls(text string) (list []string) {
	for _, block := range regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$").FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, " # ")
			if m := regexp.MustCompile(`(?:^|[ (])(?:redlock|go run \./cmd/redlock) ([^)|;]*)`).FindStringSubmatch(line); m != nil {
				list = append(list, strings.TrimSpace(m[1]))
			}
		}
	}
	return list
}

// understood parses a line as redlock would. Its words have no spaces.
func understood(line string) error {
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.Trim(args[i], `'"`)
	}
	root := newRoot()
	cmd, rest, err := root.Find(withDash(root, args))
	if err != nil {
		return err
	}
	if cmd == root {
		return usagef("there is no command %q", line)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
