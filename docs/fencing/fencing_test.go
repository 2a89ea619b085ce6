package fencing

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlocktest"
)

// tokens is the fencing tokens of a holder that lost its lease without noticing, and of
// the one that came after it.
func tokens(t *testing.T) (old, young int64) {
	t.Helper()
	masters := redlocktest.Start(t, 3)
	first, err := masters.Locker().Lock(t.Context(), "a", redlock.WithTTL(200*time.Millisecond), redlock.WithoutRenewal())
	if err != nil {
		t.Fatal(err)
	}
	second, err := masters.Locker().Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return first.Fence(), second.Fence()
}

func openDB(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	exec(t, db, Schema)
	return db
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// value is the first column of the first row.
func value(t *testing.T, db *sql.DB, query string) (v string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// write is one way to write with a token.
type write func(fence int64) error

// wantFenced checks that a store takes every write of the older holder until the younger
// one has written, and none after that.
func wantFenced(t *testing.T, do write) {
	t.Helper()
	old, young := tokens(t)
	for i, step := range []struct {
		fence int64
		want  error
	}{{old, nil}, {old, nil}, {young, nil}, {old, ErrFenced}, {young, nil}} {
		if got := do(step.fence); !errors.Is(got, step.want) {
			t.Errorf("write %d: got %v, want %v", i+1, got, step.want)
		}
	}
}

func TestSell(t *testing.T) {
	db := openDB(t)
	exec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 100)`)
	wantFenced(t, func(fence int64) error { return Sell(t.Context(), db, "apple", fence) })
	if got := value(t, db, `SELECT amount FROM stock`); got != "96" {
		t.Errorf("got a stock of %s, want 96: one write of five was refused", got)
	}
}

func TestPut(t *testing.T) {
	db := openDB(t)
	wantFenced(t, func(fence int64) error { return Put(t.Context(), db, "colour", "red", fence) })
	if got := value(t, db, `SELECT value FROM config`); got != "red" {
		t.Errorf("got %s, want red", got)
	}
}

func TestFenced(t *testing.T) {
	db := openDB(t)
	id := 0
	wantFenced(t, func(fence int64) error {
		id++
		return Fenced(t.Context(), db, "orders", fence, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), `INSERT INTO orders (id, item) VALUES (?1, 'apple')`, id)
			return err
		})
	})
	if got := value(t, db, `SELECT group_concat(id) FROM orders`); got != "1,2,3,5" {
		t.Errorf("got orders %s, want 1,2,3,5", got)
	}
	failed := errors.New("failed")
	if got := Fenced(t.Context(), db, "orders", 1<<60, func(*sql.Tx) error { return failed }); got != failed {
		t.Errorf("got %v, want the error of the function", got)
	}
	if got := value(t, db, `SELECT count(*) FROM fences WHERE fence = 1152921504606846976`); got != "0" {
		t.Error("got a token of a transaction that failed, want none")
	}
}

func TestSet(t *testing.T) {
	rdb := redistest.Client(t, redistest.Addrs(redistest.Masters(t, 1))[0])
	wantFenced(t, func(fence int64) error { return Set(t.Context(), rdb, "colour", "red", fence) })
	if got := rdb.HGet(t.Context(), "colour", "value").Val(); got != "red" {
		t.Errorf("got %q, want red", got)
	}
}

// Control: the same steps at a store that does not look at the token.
func TestWithoutACheck(t *testing.T) {
	db := openDB(t)
	exec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 100)`)
	old, young := tokens(t)
	for _, fence := range []int64{young, old} {
		if _, err := db.ExecContext(context.Background(), `UPDATE stock SET amount = amount - 1, fence = ?1`, fence); err != nil {
			t.Fatal(err)
		}
	}
	if got := value(t, db, `SELECT amount FROM stock`); got != "98" {
		t.Errorf("got a stock of %s, want 98: nothing refuses the older holder", got)
	}
}

// What docs/fencing.md shows is what is run here.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../fencing.md")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, name := range []string{"doc.go", "sql.go", "redis.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 4 {
		t.Errorf("got %d blocks of Go, want the stores", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(source.String(), b[1]) {
			t.Errorf("docs/fencing.md has what is not run here:\n%s", b[1])
		}
	}
}
