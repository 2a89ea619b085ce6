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
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/redistest"
)

// A script starts a server in a directory of its own, prints the directory, and stops the server when its
// standard input ends, which also happens if the test process dies. $0 is the directory of its programs.
const (
	postgresScript = `
dir=$(mktemp -d) && cd "$dir" || exit
trap '"$0/pg_ctl" -D data -m immediate stop; cd /; rm -rf "$dir"' EXIT
trap exit INT TERM
{
	"$0/initdb" -D data -U postgres -A trust --no-sync --no-locale -E UTF8 &&
	"$0/pg_ctl" -D data -w -l log -o "-k $dir -c listen_addresses= -c fsync=off" start || { cat log; exit 1; }
} >&2
echo "$dir"
read -r _`

	mariadbScript = `
dir=$(mktemp -d) && cd "$dir" || exit
trap 'kill -9 $server; cd /; rm -rf "$dir"' EXIT
trap exit INT TERM
{
	mariadb-install-db --no-defaults --datadir="$dir/data" --auth-root-authentication-method=normal --skip-test-db || exit 1
	"$0/mariadbd" --no-defaults --datadir="$dir/data" --socket="$dir/socket" --skip-networking --max-connections=200 \
		--innodb-flush-log-at-trx-commit=0 --loose-innodb-snapshot-isolation=OFF >log 2>&1 &
	server=$!
	until [ -S socket ]; do
		kill -0 $server || { cat log; exit 1; }
		sleep 0.05
	done
} >&2
echo "$dir"
read -r _`
)

var stopServers []func()

// startServer starts a server that all tests share, and returns its directory. program is one of its
// programs, by a pattern for where Debian keeps it.
func startServer(script, program string) (dir string, err error) {
	found, _ := filepath.Glob(program)
	if path, err := exec.LookPath(filepath.Base(program)); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		return "", exec.ErrNotFound
	}
	cmd := exec.Command("/bin/sh", "-c", script, filepath.Dir(found[len(found)-1]))
	cmd.Dir = "/"
	if os.Getuid() == 0 { // which these servers refuse
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
		return "", fmt.Errorf("%s: the server did not start: %w\n%s", program, cmd.Wait(), &log)
	}
	stopServers = append(stopServers, func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return strings.TrimSpace(line), nil
}

var postgres = sync.OnceValues(func() (string, error) {
	return startServer(postgresScript, "/usr/lib/postgresql/*/bin/initdb")
})

var mariadb = sync.OnceValues(func() (string, error) {
	return startServer(mariadbScript, "/usr/sbin/mariadbd")
})

// TestMain stops the servers that tests have started.
func TestMain(m *testing.M) {
	code := redistest.Again(m).Run()
	for _, stop := range stopServers {
		stop()
	}
	os.Exit(code)
}

// started returns the directory of a server, or ends the test.
func started(t testing.TB, what string, server func() (string, error)) string {
	t.Helper()
	dir, err := server()
	if errors.Is(err, exec.ErrNotFound) {
		redistest.Missing(t, what, "needs the server of "+what)
	}
	must(t, err)
	return dir
}

var schemas atomic.Int64

// postgresSchema creates an empty schema and returns the address of the database in it.
func postgresSchema(t testing.TB) (address string) {
	t.Helper()
	address = "host=" + started(t, "postgres", postgres) + " user=postgres dbname=postgres"
	schema := fmt.Sprint("test", schemas.Add(1))
	mustExec(t, connect(t, "pgx", address), "CREATE SCHEMA "+schema)
	address += " search_path=" + schema
	mustExec(t, connect(t, "pgx", address), Schema+fence.PostgreSQL.Schema())
	return address
}

func openPostgres(t testing.TB) *sql.DB {
	t.Helper()
	return connect(t, "pgx", postgresSchema(t))
}

// openMariaDB opens an empty database with parameters of the driver.
func openMariaDB(parameters string) func(t testing.TB) *sql.DB {
	return func(t testing.TB) *sql.DB {
		t.Helper()
		server := "root@unix(" + started(t, "mariadb", mariadb) + "/socket)/"
		name := fmt.Sprint("test", schemas.Add(1))
		mustExec(t, connect(t, "mysql", server), "CREATE DATABASE "+name)
		db := connect(t, "mysql", server+name+"?multiStatements=true"+parameters)
		mustExec(t, db, Schema+fence.MySQL.Schema())
		return db
	}
}

// openSQLite opens an empty file with parameters of the driver.
func openSQLite(parameters string) func(t testing.TB) *sql.DB {
	return func(t testing.TB) *sql.DB {
		t.Helper()
		db := connect(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(60000)&_pragma=synchronous(0)"+parameters)
		mustExec(t, db, Schema+fence.SQLite.Schema())
		return db
	}
}

func connect(t testing.TB, driver, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, address)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustExec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// value is the first column of the first row.
func value(t testing.TB, db *sql.DB, query string) (v string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// A database is one way to open a kind of database.
type database struct {
	name    string
	dialect fence.Dialect
	open    func(testing.TB) *sql.DB
}

var (
	postgreSQL = database{"PostgreSQL", fence.PostgreSQL, openPostgres}
	mariaDB    = database{"MariaDB", fence.MySQL, openMariaDB("")}
	sqLite     = database{"SQLite", fence.SQLite, openSQLite("&_txlock=immediate")}
	databases  = []database{postgreSQL, mariaDB, sqLite}
)

// onEach runs a test on each kind of database.
func onEach(outer *testing.T, test func(t *redistest.T, d database, db *sql.DB)) {
	t := redistest.Timed(outer)
	for _, d := range databases {
		t.Run(d.name, func(t *redistest.T) { test(t, d, d.open(t)) })
	}
}

// bind writes the placeholders of a statement as the database wants them.
func (d database) bind(statement string) string {
	if d.dialect != fence.PostgreSQL {
		return statement
	}
	for i := 1; strings.Contains(statement, "?"); i++ {
		statement = strings.Replace(statement, "?", fmt.Sprint("$", i), 1)
	}
	return statement
}

// gaveUp reports whether a database ended a transaction that may be tried again.
func gaveUp(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	var lite *sqlite.Error
	switch {
	case errors.As(err, &pg):
		return pg.Code == "40001" || pg.Code == "40P01"
	case errors.As(err, &my): // a deadlock, or a row that has changed since the snapshot
		return my.Number == 1213 || my.Number == 1020
	case errors.As(err, &lite):
		return lite.Code()&0xff == 5
	}
	return false
}

// at begins transactions at an isolation level.
type at struct {
	*sql.DB
	level sql.IsolationLevel
}

func (a at) BeginTx(ctx context.Context, _ *sql.TxOptions) (*sql.Tx, error) {
	return a.DB.BeginTx(ctx, &sql.TxOptions{Isolation: a.level})
}

// waits reports whether a session of PostgreSQL with that name waits for the transaction of another one.
func waits(t testing.TB, db *sql.DB) bool {
	t.Helper()
	return value(t, db, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holder' AND wait_event_type = 'Lock'`) == "1"
}
