// Package grpc is a server of remote calls with the mistakes that its kind makes.
package grpc

import (
	"context"
	"database/sql"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/fence"
)

type (
	request struct{ id string }
	reply   struct{ n int }
	stream  interface {
		Context() context.Context
		Send(*reply) error
	}
	server struct {
		locker *redlock.Locker
		db     *sql.DB
	}
)

func count(ctx context.Context, id string) (int, error) { return 0, ctx.Err() }

func (s *server) Get(ctx context.Context, in *request) (out *reply, err error) {
	err = s.locker.Do(ctx, in.id, func(_ context.Context, lease *redlock.Lease) error {
		n, err := count(ctx, in.id) // want `ctx is from outside`
		out = &reply{n}
		return err
	})
	if err != nil && err != redlock.ErrNotAcquired { // want `redlock.ErrNotAcquired is wrapped`
		return nil, err
	}
	return out, nil
}

func (s *server) Watch(in *request, to stream) error {
	return s.locker.Do(to.Context(), in.id, func(ctx context.Context, lease *redlock.Lease) error {
		n, err := count(to.Context(), in.id) // want `to.Context\(\) is from outside`
		if err != nil {
			return err
		}
		return to.Send(&reply{n})
	})
}

func (s *server) Move(ctx context.Context, in *request) error {
	lease, err := s.locker.Lock(ctx, in.id)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx) // want `the error of Unlock is dropped`
	tx, err := s.db.BeginTx(lease.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT n FROM a").Scan(&n); err != nil {
		return err
	}
	if err := fence.Claim(ctx, tx, fence.PostgreSQL, lease); err != nil { // want `the transaction has read before`
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE a SET n = $1", n+1); err != nil {
		return err
	}
	return tx.Commit()
}

// Missed: the read is before the transaction, by the database itself, and go vet cannot tell that the write needs it.
func (s *server) Add(ctx context.Context, lease *redlock.Lease) error {
	var n int
	if err := s.db.QueryRowContext(ctx, "SELECT n FROM a").Scan(&n); err != nil {
		return err
	}
	return fence.Tx(ctx, s.db, fence.PostgreSQL, lease, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE a SET n = $1", n+1)
		return err
	})
}
