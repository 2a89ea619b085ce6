package admin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/internal/masters"
	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/wire"
)

// aclLine is the user that docs/operations.md recommends, for the default key prefix: it may run the
// commands that the library needs.
var aclLine = func() string {
	line := "ACL SETUSER redlock on >secret resetkeys ~redlock:* resetchannels &redlock:* -@all"
	for _, c := range node.Commands {
		line += " +" + strings.ToLower(c.Name)
	}
	return line
}()

// forTheQueue are the rights that only the order among processes needs.
var forTheQueue = []string{"&redlock:*", "+exists", "+zadd", "+zrem", "+zcard", "+zrank", "+hget", "+hdel", "+publish", "+subscribe", "+ping"}

// forReaders are the rights that only readers need.
var forReaders = []string{"+zscore", "+zremrangebyscore", "+zrange"}

// aclRights returns the rights on that line. Before Redis 6.2 users may use all channels, and
// rules about channels are errors.
func aclRights(t testing.TB) []string {
	t.Helper()
	rights := strings.Fields(aclLine)[3:]
	if redistest.IsRedisBefore(t, 6, 2) {
		rights = slices.DeleteFunc(rights, isChannelRule)
	}
	return rights
}

func isChannelRule(right string) bool {
	return right == "resetchannels" || strings.HasPrefix(right, "&")
}

func TestOperationsHasTheACLLine(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	locktest.Must(t, err)
	want := []string{aclLine}
	for _, c := range node.Commands {
		want = append(want, fmt.Sprintf("| %s | %s | %s |", c.Name, c.Need, c.Without))
	}
	for _, line := range want {
		if !slices.Contains(strings.Split(string(page), "\n"), line) {
			t.Errorf("docs/operations.md lacks the line %q", line)
		}
	}
}

// TestACL runs the life of a lock as a user with exactly the rights that docs/operations.md
// recommends, and no master refuses anything. Then it takes away each right in turn, which a master
// must refuse: the line has all that is needed, and no more.
func TestACL(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	var c aclCluster
	for _, n := range redistest.Masters(t, 4) {
		c.admins = append(c.admins, aclAdmin(t, n))
		c.addrs = append(c.addrs, n.Addr())
	}
	c.addrs, c.alone = c.addrs[:3], c.addrs[3]
	rights := aclRights(t)

	t.Run("as docs/operations.md has it", func(t *redistest.T) {
		c.setUser(t, rights)
		if err := c.life(t, "redlock:", ""); err != nil {
			t.Error(err)
		}
		c.wait(t, "redlock", true)
		refused := c.refused(t, "redlock")
		c.setUser(t, rights)
		if err := c.read(t); err != nil {
			t.Error(err)
		}
		if refused = append(refused, c.refused(t, "redlock")...); len(refused) > 0 {
			t.Errorf("the masters refused %q, want nothing", refused)
		}
	})
	t.Run("with another key prefix", func(t *redistest.T) {
		c.setUser(t, rights)
		if err := c.life(t, "other:", ""); !errors.Is(err, reason.Permission) {
			t.Errorf("got %v, want %v", err, reason.Permission)
		}
	})
	t.Run("with a database number", func(t *redistest.T) {
		c.setUser(t, rights)
		if err := c.life(t, "redlock:", "/1"); !errors.Is(err, reason.Permission) {
			t.Errorf("got %v, want %v", err, reason.Permission)
		}
		c.setUser(t, append(slices.Clone(rights), "+select"))
		if err := c.life(t, "redlock:", "/1"); err != nil {
			t.Errorf("with +select: %v", err)
		}
	})
	for i, right := range rights {
		if !strings.ContainsAny(right[:1], "+~") || slices.Contains(forTheQueue, right) || slices.Contains(forReaders, right) {
			continue
		}
		t.Run("without "+right, func(t *redistest.T) {
			c.setUser(t, slices.Delete(slices.Clone(rights), i, i+1))
			err := c.life(t, "redlock:", "")
			if right == "+info" { // only this right can be missing, and Check shows it
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			if !errors.Is(err, reason.Permission) || errors.Is(err, reason.WrongType) {
				t.Errorf("got %v, want %v", err, reason.Permission)
			}
		})
	}
	for _, missing := range append([]string{"", "+zrem", "+zcard"}, forReaders...) {
		t.Run("reading without "+missing, func(t *redistest.T) {
			c.setUser(t, slices.DeleteFunc(slices.Clone(rights), func(r string) bool { return r == missing }))
			err := c.read(t)
			wanted := missing == "" || missing == "+zrange"
			if wanted && err != nil || !wanted && (!errors.Is(err, reason.Permission) || !strings.HasPrefix(err.Error(), "TryLock: ")) {
				t.Errorf("got %v", err) // a reader that lacks a right is not granted
			}
			ends := float64(time.Now().Add(time.Minute).UnixMilli())
			for _, admin := range c.admins { // the readers of another user are in the way, and seen
				locktest.Must(t, errors.Join(admin.ZAdd(t.Context(), "redlock:read~readers", redis.Z{Score: ends, Member: "another"}).Err(),
					admin.Set(t.Context(), "redlock:read", wire.Sign, time.Minute).Err()))
			}
			l, err := c.open(t, "")
			locktest.Must(t, err)
			defer func() { locktest.Must(t, l.Close()) }()
			if _, err := l.TryLock(t.Context(), "read"); !errors.Is(err, redlock.ErrTaken) {
				t.Errorf("got %v, want ErrTaken", err)
			}
			redistest.Eventually(t, 20*time.Second, func() bool { // the release of the reader before may be under way at a master
				in, err := admin.Inspect(t.Context(), l, "read")
				return err == nil && in.Masters[0].ReaderKeys == 1
			}, "one reader")
			for _, admin := range c.admins {
				locktest.Must(t, admin.Del(t.Context(), "redlock:read", "redlock:read~readers").Err())
			}
			if err := c.life(t, "redlock:", ""); err != nil {
				t.Errorf("the life of an exclusive lock: %v", err)
			}
			if refused := c.refused(t, "redlock"); missing != "" && !slices.Contains(refused, missing) {
				t.Errorf("the masters refused %q, want %s among them", refused, missing)
			}
		})
	}
	c.setUser(t, rights)
	if err := c.life(t, "redlock:", ""); err != nil {
		t.Error(err)
	}
	for i, missing := range append([]string{strings.Join(forTheQueue, " ")}, forTheQueue...) {
		t.Run("waiting without "+missing, func(t *redistest.T) {
			t.Parallel()
			user := fmt.Sprint("user", i)
			set := []any{"ACL", "SETUSER", user}
			for _, r := range rights {
				if !slices.Contains(strings.Fields(missing), r) {
					set = append(set, r)
				}
			}
			for _, admin := range c.admins {
				locktest.Must(t, admin.Do(t.Context(), set...).Err())
			}
			c.wait(t, user, missing == "+ping") // it may be slower, and nothing else
			l := locktest.Open(t, []string{"redis://" + user + ":secret@" + c.alone})
			first, _ := admin.Check(t.Context(), l)
			report, _ := admin.Check(t.Context(), l)
			if once, again := fmt.Sprint(first.Masters[0].Findings), fmt.Sprint(report.Masters[0].Findings); strings.Count(once, "PUBLISH") != strings.Count(again, "PUBLISH") {
				t.Errorf("got %s, and of the same Locker after that %s", once, again)
			}
			want := strings.ToUpper(missing[1:])
			switch missing {
			case forTheQueue[0]:
				want = "PUBLISH"
			case "+subscribe", "+ping": // a process that waits logs them
				want = ""
			}
			if i > 0 && !strings.Contains(fmt.Sprint(report.Masters[0].Findings), want) {
				t.Errorf("got the findings %v, want one about %s", report.Masters[0].Findings, want)
			}
			refused := c.refused(t, user)
			if i == 0 && len(refused) == 0 || i > 0 && missing != "+ping" && !slices.Contains(refused, missing) {
				t.Errorf("the masters refused %q, want %s among them", refused, missing)
			}
		})
	}
}

// aclCluster has masters whose default user is off.
type aclCluster struct {
	addrs  []string
	alone  string // the address of one more master, the last one of admins
	admins []*redis.Client
	lives  int
}

// aclAdmin switches the default user off and returns a client whose user has all rights.
func aclAdmin(t testing.TB, n *masters.Process) *redis.Client {
	first := redistest.Client(t, n.Addr())
	for _, rules := range [][]any{{"admin", "on", ">admin", "allkeys", "+@all"}, {"default", "off"}} {
		locktest.Must(t, first.Do(t.Context(), append([]any{"ACL", "SETUSER"}, rules...)...).Err())
	}
	admin := redis.NewClient(&redis.Options{Addr: n.Addr(), Username: "admin", Password: "admin", DisableIdentity: true})
	t.Cleanup(func() { _ = admin.Close() })
	return admin
}

// setUser creates the user anew, and flushes all data of the nodes.
func (c *aclCluster) setUser(t testing.TB, rights []string) {
	t.Helper()
	set := []any{"ACL", "SETUSER", "redlock"}
	for _, r := range rights {
		set = append(set, r)
	}
	for _, admin := range c.admins {
		err := errors.Join(
			admin.Do(t.Context(), "ACL", "DELUSER", "redlock").Err(),
			admin.Do(t.Context(), set...).Err(),
			admin.ACLLogReset(t.Context()).Err(),
			admin.ScriptFlush(t.Context()).Err(),
			admin.FlushAll(t.Context()).Err())
		locktest.Must(t, err)
	}
}

// refused returns the rights for want of which the masters refused a user something.
func (c *aclCluster) refused(t testing.TB, user string) (rights []string) {
	t.Helper()
	for _, admin := range c.admins {
		entries, err := admin.ACLLog(t.Context(), 1000).Result()
		locktest.Must(t, err)
		for _, e := range entries {
			switch {
			case e.Username != user:
			case e.Reason == "channel":
				rights = append(rights, "&redlock:*")
			default:
				rights = append(rights, "+"+e.Object)
			}
		}
	}
	return rights
}

// life locks a resource, contends for it, extends it, sets a missing key again and unlocks it,
// as the user redlock. It returns the first unexpected error.
func (c *aclCluster) life(t testing.TB, prefix, db string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := c.open(t, db, redlock.WithKeyPrefix(prefix), redlock.WithoutRenewal())
	defer func() { _ = l.Close() }() // without a right it fails, as Unlock did
	if err != nil {
		return err
	}
	c.lives++
	resource := fmt.Sprintf("life-%d", c.lives)
	key := prefix + resource
	looks := func(i int, commands ...[]any) error {
		cn := c.admins[i].Conn()
		defer cn.Close()
		number := strings.TrimPrefix(db, "/")
		if number == "" {
			number = "0" // the connection may come from a life in another database
		}
		commands = slices.Insert(commands, 0, []any{"SELECT", number})
		for _, command := range commands {
			if err := cn.Do(ctx, command...).Err(); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range c.addrs { // different counters make a second round necessary
		locktest.Must(t, looks(i, []any{"SET", key + "~fence", 1000 * (i + 1)}))
	}
	lease, err := l.TryLock(ctx, resource)
	if err != nil {
		return fmt.Errorf("TryLock: %w", err)
	}
	held := func() bool { // on all nodes: two of three make a lease, and the third may have been too slow
		for i := range c.addrs {
			if looks(i, []any{"GET", key}) != nil { // redis.Nil
				return false
			}
		}
		return true
	}
	older := func() bool { // by a millisecond: before, a renewal lengthens nothing and needs no right for it
		for _, admin := range c.admins {
			if db == "" && admin.PTTL(ctx, key).Val() >= 10*time.Second {
				return false
			}
		}
		return true
	}
	redistest.Eventually(t, 10*time.Second, older, "the lease has lived for a millisecond")
	for first := true; first || !held(); first = false {
		if err := lease.Extend(ctx); err != nil {
			return fmt.Errorf("Extend: %w", err)
		}
	}
	if _, err := l.TryLock(ctx, resource); !errors.Is(err, redlock.ErrTaken) {
		return fmt.Errorf("TryLock of what is taken: %w", err)
	}
	locktest.Must(t, looks(0, []any{"DEL", key}))
	if err := lease.Extend(ctx); err != nil {
		return fmt.Errorf("Extend where the key is gone: %w", err)
	}
	if err := lease.Unlock(ctx); err != nil {
		return fmt.Errorf("Unlock: %w", err)
	}
	return nil
}

// open returns a Locker for the user redlock, and the error of its Bootstrap.
func (c *aclCluster) open(t testing.TB, db string, opts ...redlock.Option) (*redlock.Locker, error) {
	t.Helper()
	var urls []string
	for _, addr := range c.addrs {
		urls = append(urls, "redis://redlock:secret@"+addr+db)
	}
	l, err := redlock.New(urls, append(opts, redlock.WithMasterTimeout(2*time.Second))...)
	locktest.Must(t, err)
	if err := admin.Bootstrap(t.Context(), l); err != nil {
		return l, fmt.Errorf("Bootstrap: %w", err)
	}
	return l, nil
}

// wantNone reports keys that a refusal has left behind.
func (c *aclCluster) wantNone(t testing.TB, keys ...string) {
	t.Helper()
	for i, admin := range c.admins {
		if n := admin.Exists(t.Context(), keys...).Val(); n > 0 {
			t.Errorf("master %d has %d keys after the refusal", i, n)
		}
	}
}

// read has two readers at once, one of which is a former writer. It returns the first unexpected error,
// and looks that no refusal has left a key behind.
func (c *aclCluster) read(t testing.TB) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := c.open(t, "")
	defer func() { _ = l.Close() }() // without a right it may fail
	if err != nil {
		return err
	}
	first, err := l.TryLock(ctx, "read", redlock.Shared())
	if err != nil {
		c.wantNone(t, "redlock:read", "redlock:read~readers")
		return fmt.Errorf("TryLock: %w", err)
	}
	second, err := l.TryLock(ctx, "read", redlock.Shared())
	if err != nil {
		return fmt.Errorf("second TryLock: %w", err)
	}
	if _, err := l.TryLock(ctx, "read"); !errors.Is(err, redlock.ErrTaken) {
		return fmt.Errorf("TryLock of what is read: %w", err)
	}
	if err := errors.Join(first.Extend(ctx), first.Unlock(ctx), second.Unlock(ctx)); err != nil {
		return err
	}
	writer, err := l.TryLock(ctx, "read")
	if err != nil {
		return fmt.Errorf("TryLock after the readers: %w", err)
	}
	return errors.Join(writer.Downgrade(ctx), writer.Unlock(ctx))
}

// wait makes two Lockers of a user take turns with a resource. With queues it checks that the
// waiting Locker stands in the queue.
func (c *aclCluster) wait(t testing.TB, user string, queues bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	urls := []string{"redis://" + user + ":secret@" + c.alone} // no other queue node can replace a queue node that fails
	resource := "wait-" + user
	patient := redlock.WithMasterTimeout(2 * time.Second)
	lockers := []*redlock.Locker{locktest.Open(t, urls, patient), locktest.Open(t, urls, patient)}
	locktest.Must(t, admin.Bootstrap(ctx, lockers[0]))
	lease := locktest.Lock(t, lockers[0], resource)
	for i := range 2 {
		waiter := lockers[(i+1)%2]
		before := waiter.Stats().Counts[redlock.EventTaken]
		next := make(chan *redlock.Lease)
		go func() {
			lease, err := waiter.Lock(ctx, resource)
			if err != nil {
				t.Errorf("Lock of the waiting Locker: got %v, want a lease", err)
			}
			next <- lease
		}()
		waiting := func() int64 {
			n := int64(0)
			for _, admin := range c.admins {
				n += admin.ZCard(ctx, "redlock:"+resource+"~queue").Val()
			}
			return n
		}
		if queues {
			redistest.Eventually(t, 10*time.Second, func() bool { return waiting() == 1 }, "a process waits at the queue node")
		} else {
			redistest.Eventually(t, 10*time.Second, func() bool { return waiter.Stats().Counts[redlock.EventTaken] > before }, "a process has asked in vain, and waits")
		}
		locktest.Must(t, lease.Extend(ctx))
		locktest.Must(t, lease.Unlock(ctx))
		if lease = <-next; lease == nil {
			return
		}
	}
	locktest.Must(t, lease.Unlock(ctx))
	for _, l := range lockers {
		locktest.Must(t, l.Close())
	}
}

// A key that the user has no right to makes the server refuse the batch with its request. The
// other requests of the batch still succeed.
func TestForbiddenKeyInABatch(outer *testing.T) {
	t := redistest.Timed(outer)
	t.Parallel()
	c := locktest.Start(t, 1)
	locktest.Must(t, c.Nodes[0].Do(t.Context(), "acl", "setuser", "narrow", "on", ">secret", "~redlock:mine*", "~redlock:~guard", "+@all").Err())
	// On a busy machine sending a batch request by request takes very long.
	l := locktest.Open(t, []string{"redis://narrow:secret@" + c.Addrs[0]}, redlock.WithMasterTimeout(2500*time.Millisecond))
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			for range 4 {
				if le, err := l.Lock(t.Context(), fmt.Sprint("mine", i)); err != nil || le.Unlock(t.Context()) != nil {
					t.Errorf("got %v, want a lease that can be unlocked", err)
				}
			}
		})
		callers.Go(func() {
			for range 4 {
				_, err := l.Lock(t.Context(), fmt.Sprint("other", i))
				locktest.WantMatch(t, "Lock of another's", err, []error{reason.Permission})
			}
		})
	}
	callers.Wait()
}
