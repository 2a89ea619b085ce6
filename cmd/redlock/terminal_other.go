//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package main

import "os"

// terminal is the controlling terminal, which this system cannot lend to a command.
type terminal struct{ lent bool }

func openTerminal(*os.File) *terminal { return nil }

func (*terminal) lend(int) {}

func (*terminal) takeBack() {}

func ignoreTTOU() {}

func suspend(chan os.Signal, bool) []os.Signal { return nil }

func isStop(os.Signal) bool     { return false }
func isContinue(os.Signal) bool { return false }
