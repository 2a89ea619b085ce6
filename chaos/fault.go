package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/masters"
)

// Cost is how much of the budget a fault takes: the nodes that are without a vote.
type Cost int

// The costs.
const (
	Free Cost = iota // the node has its vote, though it may be late
	Vote             // the node has no vote until the fault is healed
	Loss             // the node may have lost keys, and has no vote until the quarantine after that ends
)

// Fault is a fault of a node. Inject and Heal return when the fault has begun or ended.
type Fault struct {
	Name  string
	Tiers Tier
	Cost  Cost
	Once  bool // the fault needs no healing
	Act   func(Node) (heal func() error, err error)
}

// The sizes of faults. Steps of clocks are within the tolerance of tokens (MaxSkew), for a
// TTL of at most two seconds.
const (
	slowly  = 15 * time.Millisecond  // both ways together are within the node timeout
	tooSlow = 600 * time.Millisecond // beyond the node timeout
	aStep   = 400 * time.Millisecond
	longTTL = 1100 * time.Millisecond // a step that ends every key
)

// Faults returns all faults, by name.
func Faults() []Fault {
	return []Fault{
		{Name: "SIGKILL, then restart with AOF", Tiers: All, Cost: Loss, Act: killed(Kept)},
		{Name: "SIGKILL, then restart empty", Tiers: All, Cost: Loss, Act: killed(Empty)},
		{Name: "SIGKILL, then restart with the tail lost", Tiers: Virtual | Processes, Cost: Loss, Act: killed(Stale)},
		{Name: "crash and restart policy", Tiers: Containers, Cost: Loss, Once: true, Act: crashed},
		{Name: "SIGSTOP", Tiers: Virtual | Processes, Cost: Vote, Act: paused},
		{Name: "container paused", Tiers: Containers, Cost: Vote, Act: paused},
		{Name: "network disconnected", Tiers: Containers, Cost: Vote, Act: unplugged},
		{Name: "black hole", Tiers: All, Cost: Vote, Act: network(masters.Blackhole)},
		{Name: "requests lost", Tiers: All, Cost: Vote, Act: network(masters.LoseRequests)},
		{Name: "replies lost", Tiers: All, Cost: Vote, Act: network(masters.LoseReplies)},
		{Name: "connections refused", Tiers: All, Cost: Vote, Act: network(masters.Refuse)},
		{Name: "reset storm", Tiers: All, Cost: Vote, Act: resets},
		{Name: "latency", Tiers: All, Cost: Free, Act: latency(slowly)},
		{Name: "latency above the node timeout", Tiers: All, Cost: Vote, Act: latency(tooSlow)},
		{Name: "slow drip", Tiers: Real, Cost: Vote, Act: drip},
		{Name: "FLUSHALL", Tiers: All, Cost: Loss, Once: true, Act: command("flushall")},
		{Name: "SCRIPT FLUSH", Tiers: All, Cost: Free, Once: true, Act: command("script", "flush")},
		{Name: "CLIENT KILL", Tiers: Real, Cost: Free, Once: true, Act: command("client", "kill", "type", "normal", "skipme", "yes")},
		{Name: "CLIENT PAUSE", Tiers: Real, Cost: Vote, Act: clientPause},
		{Name: "READONLY", Tiers: All, Cost: Vote, Act: refusing("READONLY You can't write against a read only replica.",
			does("replicaof", "127.0.0.1", "1"), does("replicaof", "no", "one"))},
		{Name: "OOM", Tiers: All, Cost: Vote, Act: refusing("OOM command not allowed when used memory > 'maxmemory'.",
			does("config", "set", "maxmemory", "1"), does("config", "set", "maxmemory", "0"))},
		{Name: "NOREPLICAS", Tiers: All, Cost: Vote, Act: refusing("NOREPLICAS Not enough good replicas to write.",
			lonely, does("config", "set", "min-replicas-to-write", "0"))},
		{Name: "NOPERM", Tiers: All, Cost: Vote, Act: refusing("NOPERM this user has no permissions to run the 'set' command",
			does("acl", "setuser", "default", "-set"), does("acl", "setuser", "default", "+set"))},
		{Name: "MISCONF", Tiers: All, Cost: Vote, Act: refusing("MISCONF Redis is configured to save RDB snapshots, but it is not able to.", cannotSave, canSave)},
		{Name: "BUSY", Tiers: All, Cost: Vote, Act: refusing("BUSY Redis is busy running a script.", busy, idle)},
		{Name: "LOADING", Tiers: All, Cost: Vote, Act: refusing("LOADING Redis is loading the dataset in memory", reload, loaded)},
		{Name: "maxclients", Tiers: Real, Cost: Vote, Act: maxClients},
		{Name: "clock put forward", Tiers: Virtual | Processes, Cost: Loss, Act: stepped(aStep)},
		{Name: "clock put forward by a TTL", Tiers: Virtual | Processes, Cost: Loss, Act: stepped(longTTL)},
		{Name: "clock put back", Tiers: Virtual | Processes, Cost: Loss, Act: stepped(-aStep)},
		{Name: "clock that runs 0.4 % fast", Tiers: Virtual | Processes, Cost: Free, Act: drifting(4000)},
		{Name: "clock that runs 8 % fast", Tiers: Virtual | Processes, Cost: Loss, Act: drifting(80_000)},
		{Name: "clock that runs 8 % slow", Tiers: Virtual | Processes, Cost: Loss, Act: drifting(-80_000)},
		{Name: "fail-over to a replica", Tiers: Virtual | Processes, Cost: Loss, Once: true, Act: replaced(Kept)},
		{Name: "name points to an empty server", Tiers: All, Cost: Loss, Once: true, Act: replaced(Empty)},
	}
}

// FaultsOf returns the faults that exist on a tier.
func FaultsOf(t Tier) (list []Fault) {
	for _, f := range Faults() {
		if f.Tiers&t != 0 {
			list = append(list, f)
		}
	}
	return list
}

func nothing() error { return nil }

func killed(d Data) func(Node) (func() error, error) {
	return func(n Node) (func() error, error) {
		return func() error { return n.Restart(d) }, n.Kill()
	}
}

func paused(n Node) (func() error, error) { return n.Resume, n.Pause() }

func replaced(d Data) func(Node) (func() error, error) {
	return func(n Node) (func() error, error) { return nothing, n.Replace(d) }
}

func network(f masters.Fault) func(Node) (func() error, error) {
	return func(n Node) (func() error, error) {
		return func() error { return n.Net(masters.Pass) }, n.Net(f)
	}
}

func latency(d time.Duration) func(Node) (func() error, error) {
	return func(n Node) (func() error, error) {
		n.Latency(d/2, d/2)
		return func() error { n.Latency(0, 0); return nil }, nil
	}
}

func drip(n Node) (func() error, error) {
	n.Drip(2 * time.Millisecond)
	return func() error { n.Drip(0); return nil }, nil
}

// resets breaks all connections again and again, until healed.
func resets(n Node) (func() error, error) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			n.Reset()
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() error { close(stop); <-stopped; return nil }, nil
}

func stepped(d time.Duration) func(Node) (func() error, error) {
	return func(n Node) (func() error, error) {
		return func() error { return n.Step(-d) }, n.Step(d)
	}
}

// drifting makes a clock run fast or slow. Healing runs it the other way for as long: a
// clock that stays off never gets its vote back.
func drifting(ppm int) func(Node) (func() error, error) {
	return func(n Node) (func() error, error) {
		began := time.Now()
		return func() error {
			long := time.Since(began)
			if err := n.Drift(-ppm); err != nil {
				return err
			}
			time.Sleep(long)
			return n.Drift(0)
		}, n.Drift(ppm)
	}
}

const adminPatience = 8 * time.Second

func command(args ...any) func(Node) (func() error, error) {
	do := does(args...)
	return func(n Node) (func() error, error) { return nothing, do(n) }
}

func does(args ...any) func(Node) error {
	return func(n Node) error {
		ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
		defer cancel()
		err := n.Do(ctx, args...)
		if err != nil {
			return fmt.Errorf("%v: %w", args, err)
		}
		return nil
	}
}

// all runs the steps one after another.
func all(steps ...func(Node) error) func(Node) error {
	return func(n Node) error {
		for _, step := range steps {
			if err := step(n); err != nil {
				return err
			}
		}
		return nil
	}
}

// refuser is a fake node whose answer can be set.
type refuser interface{ Refuse(with string) }

// refusing makes a node answer every request with an error. A real node is brought into a
// state in which it does so.
func refusing(with string, inject, heal func(Node) error) func(Node) (func() error, error) {
	return func(n Node) (func() error, error) {
		if fake, ok := n.(refuser); ok {
			fake.Refuse(with)
			return func() error { fake.Refuse(""); return nil }, nil
		}
		return func() error { return heal(n) }, inject(n)
	}
}

// raw sends a command on a connection of its own, and waits up to 30 s for the answer. It is
// for commands that keep a server busy.
func raw(n Node, args ...any) (done <-chan error, err error) {
	b, _ := n.(*realNode).server()
	c := redis.NewClient(&redis.Options{Addr: b.Addr(), MaxRetries: -1, ReadTimeout: 30 * time.Second, DisableIdentity: true})
	conn := c.Conn()
	if err := conn.Ping(context.Background()).Err(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	answer := make(chan error, 1)
	go func() {
		answer <- conn.Do(context.Background(), args...).Err()
		_ = conn.Close()
		_ = c.Close()
	}()
	return answer, nil
}

// runs has the result channels of raw by node, until Heal waits for them.
var runs sync.Map

func keepBusy(n Node, args ...any) error {
	done, err := raw(n, args...)
	if err == nil {
		runs.Store(n, done)
	}
	return err
}

func awaitBusy(n Node) error {
	done, ok := runs.LoadAndDelete(n)
	if !ok {
		return nil
	}
	select {
	case err := <-done.(<-chan error):
		if err != nil && !strings.Contains(err.Error(), "killed") && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	case <-time.After(adminPatience):
		return errors.New("chaos: the server is still busy")
	}
}

// lonely makes a server refuse writes, as too few replicas are connected. Redis before 7.0 refuses
// no script.
func lonely(n Node) error {
	if err := does("config", "set", "min-replicas-to-write", "1")(n); err != nil {
		return err
	}
	if does("eval", "return redis.call('set', 'probe', '1')", "0")(n) != nil {
		return nil
	}
	return errors.Join(fmt.Errorf("%w: scripts write without replicas", ErrUnable),
		does("config", "set", "min-replicas-to-write", "0")(n), does("del", "probe")(n))
}

func busy(n Node) error {
	return all(does("config", "set", "lua-time-limit", "20"),
		func(n Node) error { return keepBusy(n, "eval", "while true do end", "0") })(n)
}

// idle ends the script, and sets the usual limit again. With the other one a script that a busy machine
// delays would refuse the end of the next fault.
func idle(n Node) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) { // until the server notices
		err := killScript(n)
		if err == nil || time.Since(began) > adminPatience {
			return errors.Join(err, awaitBusy(n), does("config", "set", "lua-time-limit", "5000")(n))
		}
	}
}

// killScript ends the script on a connection of its own that says nothing before: a busy server
// refuses CLIENT SETNAME, with which the connection for commands would begin again.
func killScript(n Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	b, _ := n.(*realNode).server()
	c := redis.NewClient(&redis.Options{Addr: b.Addr(), Protocol: 2, MaxRetries: -1, DisableIdentity: true})
	return errors.Join(c.ScriptKill(ctx).Err(), c.Close())
}

// reload makes the server load its data slowly, after filling it with extra keys.
func reload(n Node) error {
	for _, name := range []string{"loading-process-events-interval-bytes", "key-load-delay"} {
		if err := does("config", "set", name, "1024")(n); err != nil { // not every version has this
			return fmt.Errorf("%w: loading slowly: %w", ErrUnable, err)
		}
	}
	return all(
		does("config", "set", "key-load-delay", "5000"),
		does("eval", "for i = 1, 80 do redis.call('set', 'ballast' .. i, string.rep('x', 2048)) end return 1", "0"),
		func(n Node) error { return keepBusy(n, "debug", "reload") },
	)(n)
}

func loaded(n Node) error {
	return all(awaitBusy, does("config", "set", "key-load-delay", "0"),
		does("eval", "for i = 1, 80 do redis.call('del', 'ballast' .. i) end return 1", "0"))(n)
}

// cannotSave makes a save fail: a folder has the name of the file.
func cannotSave(n Node) error {
	err := all(does("config", "set", "dbfilename", "."), does("config", "set", "save", "3600 1000000"), does("bgsave"))(n)
	for began := time.Now(); err == nil && time.Since(began) < adminPatience; time.Sleep(10 * time.Millisecond) {
		if probe := does("set", "probe", "1")(n); probe != nil && strings.Contains(probe.Error(), "MISCONF") {
			return nil
		}
	}
	return errors.Join(err, errors.New("chaos: the server can still save"))
}

var canSave = all(does("config", "set", "save", ""), does("config", "set", "dbfilename", "dump.rdb"), does("del", "probe"))

func clientPause(n Node) (func() error, error) {
	const long = 300 * time.Millisecond
	began := time.Now()
	return func() error { time.Sleep(time.Until(began.Add(long))); return does("ping")(n) },
		does("client", "pause", long.Milliseconds())(n)
}

// maxClients leaves room for one connection: a connection of its own, which nothing else uses and
// which therefore is never in the pool of a client that gives it up.
func maxClients(n Node) (func() error, error) {
	b, _ := n.(*realNode).server()
	c := redis.NewClient(&redis.Options{Addr: b.Addr(), MaxRetries: -1, ReadTimeout: adminPatience, DisableIdentity: true})
	conn := c.Conn()
	say := func(args ...any) error { return conn.Do(context.Background(), args...).Err() }
	end := func() error { return errors.Join(say("config", "set", "maxclients", "1000"), conn.Close(), c.Close()) }
	if err := say("config", "set", "maxclients", "1"); err != nil {
		return nil, errors.Join(err, conn.Close(), c.Close())
	}
	if err := say("client", "kill", "type", "normal", "skipme", "yes"); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// plug is a node whose network can be disconnected.
type plug interface {
	Unplug() error
	Plug() error
}

func unplugged(n Node) (func() error, error) {
	p, ok := unwrap(n).(plug)
	if !ok {
		return nil, ErrUnable
	}
	return p.Plug, p.Unplug()
}

// supervised is a server that its supervisor restarts when it dies.
type supervised interface{ Crash() error }

func crashed(n Node) (func() error, error) {
	s, ok := unwrap(n).(supervised)
	if !ok {
		return nil, ErrUnable
	}
	return nothing, s.Crash()
}

func unwrap(n Node) any {
	if r, ok := n.(*realNode); ok {
		b, _ := r.server()
		return b
	}
	return n
}
