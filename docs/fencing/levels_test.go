//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/redistest"
)

// A guard is where a holder presents its token.
type guard int

const (
	nowhere     guard = iota // control
	atWriteOnly              // control
	withTx
)

var guards = map[guard]string{nowhere: "no token", atWriteOnly: "at the write only", withTx: "fence.Tx"}

// A level is how a database runs transactions, and which of them lose updates if the token
// is presented nowhere, or after the read.
type level struct {
	database
	name      string
	isolation sql.IsolationLevel
	losesOne  bool // with one transaction for the read and the write
}

var levels = []level{
	{postgreSQL, "read committed", sql.LevelReadCommitted, true},
	{postgreSQL, "repeatable read", sql.LevelRepeatableRead, false},
	{postgreSQL, "serializable", sql.LevelSerializable, false},
	{mariaDB, "read uncommitted", sql.LevelReadUncommitted, true},
	{mariaDB, "read committed", sql.LevelReadCommitted, true},
	{mariaDB, "repeatable read", sql.LevelRepeatableRead, true},
	{database{"MariaDB", fence.MySQL, openMariaDB("&innodb_snapshot_isolation=1")}, "repeatable read, innodb_snapshot_isolation", sql.LevelRepeatableRead, false},
	{mariaDB, "serializable", sql.LevelSerializable, false},
	{database{"SQLite", fence.SQLite, openSQLite("")}, "deferred", 0, false},
	{database{"SQLite", fence.SQLite, openSQLite("&_pragma=journal_mode(wal)")}, "deferred, WAL", 0, false},
	{database{"SQLite", fence.SQLite, openSQLite("&_pragma=journal_mode(wal)&_txlock=immediate")}, "immediate, WAL", 0, false},
}

// Holders read an account and write one more to it. Each has lost its lease as soon as the next one
// comes, and is stopped for a moment between the read and the write. With fence.Tx the account
// has every write that was accepted, at every isolation level.
//
// Control: no token, and the token at the write only. Both lose updates if the read and the write
// are two transactions. If they are one, both lose some where the database neither locks what was
// read nor compares at the commit.
func TestLevels(t *testing.T) {
	for _, l := range levels {
		for _, two := range []bool{false, true} {
			for _, g := range []guard{nowhere, atWriteOnly, withTx} {
				name := fmt.Sprintf("%s, %s, %s, %s", l.database.name, l.name, map[bool]string{false: "one transaction", true: "two transactions"}[two], guards[g])
				t.Run(name, func(t *testing.T) {
					writes := int64(redistest.Rounds(30, 1000))
					if g == withTx {
						writes = int64(redistest.Rounds(30, 10_000))
					}
					db := l.open(t)
					mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 0)`)
					a := &account{level: l, db: at{db, l.isolation}, guard: g, two: two}
					loses := g != withTx && (two || l.losesOne)
					var lost int64
					for rounds := int64(1); rounds == 1 || loses && lost == 0 && rounds < 50; rounds++ {
						a.run(t, rounds*writes)
						lost = a.accepted.Load() - number(t, value(t, db, `SELECT amount FROM stock`))
					}
					if (lost > 0) != loses || lost < 0 {
						t.Errorf("got %d of %d updates lost, want any: %v", lost, a.accepted.Load(), loses)
					}
					t.Logf("figures: %s: of %d updates %d are lost; %d times ErrFenced, %d times given up by the database",
						name, a.accepted.Load(), lost, a.fenced.Load(), a.again.Load())
				})
			}
		}
	}
}

// account is a number in a row of stock.
type account struct {
	level
	db                      at
	guard                   guard
	two                     bool // the read and the write are two transactions
	tokens                  atomic.Int64
	accepted, fenced, again atomic.Int64
}

// run makes holders that write until so many writes were accepted.
func (a *account) run(t testing.TB, writes int64) {
	var holders sync.WaitGroup
	for range 3 {
		holders.Go(func() {
			for a.accepted.Load() < writes && !t.Failed() {
				lease := fence.NewToken("stock:apple", a.tokens.Add(1))
				err := a.add(t.Context(), lease)
				for gaveUp(err) {
					a.again.Add(1)
					err = a.add(t.Context(), lease)
				}
				switch {
				case err == nil:
					a.accepted.Add(1)
				case errors.Is(err, fence.ErrFenced):
					a.fenced.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	holders.Wait()
}

// add is the work of one holder: a read, a moment, and a write.
func (a *account) add(ctx context.Context, lease fence.Token) error {
	var amount int64
	read := func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT amount FROM stock WHERE item = 'apple'`).Scan(&amount)
	}
	stop := func() {
		pause := rand.N(200 * time.Microsecond)
		if rand.N(20) == 0 {
			pause *= 10
		}
		time.Sleep(pause)
	}
	write := func(tx *sql.Tx) error {
		if a.guard == atWriteOnly {
			if err := fence.Claim(ctx, tx, a.dialect, lease); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, a.bind(`UPDATE stock SET amount = ? WHERE item = 'apple'`), amount+1)
		return err
	}
	transaction := func(do func(*sql.Tx) error) error { return bare(ctx, a.db, do) }
	if a.guard == withTx {
		transaction = func(do func(*sql.Tx) error) error { return fence.Tx(ctx, a.db, a.dialect, lease, do) }
	}
	if !a.two {
		return transaction(func(tx *sql.Tx) error {
			if err := read(tx); err != nil {
				return err
			}
			stop()
			return write(tx)
		})
	}
	if err := transaction(read); err != nil {
		return err
	}
	stop()
	return transaction(write)
}

// bare is fence.Tx without the token.
func bare(ctx context.Context, db fence.Beginner, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// BenchmarkTx measures a sale in a transaction, without the token and with it. The servers do not
// wait for their disks.
func BenchmarkTx(b *testing.B) {
	for _, d := range []database{postgreSQL, mariaDB, {"MariaDB, interpolateParams", fence.MySQL, openMariaDB("&interpolateParams=true")}, sqLite} {
		db := d.open(b)
		mustExec(b, db, `INSERT INTO stock (item, amount) VALUES ('apple', 0)`)
		sell := func(tx *sql.Tx) error {
			var amount int64
			if err := tx.QueryRowContext(b.Context(), d.bind(`SELECT amount FROM stock WHERE item = ?`), "apple").Scan(&amount); err != nil {
				return err
			}
			_, err := tx.ExecContext(b.Context(), d.bind(`UPDATE stock SET amount = ? WHERE item = ?`), amount-1, "apple")
			return err
		}
		b.Run(d.name+"/bare", func(b *testing.B) {
			for b.Loop() {
				must(b, bare(b.Context(), db, sell))
			}
		})
		token := int64(0)
		b.Run(d.name+"/fence.Tx", func(b *testing.B) {
			for b.Loop() {
				token++
				must(b, fence.Tx(b.Context(), db, d.dialect, fence.NewToken("stock:apple", token), sell))
			}
		})
	}
}
