package fencing

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/several"
)

// Schema has the tables that the functions of this file use. Package fence has a table of its own.
const Schema = `
CREATE TABLE stock (item VARCHAR(99) PRIMARY KEY, amount BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0);
CREATE TABLE orders (id BIGINT PRIMARY KEY, item VARCHAR(99) NOT NULL, shipped BIGINT NOT NULL DEFAULT 0);`

// Sell reduces the stock of item by one, under a lock of its own.
func Sell(ctx context.Context, locker *redlock.Locker, db *sql.DB, item string) error {
	return locker.Do(ctx, "stock:"+item, func(ctx context.Context, lease *redlock.Lease) error {
		return fence.Tx(ctx, db, fence.PostgreSQL, lease, func(tx *sql.Tx) error {
			var amount int64
			if err := tx.QueryRowContext(ctx, `SELECT amount FROM stock WHERE item = $1`, item).Scan(&amount); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE stock SET amount = $1 WHERE item = $2`, amount-1, item)
			return err
		})
	})
}

// SellOne is one statement that compares the fencing token with the row and writes.
func SellOne(ctx context.Context, db *sql.DB, item string, token int64) error {
	return fence.Changed(db.ExecContext(ctx,
		`UPDATE stock SET amount = amount - 1, fence = $1 WHERE item = $2 AND fence <= $1`, token, item))
}

// Ship counts an order up and the stock of its item down, under one lease on both.
func Ship(ctx context.Context, locker *redlock.Locker, db *sql.DB, id int64, item string) error {
	names := several.Names{Write: []string{fmt.Sprint("order:", id), "stock:" + item}}
	return several.Do(ctx, locker, names, func(ctx context.Context, lease *several.Lease) error {
		return fence.TxAll(ctx, db, fence.PostgreSQL, lease.Parts(), func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `UPDATE orders SET shipped = shipped + 1 WHERE id = $1`, id); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE stock SET amount = amount - 1 WHERE item = $1`, item)
			return err
		})
	})
}
