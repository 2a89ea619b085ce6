package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/d0720281/redlock/several"
)

// Schema has the tables that the functions of this file use.
const Schema = `
CREATE TABLE stock (item TEXT PRIMARY KEY, amount BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0);
CREATE TABLE config (name TEXT PRIMARY KEY, value TEXT NOT NULL, fence BIGINT NOT NULL);
CREATE TABLE fences (resource TEXT PRIMARY KEY, fence BIGINT NOT NULL);
CREATE TABLE orders (id BIGINT PRIMARY KEY, item TEXT NOT NULL, shipped BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0);`

// Sell reduces the stock of item by one. One statement compares the fencing token and writes.
func Sell(ctx context.Context, db *sql.DB, item string, fence int64) error {
	return changed(db.ExecContext(ctx,
		`UPDATE stock SET amount = amount - 1, fence = $1 WHERE item = $2 AND fence <= $1`, fence, item))
}

// changed returns ErrFenced if a statement changed no row, because the token was too small.
func changed(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n > 0 || err != nil {
		return err
	}
	return ErrFenced
}

// Amount reads the stock for a write that is computed from it. It presents the token with
// the read. From then on the row refuses every older holder.
func Amount(ctx context.Context, db *sql.DB, item string, fence int64) (amount int64, err error) {
	err = db.QueryRowContext(ctx,
		`UPDATE stock SET fence = $1 WHERE item = $2 AND fence <= $1 RETURNING amount`, fence, item).Scan(&amount)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrFenced
	}
	return amount, err
}

// SetAmount writes an amount that was computed from Amount, with the same token.
func SetAmount(ctx context.Context, db *sql.DB, item string, amount, fence int64) error {
	return changed(db.ExecContext(ctx,
		`UPDATE stock SET amount = $3, fence = $1 WHERE item = $2 AND fence <= $1`, fence, item, amount))
}

// Put sets a value, and inserts its row if there is none.
func Put(ctx context.Context, db *sql.DB, name, value string, fence int64) error {
	return changed(db.ExecContext(ctx, `
		INSERT INTO config (name, value, fence) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value, fence = excluded.fence
		WHERE config.fence <= excluded.fence`, name, value, fence))
}

// Fenced runs a transaction that may read and change any table. The first statement keeps
// every older holder out, even in the middle of a transaction.
func Fenced(ctx context.Context, db *sql.DB, resource string, fence int64, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	err = changed(tx.ExecContext(ctx, `
		INSERT INTO fences (resource, fence) VALUES ($1, $2)
		ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence
		WHERE fences.fence <= excluded.fence`, resource, fence))
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Ship counts an order up and the stock of its item down, under one lease on both.
func Ship(ctx context.Context, db *sql.DB, locker several.Locker, id int64, item string) error {
	order, stock := fmt.Sprintf("order:%d", id), "stock:"+item
	return several.Do(ctx, locker, several.Names{Write: []string{order, stock}}, func(ctx context.Context, lease *several.Lease) error {
		return ship(ctx, db, id, lease.Part(order).Fence(), item, lease.Part(stock).Fence())
	})
}

// ship compares the fencing token of each row with the row, and writes both rows or none.
func ship(ctx context.Context, db *sql.DB, id, orderFence int64, item string, stockFence int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	if err := changed(tx.ExecContext(ctx,
		`UPDATE orders SET shipped = shipped + 1, fence = $1 WHERE id = $2 AND item = $3 AND fence <= $1`, orderFence, id, item)); err != nil {
		return err
	}
	if err := changed(tx.ExecContext(ctx,
		`UPDATE stock SET amount = amount - 1, fence = $1 WHERE item = $2 AND fence <= $1`, stockFence, item)); err != nil {
		return err
	}
	return tx.Commit()
}
