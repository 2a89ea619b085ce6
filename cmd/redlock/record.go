package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// record is the content of --result-file: the fate of the lock and of the command.
type record struct {
	Locks    []lockRecord `json:"locks"`
	Outcome  string       `json:"outcome"`
	ExitCode int          `json:"exit_code"`
	Error    string       `json:"error,omitempty"`

	TTLMillis  int64      `json:"ttl_ms"`
	Asked      time.Time  `json:"asked"`
	Acquired   *time.Time `json:"acquired,omitempty"`
	ValidUntil *time.Time `json:"valid_until,omitempty"` // as known at the end of the command: no other process could hold the lock before
	Released   bool       `json:"released"`

	Command *commandRecord `json:"command,omitempty"` // only if it was started
}

// lockRecord is one lock or permit.
type lockRecord struct {
	Key   string `json:"key"`
	Slot  int    `json:"slot,omitempty"`  // of a permit, from 1; 0 for a lock
	Fence int64  `json:"fence,omitempty"` // 0 until it is held
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
	outcomeNoQuorum = "no-quorum" // not acquired: too few masters
	outcomeSignal   = "signal"    // not acquired: a signal ended the waiting
	outcomeLost     = "lost"      // the lock was lost while the command ran
	outcomeTimedOut = "timed-out" // --at-most ended the command
	outcomeError    = "error"     // the command did not run for another reason
)

// recordFile writes the record to a file. It replaces the whole file at once, so that readers
// never see half of it. It checks before the lock is acquired that the file can be replaced.
type recordFile struct {
	path string
	file *os.File
}

func openRecord(path string) (*recordFile, error) {
	if path == "" {
		return nil, nil
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a pipe, or /dev/stderr
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return &recordFile{file: f}, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	return &recordFile{path, f}, err
}

func (r *recordFile) write(rec *record) error {
	if r == nil {
		return nil
	}
	text, err := json.MarshalIndent(rec, "", "  ")
	if err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	if r.path == "" {
		return errors.Join(err, r.file.Close())
	}
	err = errors.Join(err, r.file.Chmod(0o644), r.file.Close())
	if err == nil {
		err = os.Rename(r.file.Name(), r.path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(r.file.Name()))
	}
	return err
}
