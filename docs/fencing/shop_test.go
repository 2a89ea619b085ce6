//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/redlocktest"
	"github.com/d0720281/redlock/semaphore"
)

// shop is a service with everything: requests that write under a lock, a job, a leader and a semaphore.
type shop struct {
	db      *sql.DB
	locker  *redlock.Locker
	jobs    *jobs.Locker
	elector *election.Elector
	reports *semaphore.Semaphore
	shipped atomic.Int64
	reading atomic.Int64 // reports under way
}

func newShop(db *sql.DB, masters []*redis.Options, opts ...redlock.Option) (s *shop, err error) {
	s = &shop{db: db}
	if s.locker, err = redlock.NewFromOptions(masters, opts...); err != nil {
		return nil, err
	}
	var errs [3]error
	s.jobs, errs[0] = jobs.New(s.locker)
	s.elector, errs[1] = election.New(s.locker, "shipping")
	s.reports, errs[2] = semaphore.New(s.locker, "reports", 2)
	return s, errors.Join(errs[:]...)
}

// ServeHTTP sells an item by POST, and reports what is left of it by GET.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	item, left := r.URL.Query().Get("item"), int64(0)
	err := errors.New("no such method")
	switch r.Method {
	case http.MethodPost:
		err = s.locker.Do(ctx, "stock:"+item, func(ctx context.Context, _ *redlock.Lease) error { return s.sell(ctx, item) })
	case http.MethodGet:
		err = s.reports.Do(ctx, 1, func(ctx context.Context, _ *semaphore.Lease) (err error) {
			if s.reading.Add(1) > 2 {
				return errors.New("too many reports")
			}
			defer s.reading.Add(-1)
			left, err = s.left(ctx, item)
			return err
		})
	}
	switch {
	case err == nil:
		_, _ = w.Write([]byte(strconv.FormatInt(left, 10)))
	case errors.Is(err, redlock.ErrTaken), errors.Is(err, fence.ErrFenced):
		http.Error(w, redlock.Reason(err), http.StatusConflict)
	case errors.Is(err, redlock.ErrNoQuorum), errors.Is(err, redlock.ErrClosed):
		http.Error(w, redlock.Reason(err), http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s *shop) left(ctx context.Context, item string) (left int64, err error) {
	return left, s.db.QueryRowContext(ctx, `SELECT amount FROM stock WHERE item = $1`, item).Scan(&left)
}

func (s *shop) sell(ctx context.Context, item string) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		var left int64
		if err := tx.QueryRowContext(ctx, `SELECT amount FROM stock WHERE item = $1`, item).Scan(&left); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE stock SET amount = $1 WHERE item = $2`, left-1, item)
		return err
	})
}

// inTx is far below Do: the fencing token comes with ctx.
func (s *shop) inTx(ctx context.Context, do func(tx *sql.Tx) error) error {
	lease, ok := redlock.LeaseFrom(ctx)
	if !ok {
		return errors.New("no lease protects the transaction")
	}
	return fence.Tx(ctx, s.db, fence.SQLite, lease, do)
}

// restock makes the run of the job that is due at a time, on one machine of all.
func (s *shop) restock(ctx context.Context, due time.Time) error {
	return s.jobs.Run(ctx, "restock", func(ctx context.Context, _ *redlock.Lease) error {
		return s.inTx(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE stock SET amount = amount + 10`)
			return err
		})
	}, jobs.At(due))
}

// ship ships while this machine leads, until ctx ends.
func (s *shop) ship(ctx context.Context) error {
	return s.elector.Run(ctx, func(ctx context.Context, _ *redlock.Lease) error {
		for ctx.Err() == nil {
			s.shipped.Add(1)
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// Three machines of a shop sell each item once, restock once for a due time and have one leader, and say when the masters
// are away.
func TestShop(outer *testing.T) {
	t := redistest.Timed(outer)
	redistest.TakesSeconds(t)
	db := openSQLite("&_txlock=immediate")(t)
	mustExec(t, db, `INSERT INTO stock (item, amount) VALUES ('apple', 100)`)
	cluster := redlocktest.Start(t, 3)
	ctx, stop := context.WithCancel(t.Context())
	var shops []*shop
	var working, requests sync.WaitGroup
	ask := func(s *shop, method string) (int, string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, "/?item=apple", nil))
		return w.Code, w.Body.String()
	}
	due := time.Now()
	for range 3 {
		s, err := newShop(db, cluster.Options(), redlock.WithLogger(nil))
		must(t, err)
		shops = append(shops, s)
		working.Go(func() { _ = s.ship(ctx) })
		working.Go(func() {
			for range 2 { // the second time the run has been made
				if err := s.restock(ctx, due); err != nil {
					t.Errorf("restock: %v", err)
				}
			}
		})
		for range 5 {
			for _, method := range []string{http.MethodPost, http.MethodGet} {
				requests.Go(func() {
					if code, text := ask(s, method); code != http.StatusOK {
						t.Errorf("%s: got %d %s", method, code, text)
					}
				})
			}
		}
	}
	requests.Wait()
	redistest.Eventually(t, 20*time.Second, func() bool {
		_, text := ask(shops[0], http.MethodGet)
		return text == "95" && shops[0].shipped.Load()+shops[1].shipped.Load()+shops[2].shipped.Load() > 0
	}, "100 apples, less 15, and 10 more, and a leader")
	stop()
	working.Wait()
	leaders := 0
	for _, s := range shops {
		if s.shipped.Load() > 0 {
			leaders++
		}
	}
	if _, text := ask(shops[0], http.MethodGet); text != "95" {
		t.Errorf("got %s apples left, want 95: one restock for the due time", text)
	}
	for _, master := range cluster.Masters()[:2] {
		master.Kill()
	}
	if code, text := ask(shops[0], http.MethodPost); leaders != 1 || code != http.StatusServiceUnavailable {
		t.Errorf("got %d leaders, and %d %s without a quorum; want 1 and 503", leaders, code, text)
	}
	for _, s := range shops {
		_ = s.locker.Close() // two masters are down
	}
}
