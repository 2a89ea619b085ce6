package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/masters"
)

// ProcessOptions is how the servers of [StartProcesses] are to be run.
type ProcessOptions struct {
	RDB   bool // data is kept by RDB files, which are written when a node is marked; else by AOF
	Clock bool // clocks can be moved
}

// StartProcesses starts n servers behind fault proxies.
func StartProcesses(ctx context.Context, n int, opts ProcessOptions) (Cluster, error) {
	return startReal(Processes, n, func() (box, error) { return startProcess(ctx, opts) })
}

// process is a server on this machine, with a data directory that outlives it.
type process struct {
	*masters.Process
	opts ProcessOptions
	dir  string
	mark int64 // size of the append-only file then
}

func startProcess(ctx context.Context, opts ProcessOptions) (box, error) {
	binary, err := masters.LookPath()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redlock-chaos-")
	if err != nil {
		return nil, err
	}
	args := []string{"--dir", dir, "--auto-aof-rewrite-percentage", "0", "--repl-diskless-sync-delay", "0"}
	if !opts.RDB {
		args = append(args, "--appendonly", "yes")
	}
	if !masters.IsRedisBefore(binary, 7, 0) { // which protects none
		args = append(args, "--enable-protected-configs", "yes")
	}
	p, err := masters.StartProcess(ctx, masters.ProcessConfig{Binary: binary, Args: args, Skew: opts.Clock})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &process{Process: p, opts: opts, dir: dir}, nil
}

func (p *process) Close() error { return errors.Join(p.Process.Close(), os.RemoveAll(p.dir)) }

// appendOnly is the part of the append-only file that grows: all of it before Redis 7.0.
func (p *process) appendOnly() (string, error) {
	files, err := filepath.Glob(filepath.Join(p.dir, "appendonlydir", "*.incr.aof"))
	if err == nil && len(files) == 0 {
		files, err = filepath.Glob(filepath.Join(p.dir, "appendonly.aof"))
	}
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("append-only files: got %q, want one", files)
	}
	if err != nil {
		return "", err
	}
	return files[0], nil
}

func (p *process) marked(admin *redis.Client) error {
	if p.opts.RDB {
		return admin.Save(context.Background()).Err()
	}
	file, err := p.appendOnly()
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err == nil {
		p.mark = info.Size()
	}
	return err
}

func (p *process) restart(d Data) error {
	if err := p.Kill(); err != nil {
		return err
	}
	switch {
	case d == Empty:
		entries, err := os.ReadDir(p.dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(p.dir, e.Name())); err != nil {
				return err
			}
		}
	case d == Stale && !p.opts.RDB:
		file, err := p.appendOnly()
		if err != nil {
			return err
		}
		if err := os.Truncate(file, p.mark); err != nil {
			return err
		}
	}
	return p.Restart()
}

// another starts a server that can take the place of this one.
func (p *process) another(ctx context.Context) (box, error) {
	return startProcess(ctx, p.opts)
}

func (p *process) step(d time.Duration) error { return able(p.StepClock(d)) }
func (p *process) drift(ppm int) error        { return able(p.DriftClock(ppm)) }

// able tells what a machine lacks from what went wrong.
func able(err error) error {
	if errors.Is(err, masters.ErrTrueClock) || errors.Is(err, masters.ErrNoCompiler) || errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrUnable, err)
	}
	return err
}
