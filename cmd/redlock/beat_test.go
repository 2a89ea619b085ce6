package main

import (
	"encoding/binary"
	"flag"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// beat writes the time to a file every two milliseconds, until it is killed. The file shows
// when beat died.
func beat() {
	fork := flag.String("fork", "", "start another beat, with this file")
	deaf := flag.Bool("deaf", false, "do not heed SIGTERM")
	stray := flag.Bool("stray", false, "move to the process group of the parent")
	flag.Parse()
	if *deaf {
		signal.Ignore(syscall.SIGTERM) // a child beat inherits that
	}
	if *fork != "" {
		other := exec.Command(os.Args[0], *fork)
		if err := other.Start(); err != nil {
			log.Fatal(err)
		}
	}
	if *stray {
		moveGroup() // a child beat stays where it is
	}
	f, err := os.Create(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < time.Minute; { // in case a test has failed to kill it
		now := binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
		if _, err := f.Write(now); err != nil {
			log.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// moveGroup is set where there are process groups.
var moveGroup func()

// beating reports whether a beat has begun.
func beating(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Size() >= 8
}

// lastBeat returns the last time that beat wrote.
func lastBeat(t testing.TB, file string) time.Time {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil || len(text) < 8 {
		t.Fatalf("%s: got %d bytes, %v; want a beat", file, len(text), err)
	}
	text = text[:len(text)/8*8]
	return time.Unix(0, int64(binary.LittleEndian.Uint64(text[len(text)-8:])))
}
