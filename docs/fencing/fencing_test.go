//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlocktest"
	"github.com/d0720281/redlock/semaphore"
)

// tokens returns the leases of a holder that lost its lease without noticing, and of the next holder.
func tokens(t testing.TB) (old, young *redlock.Lease) {
	t.Helper()
	masters := redlocktest.Start(t, 3)
	old, err := masters.Locker().Lock(t.Context(), "a", redlock.WithTTL(200*time.Millisecond), redlock.WithoutRenewal())
	must(t, err)
	young, err = masters.Locker().Lock(t.Context(), "a")
	must(t, err)
	return old, young
}

// reader is the token of a reader, by way of a header.
func reader(t testing.TB, resource string, number int64) fence.Token {
	t.Helper()
	token, err := fence.FromHeader(http.Header{fence.Header: {fmt.Sprintf("shared %d %s", number, resource)}}, resource)
	must(t, err)
	return token
}

// number is a text as a number.
func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
}

// insert makes a piece of work that inserts an order.
func insert(t testing.TB, d database, id int) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), d.bind(`INSERT INTO orders (id, item) VALUES (?, 'apple')`), id)
		return err
	}
}

// orders returns which orders are there.
func orders(t testing.TB, db *sql.DB) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT id FROM orders ORDER BY id`)
	must(t, err)
	ids := []string{}
	for rows.Next() {
		var id string
		must(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	must(t, rows.Err())
	return strings.Join(ids, ",")
}

// A store takes every write of the older holder until the younger one has come, and none after that.
func TestTx(t *testing.T) {
	old, young := tokens(t)
	onEach(t, func(t *redistest.T, d database, db *sql.DB) {
		mustExec(t, db, d.dialect.Schema()) // once more does nothing
		for i, step := range []struct {
			lease *redlock.Lease
			want  error
		}{{old, nil}, {old, nil}, {young, nil}, {old, fence.ErrFenced}, {young, nil}} {
			err := fence.Tx(t.Context(), db, d.dialect, step.lease, insert(t, d, i))
			if !errors.Is(err, step.want) {
				t.Errorf("transaction %d: got %v, want %v", i, err, step.want)
			}
			var late *fence.FencedError
			want := fence.FencedError{Resource: "a", Token: old.Fence(), Seen: young.Fence()}
			if step.want != nil && (!errors.As(err, &late) || *late != want) {
				t.Errorf("got %v, want %v", err, &want)
			}
		}
		failed := errors.New("failed")
		later := fence.NewToken("a", 1<<62)
		if got := fence.Tx(t.Context(), db, d.dialect, later, func(*sql.Tx) error { return failed }); got != failed {
			t.Errorf("got %v, want the error of the function", got)
		}
		func() {
			defer func() { _ = recover() }()
			_ = fence.Tx(t.Context(), db, d.dialect, later, func(*sql.Tx) error { panic("at the disco") })
		}()
		must(t, fence.Tx(t.Context(), db, d.dialect, young, insert(t, d, 5))) // the token of what failed was not kept
		ctx, cancel := context.WithCancel(t.Context())
		if got := fence.Tx(ctx, db, d.dialect, young, func(tx *sql.Tx) error {
			defer cancel()
			return insert(t, d, 6)(tx)
		}); !errors.Is(got, context.Canceled) {
			t.Errorf("got %v of a transaction whose context ended, want context.Canceled", got)
		}
		if got := orders(t, db); got != "0,1,2,4,5" {
			t.Errorf("got orders %s, want 0,1,2,4,5", got)
		}
		// Names that a database may regard as equal, or shorten.
		for _, name := range []string{"A", "a ", "ä", strings.Repeat("n", redlock.MaxResourceLength), strings.Repeat("n", redlock.MaxResourceLength-1)} {
			if err := fence.Tx(t.Context(), db, d.dialect, fence.NewToken(name, 1), func(*sql.Tx) error { return nil }); err != nil {
				t.Errorf("%q: got %v, want a resource of its own", name, err)
			}
		}
	})
}

// The token of a reader is compared with the largest one of a writer, and is not kept.
func TestReaders(t *testing.T) {
	onEach(t, func(t *redistest.T, d database, db *sql.DB) {
		look := func(*sql.Tx) error { return nil }
		for i, step := range []struct {
			lease fence.Token
			want  error
		}{
			{reader(t, "a", 7), nil}, // before any writer
			{fence.NewToken("a", 6), nil},
			{reader(t, "a", 9), nil},
			{fence.NewToken("a", 8), nil},
			{reader(t, "a", 7), fence.ErrFenced},
			{reader(t, "a", 8), nil},
			{fence.NewToken("a", 7), fence.ErrFenced},
		} {
			if err := fence.Tx(t.Context(), db, d.dialect, step.lease, look); !errors.Is(err, step.want) {
				t.Errorf("step %d: got %v, want %v", i, err, step.want)
			}
		}
	})
}

// Readers that come before any writer, at the same time, do not wait for each other in a circle.
func TestReadersComeFirst(t *testing.T) {
	onEach(t, func(t *redistest.T, d database, db *sql.DB) {
		var readers sync.WaitGroup
		for range 6 {
			readers.Go(func() {
				for i := range 25 {
					lease := reader(t, fmt.Sprint("a", i), 7)
					err := fence.Tx(t.Context(), db, d.dialect, lease, func(*sql.Tx) error { return nil })
					if err != nil {
						t.Errorf("resource %d: got %v, want no deadlock", i, err)
					}
				}
			})
		}
		readers.Wait()
	})
}

// While a reader reads, a writer waits: at every level the reader sees all of a write or nothing.
//
// Control: without the token a reader sees the half at READ COMMITTED.
func TestReadersSeeNoHalf(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, d := range []database{postgreSQL, mariaDB} {
		waiting := `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`
		if d.dialect == fence.MySQL {
			waiting = `SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'`
		}
		for _, first := range []string{"a writer was there", "no writer was there"} {
			for _, token := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, token %v", d.name, first, token), func(t *redistest.T) {
					db := at{d.open(t), sql.LevelReadCommitted}
					mustExec(t, db.DB, `INSERT INTO stock (item, amount) VALUES ('apple', 1), ('pear', 1)`)
					if first == "a writer was there" {
						must(t, fence.Tx(t.Context(), db, d.dialect, fence.NewToken("a", 1), func(*sql.Tx) error { return nil }))
					}
					read := func(do func(*sql.Tx) error) error { return bare(t.Context(), db, do) }
					if token {
						read = func(do func(*sql.Tx) error) error { return fence.Tx(t.Context(), db, d.dialect, reader(t, "a", 5), do) }
					}
					written := make(chan error, 1)
					var apples, pears int
					must(t, read(func(tx *sql.Tx) error {
						must(t, tx.QueryRowContext(t.Context(), `SELECT amount FROM stock WHERE item = 'apple'`).Scan(&apples))
						go func() {
							written <- fence.Tx(t.Context(), db, d.dialect, fence.NewToken("a", 8), func(tx *sql.Tx) error {
								_, err := tx.ExecContext(t.Context(), `UPDATE stock SET amount = 2`)
								return err
							})
						}()
						if !token {
							must(t, <-written)
							written <- nil
						} else {
							redistest.Eventually(t, 30*time.Second, func() bool {
								time.Sleep(150 * time.Millisecond) // InnoDB shows the same list of transactions while it is read more often than every 100 ms
								return len(written) > 0 || value(t, db.DB, waiting) != "0"
							}, "the writer is through, or waits")
						}
						return tx.QueryRowContext(t.Context(), `SELECT amount FROM stock WHERE item = 'pear'`).Scan(&pears)
					}))
					must(t, <-written)
					if (apples == pears) != token {
						t.Errorf("got %d and %d, want the same: %v", apples, pears, token)
					}
				})
			}
		}
	}
}

// Each permit of a semaphore, and each resource of several, has a token of its own. Nothing is written if
// one of them is too small.
func TestTxAll(outer *testing.T) {
	t := redistest.Timed(outer)
	s, err := semaphore.New(redlocktest.Start(t, 3).Locker(), "pool", 3)
	must(t, err)
	one, err := s.Acquire(t.Context(), 1)
	must(t, err)
	two, err := s.Acquire(t.Context(), 2)
	must(t, err)
	onEach(outer, func(t *redistest.T, d database, db *sql.DB) {
		for i, lease := range []*semaphore.Lease{two, one, two} { // the token of one is the oldest
			must(t, fence.TxAll(t.Context(), db, d.dialect, lease.Parts(), insert(t, d, i)))
		}
		late := []fence.Token{fence.NewToken("y", 5), fence.NewToken(one.Parts()[0].Resource(), 1), fence.NewToken("b", 5)}
		if err := fence.TxAll(t.Context(), db, d.dialect, late, insert(t, d, 3)); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("got %v of a permit that another holder has, want ErrFenced", err)
		}
		old, young := fence.NewToken("twice", 5), fence.NewToken("twice", 6)
		for _, both := range [][]fence.Token{{old, young}, {young, old}} { // of one resource
			if err := fence.TxAll(t.Context(), db, d.dialect, both, insert(t, d, 3)); !errors.Is(err, fence.ErrFenced) {
				t.Errorf("got %v of an older token beside a younger one, want ErrFenced", err)
			}
		}
		if got := orders(t, db); got != "0,1,2" {
			t.Errorf("got orders %s, want 0,1,2", got)
		}
	})
}

// Transactions lock the rows of their resources in one order, so that they never wait for each other in a circle.
func TestTxAllInAnyOrder(t *testing.T) {
	onEach(t, func(t *redistest.T, d database, db *sql.DB) {
		a, b := fence.NewToken("a", 1), fence.NewToken("b", 1)
		must(t, fence.TxAll(t.Context(), db, d.dialect, []fence.Token{a, b}, func(*sql.Tx) error { return nil }))
		var holders sync.WaitGroup
		for _, leases := range [][]fence.Token{{a, b}, {b, a}, {a, b}, {b, a}} {
			holders.Go(func() {
				for range 50 {
					if err := fence.TxAll(t.Context(), db, d.dialect, leases, func(*sql.Tx) error { return nil }); err != nil {
						t.Errorf("got %v, want no deadlock", err)
						return
					}
				}
			})
		}
		holders.Wait()
	})
}

// A token that comes after a read is still compared with the newest one, not with that of the snapshot of the read, or the
// database gives the transaction up.
func TestClaimAfterARead(t *testing.T) {
	for _, l := range levels {
		if l.isolation == sql.LevelSerializable && l.dialect == fence.MySQL || l.name == "immediate, WAL" || l.name == "deferred" {
			continue // the other holder waits for the reader
		}
		t.Run(l.database.name+", "+l.name, func(t *testing.T) {
			db := at{l.open(t), l.isolation}
			present := func(token int64) error {
				return fence.Tx(t.Context(), db, l.dialect, fence.NewToken("a", token), func(*sql.Tx) error { return nil })
			}
			must(t, present(6))
			err := bare(t.Context(), db, func(tx *sql.Tx) error {
				must(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM redlock_fences`).Scan(new(int)))
				must(t, present(8))
				return fence.Claim(t.Context(), tx, l.dialect, fence.NewToken("a", 7))
			})
			if !errors.Is(err, fence.ErrFenced) && !gaveUp(err) {
				t.Errorf("got %v, want ErrFenced, or a failure of the database", err)
			}
		})
	}
}

// A row of the program's own table keeps the token.
func TestClaimRow(t *testing.T) {
	old, young := tokens(t)
	onEach(t, func(t *redistest.T, d database, db *sql.DB) {
		mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 10)`)
		stock := fence.Column{Dialect: d.dialect, Table: "stock", Key: "item", Fence: "fence"}
		sell := func(lease *redlock.Lease, item string) error {
			return bare(t.Context(), db, func(tx *sql.Tx) error {
				if err := fence.ClaimRow(t.Context(), tx, stock, item, lease); err != nil {
					return err
				}
				_, err := tx.ExecContext(t.Context(), d.bind(`UPDATE stock SET amount = amount - 1 WHERE item = ?`), item)
				return err
			})
		}
		for i, step := range []struct {
			lease *redlock.Lease
			item  string
			want  error
		}{
			{old, "apple", nil}, {young, "apple", nil}, {young, "apple", nil}, {old, "apple", fence.ErrFenced}, {young, "pear", sql.ErrNoRows},
		} {
			if err := sell(step.lease, step.item); !errors.Is(err, step.want) {
				t.Errorf("step %d: got %v, want %v", i, err, step.want)
			}
		}
		err := bare(t.Context(), db, func(tx *sql.Tx) error { return fence.ClaimRow(t.Context(), tx, stock, "apple", reader(t, "a", 1)) })
		if !errors.Is(err, fence.ErrFenced) {
			t.Errorf("an old reader: got %v, want ErrFenced", err)
		}
		if got := value(t, db, `SELECT amount FROM stock`); got != "7" {
			t.Errorf("got a stock of %s, want 7", got)
		}
		// One statement, and the control: the same without the comparison.
		if d.dialect == fence.MySQL {
			return
		}
		if err := errors.Join(SellOne(t.Context(), db, "apple", young.Fence())); err != nil {
			t.Error(err)
		}
		if err := SellOne(t.Context(), db, "apple", old.Fence()); !errors.Is(err, fence.ErrFenced) {
			t.Errorf("got %v, want ErrFenced", err)
		}
		mustExec(t, db, `UPDATE stock SET amount = amount - 1`)
		if got := value(t, db, `SELECT amount FROM stock`); got != "5" {
			t.Errorf("got a stock of %s, want 5", got)
		}
	})
}

// A column that does not keep a token refuses each holder, and not only the late ones.
func TestColumnOfAnotherType(t *testing.T) {
	for _, c := range []struct {
		database
		column string
	}{{sqLite, "TEXT"}, {database{"MariaDB, not strict", fence.MySQL, openMariaDB("&sql_mode=''")}, "INT"}} {
		t.Run(c.name, func(t *testing.T) {
			db := c.open(t)
			mustExec(t, db, "CREATE TABLE odd (item VARCHAR(9) PRIMARY KEY, fence "+c.column+" NOT NULL)")
			mustExec(t, db, "INSERT INTO odd VALUES ('apple', 0)")
			odd := fence.Column{Dialect: c.dialect, Table: "odd", Key: "item", Fence: "fence"}
			for _, token := range []int64{1790000000000002, 1790000000000001} {
				err := bare(t.Context(), db, func(tx *sql.Tx) error {
					return fence.ClaimRow(t.Context(), tx, odd, "apple", fence.NewToken("a", token))
				})
				if !errors.Is(err, fence.ErrConfig) {
					t.Errorf("token %d: got %v, want ErrConfig", token, err)
				}
			}
		})
	}
}

// A deadlock rolls the token back. The function of Tx returns it, and nothing is written.
//
// Control: it executes the statement again. Then MariaDB writes without the token, and an older holder comes in;
// PostgreSQL does not commit.
func TestDeadlock(t *testing.T) {
	for _, d := range []database{postgreSQL, mariaDB} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, again %v", d.name, again), func(t *testing.T) {
				db := d.open(t)
				mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 0), ('pear', 0)`)
				add := func(tx *sql.Tx, item string, amount int) error {
					_, err := tx.ExecContext(t.Context(), d.bind(`UPDATE stock SET amount = amount + ? WHERE item = ?`), amount, item)
					return err
				}
				var holders, both sync.WaitGroup
				both.Add(2)
				errs, victim := [2]error{}, ""
				for i, items := range [][]string{{"apple", "pear"}, {"pear", "apple"}} {
					holders.Go(func() {
						errs[i] = fence.Tx(t.Context(), db, d.dialect, fence.NewToken(items[0], 8), func(tx *sql.Tx) error {
							err := add(tx, items[0], 1)
							both.Done()
							both.Wait()
							if err == nil {
								err = add(tx, items[1], 1)
							}
							if gaveUp(err) {
								victim = items[0]
								if again {
									_, err = add(tx, items[1], 100), error(nil)
								}
							}
							return err
						})
					})
				}
				holders.Wait()
				if victim == "" {
					t.Fatalf("got %v, want a deadlock", errs)
				}
				unprotected := again && d.dialect == fence.MySQL
				if err := errors.Join(errs[:]...); (err == nil) != unprotected {
					t.Errorf("got %v, want no error: %v", err, unprotected)
				}
				want := map[bool]string{false: "2", true: "102"}[unprotected]
				if got := value(t, db, `SELECT sum(amount) FROM stock`); got != want {
					t.Errorf("got a sum of %s, want %s", got, want)
				}
				must(t, fence.Tx(t.Context(), db, d.dialect, fence.NewToken(victim, 7), func(*sql.Tx) error { return nil }))
			})
		}
	}
}

// An older holder comes while the transaction of the younger one has written and is not over. It
// waits, and compares with what was committed, even with a row that was not there when it came. At
// REPEATABLE READ PostgreSQL gives it up.
func TestOlderHolderWaits(outer *testing.T) {
	t := redistest.Timed(outer)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		address := postgresSchema(t)
		db, look := connect(t, "pgx", address+" application_name=holder"), connect(t, "pgx", address)
		old := make(chan error, 1)
		must(t, fence.Tx(t.Context(), look, fence.PostgreSQL, fence.NewToken("a", 8), func(*sql.Tx) error {
			go func() {
				old <- fence.Tx(t.Context(), at{db, level}, fence.PostgreSQL, fence.NewToken("a", 7), insert(t, postgreSQL, 1))
			}()
			redistest.Eventually(t, time.Minute, func() bool { return waits(t, look) }, "the older holder waits")
			return nil
		}))
		err := <-old
		if level == sql.LevelReadCommitted && !errors.Is(err, fence.ErrFenced) || level == sql.LevelRepeatableRead && !gaveUp(err) {
			t.Errorf("%v: got %v, want ErrFenced or a serialization failure", level, err)
		}
		if got := orders(t, look); got != "" {
			t.Errorf("got orders %s, want none", got)
		}
	}
}

// An order and its stock are written together, and the next holder of one of them is compared.
func TestSellAndShip(outer *testing.T) {
	t := redistest.Timed(outer)
	db := openPostgres(t)
	mustExec(t, db, `INSERT INTO orders (id, item) VALUES (17, 'apple')`)
	mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 10)`)
	locker := redlocktest.Start(t, 3).Locker()
	must(t, Ship(t.Context(), locker, db, 17, "apple"))
	must(t, Sell(t.Context(), locker, db, "apple"))
	if got := value(t, db, `SELECT concat(shipped, ', ', amount) FROM orders, stock`); got != "1, 8" {
		t.Errorf("got %s, want 1, 8", got)
	}
	for _, resource := range []string{"order:17", "stock:apple"} {
		err := fence.Tx(t.Context(), db, fence.PostgreSQL, fence.NewToken(resource, 1), insert(t, postgreSQL, 1))
		if !errors.Is(err, fence.ErrFenced) {
			t.Errorf("%s: got %v, want ErrFenced", resource, err)
		}
	}
}

// A holder that lost its lease and the next holder each read a value in Redis and write one more, in every
// order. The value must have every write that was accepted.
//
// Control: a read that does not present the token. Two orders then lose an update: both
// holders read, then the older one writes before the younger one does.
func TestRedis(outer *testing.T) {
	t := redistest.Timed(outer)
	rdb := redistest.Client(t, redistest.Addrs(redistest.Masters(t, 1))[0])
	old, young := tokens(t)
	for _, plain := range []bool{false, true} {
		for _, order := range []string{"ooyy", "oyoy", "oyyo", "yooy", "yoyo", "yyoo"} { // o: the older holder reads, then writes; y: the younger
			must(t, rdb.Del(t.Context(), "account").Err())
			type holder struct {
				lease *redlock.Lease
				began bool
				value int
				err   error
			}
			holders, accepted := map[rune]*holder{'o': {lease: old}, 'y': {lease: young}}, 0
			for _, name := range order {
				h := holders[name]
				switch {
				case h.began && h.err == nil:
					if h.err = fence.Set(t.Context(), rdb, "account", h.value+1, h.lease); h.err == nil {
						accepted++
					}
				case !h.began:
					h.began = true
					text, err := rdb.HGet(t.Context(), "account", "value").Result()
					if !plain {
						text, err = fence.Get(t.Context(), rdb, "account", h.lease)
					}
					if h.err = err; errors.Is(err, redis.Nil) {
						text, h.err = "0", nil
					}
					h.value, _ = strconv.Atoi(text)
				}
			}
			if err := holders['y'].err; err != nil {
				t.Errorf("%s: the younger holder: got %v, want its write accepted", order, err)
			}
			if err := holders['o'].err; err != nil && !errors.Is(err, fence.ErrFenced) {
				t.Errorf("%s: the older holder: got %v, want nil or ErrFenced", order, err)
			}
			left, err := rdb.HGet(t.Context(), "account", "value").Int()
			must(t, err)
			if want := plain && (order == "oyoy" || order == "yooy"); (left != accepted) != want {
				t.Errorf("%s, a plain read %v: got %d after %d accepted writes, want an update lost: %v", order, plain, left, accepted, want)
			}
		}
	}
}

// The code in docs/fencing.md is the code that is tested here.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../fencing.md")
	must(t, err)
	source, err := os.ReadFile("sql.go")
	must(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 3 {
		t.Errorf("got %d blocks of Go, want those of sql.go", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(source), b[1]) {
			t.Errorf("docs/fencing.md has what is not run here:\n%s", b[1])
		}
	}
}
