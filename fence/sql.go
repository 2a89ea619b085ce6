package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A Dialect is a kind of database. Its zero value is none.
type Dialect int

// The dialects. MySQL is also that of MariaDB. The tables must be of InnoDB there. SQLite needs
// version 3.35 or later.
const (
	PostgreSQL Dialect = iota + 1
	MySQL
	SQLite
)

const ownTable = "redlock_fences"

// Schema returns the statement that creates the table redlock_fences, which [Tx], [TxAll] and
// [Claim] use, unless it exists. A program runs it once, like the rest of its schema. It returns
// "" for a dialect that does not exist.
func (d Dialect) Schema() string {
	switch d {
	case PostgreSQL, SQLite:
		return `CREATE TABLE IF NOT EXISTS ` + ownTable + ` (resource TEXT PRIMARY KEY, fence BIGINT NOT NULL)`
	case MySQL: // bytes: collations regard some names as equal that are not
		return `CREATE TABLE IF NOT EXISTS ` + ownTable + ` (resource VARBINARY(512) PRIMARY KEY, fence BIGINT NOT NULL) ENGINE=InnoDB`
	}
	return ""
}

// A Column is where a table of the program keeps the token of each row. The names become part of
// the statements as they are: quote them as the database wants it, and take them from no user. The
// column is a 64-bit integer, NOT NULL DEFAULT 0. Key is unique.
type Column struct {
	Dialect Dialect
	Table   string // "stock"
	Key     string // the column that [ClaimRow] finds a row by: "item"
	Fence   string // the column of the token: "fence"
}

// statements has what presents a token in a table. The arguments of each are the token and the key.
type statements struct {
	claim string // keeps the larger token and locks the row; returns the larger token, unless look is there
	look  string // returns the token of the locked row
	check string // locks the row against writers and returns its token; the key alone
	plant string // inserts a row that no writer has used; the key alone
}

func (c Column) statements(insert bool) (s statements, err error) {
	if c.Table == "" || c.Key == "" || c.Fence == "" {
		return s, fmt.Errorf("%w: a Column without a table, a key or a fence", ErrConfig)
	}
	// In MySQL the statement that keeps the token returns nothing. So another one looks, and locks, since
	// a plain read at REPEATABLE READ returns what was there before.
	form := map[Dialect][5]string{ // claim, the same with an insert, look, check, plant
		PostgreSQL: {
			`UPDATE %[1]s AS t SET %[3]s = GREATEST(t.%[3]s, $1) WHERE t.%[2]s = $2 RETURNING t.%[3]s`,
			`INSERT INTO %[1]s AS t (%[3]s, %[2]s) VALUES ($1, $2) ON CONFLICT (%[2]s) DO UPDATE SET %[3]s = GREATEST(t.%[3]s, excluded.%[3]s) RETURNING t.%[3]s`,
			``,
			`SELECT %[3]s FROM %[1]s WHERE %[2]s = $1 FOR SHARE`,
			`INSERT INTO %[1]s (%[3]s, %[2]s) VALUES (0, $1) ON CONFLICT (%[2]s) DO NOTHING`,
		},
		MySQL: {
			`UPDATE %[1]s SET %[3]s = GREATEST(%[3]s, ?) WHERE %[2]s = ?`,
			`INSERT INTO %[1]s (%[3]s, %[2]s) VALUES (?, ?) ON DUPLICATE KEY UPDATE %[3]s = GREATEST(%[3]s, VALUES(%[3]s))`,
			`SELECT %[3]s FROM %[1]s WHERE %[2]s = ? FOR UPDATE`,
			`SELECT %[3]s FROM %[1]s WHERE %[2]s = ? LOCK IN SHARE MODE`,
			`INSERT IGNORE INTO %[1]s (%[3]s, %[2]s) VALUES (0, ?)`,
		},
		SQLite: { // a transaction that has read is a snapshot
			`UPDATE %[1]s SET %[3]s = max(%[3]s, ?) WHERE %[2]s = ? RETURNING %[3]s`,
			`INSERT INTO %[1]s (%[3]s, %[2]s) VALUES (?, ?) ON CONFLICT (%[2]s) DO UPDATE SET %[3]s = max(%[3]s, excluded.%[3]s) RETURNING %[3]s`,
			``,
			`SELECT %[3]s FROM %[1]s WHERE %[2]s = ?`,
			`INSERT INTO %[1]s (%[3]s, %[2]s) VALUES (0, ?) ON CONFLICT (%[2]s) DO NOTHING`,
		},
	}
	f, ok := form[c.Dialect]
	if !ok {
		return s, fmt.Errorf("%w: dialect %d", ErrConfig, c.Dialect)
	}
	fill := func(i int) string {
		if f[i] == "" {
			return ""
		}
		return fmt.Sprintf(f[i], c.Table, c.Key, c.Fence)
	}
	s = statements{claim: fill(0), look: fill(2), check: fill(3)}
	if insert {
		s.claim, s.plant = fill(1), fill(4)
	}
	return s, nil
}

// A Beginner begins transactions: a *sql.DB or a *sql.Conn. A program that wants another isolation
// level than that of the database wraps one of them.
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Tx calls do in a transaction that presents the token of lease first, and commits it. From then on
// the store refuses every older holder. Until the end of the transaction a younger holder waits.
// With the context of the lease the transaction is rolled back when the lease ends. A call of Tx
// inside do waits for the row of the outer one until its context ends: hand on tx instead.
//
// A lease of a reader is compared with the largest token of a writer. Writers wait until the
// transaction ends. do must only read then.
//
// The error matches [ErrFenced] if a younger holder has used the store, and [ErrConfig] if lease or
// d cannot be right. Otherwise it is that of do or of the database. After an error nothing is
// written, unless the commit failed: then the program cannot know.
func Tx(ctx context.Context, db Beginner, d Dialect, lease Lease, do func(tx *sql.Tx) error) error {
	return txAll(ctx, "Tx", db, d, []Lease{lease}, do)
}

// TxAll is [Tx] under several leases, as those of Parts in packages several and semaphore. Each token is
// compared with those of its own resource. A permit of a semaphore is a resource of its own. If one
// token is too small, nothing is written.
func TxAll[L Lease](ctx context.Context, db Beginner, d Dialect, leases []L, do func(tx *sql.Tx) error) error {
	return txAll(ctx, "TxAll", db, d, leases, do)
}

func txAll[L Lease](
	ctx context.Context, name string, db Beginner, d Dialect, leases []L, do func(tx *sql.Tx) error,
) error {
	claim, err := claimOf(ctx, d, leases)
	switch {
	case err != nil:
		return in(name, err)
	case isNone(db):
		return in(name, isNil("database"))
	case do == nil:
		return in(name, isNil("function"))
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := claim(ctx, tx); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Claim presents the tokens of leases in a transaction of the caller. It must be the first statement
// of the transaction: what was read before it may be out of date. After an error the caller rolls the
// transaction back. The errors are those of [Tx].
func Claim[L Lease](ctx context.Context, tx *sql.Tx, d Dialect, leases ...L) error {
	claim, err := claimOf(ctx, d, leases)
	switch {
	case err != nil:
		return in("Claim", err)
	case tx == nil:
		return in("Claim", isNil("transaction"))
	}
	return claim(ctx, tx)
}

// claimOf checks the arguments of Claim, and returns the rest of it.
func claimOf[L Lease](ctx context.Context, d Dialect, leases []L) (func(context.Context, *sql.Tx) error, error) {
	if ctx == nil {
		return nil, isNil("context")
	}
	s, err := Column{d, ownTable, "resource", "fence"}.statements(true)
	if err != nil {
		return nil, err
	}
	tokens, err := tokensOf(leases)
	for _, t := range tokens {
		if d == PostgreSQL && (!utf8.ValidString(t.resource) || strings.Contains(t.resource, "\x00")) {
			return nil, fmt.Errorf("%w: PostgreSQL has no text %q: it is not UTF-8, or has a zero byte", ErrConfig, t.resource)
		}
	}
	return func(ctx context.Context, tx *sql.Tx) error {
		for _, t := range tokens {
			if err := s.present(ctx, tx, t.resource, t); err != nil {
				return err
			}
		}
		return nil
	}, err
}

// ClaimRow is [Claim] at a row of the program's own table, which the caller finds by key. The row
// must exist: otherwise the error matches [sql.ErrNoRows].
func ClaimRow(ctx context.Context, tx *sql.Tx, c Column, key any, lease Lease) error {
	const name = "ClaimRow"
	s, err := c.statements(false)
	if err != nil {
		return in(name, err)
	}
	t, err := tokenOf(lease)
	switch {
	case err != nil:
		return in(name, err)
	case ctx == nil:
		return in(name, isNil("context"))
	case tx == nil:
		return in(name, isNil("transaction"))
	}
	return s.present(ctx, tx, key, t)
}

// present compares a token with that of the row, and keeps it if it is a writer's.
func (s statements) present(ctx context.Context, tx *sql.Tx, key any, t Token) (err error) {
	var seen int64
	switch {
	case t.shared:
		if s.plant != "" && s.look != "" { // MySQL: two that miss the row lock the gap, and wait for each other's insert
			_, err = tx.ExecContext(ctx, s.plant, key)
		}
		if err == nil {
			err = tx.QueryRowContext(ctx, s.check, key).Scan(&seen)
		}
		if errors.Is(err, sql.ErrNoRows) && s.plant != "" {
			if _, err = tx.ExecContext(ctx, s.plant, key); err == nil {
				err = tx.QueryRowContext(ctx, s.check, key).Scan(&seen)
			}
		}
	case s.look != "":
		if _, err = tx.ExecContext(ctx, s.claim, t.fence, key); err == nil {
			err = tx.QueryRowContext(ctx, s.look, key).Scan(&seen)
		}
	default:
		err = tx.QueryRowContext(ctx, s.claim, t.fence, key).Scan(&seen)
	}
	if err != nil {
		return fmt.Errorf("fence: present token %d of %q: %w", t.fence, t.resource, err)
	}
	if !t.shared && seen < t.fence {
		return fmt.Errorf("%w: the column of the tokens has %d after token %d of %q: it must be a 64-bit integer",
			ErrConfig, seen, t.fence, t.resource)
	}
	return t.compare(seen)
}

// Changed returns ErrFenced if a statement has changed no row, and otherwise err. It is for a
// statement that compares the token and writes in one step:
//
//	UPDATE stock SET amount = amount - 1, fence = $1 WHERE item = $2 AND fence <= $1
//
// The row must exist, since the database does not say why it has changed none. MySQL does not count
// a row that had the values before: connect with clientFoundRows=true.
func Changed(result sql.Result, err error) error {
	switch {
	case err != nil:
		return err
	case result == nil:
		return in("Changed", isNil("result"))
	}
	if n, err := result.RowsAffected(); n > 0 || err != nil {
		return err
	}
	return ErrFenced
}
