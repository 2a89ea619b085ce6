package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// record is the content of --result-file: the fate of the lock and of the command.
type record struct {
	Locks    []lockRecord `json:"locks"`
	Outcome  string       `json:"outcome"`
	ExitCode int          `json:"exit_code"`
	Error    string       `json:"error,omitempty"`

	TTLMillis  int64     `json:"ttl_ms"`
	Asked      time.Time `json:"asked"`
	Acquired   time.Time `json:"acquired,omitzero"`
	ValidUntil time.Time `json:"valid_until,omitzero"` // as known at the end of the command: no other process could hold the lock before
	Released   bool      `json:"released"`

	Command *commandRecord `json:"command,omitempty"` // only if it was started
}

// lockRecord is one lock or permit.
type lockRecord struct {
	name
	Slot  int   `json:"slot,omitempty"`  // of a permit, from 1; 0 for a lock
	Fence int64 `json:"fence,omitempty"` // 0 until it is held
}

type commandRecord struct {
	Pid      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	ExitCode int       `json:"exit_code"`
	Signal   string    `json:"signal,omitempty"` // the signal that ended it
}

// The outcomes.
const (
	outcomeDone     = "done"      // the command ended by itself, or by a signal that was not from redlock
	outcomeConflict = "conflict"  // not acquired: another process holds the lock, or the wait was over
	outcomeLate     = "late"      // not acquired: too late for the run that was due
	outcomeNoQuorum = "no-quorum" // not acquired: too few masters
	outcomeSignal   = "signal"    // not acquired: a signal ended the waiting
	outcomeLost     = "lost"      // the lock was lost while the command ran
	outcomeTimedOut = "timed-out" // --at-most ended the command
	outcomeError    = "error"     // the command did not run for another reason
)

// recordFile writes the record to a file. It replaces the whole file at once, so that readers
// never see half of it. It checks before the lock is acquired that the file can be replaced. The new
// file has the mode of the old one, or without an old one that of the umask: it names keys and tokens.
type recordFile struct {
	path string
	file *os.File
}

// isOpen matches the names of files that are open, which are written and not replaced.
var isOpen = regexp.MustCompile(`^/(dev/std(out|err)$|dev/fd/|proc/self/fd/)`)

func openRecord(path string) (*recordFile, error) {
	if path == "" {
		return nil, nil
	}
	old, err := os.Stat(path)
	if err == nil && (!old.Mode().IsRegular() || isOpen.MatchString(path)) { // a pipe, or /dev/stderr
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		return &recordFile{file: f}, err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil { // a link stays a link
		path = real
	}
	mode := fs.FileMode(0o666)
	if err == nil {
		mode = old.Mode().Perm()
	}
	f, err := os.OpenFile(path+"."+rand.Text(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil && old != nil {
		err = f.Chmod(mode) // whatever the umask
	}
	return &recordFile{path, f}, err
}

func (r *recordFile) write(rec *record) error {
	if r == nil {
		return nil
	}
	err := writeJSON(r.file, rec, "  ")
	if r.path == "" {
		return errors.Join(err, r.file.Close())
	}
	err = errors.Join(err, r.file.Close())
	if err == nil {
		err = os.Rename(r.file.Name(), r.path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(r.file.Name()))
	}
	return err
}

// holdings returns what a lease stands for: several keys in the order in which they were given, and
// permits by their numbers.
func (r *run) holdings(lease held) (parts []lockRecord) {
	for _, le := range lease.Parts() {
		p := lockRecord{name: keyName(le.Resource()), Fence: le.Fence()}
		if r.permits > 0 {
			p.Slot, _ = strconv.Atoi(strings.TrimPrefix(p.Key, r.keys[0]+"~"))
			p.name = keyName(r.keys[0])
		}
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b lockRecord) int {
		return a.Slot - b.Slot + slices.Index(r.keys, a.Key) - slices.Index(r.keys, b.Key)
	})
	return parts
}

var ownVariable = regexp.MustCompile(`^REDLOCK_(MODE|(KEY|SLOT|FENCE)(_[0-9]+)?)=`)

// environment returns the environment of the command. What a redlock around this one has set is
// left out, and so are the credentials of the masters unless the user wants to pass them.
func (r *run) environment(lease held) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return ownVariable.MatchString(v) || !r.passCredentials && hasCredentials(v)
	})
	all := r.holdings(lease)
	mode := string(lease.Parts()[0].Mode())
	if r.permits > 0 {
		env = append(env, "REDLOCK_KEY="+r.keys[0])
		mode = "permit"
	}
	for i, part := range all {
		suffix := ""
		if len(all) > 1 {
			suffix = fmt.Sprint("_", i+1)
		}
		if part.Slot > 0 {
			env = append(env, fmt.Sprintf("REDLOCK_SLOT%s=%d", suffix, part.Slot))
		} else {
			env = append(env, "REDLOCK_KEY"+suffix+"="+part.Key)
		}
		env = append(env, fmt.Sprintf("REDLOCK_FENCE%s=%d", suffix, part.Fence))
	}
	return append(env, fmt.Sprint("REDLOCK_TTL_MS=", r.ttl.Milliseconds()), "REDLOCK_MODE="+mode)
}
