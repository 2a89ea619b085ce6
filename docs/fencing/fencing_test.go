package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlocktest"
)

// tokens returns the fencing tokens of a holder that lost its lease without noticing, and of
// the next holder.
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

// databases opens an empty database of each kind.
var databases = map[string]func(*testing.T) *sql.DB{"SQLite": openSQLite}

// onEach runs a test on each kind of database.
func onEach(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func openSQLite(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	mustExec(t, db, Schema)
	return db
}

func mustExec(t *testing.T, db *sql.DB, statement string) {
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
	onEach(t, func(t *testing.T, db *sql.DB) {
		mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 100)`)
		wantFenced(t, func(fence int64) error { return Sell(t.Context(), db, "apple", fence) })
		if got := value(t, db, `SELECT amount FROM stock`); got != "96" {
			t.Errorf("got a stock of %s, want 96: one write of five was refused", got)
		}
	})
}

func TestPut(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		wantFenced(t, func(fence int64) error { return Put(t.Context(), db, "colour", "red", fence) })
		if got := value(t, db, `SELECT value FROM config`); got != "red" {
			t.Errorf("got %s, want red", got)
		}
	})
}

func TestFenced(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		id := 0
		wantFenced(t, func(fence int64) error {
			id++
			return Fenced(t.Context(), db, "orders", fence, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), `INSERT INTO orders (id, item) VALUES ($1, 'apple')`, id)
				return err
			})
		})
		if got := value(t, db, `SELECT string_agg(CAST(id AS TEXT), ',' ORDER BY id) FROM orders`); got != "1,2,3,5" {
			t.Errorf("got orders %s, want 1,2,3,5", got)
		}
		failed := errors.New("failed")
		if got := Fenced(t.Context(), db, "orders", 1<<60, func(*sql.Tx) error { return failed }); got != failed {
			t.Errorf("got %v, want the error of the function", got)
		}
		if got := value(t, db, `SELECT count(*) FROM fences WHERE fence = 1152921504606846976`); got != "0" {
			t.Error("got a token of a transaction that failed, want none")
		}
	})
}

// An order and its stock are written together, or neither if one of the two tokens is too small.
func TestShip(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		mustExec(t, db, `INSERT INTO orders (id, item) VALUES (17, 'apple')`)
		mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 10)`)
		for _, step := range []struct {
			order, stock int64
			want         error
			shipped      string
		}{
			{7, 3, nil, "1, 9"},
			{7, 2, ErrFenced, "1, 9"}, // another order was shipped meanwhile
			{6, 4, ErrFenced, "1, 9"},
			{8, 3, nil, "2, 8"}, // tokens of the two cannot be compared
		} {
			if err := ship(t.Context(), db, 17, step.order, "apple", step.stock); !errors.Is(err, step.want) {
				t.Errorf("tokens %d and %d: got %v, want %v", step.order, step.stock, err, step.want)
			}
			if got := value(t, db, `SELECT concat(shipped, ', ', amount) FROM orders, stock`); got != step.shipped {
				t.Errorf("tokens %d and %d: got %s, want %s", step.order, step.stock, got, step.shipped)
			}
		}
		locker := redlocktest.Start(t, 3).Locker()
		if err := Ship(t.Context(), db, locker, 17, "apple"); err != nil {
			t.Error(err)
		}
		if err := ship(t.Context(), db, 17, 1<<60, "apple", 4); !errors.Is(err, ErrFenced) {
			t.Errorf("after Ship: got %v, want ErrFenced by the token of its lease", err)
		}
		if got := value(t, db, `SELECT concat(shipped, ', ', amount) FROM orders, stock`); got != "3, 7" {
			t.Errorf("after Ship: got %s, want 3, 7", got)
		}
	})
}

func TestSet(t *testing.T) {
	rdb := redistest.Client(t, redistest.Addrs(redistest.Masters(t, 1))[0])
	wantFenced(t, func(fence int64) error { return Set(t.Context(), rdb, "colour", "red", fence) })
	if got := rdb.HGet(t.Context(), "colour", "value").Val(); got != "red" {
		t.Errorf("got %q, want red", got)
	}
}

// A read takes the token as a write does, and returns what is there.
func TestReads(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 5)`)
		wantFenced(t, func(fence int64) error {
			amount, err := Amount(t.Context(), db, "apple", fence)
			if err == nil && amount != 5 {
				t.Errorf("got an amount of %d, want 5", amount)
			}
			return err
		})
		if _, err := Amount(t.Context(), db, "pear", 1<<60); !errors.Is(err, ErrFenced) {
			t.Errorf("an item that is not there: got %v, want ErrFenced", err)
		}
	})
	rdb := redistest.Client(t, redistest.Addrs(redistest.Masters(t, 1))[0])
	want := ""
	wantFenced(t, func(fence int64) error {
		got, err := Get(t.Context(), rdb, "colour", fence)
		if err == nil && got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if err == nil && want == "" {
			want = "red"
			err = Set(t.Context(), rdb, "colour", want, fence)
		}
		return err
	})
}

// account is a number that holders read, and write one more to.
type account struct {
	read  func(fence int64) (int64, error)
	write func(fence, value int64) error
	left  func() int64
}

// sqlAccount is one whose write is SetAmount.
func sqlAccount(t *testing.T, db *sql.DB) account {
	t.Helper()
	mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 0)`)
	return account{
		write: func(fence, value int64) error { return SetAmount(t.Context(), db, "apple", value, fence) },
		left:  func() int64 { return number(t, value(t, db, `SELECT amount FROM stock`)) },
	}
}

// redisAccount is one whose write is Set.
func redisAccount(t *testing.T, rdb *redis.Client) account {
	t.Helper()
	if err := rdb.Del(t.Context(), "account").Err(); err != nil {
		t.Fatal(err)
	}
	return account{
		write: func(fence, value int64) error { return Set(t.Context(), rdb, "account", fmt.Sprint(value), fence) },
		left:  func() int64 { return number(t, rdb.HGet(t.Context(), "account", "value").Val()) },
	}
}

// A holder that lost its lease and the next holder each read an account and increment it, in every
// order. The account must have every write that was accepted.
//
// Control: a read that does not present the token. Two orders then lose an update: both
// holders read, then the older one writes before the younger one does.
func TestReadAndWrite(t *testing.T) {
	old, young := tokens(t)
	rdb := redistest.Client(t, redistest.Addrs(redistest.Masters(t, 1))[0])
	type kind struct {
		name  string
		loses bool
		open  func(t *testing.T) account
	}
	kinds := []kind{
		{"Redis", false, func(t *testing.T) account {
			a := redisAccount(t, rdb)
			a.read = func(fence int64) (int64, error) {
				v, err := Get(t.Context(), rdb, "account", fence)
				return number(t, v), err
			}
			return a
		}},
		{"Redis, a plain read", true, func(t *testing.T) account {
			a := redisAccount(t, rdb)
			a.read = func(int64) (int64, error) { return a.left(), nil }
			return a
		}},
	}
	for name, openDB := range databases {
		kinds = append(kinds, kind{name, false, func(t *testing.T) account {
			db := openDB(t)
			a := sqlAccount(t, db)
			a.read = func(fence int64) (int64, error) { return Amount(t.Context(), db, "apple", fence) }
			return a
		}}, kind{name + ", a plain read", true, func(t *testing.T) account {
			a := sqlAccount(t, openDB(t))
			a.read = func(int64) (int64, error) { return a.left(), nil }
			return a
		}}, kind{name + ", one transaction reads and another writes", false, func(t *testing.T) account {
			db := openDB(t)
			a := sqlAccount(t, db)
			a.read = func(fence int64) (amount int64, err error) {
				err = Fenced(t.Context(), db, "stock", fence, func(tx *sql.Tx) error {
					return tx.QueryRowContext(t.Context(), `SELECT amount FROM stock`).Scan(&amount)
				})
				return amount, err
			}
			a.write = func(fence, value int64) error {
				return Fenced(t.Context(), db, "stock", fence, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), `UPDATE stock SET amount = $1`, value)
					return err
				})
			}
			return a
		}})
	}
	for _, test := range kinds {
		for _, order := range []string{"ooyy", "oyoy", "oyyo", "yooy", "yoyo", "yyoo"} { // o: the older holder reads, then writes; y: the younger
			t.Run(test.name+" "+order, func(t *testing.T) {
				a := test.open(t)
				accepted := a.sell(t, order, map[rune]int64{'o': old, 'y': young})
				want := test.loses && (order == "oyoy" || order == "yooy")
				if got := a.left() != accepted; got != want {
					t.Errorf("got %d after %d accepted writes, want an update lost: %v", a.left(), accepted, want)
				}
			})
		}
	}
}

// sell has holders read and write in an order, with their tokens, and counts the writes that
// were accepted. The younger holder is never refused.
func (a account) sell(t *testing.T, order string, tokens map[rune]int64) (accepted int64) {
	t.Helper()
	type holder struct {
		began bool
		value int64
		err   error
	}
	holders := map[rune]*holder{'o': {}, 'y': {}}
	for _, name := range order {
		switch h := holders[name]; {
		case !h.began:
			h.began = true
			h.value, h.err = a.read(tokens[name])
		case h.err == nil:
			if h.err = a.write(tokens[name], h.value+1); h.err == nil {
				accepted++
			}
		}
	}
	if err := holders['y'].err; err != nil {
		t.Errorf("the younger holder: got %v, want its write accepted", err)
	}
	if err := holders['o'].err; err != nil && !errors.Is(err, ErrFenced) {
		t.Errorf("the older holder: got %v, want nil or ErrFenced", err)
	}
	return accepted
}

// number is a text as a number, 0 for "".
func number(t *testing.T, text string) int64 {
	t.Helper()
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Control: the same steps at a store that does not look at the token.
func TestWithoutACheck(t *testing.T) {
	onEach(t, func(t *testing.T, db *sql.DB) {
		mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 100)`)
		old, young := tokens(t)
		for _, fence := range []int64{young, old} {
			if _, err := db.ExecContext(context.Background(), `UPDATE stock SET amount = amount - 1, fence = $1`, fence); err != nil {
				t.Fatal(err)
			}
		}
		if got := value(t, db, `SELECT amount FROM stock`); got != "98" {
			t.Errorf("got a stock of %s, want 98: nothing refuses the older holder", got)
		}
	})
}

// The code in docs/fencing.md is the code that is tested here.
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
