package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/election"
	"github.com/d0720281/redlock/internal/inside"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/jobs"
	"github.com/d0720281/redlock/semaphore"
	"github.com/d0720281/redlock/several"
)

// Further words of scenarios: for work under a lease, and for the packages on top.
//
//	D = a.do [WORDS]              Do, whose function returns at "D.returns"; with winds=T so long after the end of its context
//	L = a.several c b:shared      several.Lock, with P = L.part b; also tryseveral and doseveral
//	S = a.semaphore 4 [WORDS]     then X = S.acquire 2, with P = X.part 1, and D = S.do 2
//	J = a.jobs [WORDS]            then L = J.lock and D = J.run; with due=T for a due time, and permits=2
//	E = a.campaign [WORDS]        an Elector: E.leads waits for its next term, whose lease is E/1, then E/2; E.term for its end
//	start                         then "until T" sleeps until T from there, as count "at T", "by T" and "from T" behind "->"

// A thing has the words of a name that is no Locker, lease or call. The name on the left of "=" is as, if there is one.
type thing map[string]func(as string, w []string) error

var (
	errWork, errPanic, errGoexit = errors.New("the work failed"), errors.New("the work panicked"), errors.New("the work ended its goroutine")
	errDropped                   = errors.New("the request was dropped") // the cause of a context with because=T
)

func init() {
	maps.Copy(sentinels, map[string]error{
		"workfailed": errWork, "panicked": errPanic, "goexit": errGoexit, "dropped": errDropped, "wrongtype": reason.WrongType,
		"late": jobs.ErrLate, "notleader": election.ErrNotLeader,
		"context.Canceled": context.Canceled, "wrapped": fmt.Errorf("store: %w", context.Canceled), // what work returns
	})
	looks = append(looks, "until", "keys", "never", "log", "counts", "leading", "idle", "counter", "requests", "erred")
	for name, do := range map[string]func(p *play, w []string){
		"start": func(p *play, _ []string) { p.mark = time.Now() },
		"until": func(p *play, w []string) { time.Sleep(time.Until(p.mark.Add(duration(w[0])))) },
		"keys": func(p *play, w []string) { // the nodes that have the key of a resource, or none
			holds("nodes", strings.Trim(fmt.Sprint(p.Holding(w[0])), "[]"), "=", strings.TrimPrefix(strings.Join(w[1:], " "), "none"))
		},
		"never": func(p *play, w []string) { // no node has the key of "r", for so long
			for end := time.Now().Add(duration(w[0])); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				holds("nodes", len(p.Holding("r")), "=", 0)
			}
		},
		"ran": func(p *play, w []string) { // X Y = 1: how often their functions have begun
			sum, n := 0, len(w)-2
			for _, name := range w[:n] {
				sum += known(p.works, name).begun
			}
			holds("runs", sum, w[n], number(w[n+1]))
		},
		"turn": func(p *play, w []string) { // r [NAME] [OPTIONS]: a new Locker locks a resource once
			opts, name := []redlock.Option{redlock.WithLogger(nil)}, ""
			for _, word := range w[1:] {
				if opt := options[strings.Split(word, "=")[0]]; opt == nil {
					name = word
				} else {
					opts = append(opts, option(word))
				}
			}
			l := p.Locker(opts...)
			lease := p.Lock(l, w[0])
			p.rises(lease)
			holds("token", lease.Fence(), "<", time.Now().Add(10*time.Second).UnixMicro())
			p.Unlock(lease)
			Must(p.T, l.Close())
			p.leases[name] = lease
		},
	} {
		alone[name] = verb[*play]{-1, func(p *play, _ *play, w []string) error { do(p, w); return nil }}
	}
	maps.Copy(ofLease, map[string]verb[*redlock.Lease]{
		"context":   {0, func(_ *play, of *redlock.Lease, _ []string) error { _ = of.Context(); return nil }}, // the holder uses it
		"goes":      {1, func(_ *play, of *redlock.Lease, _ []string) error { return of.Context().Err() }},    // on
		"extendfor": {1, func(p *play, of *redlock.Lease, w []string) error { return of.ExtendFor(p.ctx, duration(w[0])) }},
		"requests": {3, func(p *play, of *redlock.Lease, w []string) error { // with its token, at each node
			for _, n := range p.Nodes {
				got := 0
				for _, c := range n.CallsOf(w[0], of.Resource()) {
					if c.ID == of.Token() {
						got++
					}
				}
				holds(w[0], got, w[1], number(w[2]))
			}
			return nil
		}},
	})
	ofLease["rises"] = verb[*redlock.Lease]{0, func(p *play, of *redlock.Lease, _ []string) error { p.rises(of); return nil }}
	ofLease["nowhere"] = verb[*redlock.Lease]{0, func(p *play, of *redlock.Lease, _ []string) error { // no node has its key
		for _, n := range p.Nodes {
			if value := n.Value(of.Resource()); strings.HasPrefix(value, of.Token()) {
				throw("%s has %q", n.Addr(), value)
			}
		}
		return nil
	}}
	ofCall["erred"] = verb[*call]{0, func(_ *play, c *call, _ []string) error { // failed, with whatever error
		if c.end() == nil {
			throw("%s: got no error", c.name)
		}
		return nil
	}}
	values["overdue"] = func(l *redlock.Lease) any { return -l.Validity() }
	maps.Copy(ofLocker, map[string]verb[*locker]{
		"jump": {1, func(_ *play, of *locker, w []string) error { of.clock.Jump(duration(w[0])); return nil }},
		"inspect": {-1, func(p *play, of *locker, w []string) error { // [L]: no master is in quarantine, and they have its token
			in, err := admin.Inspect(p.ctx, of.Locker, "r")
			if slices.ContainsFunc(in.Masters, func(m admin.MasterLock) bool { return m.Quarantine > 0 }) {
				throw("got %+v", in)
			}
			for _, name := range w {
				holds("fencing token", in.Fence, "=", known(p.leases, name).Fence())
			}
			return err
		}},
		"counts": {3, func(_ *play, of *locker, w []string) error { // of an event
			kind := redlock.EventKind(0)
			for ; kind.String() != w[0]; kind++ {
				if strings.Contains(kind.String(), "(") {
					throw("no event has the name %q", w[0])
				}
			}
			holds(w[0], int(of.Stats().Counts[kind]), w[1], number(w[2]))
			return nil
		}},
		"log": {-1, func(_ *play, of *locker, w []string) error { // = 1 no quorum & WARN: lines with that text, and with the rest anywhere
			text, rest, _ := strings.Cut(strings.Join(w[2:], " "), " & ")
			lines := slices.DeleteFunc(of.log.With(text), func(line map[string]any) bool {
				return slices.ContainsFunc(strings.Split(rest, " & "), func(part string) bool { return !strings.Contains(fmt.Sprint(line), part) })
			})
			holds(fmt.Sprint("lines in the log ", lines), len(lines), w[0], number(w[1]))
			return nil
		}},
	})
	maps.Copy(ofNode, map[string]verb[*virtual.Node]{
		"reset":  suffer((*virtual.Node).Reset),
		"refuse": {-1, func(_ *play, n *virtual.Node, w []string) error { n.Refuse(strings.Join(w, " ")); return nil }},
		"put": {-1, func(p *play, n *virtual.Node, w []string) error { // r VALUE [T]; the token of a lease for its name
			name, rest, found := strings.Cut(append(w, "")[1], "|")
			value := map[bool]string{true: name + "|" + rest}[found]
			if lease := p.leases[name]; lease != nil {
				value = lease.Token() + "|" + rest
			} else if !found && name != "" {
				value = strconv.FormatInt(p.number(name), 10)
			}
			n.Put(redlock.DefaultKeyPrefix+w[0], value, duration(append(w, "1m", "1m")[max(2, len(w)-1)]))
			return nil
		}},
		"keeps": {1, func(p *play, n *virtual.Node, w []string) error { // the key of a lease of "r"
			if lease := known(p.leases, w[0]); !strings.HasPrefix(n.Value(lease.Resource()), lease.Token()) {
				throw("got the key %q", n.Value(lease.Resource()))
			}
			return nil
		}},
		"removed": {1, func(_ *play, n *virtual.Node, _ []string) error { // nothing: no release found a key
			for _, c := range n.CallsOf("release", "r") {
				holds("removed", c.Before, "=", "")
			}
			return nil
		}},
		"counter": {3, func(p *play, n *virtual.Node, w []string) error { // r = L+63, none
			got, _ := strconv.ParseInt(n.Get(redlock.DefaultKeyPrefix+w[0]+"~fence"), 10, 64)
			holds("counter", got, w[1], p.number(w[2]))
			return nil
		}},
	})
}

// rises checks that the fencing tokens of a resource rise.
func (p *play) rises(lease *redlock.Lease) {
	holds("fencing token of "+lease.Resource(), lease.Fence(), ">", p.fences[lease.Resource()])
	p.fences[lease.Resource()] = lease.Fence()
}

// number returns a fencing token: 5, none, now+1s, that of a lease or the last turn of a resource and so many: L+63.
func (p *play) number(text string) int64 {
	name, plus, _ := strings.Cut(strings.Replace(text, "-", "+-", 1), "+")
	switch lease := p.leases[name]; {
	case name == "now":
		return time.Now().Add(duration(cmp.Or(plus, "0s"))).UnixMicro()
	case text == "none":
		return 0
	case lease != nil:
		p.fences[name] = lease.Fence()
	case p.fences[name] == 0:
		name, plus = "", name
	}
	n, err := strconv.ParseInt(cmp.Or(plus, "0"), 10, 64)
	if err != nil {
		throw("%q is no number", plus)
	}
	return p.fences[name] + n
}

// further checks and cuts off what an outcome says of the time since "start", and the operation at the masters: "op release".
func (p *play) further(want string, at time.Time, err error) string {
	want, says, found := strings.Cut(want, "says ")
	words := strings.Fields(want)
	for i := 0; i+1 < len(words); {
		var refused *redlock.QuorumError
		switch op := map[string]string{"at": "=", "by": "<=", "from": ">="}[words[i]]; {
		case op != "":
			holds("time since start", at.Sub(p.mark), op, duration(words[i+1]))
		case words[i] == "op" && errors.As(err, &refused):
			for _, m := range refused.Masters {
				holds("operation at "+m.Master, m.Op, "=", words[i+1])
			}
		case words[i] == "silent": // a node that the error does not name
			list, _ := p.nodes([]string{words[i+1], "is silent"})
			holds("answer", RefusedBy(p.Bubble, list[0], err), "=", "")
		default:
			i++
			continue
		}
		words = slices.Delete(words, i, i+2)
	}
	if want = strings.Join(words, " "); found {
		want += " says " + says
	}
	return want
}

// later runs a call in a goroutine.
func (p *play) later(as string, do func() error) error {
	if as == "" {
		return do()
	}
	p.calls[as] = &call{name: as, cancel: func() {}, Waiter: Begin(func() (*redlock.Lease, error) { return nil, caught(do) })}
	return nil
}

// caught calls do. A panic with errPanic is its error.
func caught(do func() error) (err error) {
	defer func() {
		if got := recover(); got == errPanic {
			err = errPanic
		} else if got != nil {
			panic(got)
		}
	}()
	return do()
}

// lasting is a lease of any package.
type lasting interface {
	Validity() time.Duration
	Err() error
	Extend(context.Context) error
	Unlock(context.Context) error
	Context() context.Context
	Within(context.Context) (context.Context, context.CancelFunc)
}

// work is a lease, and what a function does under it.
type work struct {
	lasting
	ctx   context.Context // of the function; nil: that of the lease
	begun int
	let   chan error
	winds time.Duration
	quick bool // it returns at once
}

// work makes a lease with a name, or a function under it, from what some words say; options and the rest are returned.
func (p *play) work(as string, w []string) (k *work, opts []redlock.LockOption, rest []string) {
	k = &work{let: make(chan error), winds: -1}
	for _, word := range w {
		name, value, _ := strings.Cut(word, "=")
		switch {
		case name == "winds":
			k.winds = duration(value)
		case word == "quick":
			k.quick = true
		case options[name] != nil:
			opts = append(opts, option(word).(redlock.LockOption))
		default:
			rest = append(rest, word)
		}
	}
	if as != "" {
		p.works[as] = k
		p.things[as] = thing{
			"returns": func(_ string, w []string) error {
				if word := strings.Join(w, ""); word == "" || word == "ok" {
					k.let <- nil
				} else {
					k.let <- known(sentinels, word)
				}
				return nil
			},
			"begun":  func(_ string, w []string) error { holds("begun", k.begun, w[0], number(w[1])); return nil },
			"lease":  func(as string, _ []string) error { p.leases[as] = k.lasting.(*redlock.Lease); return nil },
			"unlock": func(string, []string) error { return k.Unlock(p.ctx) },
			"extend": func(string, []string) error { return k.Extend(p.ctx) },
			"err":    func(string, []string) error { return k.Err() },
			"goes":   func(string, []string) error { return k.context().Err() },
			"cause": func(string, []string) error {
				<-k.context().Done()
				return context.Cause(k.context())
			},
			"validity": func(_ string, w []string) error {
				holds("validity", max(0, k.Validity()), w[0], duration(w[1]))
				return nil
			},
			"part": func(as string, w []string) error { // a resource, or a number
				for i, part := range k.parts() {
					if part.Resource() == w[0] || strconv.Itoa(i+1) == w[0] {
						p.leases[as] = part
						return nil
					}
				}
				throw("there is no part %s", w[0])
				return nil
			},
			"parts": func(_ string, w []string) error { // = a,b and no other
				var names []string
				for _, part := range k.parts() {
					names = append(names, part.Resource())
				}
				holds("parts", strings.Join(names, ","), w[0], w[1])
				return nil
			},
			"within": func(as string, _ []string) error { return p.within(as, k.lasting) },
		}
	}
	return k, opts, rest
}

// within gives a name to the work in the context that Within returns, which "ends".
func (p *play) within(as string, lease lasting) error {
	k, _, _ := p.work(as, nil)
	ctx, cancel := lease.Within(p.ctx)
	k.lasting, k.ctx = lease, ctx
	p.things[as]["ends"] = func(string, []string) error { cancel(); return nil }
	return nil
}

func (k *work) parts() []*redlock.Lease {
	return k.lasting.(interface{ Parts() []*redlock.Lease }).Parts()
}

func (k *work) context() context.Context {
	if k.ctx != nil {
		return k.ctx
	}
	return k.Context()
}

// do is the function.
func (k *work) do(t interface{ Context() context.Context }) func(context.Context, lasting) error {
	return func(ctx context.Context, lease lasting) error {
		k.lasting, k.ctx = lease, ctx
		k.begun++
		if k.quick {
			return nil
		}
		if k.winds >= 0 {
			<-ctx.Done()
			time.Sleep(k.winds)
			return nil
		}
		select {
		case err := <-k.let:
			switch err {
			case errPanic:
				panic(err)
			case errGoexit:
				runtime.Goexit()
			}
			return err
		case <-t.Context().Done():
			return nil
		}
	}
}

// names returns several.Names: a b:shared.
func names(w []string) (n several.Names) {
	for _, word := range w {
		if name, shared := strings.CutSuffix(word, ":shared"); shared {
			n.Read = append(n.Read, name)
		} else {
			n.Write = append(n.Write, name)
		}
	}
	return n
}

// things are what Lockers make or call for packages on top.
var things = map[string]func(p *play, as string, l *redlock.Locker, w []string) error{
	"do": func(p *play, as string, l *redlock.Locker, w []string) error {
		k, opts, rest := p.work(as, w)
		ctx, do := p.ctx, k.do(p.T)
		return p.later(as, func() error {
			return l.Do(ctx, strings.Join(append(rest, "r")[:1], ""), func(ctx context.Context, lease *redlock.Lease) error { return do(ctx, lease) }, opts...)
		})
	},
	"any": func(p *play, as string, l *redlock.Locker, _ []string) error { // LockAny of one
		ctx := p.ctx
		p.calls[as] = &call{name: as, cancel: func() {}, Waiter: Begin(func() (*redlock.Lease, error) { return inside.Of(l).LockAny(ctx, "r", 1) })}
		return nil
	},
	"unlock": func(p *play, as string, l *redlock.Locker, w []string) error { // by the Handle of L
		ctx, of := p.ctx, known(p.leases, w[0])
		return p.later(as, func() error { return l.Unlock(ctx, of.Handle()) })
	},
	"extend": func(p *play, as string, l *redlock.Locker, w []string) error {
		ctx, of := p.ctx, known(p.leases, w[0])
		return p.later(as, func() error { _, err := l.Extend(ctx, of.Handle()); return err })
	},
	"close": func(p *play, as string, l *redlock.Locker, _ []string) error { return p.later(as, l.Close) },
	"break": func(p *play, as string, l *redlock.Locker, _ []string) error {
		ctx := p.ctx
		return p.later(as, func() error { _, err := admin.Break(ctx, l, "r"); return err })
	},
	"adopt": func(p *play, as string, l *redlock.Locker, w []string) error { // L [meanwhile]
		k, opts, rest := p.work("", w)
		ctx, former := p.ctx, known(p.leases, rest[0])
		adopt := func() (*redlock.Lease, error) { return l.Adopt(ctx, former.Handle(), opts...) }
		if slices.Contains(rest, "meanwhile") {
			p.calls[as] = &call{name: as, cancel: func() {}, Waiter: Begin(adopt)}
			return nil
		}
		lease, err := adopt()
		if err == nil {
			k.lasting, p.leases[as] = lease, lease
		}
		return err
	},
	"several": func(p *play, as string, l *redlock.Locker, w []string) error {
		return p.several(several.Lock, true, as, l, w)
	},
	"tryseveral": func(p *play, as string, l *redlock.Locker, w []string) error {
		return p.several(several.TryLock, false, as, l, w)
	},
	"doseveral": func(p *play, as string, l *redlock.Locker, w []string) error {
		k, opts, rest := p.work(as, w)
		ctx, do := p.ctx, k.do(p.T)
		return p.later(as, func() error {
			return several.Do(ctx, l, names(rest), func(ctx context.Context, lease *several.Lease) error { return do(ctx, lease) }, opts...)
		})
	},
	"semaphore": func(p *play, as string, l *redlock.Locker, w []string) error {
		_, opts, rest := p.work("", w)
		s, err := semaphore.New(l, "s", number(rest[0]), opts...)
		acquire := func(take func(context.Context, int) (*semaphore.Lease, error), waits bool) func(string, []string) error {
			return func(as string, w []string) error {
				k, _, _ := p.work(as, nil)
				ctx := p.ctx
				if !waits {
					as = ""
				}
				return p.later(as, func() error {
					lease, err := take(ctx, number(w[0]))
					if err == nil {
						k.lasting = lease
					}
					return err
				})
			}
		}
		do := func(as string, w []string) error {
			k, _, rest := p.work(as, w)
			ctx, do := p.ctx, k.do(p.T)
			return p.later(as, func() error {
				return s.Do(ctx, number(rest[0]), func(ctx context.Context, lease *semaphore.Lease) error { return do(ctx, lease) })
			})
		}
		p.things[as] = thing{
			"acquire": acquire(s.Acquire, true), "tryacquire": acquire(s.TryAcquire, false), "do": do,
			"resize": func(_ string, w []string) error { return s.Resize(number(w[0])) },
		}
		return err
	},
	"jobs": func(p *play, as string, l *redlock.Locker, w []string) error {
		_, opts, rest := p.work("", w)
		none(rest)
		j, err := jobs.New(l, opts...)
		p.things[as] = thing{}
		for name, call := range map[string]func(ctx context.Context, k *work, job string, do func(context.Context, lasting) error, opts ...jobs.Option) error{
			"lock": func(ctx context.Context, k *work, job string, _ func(context.Context, lasting) error, opts ...jobs.Option) error {
				lock, err := j.Lock(ctx, job, opts...)
				if err == nil {
					k.lasting = lock
				}
				return err
			},
			"run": func(ctx context.Context, _ *work, job string, do func(context.Context, lasting) error, opts ...jobs.Option) error {
				return j.Run(ctx, job, func(ctx context.Context, lease *redlock.Lease) error { return do(ctx, lease) }, opts...)
			},
		} {
			p.things[as][name] = func(as string, w []string) error { // [JOB] [due=T] [permits=N] [winds=T] [meanwhile]
				k, _, rest := p.work(as, w)
				job, opts, waits := "r", []jobs.Option(nil), name != "lock"
				for _, word := range rest {
					switch key, value, found := strings.Cut(word, "="); {
					case key == "due":
						opts = append(opts, jobs.At(p.mark.Add(duration(value))))
					case key == "permits":
						opts = append(opts, jobs.Permits(number(value)))
					case word == "meanwhile":
						waits = true
					case found:
						throw("unknown word %q", word)
					default:
						job = word
					}
				}
				ctx, do := p.ctx, k.do(p.T)
				if !waits {
					as = ""
				}
				return p.later(as, func() error { return call(ctx, k, job, do, opts...) })
			}
		}
		return err
	},
	"campaign": func(p *play, as string, l *redlock.Locker, w []string) error {
		k, opts, rest := p.work(as, w)
		e, err := election.New(l, "r", opts...)
		Must(p.T, err)
		if stays := slices.Contains(rest, "stays"); k.winds < 0 && !stays {
			k.winds = 0
		}
		none(slices.DeleteFunc(rest, func(word string) bool { return word == "stays" }))
		led, causes, terms := make(chan *redlock.Lease, 100), make(chan error, 100), 0
		stop, over := func() {}, make(chan error, 1)
		run := func() {
			ctx, cancel := context.WithCancel(p.ctx)
			stop, over = cancel, make(chan error, 1)
			over, do := over, k.do(p.T)
			p.T.Cleanup(cancel)
			go func() {
				var err error
				defer func() { over <- err }()
				err = caught(func() error {
					return e.Run(ctx, func(ctx context.Context, lease *redlock.Lease) error {
						led <- lease
						defer func() { causes <- context.Cause(ctx) }()
						return do(ctx, lease)
					})
				})
			}()
		}
		run()
		maps.Copy(p.things[as], thing{
			"leads": func(string, []string) error {
				terms++
				lease := Receive(p.T, led, as+" leads")
				p.rises(lease)
				p.leases[fmt.Sprint(as, "/", terms)] = lease
				return nil
			},
			"leading": func(string, []string) error {
				holds("Leading, with a Lease", fmt.Sprint(e.Leading(), e.Lease() != nil), "=", "true true")
				return e.IsLeader(p.ctx)
			},
			"idle": func(string, []string) error {
				holds("Leading, with a Lease", fmt.Sprint(e.Leading(), e.Lease() != nil), "=", "false false")
				return e.IsLeader(p.ctx)
			},
			"term":    func(string, []string) error { return Receive(p.T, causes, "the term of "+as+" ends") },
			"healthy": func(_ string, w []string) error { return e.Healthy(duration(w[0])) },
			"resign":  func(string, []string) error { e.Resign(); return nil },
			"stop":    func(string, []string) error { stop(); return nil },
			"over":    func(string, []string) error { return Receive(p.T, over, as+" is over") },
			"unhealthy": func(_ string, w []string) error {
				if e.Healthy(duration(w[0])) == nil {
					throw("%s is healthy", as)
				}
				return nil
			},
			"second": func(string, []string) error {
				return e.Run(p.ctx, func(context.Context, *redlock.Lease) error { return nil })
			},
			"again": func(string, []string) error { run(); return nil },
		})
		return nil
	},
}

func (p *play) several(take func(context.Context, *redlock.Locker, several.Names, ...redlock.LockOption) (*several.Lease, error), waits bool, as string, l *redlock.Locker, w []string) error {
	k, opts, rest := p.work(as, w)
	ctx := p.ctx
	if !waits {
		as = ""
	}
	return p.later(as, func() error {
		lease, err := take(ctx, l, names(rest), opts...)
		if err == nil {
			k.lasting = lease
		}
		return err
	})
}

// none fails if there are words that mean nothing.
func none(words []string) {
	if len(words) > 0 {
		throw("unknown words %q", words)
	}
}

// contextOf returns the context of a lease, or of the work under it.
func (p *play) contextOf(name string) context.Context {
	if k := p.works[name]; k != nil {
		return k.context()
	}
	return known(p.leases, name).Context()
}
