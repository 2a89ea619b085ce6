package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"math"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/fence"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/redlocktest"
)

// What a program does with a lease and a database. docs/fencing has programs that run.
func ExampleTx() {
	sell := func(ctx context.Context, locker *redlock.Locker, db *sql.DB, item string) error {
		return locker.Do(ctx, "stock:"+item, func(ctx context.Context, lease *redlock.Lease) error {
			err := fence.Tx(ctx, db, fence.PostgreSQL, lease, func(tx *sql.Tx) error {
				var left int
				if err := tx.QueryRowContext(ctx, `SELECT amount FROM stock WHERE item = $1`, item).Scan(&left); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, `UPDATE stock SET amount = $1 WHERE item = $2`, left-1, item)
				return err
			})
			if late := (*fence.FencedError)(nil); errors.As(err, &late) {
				log.Printf("token %d came after %d: nothing was sold", late.Token, late.Seen)
			}
			return err
		})
	}
	_ = sell
}

// A service passes the token of its lease on to the service that writes.
func ExampleAddHeader() {
	lease := fence.NewToken("stock:apple", 1790000000000001) // or a *redlock.Lease
	h := make(http.Header)
	if err := fence.AddHeader(h, lease); err != nil {
		log.Panic(err)
	}
	fmt.Println(h.Get(fence.Header))

	token, err := fence.FromHeader(h, "stock:apple") // the other service, which gives it to Tx
	fmt.Println(token.Resource(), token.Fence(), err)
	// Output:
	// exclusive 1790000000000001 stock%3Aapple
	// stock:apple 1790000000000001 <nil>
}

// reader is the token of a reader, by way of a header.
func reader(t testing.TB, resource string, number int64) fence.Token {
	t.Helper()
	h := http.Header{fence.Header: {fmt.Sprintf("shared %d %s", number, resource)}}
	token, err := fence.FromHeader(h, resource)
	locktest.Must(t, err)
	return token
}

// What is true of a lease arrives at the other end of a request.
func TestHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := redlocktest.Start(t, 3).Locker()
		odd := "a, b;c\x00\xff\r\n日"
		write, err := locker.Lock(t.Context(), odd)
		locktest.Must(t, err)
		read, err := locker.Lock(t.Context(), "b", redlock.Shared())
		locktest.Must(t, err)
		one, two := make(http.Header), make(http.Header)
		locktest.Must(t, errors.Join(fence.AddHeader(one, write, read), fence.AddHeader(two, []*redlock.Lease{write, read}...)))
		two.Set(fence.Header, strings.Join(two.Values(fence.Header), ", ")) // as a proxy may
		for _, h := range []http.Header{one, two} {
			for _, want := range []*redlock.Lease{write, read} {
				got, err := fence.FromHeader(h, want.Resource())
				if err != nil || got.Resource() != want.Resource() || got.Fence() != want.Fence() || got.Shared() != want.Shared() {
					t.Errorf("got %v and %v, want %q %d %s", got, err, want.Resource(), want.Fence(), want.Mode())
				}
			}
		}
	})
}

func TestHeaderThatIsNone(t *testing.T) {
	for _, test := range []struct{ name, header string }{
		{"empty", ""},
		{"another resource", "exclusive 7 b"},
		{"a permit", "exclusive 7 a~1"},
		{"two tokens", "exclusive 7 a,exclusive 8 a"},
		{"no number", "exclusive x a"},
		{"zero", "exclusive 0 a"},
		{"too large", "exclusive 9223372036854775808 a"},
		{"no mode", "7 a"},
		{"another mode", "Shared 7 a"},
		{"a bad escape", "exclusive 7 %zz"},
		{"garbage beside a token", "exclusive 7 a,x"},
		{"a long text", strings.Repeat("x", 9999)},
	} {
		if token, err := fence.FromHeader(http.Header{fence.Header: {test.header}}, "a"); !errors.Is(err, redlock.ErrConfig) || len(err.Error()) > 999 {
			t.Errorf("%s: got %v and %v, want a short ErrConfig", test.name, token, err)
		}
	}
	if _, err := fence.FromHeader(nil, "a"); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("no header: got %v, want ErrConfig", err)
	}
	h := http.Header{fence.Header: {"exclusive 7 a~1", "exclusive 3 a~12", "exclusive 9 a", "exclusive 9 a~01", "exclusive 9 a~x", "exclusive 9 a~1001", "exclusive 9 b~1"}}
	if got, err := fence.PermitsFromHeader(h, "a"); err != nil || len(got) != 2 || got[0].Resource() != "a~1" || got[1].Fence() != 3 {
		t.Errorf("got %v and %v, want the permits 1 and 12", got, err)
	}
	h.Add(fence.Header, "exclusive 3 a~12") // as AddHeader does for a request that is sent again
	if got, err := fence.PermitsFromHeader(h, "a"); err != nil || len(got) != 2 {
		t.Errorf("got %v and %v of the same token twice, want the permits 1 and 12", got, err)
	}
	h.Add(fence.Header, "exclusive 2 a~12")
	if got, err := fence.PermitsFromHeader(h, "a"); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("got %v and %v of two tokens of a permit, want ErrConfig", got, err)
	}
	if _, err := fence.PermitsFromHeader(h, "c"); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("got %v, want ErrConfig", err)
	}
}

// none is a database that must not be asked.
type none struct{ t *testing.T }

func (n none) BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error) {
	n.t.Error("got a transaction, want ErrConfig before it")
	return nil, sql.ErrConnDone
}

var namesCall = regexp.MustCompile(`^redlock: invalid configuration: fence: ((Tx|Claim|Changed|Set|Get)\w*|AddHeader|FromHeader): `)

// What cannot be right is refused before the store is asked.
func TestArguments(t *testing.T) {
	good := fence.NewToken("a", 1)
	var without context.Context
	work := func(*sql.Tx) error { t.Error("got a call"); return nil }
	for name, err := range map[string]error{
		"no resource":      fence.Tx(t.Context(), none{t}, fence.MySQL, fence.NewToken("", 1), work),
		"token 0":          fence.Tx(t.Context(), none{t}, fence.MySQL, fence.NewToken("a", 0), work),
		"a negative token": fence.Tx(t.Context(), none{t}, fence.MySQL, fence.NewToken("a", math.MinInt64), work),
		"no lease":         fence.TxAll(t.Context(), none{t}, fence.MySQL, []fence.Token{}, work),
		"no dialect":       fence.Tx(t.Context(), none{t}, fence.Dialect(0), good, work),
		"Claim":            fence.Claim(t.Context(), nil, fence.Dialect(4), good),
		"no table":         fence.ClaimRow(t.Context(), nil, fence.Column{Dialect: fence.SQLite, Key: "k", Fence: "f"}, 1, good),
		"ClaimRow":         fence.ClaimRow(t.Context(), nil, fence.Column{fence.SQLite, "t", "k", "f"}, 1, fence.NewToken("a", 0)),
		"a reader writes":  fence.Set(t.Context(), nil, "k", "v", reader(t, "a", 1)),
		"Get":              func() error { _, err := fence.Get(t.Context(), nil, "k", fence.NewToken("a", -1)); return err }(),
		"AddHeader":        fence.AddHeader(make(http.Header), fence.NewToken("", 1)),
		"no header":        fence.AddHeader(nil, good),
		"no context":       fence.Tx(without, none{t}, fence.MySQL, good, work),
		"no database":      fence.Tx(t.Context(), nil, fence.MySQL, good, work),
		"no function":      fence.Tx(t.Context(), none{t}, fence.MySQL, good, nil),
		"a nil lease":      fence.Tx(t.Context(), none{t}, fence.MySQL, nil, work),
		"no transaction":   fence.Claim(t.Context(), nil, fence.MySQL, good),
		"none of a row":    fence.ClaimRow(t.Context(), nil, fence.Column{fence.SQLite, "t", "k", "f"}, 1, good),
		"a nil *sql.DB":    fence.Tx(t.Context(), (*sql.DB)(nil), fence.MySQL, good, work),
		"no Redis":         fence.Set(t.Context(), nil, "k", "v", good),
		"a nil client":     fence.Set(t.Context(), (*redis.Client)(nil), "k", "v", good),
		"a pipeline":       fence.Set(t.Context(), redis.NewClient(&redis.Options{}).Pipeline(), "k", "v", good),
		"no value":         fence.Set(t.Context(), redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), "k", nil, good),
		"a nil value":      fence.Set(t.Context(), redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), "k", (*string)(nil), good),
		"not UTF-8":        fence.Tx(t.Context(), none{t}, fence.PostgreSQL, fence.NewToken("a\xff", 1), work),
		"no result":        fence.Changed(nil, nil),
		"none in a header": func() error { _, err := fence.FromHeader(nil, "a"); return err }(),
		"a zero byte":      fence.Tx(t.Context(), none{t}, fence.PostgreSQL, fence.NewToken("a\x00", 1), work),
	} {
		if !errors.Is(err, redlock.ErrConfig) || !namesCall.MatchString(err.Error()) {
			t.Errorf("%s: got %v, want ErrConfig and the name of the call", name, err)
		}
	}
	if fence.Dialect(0).Schema() != "" {
		t.Error("got a schema of no dialect")
	}
}

// Redis compares and writes, and compares at reads; each resource has a token of its own.
func TestRedis(outer *testing.T) {
	t := redistest.Timed(outer)
	rdb := redistest.Client(t, redistest.Addrs(redistest.Masters(t, 1))[0])
	ctx := t.Context()
	w := func(resource string, n int64) fence.Token { return fence.NewToken(resource, n) }
	get := func(l fence.Token) func() error {
		return func() error { _, err := fence.Get(ctx, rdb, "k", l); return err }
	}
	set := func(l fence.Token) func() error {
		return func() error { return fence.Set(ctx, rdb, "k", l.Fence(), l) }
	}
	const large = math.MaxInt64
	for i, step := range []struct {
		do   func() error
		want error
		left string
	}{
		{get(reader(t, "a", 50)), redis.Nil, ""}, // a reader's token is not kept
		{get(w("a", 9)), redis.Nil, ""},
		{set(w("a", 8)), fence.ErrFenced, ""}, // by the token of the read
		{set(w("a", 9)), nil, "9"},
		{set(w("a", 10)), nil, "10"}, // a longer number
		{set(w("a", 9)), fence.ErrFenced, "10"},
		{get(w("a", 9)), fence.ErrFenced, "10"},
		{get(reader(t, "a", 9)), fence.ErrFenced, "10"},
		{get(reader(t, "a", 10)), nil, "10"},
		{set(w("a~1", 2)), nil, "2"}, // a permit counts for itself
		{set(w("a~2", 1)), nil, "1"},
		{set(w("a~1", 1)), fence.ErrFenced, "1"},
		{set(w("a", large)), nil, fmt.Sprint(int64(large))},
		{set(w("a", large-1)), fence.ErrFenced, fmt.Sprint(int64(large))}, // equal as a number of Lua
	} {
		if err := step.do(); !errors.Is(err, step.want) {
			t.Errorf("step %d: got %v, want %v", i, err, step.want)
		}
		if got := rdb.HGet(ctx, "k", "value").Val(); got != step.left {
			t.Errorf("step %d: got the value %s, want %s", i, got, step.left)
		}
	}
	var late *fence.FencedError
	if err := fence.Set(ctx, rdb, "k", 1, w("a", 11)); !errors.As(err, &late) || *late != (fence.FencedError{Resource: "a", Token: 11, Seen: large}) {
		t.Errorf("got %v, want both tokens", err)
	}
	rdb.Set(ctx, "text", "x", 0)
	if err := fence.Set(ctx, rdb, "text", 1, w("a", 11)); err == nil || errors.Is(err, fence.ErrFenced) {
		t.Errorf("got %v of a key of another type, want the error of the server", err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add("exclusive 7 a")
	f.Add("shared 7 a~1, exclusive 8 b")
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"a", "b"} {
			token, err := fence.FromHeader(http.Header{fence.Header: {text}}, name)
			if err != nil {
				if !errors.Is(err, redlock.ErrConfig) {
					t.Errorf("got %v, want ErrConfig", err)
				}
				continue
			}
			h := make(http.Header)
			if err := fence.AddHeader(h, token); err != nil {
				t.Error(err)
			}
			if again, err := fence.FromHeader(h, name); err != nil || again != token {
				t.Errorf("got %v and %v, want %v", again, err, token)
			}
		}
	})
}

func TestMain(m *testing.M) { os.Exit(redistest.WithExamples(m).Run()) }
