//go:build unix

package fencing

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/redistest"
)

var serviceTime = flag.Duration("service", 12*time.Second, "how long TestService sells")

const (
	serviceSchema = `CREATE TABLE sales (id BIGSERIAL PRIMARY KEY, item TEXT NOT NULL, piece BIGINT NOT NULL, fence BIGINT NOT NULL)`
	sellerEnv     = "REDLOCK_TEST_SELLER"
	sellerTTL     = time.Second
)

var sellerOptions = []redlock.Option{redlock.WithTTL(sellerTTL), redlock.WithMaxTTL(sellerTTL)}

// initial is the stock of each item. Quinces are sold out soon.
var initial = map[string]int64{"apple": 1_000_000, "pear": 1_000_000, "quince": 300}

// A sale is a row of the history. Rows are in the order of commits, because a sale gets its id
// while it has locked the row of the stock. piece is the stock that the seller read.
type sale struct {
	item         string
	piece, fence int64
}

// wrong returns what is wrong with a history and what it left in stock.
func wrong(initial, left map[string]int64, sales []sale) (problems []string) {
	sold, last := map[string]int64{}, map[string]sale{}
	seen := map[sale]bool{}
	for _, s := range sales {
		sold[s.item]++
		if piece := (sale{item: s.item, piece: s.piece}); seen[piece] {
			problems = append(problems, fmt.Sprintf("%s %d was sold twice", s.item, s.piece))
		} else {
			seen[piece] = true
		}
		if s.piece < 1 || s.piece > initial[s.item] {
			problems = append(problems, fmt.Sprintf("%s %d was sold, which never was in stock", s.item, s.piece))
		}
		if before := last[s.item].fence; s.fence < before {
			problems = append(problems, fmt.Sprintf("%s %d was sold with token %d after token %d", s.item, s.piece, s.fence, before))
		}
		last[s.item] = s
	}
	for _, item := range slices.Sorted(maps.Keys(initial)) {
		if left[item] < 0 || left[item] != initial[item]-sold[item] {
			problems = append(problems, fmt.Sprintf("%d of %d %ss were sold, and %d are left", sold[item], initial[item], item, left[item]))
		}
	}
	return problems
}

// Control: histories that are wrong.
func TestWrong(t *testing.T) {
	good := []sale{{"pear", 3, 7}, {"pear", 2, 7}, {"pear", 1, 9}}
	for _, test := range []struct {
		name  string
		sales []sale
		left  int64
		want  string
	}{
		{"a good history", good, 0, ""},
		{"a double sale", []sale{good[0], good[1], {"pear", 2, 9}}, 0, "pear 2 was sold twice"},
		{"a token that falls", []sale{good[0], {"pear", 2, 6}, good[2]}, 0, "pear 2 was sold with token 6 after token 7"},
		{"a sale that is not recorded", good[:2], 0, "2 of 3 pears were sold, and 0 are left"},
		{"a sale that the stock does not know", good, 1, "3 of 3 pears were sold, and 1 are left"},
		{"more than there was", append(slices.Clip(good), sale{"pear", 0, 9}), -1, "pear 0 was sold, which never was in stock"},
	} {
		got := wrong(map[string]int64{"pear": 3}, map[string]int64{"pear": test.left}, test.sales)
		if test.want == "" && len(got) > 0 || test.want != "" && !slices.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// Two processes sell a stock in PostgreSQL under leases of three masters, while masters lose
// their keys and hang, and while the processes are stopped and killed between a read and its write.
func TestService(outer *testing.T) {
	t := redistest.Timed(outer)
	if os.Getenv(sellerEnv) != "" {
		beSeller(t)
		return
	}
	s := startService(t, "fence")
	began, rounds := time.Now(), 0
	for ; time.Since(began) < *serviceTime; rounds++ {
		emptied, hung := s.masters[rounds%3], s.masters[(rounds+1)%3]
		must(t, emptied.Kill())
		time.Sleep(300 * time.Millisecond)
		must(t, emptied.Restart())
		time.Sleep(3 * sellerTTL / 2) // longer than its quarantine
		must(t, hung.Pause())
		s.strike(rounds%2, syscall.SIGSTOP)
		must(t, hung.Resume())
		s.strike((rounds+1)%2, syscall.SIGKILL)
	}
	sales, problems := s.end()
	for _, problem := range problems {
		t.Error(problem)
	}
	if s.said["refused"] < rounds {
		t.Errorf("got %d writes refused, want at least the %d of the stopped processes", s.said["refused"], rounds)
	}
	t.Logf("%d sales in %.0f s; %d times each: a master emptied, a master hung, a process stopped, a process killed; %d leases lost, %d stale writes refused, %d calls of Lock failed",
		sales, time.Since(began).Seconds(), rounds, s.said["lost"], s.said["refused"], s.said["failed"])
}

// Control: a store that does not check the token. A process that was stopped sells what was sold
// meanwhile.
func TestServiceWithoutTokens(outer *testing.T) {
	t := redistest.Timed(outer)
	s := startService(t, "unchecked")
	s.strike(0, syscall.SIGSTOP)
	if _, problems := s.end(); !strings.Contains(strings.Join(problems, "; "), "was sold twice") {
		t.Errorf("got %q, want a double sale", problems)
	}
}

// A service is two processes, their masters and their database.
type service struct {
	t       testing.TB
	masters []*masters.Process
	db      *sql.DB
	env     string
	sellers [2]*seller
	mu      sync.Mutex
	said    map[string]int // how often sellers said each word
}

type seller struct {
	cmd         *exec.Cmd
	stdin       io.WriteCloser
	log         bytes.Buffer
	holds, goes chan string // lines of a seller that strike waits for
	done        chan error
}

func startService(t testing.TB, guard string) *service {
	address := postgresSchema(t)
	s := &service{t: t, masters: redistest.Masters(t, 3), db: connect(t, "pgx", address), said: map[string]int{}}
	addrs := redistest.Addrs(s.masters)
	locktest.Bootstrap(t, addrs, sellerOptions...)
	mustExec(t, s.db, serviceSchema)
	for item, amount := range initial {
		mustExec(t, s.db, fmt.Sprintf(`INSERT INTO stock (item, amount) VALUES ('%s', %d)`, item, amount))
	}
	s.env = fmt.Sprintf("%s=%s;%s;%s", sellerEnv, guard, strings.Join(addrs, ","), address)
	for i := range s.sellers {
		s.start(i)
	}
	return s
}

func (s *service) start(i int) {
	t := s.t
	p := &seller{holds: make(chan string, 1), goes: make(chan string, 1), done: make(chan error, 1)}
	p.cmd = exec.Command(os.Args[0], "-test.run=^TestService$", "-test.timeout=1h")
	p.cmd.Env = append(os.Environ(), s.env)
	p.cmd.Stderr = &p.log
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	must(t, err)
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case "holds":
				p.holds <- rest
			case "goes":
				p.goes <- rest
			}
			s.mu.Lock()
			s.said[word]++
			s.mu.Unlock()
		}
		p.done <- p.cmd.Wait()
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	s.sellers[i] = p
}

// strike has a seller send itself a signal between a read and its write, and waits until the
// other one has sold the item. It then continues a stopped seller, or replaces a killed one.
func (s *service) strike(i int, signal syscall.Signal) {
	t, p := s.t, s.sellers[i]
	_, err := fmt.Fprintln(p.stdin, int(signal))
	must(t, err)
	var item string
	var fence int64
	select {
	case line := <-p.holds:
		_, err = fmt.Sscan(line, &item, &fence)
		must(t, err)
	case err := <-p.done:
		t.Fatalf("a seller ended: %v\n%s", err, &p.log)
	case <-time.After(time.Minute):
		t.Fatal("a seller sold nothing for a minute")
	}
	redistest.Eventually(t, time.Minute, func() bool {
		return value(t, s.db, fmt.Sprintf(`SELECT count(*) FROM sales WHERE item = '%s' AND fence > %d`, item, fence)) != "0"
	}, "the other process sells the item")
	if signal == syscall.SIGKILL {
		<-p.done
		s.start(i)
		return
	}
	redistest.Eventually(t, time.Minute, func() bool {
		must(t, p.cmd.Process.Signal(syscall.SIGCONT)) // again, in case it had not stopped yet
		return len(p.goes) > 0
	}, "the process goes on")
	<-p.goes
}

// end ends the sellers, and returns how much they sold and what is wrong with it.
func (s *service) end() (sales int, problems []string) {
	t := s.t
	for _, p := range s.sellers {
		must(t, p.stdin.Close())
	}
	for _, p := range s.sellers {
		if err := <-p.done; err != nil {
			t.Errorf("a seller: %v\n%s", err, &p.log)
		}
	}
	var history []sale
	rows, err := s.db.QueryContext(t.Context(), `SELECT item, piece, fence FROM sales ORDER BY id`)
	must(t, err)
	for rows.Next() {
		var one sale
		must(t, rows.Scan(&one.item, &one.piece, &one.fence))
		history = append(history, one)
	}
	must(t, rows.Err())
	left := map[string]int64{}
	for item := range initial {
		left[item] = number(t, value(t, s.db, fmt.Sprintf(`SELECT amount FROM stock WHERE item = '%s'`, item)))
	}
	return len(history), wrong(initial, left, history)
}

// beSeller is one process of the service. It ends when its standard input does. A line there is
// a signal for it to send itself at its next sale.
func beSeller(t testing.TB) {
	config := strings.Split(os.Getenv(sellerEnv), ";")
	inTx := func(db *sql.DB, lease *redlock.Lease, do func(*sql.Tx) error) error {
		return fence.Tx(context.Background(), db, fence.PostgreSQL, lease, do)
	}
	if config[0] == "unchecked" {
		inTx = func(db *sql.DB, _ *redlock.Lease, do func(*sql.Tx) error) error {
			return bare(context.Background(), db, do)
		}
	}
	db := connect(t, "pgx", config[2])
	locker, err := redlock.New(strings.Split(config[1], ","), sellerOptions...)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var signal atomic.Int64
	go func() {
		defer cancel()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			signal.Store(number(t, lines.Text()))
		}
	}()
	var workers sync.WaitGroup
	for item := range initial {
		workers.Go(func() {
			for ctx.Err() == nil {
				lease, err := locker.Lock(ctx, "stock:"+item)
				if err != nil {
					if ctx.Err() == nil {
						fmt.Println("failed", err)
					}
					continue
				}
				if err := sellOne(db, inTx, item, lease, &signal); errors.Is(err, fence.ErrFenced) {
					fmt.Println("refused", item, lease.Fence())
				} else if err != nil {
					t.Error(err)
				}
				if errors.Is(lease.Unlock(context.Background()), redlock.ErrLost) {
					fmt.Println("lost", item, lease.Fence())
				}
			}
		})
	}
	workers.Wait()
	must(t, locker.Close())
}

// transaction is fence.Tx or bare.
type transaction func(db *sql.DB, lease *redlock.Lease, do func(*sql.Tx) error) error

// sellOne reads the stock of an item in one transaction and writes it in another. It does not look at
// its lease: the store must refuse what comes too late.
func sellOne(db *sql.DB, inTx transaction, item string, lease *redlock.Lease, signal *atomic.Int64) error {
	ctx := context.Background()
	var piece int64
	err := inTx(db, lease, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT amount FROM stock WHERE item = $1`, item).Scan(&piece)
	})
	time.Sleep(time.Millisecond) // work
	if err != nil || piece == 0 {
		return err
	}
	if s := signal.Swap(0); s != 0 {
		fmt.Println("holds", item, lease.Fence())
		if err := syscall.Kill(os.Getpid(), syscall.Signal(s)); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // a signal may take a moment
		fmt.Println("goes on")
	}
	return inTx(db, lease, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE stock SET amount = $1 WHERE item = $2`, piece-1, item); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO sales (item, piece, fence) VALUES ($1, $2, $3)`, item, piece, lease.Fence())
		return err
	})
}
