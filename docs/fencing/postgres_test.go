//go:build unix

package fencing

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/d0720281/redlock/internal/redistest"
)

func init() { databases["PostgreSQL"] = openPostgres }

// postgresScript starts a server in a directory of its own, prints the directory, and stops
// the server when its standard input ends, which also happens if the test process dies.
const postgresScript = `
dir=$(mktemp -d) && cd "$dir" || exit
trap '"$0/pg_ctl" -D data -m immediate stop; cd /; rm -rf "$dir"' EXIT
trap exit INT TERM
{
	"$0/initdb" -D data -U postgres -A trust --no-sync --no-locale -E UTF8 &&
	"$0/pg_ctl" -D data -w -l log -o "-k $dir -c listen_addresses= -c fsync=off" start || { cat log; exit 1; }
} >&2
echo "$dir"
read -r _`

var stopPostgres = func() {}

// postgres starts the server that all tests share, and returns the directory of its socket.
var postgres = sync.OnceValues(func() (dir string, err error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian keeps it out of the PATH
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		return "", exec.ErrNotFound
	}
	cmd := exec.Command("/bin/sh", "-c", postgresScript, filepath.Dir(found[len(found)-1]))
	cmd.Dir = "/"
	if os.Getuid() == 0 { // which PostgreSQL refuses
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return "", err
		}
		uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
		gid, _ := strconv.ParseUint(nobody.Gid, 10, 32)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("PostgreSQL did not start: %w\n%s", cmd.Wait(), &log)
	}
	stopPostgres = func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}
	return strings.TrimSpace(line), nil
})

// postgresSchema creates an empty schema and returns the address of the database in it.
func postgresSchema(t *testing.T) (address string) {
	t.Helper()
	dir, err := postgres()
	if errors.Is(err, exec.ErrNotFound) {
		redistest.Missing(t, "postgres", "needs PostgreSQL: no initdb on the PATH or in /usr/lib/postgresql")
	}
	if err != nil {
		t.Fatal(err)
	}
	address = "host=" + dir + " user=postgres dbname=postgres"
	schema := fmt.Sprintf("test%d", time.Now().UnixNano())
	mustExec(t, connect(t, address), "CREATE SCHEMA "+schema)
	address += " search_path=" + schema
	mustExec(t, connect(t, address), Schema)
	return address
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openPostgres(t *testing.T) *sql.DB {
	t.Helper()
	return connect(t, postgresSchema(t))
}

// TestMain stops the server if a test has started it.
func TestMain(m *testing.M) {
	defer func() { stopPostgres() }()
	m.Run()
}

// transaction is Fenced or unchecked.
type transaction func(ctx context.Context, db *sql.DB, resource string, fence int64, do func(*sql.Tx) error) error

// unchecked is Fenced without the token.
func unchecked(ctx context.Context, db *sql.DB, _ string, _ int64, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// holder is the part of an address by which waits finds the sessions of holders.
const holder = " application_name=holder"

// waits reports whether a holder waits for the transaction of another one.
func waits(t *testing.T, db *sql.DB) bool {
	t.Helper()
	return value(t, db, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holder' AND wait_event_type = 'Lock'`) == "1"
}

// An older holder comes while the transaction of the younger one has written and is not over. It
// waits, and compares with what was committed, even with a row that was not there when it came.
func TestOlderHolderWaits(t *testing.T) {
	for _, test := range []struct {
		name, young string
		old         func(ctx context.Context, db *sql.DB) error
	}{
		{"Sell", `UPDATE stock SET fence = 8`, func(ctx context.Context, db *sql.DB) error { return Sell(ctx, db, "apple", 7) }},
		{"Amount", `UPDATE stock SET fence = 8`, func(ctx context.Context, db *sql.DB) error {
			_, err := Amount(ctx, db, "apple", 7)
			return err
		}},
		{"Put", `INSERT INTO config VALUES ('colour', 'red', 8)`, func(ctx context.Context, db *sql.DB) error { return Put(ctx, db, "colour", "blue", 7) }},
		{"Fenced", `INSERT INTO fences VALUES ('stock', 8)`, func(ctx context.Context, db *sql.DB) error {
			return Fenced(ctx, db, "stock", 7, func(*sql.Tx) error { return nil })
		}},
		{"ship", `UPDATE stock SET fence = 8`, func(ctx context.Context, db *sql.DB) error { return ship(ctx, db, 17, 7, "apple", 7) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			address := postgresSchema(t)
			db, look := connect(t, address+holder), connect(t, address)
			mustExec(t, look, `INSERT INTO stock (item, amount) VALUES ('apple', 10)`)
			mustExec(t, look, `INSERT INTO orders (id, item) VALUES (17, 'apple')`)
			young, err := look.BeginTx(t.Context(), nil)
			must(t, err)
			_, err = young.ExecContext(t.Context(), test.young)
			must(t, err)
			old := make(chan error, 1)
			go func() { old <- test.old(t.Context(), db) }()
			redistest.Eventually(t, time.Minute, func() bool { return waits(t, look) }, "the older holder waits")
			must(t, young.Commit())
			if err := <-old; !errors.Is(err, ErrFenced) {
				t.Errorf("got %v, want ErrFenced", err)
			}
			if got := value(t, look, `SELECT concat(amount, ' ', shipped) FROM stock, orders`); got != "10 0" {
				t.Errorf("got %s, want nothing sold and nothing shipped", got)
			}
		})
	}
}

// Two holders read the stock and decrement it, in one transaction each. The younger one comes
// while the older one is between its read and its write, and reads then if the database lets it.
//
// Control: a plain read loses an update.
func TestTransactions(t *testing.T) {
	const plain = `SELECT amount FROM stock WHERE item = 'apple' AND fence <= $1`
	for _, test := range []struct {
		name, level, read string
		transaction       transaction
		ended             bool // the session of the older holder, in place of its write
		accepted          int
		left              string
	}{
		{"FOR UPDATE", "read committed", plain + " FOR UPDATE", unchecked, false, 2, "8"},
		{"FOR UPDATE, the older holder does not go on", "read committed", plain + " FOR UPDATE", unchecked, true, 1, "9"},
		{"a plain read", "read committed", plain, unchecked, false, 2, "9"},
		{"a plain read", "repeatable read", plain, unchecked, false, 1, "9"},
		{"a plain read", "serializable", plain, unchecked, false, 1, "9"},
		{"Fenced", "read committed", plain, Fenced, false, 2, "8"},
		{"Fenced", "repeatable read", plain, Fenced, false, 1, "9"},
	} {
		t.Run(test.name+", "+test.level, func(t *testing.T) {
			address := postgresSchema(t)
			db := connect(t, address+holder+" default_transaction_isolation='"+test.level+"'")
			look := connect(t, address)
			mustExec(t, look, `INSERT INTO fences VALUES ('stock', 6)`)
			mustExec(t, look, `INSERT INTO stock (item, amount) VALUES ('apple', 10)`)
			begin := func(fence int64) (read, write chan struct{}, done chan error) {
				read, write, done = make(chan struct{}), make(chan struct{}), make(chan error, 1)
				go func() {
					done <- test.transaction(t.Context(), db, "stock", fence, func(tx *sql.Tx) error {
						var amount int64
						if err := tx.QueryRowContext(t.Context(), test.read, fence).Scan(&amount); err != nil {
							return err
						}
						close(read)
						<-write
						return changed(tx.ExecContext(t.Context(),
							`UPDATE stock SET amount = $1, fence = $2 WHERE item = 'apple' AND fence <= $2`, amount-1, fence))
					})
				}()
				return read, write, done
			}
			read, write, oldDone := begin(7)
			<-read
			youngRead, youngWrite, youngDone := begin(8)
			redistest.Eventually(t, time.Minute, func() bool {
				select {
				case <-youngRead:
					return true
				default:
					return waits(t, look)
				}
			}, "the younger holder has read or waits")
			if test.ended {
				value(t, look, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holder' AND state = 'idle in transaction'`)
			}
			close(write)
			errs := []error{<-oldDone}
			close(youngWrite)
			errs = append(errs, <-youngDone)
			accepted := 0
			for _, err := range errs {
				var failed *pgconn.PgError
				switch {
				case err == nil:
					accepted++
				case !test.ended && (!errors.As(err, &failed) || failed.Code != "40001"):
					t.Errorf("got %v, want a serialization failure", err)
				}
			}
			if left := value(t, look, `SELECT amount FROM stock`); accepted != test.accepted || left != test.left {
				t.Errorf("got %d accepted writes and a stock of %s, want %d and %s", accepted, left, test.accepted, test.left)
			}
		})
	}
}

// FOR UPDATE does not suffice if its transaction ends before the write.
func TestForUpdateAlone(t *testing.T) {
	db := openPostgres(t)
	a := sqlAccount(t, db)
	a.read = func(fence int64) (amount int64, err error) {
		err = db.QueryRowContext(t.Context(), `SELECT amount FROM stock WHERE fence <= $1 FOR UPDATE`, fence).Scan(&amount)
		return amount, err
	}
	if accepted := a.sell(t, "oyoy", map[rune]int64{'o': 7, 'y': 8}); accepted != 2 || a.left() != 1 {
		t.Errorf("got %d after %d accepted writes, want 1 after 2", a.left(), accepted)
	}
}
