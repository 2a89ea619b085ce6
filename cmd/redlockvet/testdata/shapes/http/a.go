// Package http is an HTTP service with the mistakes that its kind makes.
package http

import (
	"context"
	"database/sql"
	"net/http"
	"sync"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/fence"
)

type server struct {
	locker *redlock.Locker
	db     *sql.DB
	ctx    context.Context
}

func (s *server) save(ctx context.Context, item string) error { return ctx.Err() }

func (s *server) sell(w http.ResponseWriter, r *http.Request) {
	err := s.locker.Do(r.Context(), r.PathValue("item"), func(ctx context.Context, lease *redlock.Lease) error {
		return s.save(r.Context(), r.PathValue("item")) // want `r.Context\(\) is from outside`
	})
	switch err {
	case redlock.ErrTaken: // want `redlock.ErrTaken is wrapped`
		http.Error(w, "busy", http.StatusConflict)
	}
}

func (s *server) background(w http.ResponseWriter, r *http.Request) {
	_ = s.locker.Do(r.Context(), "k", func(ctx context.Context, lease *redlock.Lease) error {
		return s.save(s.ctx, "k") // want `s.ctx is from outside`
	})
}

func (s *server) book(w http.ResponseWriter, r *http.Request) {
	lease, err := s.locker.TryLock(r.Context(), "k")
	if err != nil {
		_ = s.save(r.Context(), "refused")
		return
	}
	defer func() { _ = lease.Unlock(context.WithoutCancel(r.Context())) }()
	if err := s.save(r.Context(), "k"); err != nil { // want `r.Context\(\) does not end with lease`
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s *server) pay(ctx context.Context, lease *redlock.Lease) error {
	return fence.Tx(ctx, s.db, fence.PostgreSQL, lease, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE a SET x = 1"); err != nil {
			return err
		}
		_, err := s.db.ExecContext(ctx, "UPDATE b SET x = 1") // want `not in the transaction`
		return err
	})
}

func register(masters []string) {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		l, err := redlock.New(masters) // want `each request makes a Locker, which dials all masters: make one per process`
		_, _ = l, err
	})
	var once sync.Once
	var l *redlock.Locker
	http.HandleFunc("/once", func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { l, _ = redlock.New(masters) })
		_ = l.Stats()
	})
}

// Missed: a context that is made anew may be for what has to be done at the end.
func (s *server) slow(ctx context.Context) error {
	return s.locker.Do(ctx, "k", func(context.Context, *redlock.Lease) error {
		own, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return s.save(own, "k")
	})
}

// Missed: the function under the lease has a name, and may be called elsewhere, too.
func (s *server) named(ctx context.Context) error { return s.locker.Do(ctx, "k", s.work) }

func (s *server) work(context.Context, *redlock.Lease) error { return s.save(s.ctx, "k") }
