//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlocktest"
)

// transaction is fence.Tx or bare.
type transaction func(db *sql.DB, lease *redlock.Lease, do func(*sql.Tx) error) error

// stopAndSell sells one apple for each of two holders. The first one is stopped past the end of its
// lease, between its read and its write. It returns how many apples were sold.
func stopAndSell(ctx context.Context, db *sql.DB, locker *redlock.Locker, inTx transaction) (sold int, err error) {
	sell := func(lease *redlock.Lease, stop func() error) error {
		var amount int
		err := inTx(db, lease, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT amount FROM stock WHERE item = 'apple'`).Scan(&amount)
		})
		if err == nil {
			err = stop()
		}
		if err != nil {
			return err
		}
		return inTx(db, lease, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE stock SET amount = $1 WHERE item = 'apple'`, amount-1)
			return err
		})
	}
	stopped, err := locker.Lock(ctx, "stock:apple", redlock.WithTTL(200*time.Millisecond), redlock.WithoutRenewal())
	if err != nil {
		return 0, err
	}
	first := sell(stopped, func() error { // the other holder gets the lock when this lease is over
		return locker.Do(ctx, "stock:apple", func(_ context.Context, lease *redlock.Lease) error {
			return sell(lease, func() error { return nil })
		})
	})
	if first == nil {
		return 2, nil
	}
	return 1, first
}

// The holder that was stopped sells nothing, and the stock has every sale. Control: without the
// token it sells what was sold, and a sale is lost.
func TestStopAndSell(outer *testing.T) {
	t := redistest.Timed(outer)
	inTx := map[string]transaction{
		"fence.Tx": func(db *sql.DB, lease *redlock.Lease, do func(*sql.Tx) error) error {
			return fence.Tx(t.Context(), db, fence.PostgreSQL, lease, do)
		},
		"no token": func(db *sql.DB, _ *redlock.Lease, do func(*sql.Tx) error) error { return bare(t.Context(), db, do) },
	}
	for name, want := range map[string]struct{ sold, left int64 }{"fence.Tx": {1, 9}, "no token": {2, 9}} {
		t.Run(name, func(t *redistest.T) {
			db, locker := openPostgres(t), redlocktest.Start(t, 3).Locker()
			mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 10)`)
			sold, err := stopAndSell(t.Context(), db, locker, inTx[name])
			left := number(t, value(t, db, `SELECT amount FROM stock`))
			if int64(sold) != want.sold || left != want.left || errors.Is(err, fence.ErrFenced) != (name == "fence.Tx") {
				t.Errorf("got %d sold and %d left with error %v, want %d and %d", sold, left, err, want.sold, want.left)
			}
			t.Logf("%d were sold of 10, and %d are left: %v", sold, left, err)
		})
	}
}
