package readerwrite

import (
	"context"
	"database/sql"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/fence"
)

const sold = "UPDATE stock SET amount = amount - 1"

func with(ctx context.Context, l *redlock.Locker, db *sql.DB, rdb *redis.Client) error {
	lease, err := l.Lock(ctx, "a", redlock.Shared())
	if err != nil {
		return err
	}
	if err := fence.Set(ctx, rdb, "a", 1, lease); err != nil { // want `a reader's lease does not keep other readers out: fence.Set refuses it`
		return err
	}
	err = fence.Tx(ctx, db, fence.MySQL, lease, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, sold) // want `a write in a transaction of a reader's lease: other readers may write at the same time`
		return err
	})
	if err != nil {
		return err
	}
	return l.Do(ctx, "a", func(ctx context.Context, lease *redlock.Lease) error {
		return fence.Tx(ctx, db, fence.PostgreSQL, lease, func(tx *sql.Tx) error {
			var left int
			return tx.QueryRow("update stock set amount = 1 returning amount").Scan(&left) // want `a write in a transaction`
		})
	}, redlock.Shared())
}

func without(ctx context.Context, l *redlock.Locker, db *sql.DB, rdb *redis.Client, reads bool) error {
	var opts []redlock.LockOption
	if reads {
		opts = append(opts, redlock.Shared())
	}
	either, err := l.Lock(ctx, "a", opts...)
	if err != nil {
		return err
	}
	if err := fence.Set(ctx, rdb, "a", 1, either); err != nil {
		return err
	}
	lease, err := l.Lock(ctx, "a", redlock.Shared())
	if err != nil {
		return err
	}
	if _, err := fence.Get(ctx, rdb, "a", lease); err != nil {
		return err
	}
	again, err := l.Lock(ctx, "a", redlock.Shared())
	if err != nil {
		return err
	}
	if err := again.Unlock(ctx); err != nil {
		return err
	}
	if again, err = l.Lock(ctx, "a"); err != nil {
		return err
	}
	if err := fence.Set(ctx, rdb, "a", 1, again); err != nil {
		return err
	}
	err = fence.Tx(ctx, db, fence.MySQL, lease, func(tx *sql.Tx) error {
		var left int
		return tx.QueryRow("SELECT amount FROM stock").Scan(&left)
	})
	if err != nil {
		return err
	}
	return l.Do(ctx, "a", func(ctx context.Context, lease *redlock.Lease) error {
		return fence.Tx(ctx, db, fence.PostgreSQL, lease, func(tx *sql.Tx) error {
			_, err := tx.Exec(sold)
			return err
		})
	})
}
