package lock_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/sharded"
)

// An even number of masters is told of once, when the Locker is made, and by Check.
//
// Source: ALGORITHM section 1, "N".
func TestEvenNumberOfMasters(t *testing.T) {
	for n, want := range map[int]string{
		1: "", 2: "2 masters grant locks with 0 of them down, as 1 do", 3: "", 4: "4 masters grant locks with 1 of them down, as 3 do", 5: "",
	} {
		locktest.Subtest(t, fmt.Sprint(n), n, func(t *testing.T, b *locktest.Bubble) {
			var log bytes.Buffer
			l := b.WarmLocker(redlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			r, err := admin.Check(t.Context(), l)
			locktest.Must(t, err)
			locktest.Must(t, l.Close())
			if got, once := log.String(), want != ""; strings.Contains(got, "odd number") != once || strings.Count(got, want) < 1 || once && strings.Count(got, want) != 1 {
				t.Errorf("got the log %q, want %q once", got, want)
			}
			f := r.Findings[0]
			level := admin.LevelOK
			if n%2 == 0 || n == 1 {
				level = admin.LevelNotice
			}
			if f.Check != "count" || f.Level != level || !strings.Contains(f.Text, want) {
				t.Errorf("got %+v, want level %v and %q", f, level, want)
			}
		})
	}
	groups := [][]string{{"a:1", "b:1"}, {"c:1", "d:1", "e:1"}, {"f:1", "g:1", "h:1", "i:1"}}
	var log bytes.Buffer
	l, err := sharded.New(groups, redlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	locktest.Must(t, err)
	locktest.Must(t, l.Close())
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "count: 2 masters") || !strings.Contains(got, "count: 4 masters") {
		t.Errorf("got the log %q, want a line for the first and the third group", got)
	}
}
