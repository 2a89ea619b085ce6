package node

import (
	"context"
	"errors"
	"sync"

	"github.com/d0720281/redlock/internal/clock"
	"github.com/d0720281/redlock/internal/clockwatch"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// task is an administrative request to the node, beside the requests of attempts. Tasks are sent
// after the requests of an exchange, a few at a time, so that they delay no request.
type task struct {
	replies int // number of replies to the task
	write   func(n *Node, l *link, median int64, b []byte) []byte
	done    func(answers)

	queued clock.Instant
	sent   clockwatch.Moment
	resent bool // sent once more on a new connection: a node may close an idle connection
}

// answers are the replies to a task, or why there are none.
type answers struct {
	values   []any
	sent     clockwatch.Moment // the task
	received clock.Instant
	err      error
}

// ask queues a task and waits for its replies.
func (n *Node) ask(ctx context.Context, t *task) answers {
	come := make(chan answers, 1)
	t.done = func(a answers) { come <- a }
	n.mu.Lock()
	if down := n.standing.Load().Down; down != nil {
		n.mu.Unlock()
		return answers{err: down}
	}
	t.queued = n.now()
	n.queue.tasks = append(n.queue.tasks, t)
	n.mu.Unlock()
	n.wake.Set()
	select {
	case a := <-come:
		return a
	case <-ctx.Done():
		return answers{err: context.Cause(ctx)}
	}
}

// askScript is ask for a task of one script. If the server does not know the script, askScript
// sends its source.
func (n *Node) askScript(ctx context.Context, s *wire.Script, make func() *task) (a answers) {
	for range 2 {
		if a = n.ask(ctx, make()); a.err != nil {
			break
		}
		if refused, ok := a.values[0].(resp.Error); !ok || !Says(refused, "NOSCRIPT") {
			break
		}
		n.mu.Lock()
		if n.link != nil {
			n.link.knows[s] = false
		}
		n.mu.Unlock()
	}
	return a
}

// scriptTask returns the task of a script with one reply. A script with a head begins as lua/begin.lua says.
func scriptTask(s *wire.Script, hasHead bool, keys []string, args ...func(b []byte) []byte) *task {
	return &task{
		replies: 1,
		write: func(n *Node, l *link, median int64, b []byte) []byte {
			count := 3 + len(keys) + len(args)
			if hasHead {
				count += headArgs
			}
			b = resp.AppendCommand(b, count)
			b = l.appendScript(b, s)
			b = resp.AppendInt(b, int64(len(keys)))
			for _, k := range keys {
				b = resp.AppendString(b, k)
			}
			if hasHead {
				run := ""
				if n.guard.on {
					run = n.guard.run
				}
				b = n.appendHead(b, run, median)
			}
			for _, arg := range args {
				b = arg(b)
			}
			return b
		},
	}
}

// wordsTask returns the task of a command.
func wordsTask(words ...string) *task {
	return &task{replies: 1, write: func(_ *Node, _ *link, _ int64, b []byte) []byte { return appendWords(b, words...) }}
}

func text(s string) func([]byte) []byte {
	return func(b []byte) []byte { return resp.AppendString(b, s) }
}
func number(v int64) func([]byte) []byte {
	return func(b []byte) []byte { return resp.AppendInt(b, v) }
}

// Each calls ask for all nodes at the same time, and returns their results by node. The context of
// ask ends with ctx, or with opened, which is the context of the Locker.
func Each[T any](ctx, opened context.Context, s *Set, ask func(context.Context, *Node) (T, error)) ([]T, []error) {
	results, errs := make([]T, len(s.nodes)), make([]error, len(s.nodes))
	both, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(opened, func() { cancel(ErrClosed) })()
	defer context.AfterFunc(ctx, func() { cancel(errCallOver) })()
	var asked sync.WaitGroup
	for i, n := range s.nodes {
		asked.Go(func() { results[i], errs[i] = ask(both, n) })
	}
	asked.Wait()
	for i, err := range errs {
		if err == errCallOver {
			errs[i] = reason.OfContext(ctx)
		}
	}
	return results, errs
}

// errCallOver stands for the end of a call's context, because the cause of that context may be
// of a type that cannot be compared.
var errCallOver = errors.New("the call is over")
