package lostlease

import (
	"testing"

	"github.com/d0720281/redlock/redlocktest"
)

func TestInATest(t *testing.T) {
	_, err := redlocktest.Start(t, 3).Locker().Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
}
