package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/wire"
)

// Exit codes. Those that do not come from the command are as in sysexits.h, or as of GNU timeout.
const (
	exitOK          = 0
	exitFailed      = 1   // an error, or the check found a fault
	exitUsage       = 64  // bad flags or arguments: nothing was done
	exitNoQuorum    = 69  // too few masters answered, or have a vote
	exitConflict    = 75  // another process holds the lock
	exitLost        = 76  // the lock was lost while the command ran
	exitConfig      = 78  // masters or options that cannot work: nothing was done
	exitTimedOut    = 124 // --at-most
	exitBroken      = 125 // redlock itself could not continue
	exitCannotRun   = 126 // the command was found but could not be started
	exitNotFound    = 127 // the command was not found
	exitSignalled   = 128 // plus the number of the signal
	exitInterrupted = 130 // as shells report a process that Ctrl-C has ended
)

// errInterrupted is matched by the error of a command that a signal has ended early.
var errInterrupted = errors.New("interrupted")

// exitError asks for an exit code. If it has no error, nothing is printed.
type exitError struct {
	code int
	error
}

func (e exitError) Error() string {
	if e.error == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.error.Error()
}

func (e exitError) Unwrap() error { return e.error }

func exitf(code int, format string, args ...any) error {
	return exitError{code, fmt.Errorf(format, args...)}
}

// usagef returns an error in flags or arguments.
func usagef(format string, args ...any) error { return exitf(exitUsage, format, args...) }

// checkNumber returns an error if the value of a flag is not from 1 to most.
func checkNumber(flag string, value, most int) error {
	if value < 1 || value > most {
		return usagef("--%s %d: must be from 1 to %d", flag, value, most)
	}
	return nil
}

// isNoQuorum reports whether the masters are why a command failed, and not another holder. Two
// addresses of one server can come without ErrNoQuorum: a quorum of the addresses granted.
func isNoQuorum(err error) bool {
	return errors.Is(err, redlock.ErrNoQuorum) || redlock.Reason(err) == sameServer
}

// sameServer is the reason of two addresses that lead to one server.
const sameServer = "same_server"

// finish prints the error of a command on one line, and returns the exit code.
func finish(err error, stderr io.Writer) int {
	if !isSilent(err) {
		fmt.Fprintln(stderr, onTerminal(stderr, "", "redlock: "+oneLine(err)))
	}
	return exitCode(err)
}

// isSilent reports whether an error is an exit code alone.
func isSilent(err error) bool {
	var e exitError
	return err == nil || errors.As(err, &e) && e.error == nil
}

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	var e exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, redlock.ErrConfig):
		return exitConfig
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	return exitFailed
}

// oneLine returns the text of an error on one line, without the prefix of the library, also where a
// command put words before it. Calls and options of the library do not concern the user of a
// command: an option goes by the name of its flag.
func oneLine(err error) string {
	text := strings.TrimPrefix(strings.NewReplacer(": redlock: ", ": ", "\nredlock: ", "\n").Replace(err.Error()), "redlock: ")
	text = inOption.ReplaceAllStringFunc(text, func(s string) string {
		m := inOption.FindStringSubmatch(s)
		name := strings.TrimPrefix(m[1], "Key") // WithKeyPrefix is --prefix
		return "--" + strings.ToLower(humps.ReplaceAllString(name, "$1-$2")) + " " + m[2] + ": "
	})
	text = forUsers.Replace(inCall.ReplaceAllString(text, ""))
	if len(text) > longestError {
		text = text[:longestError/2] + " ... " + text[len(text)-longestError/2:]
	}
	return wire.Printable(text)
}

// longestError is how many bytes of an error are shown. An argument that it quotes can have any length.
const longestError = 4000

// forUsers replaces what concerns the users of the library alone.
var forUsers = strings.NewReplacer(
	"give them as two strings", "put a comma between them",
	"for any of which package semaphore waits", "for any of which --permits waits",
	"jobs: not acquired: too late", "too late",
	", context deadline exceeded: ", ", and the time is over: ",
	"\n", "; ",
)

// The beginnings of errors that match ErrConfig.
var (
	inOption = regexp.MustCompile(`invalid configuration: With([A-Za-z]+)\((.*?)\): `)
	inCall   = regexp.MustCompile(`invalid configuration: (?:[a-z]+: )?(?:[A-Z]\w*: )?`)
	humps    = regexp.MustCompile(`([a-z])([A-Z])`)
)
