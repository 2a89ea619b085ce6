package locktest

import (
	"slices"

	"github.com/d0720281/redlock"
)

// On returns an option that calls f for the events of some kinds.
func On(f func(redlock.Event), kinds ...redlock.EventKind) redlock.Option {
	return redlock.WithObserver(func(e redlock.Event) {
		if slices.Contains(kinds, e.Kind) {
			f(e)
		}
	})
}
