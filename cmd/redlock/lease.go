package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/d0720281/redlock"
)

// The commands acquire, extend and release, for scripts that hold a lock during more than one
// command, and for programs that are no children of redlock run.

// handleEnv is where extend and release look if no handle is given.
const handleEnv = "REDLOCK_HANDLE"

const handleHelp = `

The handle names the lock. A process that has the handle, and access to the masters, can extend and release the lock, and a program can go on with it by Adopt of the library. The handle is no password, but do not log it. It needs no quotes in a shell. Without HANDLE it is taken from $REDLOCK_HANDLE, and does not appear in the list of processes.`

const acquireHelp = `Take the lock KEY, print its handle, and exit. The lock stays, and belongs to the handle.

Nothing renews the lock: it ends when the TTL is over, unless it was extended or released by its handle before. If work needs the lock for an unknown time, use redlock run: it renews the lock, and kills the command if it cannot. A TTL longer than 10s needs a --max-ttl that all clients of the masters have in common.

Without -w and -n redlock waits for as long as it takes.

Exit code: 0 if the lock was taken, 75 if another process holds it, 69 if there is no quorum of masters, and 130 if a signal ended the waiting.`

const acquireExample = `  handle=$(redlock acquire deploy --ttl 10s -n) || exit
  redlock extend "$handle" || exit
  redlock release "$handle"`

const extendHelp = `Extend a lock that was taken by redlock acquire, by its TTL from now on.

The life of the lock never gets shorter. A lock that has ended is not taken anew, even if it is free.` + handleHelp + `

Exit code: 0 if the lock was extended, 76 if it is not held by that handle any more, and 69 if too few masters answered: it may still be held then.`

const releaseHelp = `Release a lock that was taken by redlock acquire.` + handleHelp + `

Exit code: 0 if the lock was released, 76 if it was not held by that handle any more, and 69 if too few masters answered: it ends by itself when its TTL is over.`

// leaseCommand is one of the commands acquire, extend and release.
type leaseCommand struct {
	asking
	taking
}

func newAcquire() *cobra.Command {
	var c leaseCommand
	cmd := &cobra.Command{
		Use:     "acquire KEY [flags]",
		Short:   "Take a lock and print its handle",
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
	cmd := byHandle("extend", "Extend a lock by its handle", extendHelp)
	c.registerTTL(cmd.Flags(), ttlUsage)
	c.output.register(cmd.Flags())
	return c.command(cmd, c.extend, c.options)
}

func newRelease() *cobra.Command {
	var c leaseCommand
	cmd := byHandle("release", "Release a lock by its handle", releaseHelp)
	return c.command(cmd, c.release)
}

// byHandle makes a command for a lock that was acquired before.
func byHandle(name, short, long string) *cobra.Command {
	return &cobra.Command{Use: name + " [HANDLE] [flags]", Short: short, Long: long, Example: "  redlock " + name + ` "$handle"`, Args: cobra.ArbitraryArgs}
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
	// Without its handle the lock would be of no use: if that cannot be written, Close releases the lock.
	le := lease.Parts()[0]
	if err := c.tell(le.Handle(), le.Validity(), le.Handle().String()+"\n"); err != nil {
		return err
	}
	if _, err := le.Detach(); err != nil { // the lock stays on the masters, and belongs to the handle
		return exitError{exitLost, err}
	}
	return nil
}

// tell shows a lease as JSON, if the flags ask for it, and otherwise writes a text.
func (c *leaseCommand) tell(h redlock.Handle, left time.Duration, text string) error {
	if c.format != "json" {
		_, err := io.WriteString(c.out, text)
		return err
	}
	return writeJSON(c.out, leaseReport{keyName(h.Resource()), h, h.Fence(), c.ttl.Milliseconds(), left.Milliseconds(), time.Now().Add(left)}, "  ")
}

// leaseReport is a lease in JSON.
type leaseReport struct {
	name
	Handle      redlock.Handle `json:"handle"`
	Fence       int64          `json:"fence"`
	TTLMillis   int64          `json:"ttl_ms"`
	ValidMillis int64          `json:"valid_ms"`
	ValidUntil  time.Time      `json:"valid_until"` // by this machine's clock, no other process can hold the lock before
}

func (c *leaseCommand) extend(ctx context.Context, args []string) error {
	h, err := handleOf(args)
	if err != nil {
		return err
	}
	left, err := connecting(func() (time.Duration, error) { return c.locker.Extend(ctx, h) })
	if err != nil {
		return notHeld(h, err)
	}
	return c.tell(h, left, "")
}

func (c *leaseCommand) release(ctx context.Context, args []string) error {
	h, err := handleOf(args)
	if err != nil {
		return err
	}
	_, err = connecting(func() (struct{}, error) { return struct{}{}, c.locker.Unlock(ctx, h) })
	return notHeld(h, err)
}

// handleOf returns the Handle of the command.
func handleOf(args []string) (h redlock.Handle, err error) {
	text := os.Getenv(handleEnv)
	if len(args) > 0 {
		text = args[0]
	}
	switch err := h.UnmarshalText([]byte(text)); {
	case text == "":
		return h, usagef("which lock? give the HANDLE that redlock acquire printed, by argument or in %s", handleEnv)
	case err != nil, len(args) > 1:
		return h, usagef("give the HANDLE that redlock acquire printed, and nothing else: it stands for the KEY and the TOKEN of earlier versions")
	}
	return h, nil
}

// notHeld adds to an error what it means for the command.
func notHeld(h redlock.Handle, err error) error {
	if errors.Is(err, redlock.ErrNotHeld) {
		return exitf(exitLost, "%s is not held by that handle any more: %s", h.Resource(), oneLine(err))
	}
	return err
}
