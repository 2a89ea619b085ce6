package locktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
)

// Scenarios plays a text file: after "== name" a scenario on three fake masters in a bubble, one step a line.
//
//	lockers a b               a warm Locker for each name
//	X = a.try [WORDS]         TryLock of "r"; WORDS: shared, reentry, manual, ttl=1s, name=other, in=Y (the context of lease Y)
//	X = a.lock [WORDS]        Lock of "r" in a goroutine
//	X waits, X got, X failed  whether that has returned, or waits for it
//	X.unlock, X.extend, X.downgrade, X.detach, X.err, X.cause
//	0 1 kill                  of nodes: kill, restart, empty, hang, resume, heal, erase, steal, noreply, latency T, clock T; all, queue: of "r"
//	X,Y,Z.unlock             the same step for each
//	X.fence > Y               also =, >=, <; X.mode = shared; 0 has VALUE; holding 0 1 2; left nothing; sleep T
//
// Behind "->" stand the errors that a step returns, ok if none; then "in T" or "within T": how long it takes, or for got the
// time since the last step that is neither got, failed nor waits.
func Scenarios(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	Must(t, err)
	for one := range strings.SplitSeq("\n"+string(text), "\n== ") {
		name, steps, _ := strings.Cut(one, "\n")
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		Subtest(t, name, 3, func(t *testing.T, b *Bubble) {
			p := &play{Bubble: b, lockers: map[string]*redlock.Locker{}, leases: map[string]*redlock.Lease{}, waiters: map[string]*Waiter{}}
			for line := range strings.Lines(steps) {
				if line, _, _ = strings.Cut(strings.TrimSpace(line), "#"); line != "" {
					p.step(line)
				}
			}
		})
	}
}

type play struct {
	*Bubble
	lockers map[string]*redlock.Locker
	first   *redlock.Locker
	leases  map[string]*redlock.Lease
	waiters map[string]*Waiter
	acted   time.Time
}

var sentinels = map[string]error{
	"taken": redlock.ErrTaken, "noquorum": redlock.ErrNoQuorum, "lost": redlock.ErrLost, "released": redlock.ErrReleased,
	"notheld": redlock.ErrNotHeld, "notacquired": redlock.ErrNotAcquired, "closed": redlock.ErrClosed, "reentry": redlock.ErrReentry,
	"detached": redlock.ErrDetached, "expired": reason.Expired, "canceled": context.Canceled, "upgrade": reason.Upgrade,
}

var nodeSteps = map[string]func(*virtual.Node){
	"kill": (*virtual.Node).Kill, "restart": (*virtual.Node).Restart, "empty": (*virtual.Node).RestartEmpty, "hang": (*virtual.Node).Hang,
	"resume": (*virtual.Node).Resume, "heal": (*virtual.Node).Heal, "noreply": (*virtual.Node).LoseReplies, "steal": Steal,
	"erase": func(n *virtual.Node) { Erase(n); n.Put(redlock.DefaultKeyPrefix+"r~readers", "", 0) },
}

func (p *play) step(line string) {
	p.T.Helper()
	text, want, checked := strings.Cut(line, "->")
	w := strings.Fields(text)
	if names, rest, many := strings.Cut(w[0], ","); many { // the step for each of some names
		verb := line[len(w[0]):]
		if i := strings.LastIndex(rest, "."); i >= 0 {
			verb, rest = rest[i:]+verb, rest[:i]
		}
		p.step(names + verb)
		p.step(rest + verb)
		return
	}
	start, err := time.Now(), error(nil)
	switch name, op, method := strings.Cut(w[0], "."); {
	case w[0] == "lockers":
		for _, name := range w[1:] {
			p.lockers[name] = p.WarmLocker()
		}
		p.first = p.lockers[w[1]]
	case w[0] == "sleep":
		time.Sleep(p.duration(w[1]))
	case w[0] == "left":
		WantNothingLeft(p.Bubble)
	case w[0] == "holding":
		p.WantHolding("r", p.nodes(w[1:])...)
	case len(w) > 2 && w[1] == "=" && !method:
		err = p.call(w[0], strings.Split(w[2], "."), w[3:])
	case len(w) == 2 && p.waiters[w[0]] != nil:
		if err = p.await(w[0], w[1], start, want); w[1] == "waits" {
			return
		}
		start = p.acted
	case method && p.leases[name] != nil:
		err = p.use(p.leases[name], op, w[1:])
	default:
		p.fault(w)
	}
	p.check(line, want, checked, start, err)
	if len(w) != 2 || p.waiters[w[0]] == nil {
		p.acted = time.Now()
	}
}

func (p *play) call(name string, call, words []string) error {
	l, ctx, resource := p.lockers[call[0]], p.T.Context(), "r"
	var opts []redlock.LockOption
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "shared":
			opts = append(opts, redlock.Shared())
		case "reentry":
			opts = append(opts, redlock.WithReentry())
		case "manual":
			opts = append(opts, redlock.WithoutRenewal())
		case "ttl":
			opts = append(opts, redlock.WithTTL(p.duration(value)))
		case "name":
			resource = value
		case "in":
			ctx = p.leases[value].Context()
		default:
			p.T.Fatalf("unknown word %q", word)
		}
	}
	if call[1] == "lock" {
		p.waiters[name] = Begin(func() (*redlock.Lease, error) { return l.Lock(ctx, resource, opts...) })
		return nil
	}
	lease, err := l.TryLock(ctx, resource, opts...)
	p.leases[name] = lease
	return err
}

func (p *play) await(name, what string, start time.Time, want string) (err error) {
	w := p.waiters[name]
	switch what {
	case "waits":
		if !w.Waits() {
			p.T.Errorf("%s does not wait", name)
		}
	case "got":
		p.leases[name] = p.Got(w)
	}
	return nil
}

func (p *play) use(lease *redlock.Lease, op string, w []string) error {
	ctx := p.T.Context()
	switch op {
	case "unlock":
		defer synctest.Wait()
		return lease.Unlock(ctx)
	case "extend":
		return lease.Extend(ctx)
	case "downgrade":
		return lease.Downgrade(ctx)
	case "detach":
		return lease.Detach()
	case "err":
		return lease.Err()
	case "cause":
		<-lease.Context().Done()
		return context.Cause(lease.Context())
	case "mode":
		if got := string(lease.Mode()); got != w[1] {
			p.T.Errorf("mode: got %s, want %s", got, w[1])
		}
	case "fence":
		a, b := lease.Fence(), p.leases[w[1]].Fence()
		if ok := map[string]bool{"=": a == b, ">": a > b, ">=": a >= b, "<": a < b}[w[0]]; !ok {
			p.T.Errorf("fence: got %d %s %d of %s", a, w[0], b, w[1])
		}
	}
	return nil
}

func (p *play) nodes(w []string) (list []int) {
	for _, word := range w {
		switch n, err := strconv.Atoi(word); {
		case word == "all":
			list = append(list, 0, 1, 2)
		case word == "queue":
			list = append(list, QueueNodeOf(p.first, "r"))
		case err == nil:
			list = append(list, n)
		}
	}
	return list
}

func (p *play) fault(w []string) {
	i := slices.IndexFunc(w, func(word string) bool {
		_, err := strconv.Atoi(word)
		return err != nil && word != "all" && word != "queue"
	})
	for _, n := range p.nodes(w[:i]) {
		node := p.Nodes[n]
		switch w[i] {
		case "latency":
			node.Latency(p.duration(w[i+1]), p.duration(w[i+1]))
		case "clock":
			node.RunClock(1, p.duration(w[i+1]))
		case "has":
			if got := node.Value("r"); got != w[i+1] {
				p.T.Errorf("node %d: got %q", n, got)
			}
		default:
			nodeSteps[w[i]](node)
		}
	}
}

func (p *play) check(line, want string, checked bool, start time.Time, err error) {
	p.T.Helper()
	words := strings.Fields(want)
	took := time.Since(start)
	for i := 0; i < len(words); i++ {
		switch word := words[i]; word {
		case "ok":
		case "in", "within":
			i++
			if d := p.duration(words[i]); took > d || word == "in" && took != d {
				p.T.Errorf("%s: took %v", line, took)
			}
		default:
			if !errors.Is(err, sentinels[word]) || sentinels[word] == nil {
				p.T.Errorf("%s: got %v", line, err)
			}
		}
	}
	if named := slices.ContainsFunc(words, func(w string) bool { return sentinels[w] != nil }); err != nil && !named {
		p.T.Fatal(fmt.Sprintf("%s: got %v, want no error", line, err))
	}
}

func (p *play) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	Must(p.T, err)
	return d
}
