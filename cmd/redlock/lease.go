package main

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
)

// The commands acquire, extend and release, for scripts that hold a lock during more than one
// command, and for programs that are no children of redlock run.

// tokenEnv is where extend and release look if no token is given.
const tokenEnv = "REDLOCK_TOKEN"

const tokenHelp = `

The token identifies the holder of the lock, to redlock and to the masters. A process that has the token, and access to the masters, can extend and release the lock. The token is no password, but do not log it. It needs no quotes in a shell; with -o json redlock acquire prints it as the library has it, and both forms are accepted. Without TOKEN it is taken from $REDLOCK_TOKEN, and does not appear in the list of processes.`

const acquireHelp = `Take the lock KEY, print its token, and exit. The lock stays, and belongs to the token.

Nothing renews the lock: it ends when the TTL is over, unless it was extended or released by its token before. If work needs the lock for an unknown time, use redlock run: it renews the lock, and kills the command if it cannot. A TTL longer than 10s needs a --max-ttl that all clients of the masters have in common.

Without -w and -n redlock waits for as long as it takes.

Exit code: 0 if the lock was taken, 75 if another process holds it, 69 if there is no quorum of masters, and 130 if a signal ended the waiting.`

const acquireExample = `  token=$(redlock acquire deploy --ttl 10s -n) || exit
  redlock extend deploy "$token" || exit
  redlock release deploy "$token"`

const extendHelp = `Extend the lock KEY that was taken by redlock acquire, by its TTL from now on.

The life of the lock never gets shorter. A lock that has ended is not taken anew, even if it is free.` + tokenHelp + `

Exit code: 0 if the lock was extended, 76 if it is not held by that token any more, and 69 if too few masters answered: it may still be held then.`

const releaseHelp = `Release the lock KEY that was taken by redlock acquire.` + tokenHelp + `

Exit code: 0 if the lock was released, 76 if it was not held by that token any more, and 69 if too few masters answered: it ends by itself when its TTL is over.`

// leaseCommand is one of the commands acquire, extend and release.
type leaseCommand struct {
	asking
	taking
}

func newAcquire() *cobra.Command {
	var c leaseCommand
	cmd := &cobra.Command{
		Use:     "acquire KEY [flags]",
		Short:   "Take a lock and print its token",
		Long:    acquireHelp,
		Example: acquireExample,
		Args:    wants(1, "which lock? give a KEY"),
	}
	f := cmd.Flags()
	c.registerTTL(f, ttlUsage)
	c.taking.register(f)
	c.output.register(f)
	return c.command(cmd, func(ctx context.Context, keys []string) error { return c.acquire(ctx, keys, cmd.ErrOrStderr()) }, c.options, func() ([]redlock.Option, error) {
		return []redlock.Option{redlock.WithLogger(c.logger(cmd.ErrOrStderr())), c.ownedBy(os.Getppid(), "acquire")}, nil // the script lives on
	})
}

func newExtend() *cobra.Command {
	var c leaseCommand
	cmd := byToken("extend", "Extend a lock by its token", extendHelp)
	cmd.Example = `  redlock extend deploy "$token" --ttl 10s`
	c.registerTTL(cmd.Flags(), ttlUsage)
	c.output.register(cmd.Flags())
	return c.command(cmd, c.extend, c.options)
}

func newRelease() *cobra.Command {
	var c leaseCommand
	cmd := byToken("release", "Release a lock by its token", releaseHelp)
	cmd.Example = `  redlock release deploy "$token"`
	return c.command(cmd, c.release)
}

// byToken makes a command for a lock that was acquired before.
func byToken(name, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: name + " KEY [TOKEN] [flags]", Short: short, Long: long,
		Args: wants(2, "which lock? give its KEY and the TOKEN that redlock acquire printed"),
	}
}

const ttlUsage = "how long the lock lives from now on"

// options returns the options for leases with the TTL of the flags.
func (c *leaseCommand) options() ([]redlock.Option, error) {
	err := c.taking.check(c.maxTTL) // sets the TTL
	return []redlock.Option{redlock.WithTTL(c.ttl), redlock.WithoutRenewal()}, err
}

func (c *leaseCommand) acquire(ctx context.Context, keys []string, stderr io.Writer) error {
	c.keys = keys
	lease, err := c.get(ctx, c.locker, stderr)
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // Close releases a lock that was acquired meanwhile
	case errors.Is(err, redlock.ErrNotAcquired) && !isNoQuorum(err):
		return exitError{code: exitConflict}
	case err != nil:
		return err
	}
	// Without its token the lock would be of no use: if the token cannot be written, Close releases
	// the lock.
	le := lease.Parts()[0]
	if err := c.tell(leaseReport{name: keyName(le.Resource()), Token: le.Token(), Fence: le.Fence()}, le.Validity(), forShell(le.Token())+"\n"); err != nil {
		return err
	}
	if err := le.Detach(); err != nil { // the lock stays on the masters, and belongs to the token
		return exitError{exitLost, err}
	}
	return nil
}

// forShell returns a token in a form that needs no quotes in a shell. Behind a semicolon it may have
// the label of the holder, which is any text.
func forShell(token string) string {
	return strings.ReplaceAll(url.QueryEscape(token), "~", "%7E")
}

// fromShell returns the token of that form. A token as the library has it is returned as it is.
func fromShell(text string) string {
	token, err := url.QueryUnescape(text)
	if err != nil || strings.Contains(text, ";") {
		return text
	}
	return token
}

// tell shows a lease as JSON, if the flags ask for it, and otherwise writes a text.
func (c *leaseCommand) tell(lease leaseReport, left time.Duration, text string) error {
	if c.format != "json" {
		_, err := io.WriteString(c.out, text)
		return err
	}
	lease.TTLMillis, lease.ValidMillis, lease.ValidUntil = c.ttl.Milliseconds(), left.Milliseconds(), time.Now().Add(left)
	return writeJSON(c.out, lease, "  ")
}

// leaseReport is a lease in JSON.
type leaseReport struct {
	name
	Token       string    `json:"token"`
	Fence       int64     `json:"fence,omitempty"` // may be unknown after an extend with masters down
	TTLMillis   int64     `json:"ttl_ms"`
	ValidMillis int64     `json:"valid_ms"`
	ValidUntil  time.Time `json:"valid_until"` // by this machine's clock, no other process can hold the lock before
}

func (c *leaseCommand) extend(ctx context.Context, args []string) error {
	token, err := tokenOf(args)
	if err != nil {
		return err
	}
	var left time.Duration
	var fence int64
	_, err = connecting(func() (struct{}, error) {
		left, fence, err = c.locker.ExtendToken(ctx, args[0], token)
		return struct{}{}, err
	})
	if err != nil {
		return notHeldBy(args[0], err)
	}
	return c.tell(leaseReport{name: keyName(args[0]), Token: token, Fence: fence}, left, "")
}

func (c *leaseCommand) release(ctx context.Context, args []string) error {
	token, err := tokenOf(args)
	if err != nil {
		return err
	}
	_, err = connecting(func() (struct{}, error) { return struct{}{}, c.locker.ReleaseToken(ctx, args[0], token) })
	return notHeldBy(args[0], err)
}

// tokenOf returns the token of the command.
func tokenOf(args []string) (string, error) {
	token := fromShell(os.Getenv(tokenEnv))
	if len(args) > 1 {
		token = fromShell(args[1])
	}
	if token == "" {
		return "", usagef("which lock? give its KEY and the TOKEN that redlock acquire printed, by argument or in %s", tokenEnv)
	}
	return token, nil
}

// notHeldBy adds to an error what it means for the command.
func notHeldBy(key string, err error) error {
	if errors.Is(err, redlock.ErrNotHeld) {
		return exitf(exitLost, "%s is not held by that token any more: %s", key, oneLine(err))
	}
	return err
}
