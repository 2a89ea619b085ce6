//go:build !linux

package redlock

func systemClock() Clock { return RuntimeClock() }
