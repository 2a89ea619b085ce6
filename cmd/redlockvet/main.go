// Redlockvet finds the mistakes that make a lock of package redlock useless. It runs under go vet:
//
//	go install github.com/d0720281/redlock/cmd/redlockvet@latest
//	go vet -vettool=$(which redlockvet) ./...
//
// Each check is also a flag: with -droppederror go vet runs that check alone. The checks see one
// function at a time, and report only what is a mistake whatever the rest of the program does. Of tests errequal
// alone is checked. Examples are checked, but not by lostlease. The page docs/vet.md has the checks with examples.
package main

import (
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/unitchecker"
)

var checks = []*analysis.Analyzer{outerContext, lostLease, droppedError, handlerLocker, errEqual, deferLoop, fenceTx}

func main() { unitchecker.Main(checks...) }
