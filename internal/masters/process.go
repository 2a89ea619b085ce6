package masters

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readyWithin = 5 * time.Second
	readyPoll   = 2 * time.Millisecond
	portTries   = 10
)

// LookPath returns the redis-server on the PATH.
func LookPath() (string, error) { return exec.LookPath("redis-server") }

// redisVersion matches the version that a Redis server prints. Valkey begins at 7.2 and
// prints another name.
var redisVersion = regexp.MustCompile(`^Redis server v=(\d+)\.(\d+)`)

var versions sync.Map // by binary; asking starts a process

// IsRedisBefore reports whether the binary is a Redis server of an older version. It returns
// false for a server that does not print its version.
func IsRedisBefore(binary string, major, minor int) bool {
	found := redisVersion.FindStringSubmatch(versionOf(binary))
	if found == nil {
		return false
	}
	a, _ := strconv.Atoi(found[1])
	b, _ := strconv.Atoi(found[2])
	return a < major || a == major && b < minor
}

// versionOf returns the version line that a server prints.
func versionOf(binary string) string {
	said, known := versions.Load(binary)
	if !known {
		out, _ := exec.Command(binary, "--version").Output() // an error here comes again when the server is started
		said, _ = versions.LoadOrStore(binary, string(out))
	}
	return said.(string)
}

// ProcessConfig configures one redis-server. The zero value is a master without
// persistence.
type ProcessConfig struct {
	Binary string   // server binary; the redis-server on the PATH if empty
	Args   []string // appended to the defaults and overriding them; not for --port

	// Skew gives the server a wall clock that [Process.StepClock] and [Process.DriftClock]
	// can move. The clock is a library in the server's LD_PRELOAD, built on first use.
	// Without Linux starting the server fails with [errors.ErrUnsupported], without a C
	// compiler with [ErrNoCompiler].
	Skew bool
}

// Process is a real redis-server with a directory of its own. Use
// [StartProcess]; the zero value does not work.
type Process struct {
	cfg  ProcessConfig // with Binary filled in
	dir  string
	port int
	addr string
	pid  atomic.Int64 // 0 when the server is down

	mu     sync.Mutex // held for the whole of a state change, start-up included
	child  *child     // the latest run, nil before the first
	paused bool
	closed bool
}

// StartProcess starts a redis-server on a free port and returns when it answers PING.
//
// It waits up to 5 s. The end of ctx ends the waiting, but does not end the server later.
// The error has the last lines of the server's log. After an error nothing is left running
// and nothing is left on disk.
//
// On Linux the server is killed when this process dies, for whatever reason. Elsewhere
// only [Process.Close] ends it.
func StartProcess(ctx context.Context, cfg ProcessConfig) (*Process, error) {
	if cfg.Binary == "" {
		path, err := LookPath()
		if err != nil {
			return nil, fmt.Errorf("masters: %w", err)
		}
		cfg.Binary = path
	}
	for try := 1; ; try++ {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		p, err := startOn(ctx, port, cfg)
		if !errors.Is(err, errPortTaken) || try == portTries {
			return p, err
		}
	}
}

func startOn(ctx context.Context, port int, cfg ProcessConfig) (*Process, error) {
	dir, err := os.MkdirTemp("", "redlock-master-")
	if err != nil {
		return nil, fmt.Errorf("masters: %w", err)
	}
	p := &Process{cfg: cfg, dir: dir, port: port, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if cfg.Skew {
		if err := p.installClock(); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	if err := p.startLocked(ctx); err != nil { // no other goroutine has p yet
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Addr implements [Master].
func (p *Process) Addr() string { return p.addr }

// Pid returns the server's process id, or 0 while it is down.
func (p *Process) Pid() int { return int(p.pid.Load()) }

// Kill implements [Master] with SIGKILL.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killLocked()
}

// Pause implements [Master] with SIGSTOP. On Linux it returns when the server has
// stopped. On systems without the signal it returns [errors.ErrUnsupported].
func (p *Process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.Pid() == 0:
		return fmt.Errorf("%w: redis-server on %s", errNotRunning, p.addr)
	case p.paused:
		return nil
	}
	if err := suspend(p.child.cmd.Process); err != nil {
		return fmt.Errorf("masters: pause %s: %w", p.addr, err)
	}
	p.paused = true
	return nil
}

// Resume implements [Master] with SIGCONT.
func (p *Process) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused {
		return nil
	}
	p.paused = false
	if err := proceed(p.child.cmd.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("masters: resume %s: %w", p.addr, err)
	}
	return nil
}

// Restart implements [Master]. The server keeps its directory, so that a server with
// persistence arguments finds its data again.
func (p *Process) Restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if err := p.killLocked(); err != nil {
		return err
	}
	return p.startLocked(context.Background())
}

// Close implements [Master].
func (p *Process) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if err := p.killLocked(); err != nil {
		return err
	}
	p.closed = true
	return os.RemoveAll(p.dir)
}

func (p *Process) killLocked() error {
	if p.child == nil {
		return nil
	}
	// SIGKILL also ends a stopped process.
	if err := p.child.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("masters: kill %s: %w", p.addr, err)
	}
	<-p.child.done
	p.child, p.paused = nil, false
	return nil
}

// startLocked starts the server and waits until it answers.
func (p *Process) startLocked(ctx context.Context) error {
	log, err := os.Create(filepath.Join(p.dir, "server.log"))
	if err != nil {
		return fmt.Errorf("masters: %w", err)
	}
	defer log.Close()

	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(p.port), "--protected-mode", "no",
		"--save", "", "--appendonly", "no", "--dir", p.dir,
	}
	if !IsRedisBefore(p.cfg.Binary, 7, 0) { // which permits DEBUG, and rejects unknown options
		args = append(args, "--enable-debug-command", "yes")
	}
	env := os.Environ()
	if p.cfg.Skew {
		// The allocator's threads sleep until a time that they took from the clock. They
		// would spin if that clock is behind the true time.
		args = append(args, "--jemalloc-bg-thread", "no")
		env = append(env, p.clockEnv()...)
	}
	cmd := exec.Command(p.cfg.Binary, append(args, p.cfg.Args...)...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = sysProcAttr()
	if p.child, err = p.spawn(cmd); err != nil {
		return fmt.Errorf("masters: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err = p.awaitReady(ctx)
	if err == nil && p.cfg.Skew {
		err = p.checkClock()
	}
	if err != nil {
		tail := p.logTail()
		if strings.Contains(tail, "Address already in use") {
			err = errPortTaken
		}
		err = fmt.Errorf("masters: start %s on %s: %w%s", p.cfg.Binary, p.addr, err, tail)
		return errors.Join(err, p.killLocked())
	}
	return nil
}

// child is one run of the server.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was waited for
}

// spawn starts cmd from a goroutine that then waits for it. Linux sends the
// parent-death signal when the forking thread ends, not the process; as the
// goroutine stays locked to its thread, that thread lives as long as the child.
func (p *Process) spawn(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(c.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid.Store(int64(cmd.Process.Pid))
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // the server's log tells how it ended
			p.pid.Store(0)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

var (
	errPortTaken = errors.New("port is taken")
	errExited    = errors.New("server exited")
	errNotReady  = errors.New("not ready")
)

// awaitReady returns when the server answers PING, has ended, or ran out of time.
func (p *Process) awaitReady(ctx context.Context) error {
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		err := probe(ctx, p.addr, p.child.cmd.Process.Pid)
		if err == nil || errors.Is(err, errPortTaken) {
			return err
		}
		select {
		case <-p.child.done:
			return errExited
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-poll.C:
		}
	}
}

// probe asks the server on addr for a PONG, and for its process id: if the port was taken,
// the PONG would come from another server.
func probe(ctx context.Context, addr string, pid int) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(line, "-NOAUTH"): // up, with a password that its configuration set
		return nil
	case !strings.HasPrefix(line, "+PONG"):
		return fmt.Errorf("%w: %q", errNotReady, strings.TrimSpace(line))
	}
	info, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(info) {
		if id, ok := bytes.CutPrefix(line, []byte("process_id:")); ok {
			if string(bytes.TrimSpace(id)) != strconv.Itoa(pid) {
				return errPortTaken
			}
		}
	}
	return nil
}

// logTail returns the last lines of the server's log, for an error message.
func (p *Process) logTail() string {
	log, _ := os.ReadFile(filepath.Join(p.dir, "server.log"))
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return "\n\t" + strings.Join(lines[max(0, len(lines)-4):], "\n\t")
}
