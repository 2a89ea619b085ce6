//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/svg"
)

// drawCommand runs the command redlock and draws the lines that it prints.
func drawCommand(file, title string, args ...string) error {
	out, err := exec.Command("go", append([]string{"run", "./cmd/redlock"}, args...)...).Output()
	if err != nil {
		return fmt.Errorf("redlock %s: %w", strings.Join(args, " "), err)
	}
	lines := append([]string{"$ redlock " + args[0]}, strings.Split(strings.TrimSpace(string(out)), "\n")...)
	widest := 0
	for _, l := range lines {
		widest = max(widest, utf8.RuneCountInString(l))
	}
	c := svg.New(40+7.3*float64(widest), 30+18*float64(len(lines)), title)
	for i, l := range lines {
		colour := svg.Ink
		switch {
		case strings.HasSuffix(l, " ok"), strings.HasSuffix(l, "passed."):
			colour = svg.Green
		case strings.HasSuffix(l, " killed"), strings.HasSuffix(l, " paused"), strings.Contains(l, "oversold by"):
			colour = svg.Red
		}
		c.Code(20, 30+18*float64(i), colour, l)
	}
	return c.WriteFile(file)
}

// drawTop draws redlock top, with a holder and two processes that wait, a second holder, and two
// readers.
func drawTop(file string) (err error) {
	f, err := start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	ctx := context.Background()
	for i, holder := range []struct {
		resource, owner string
		opts            []redlock.LockOption
	}{
		{"deploy", "ci-3:4711:make", nil}, {"deploy", "ci-1:917:make", nil}, {"deploy", "ci-2:1388:make", nil},
		{"nightly", "web-1:812:backup", nil},
		{"stock:7", "web-1", []redlock.LockOption{redlock.Shared()}}, {"stock:7", "web-2", []redlock.LockOption{redlock.Shared()}},
	} {
		locker, err := f.locker()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, locker.Close()) }()
		opts := append(holder.opts, redlock.WithOwner(holder.owner))
		if i == 1 || i == 2 { // they wait until Close
			go func() { _, _ = locker.Lock(ctx, holder.resource, opts...) }()
		} else if _, err := locker.Lock(ctx, holder.resource, opts...); err != nil {
			return err
		}
	}
	time.Sleep(time.Second) // until both are in the queue
	return drawCommand(file, "redlock top", "top", "--masters", strings.Join(f.addrs, ","))
}
