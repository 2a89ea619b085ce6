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

// ProcessOptions configures the servers of [StartProcesses].
type ProcessOptions struct {
	RDB   bool // keep data in RDB files, written when a node is marked; otherwise in an AOF
	Clock bool // clocks can be stepped
}

// StartProcesses starts n servers behind fault proxies.
func StartProcesses(ctx context.Context, n int, opts ProcessOptions) (Cluster, error) {
	return startReal(Processes, n, func() (box, error) { return startProcess(ctx, opts) })
}

// process is a server on this machine. Its data directory outlives it.
type process struct {
	*masters.Process
	opts ProcessOptions
	dir  string
	mark int64 // size of the append-only file at the mark
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
	if !masters.IsRedisBefore(binary, 7, 0) { // older servers protect no file
		args = append(args, "--enable-protected-configs", "yes")
	}
	p, err := masters.StartProcess(ctx, masters.ProcessConfig{Binary: binary, Args: args, Skew: opts.Clock})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &process{Process: p, opts: opts, dir: dir}, nil
}

func (p *process) Close() error { return errors.Join(p.Process.Close(), os.RemoveAll(p.dir)) }

// appendOnly returns the growing part of the append-only file: all of it before Redis 7.0.
func (p *process) appendOnly() (string, error) {
	files, err := filepath.Glob(filepath.Join(p.dir, "appendonlydir", "*.incr.aof"))
	if err == nil && len(files) == 0 {
		files, err = filepath.Glob(filepath.Join(p.dir, "appendonly.aof"))
	}
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("append-only files: got %q, want one file", files)
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

// another starts a server that can replace this one.
func (p *process) another(ctx context.Context) (box, error) {
	return startProcess(ctx, p.opts)
}

func (p *process) step(d time.Duration) error { return able(p.StepClock(d)) }
func (p *process) drift(ppm int) error        { return able(p.DriftClock(ppm)) }

// able separates a lack of this machine (ErrUnable) from a failure.
func able(err error) error {
	if errors.Is(err, masters.ErrTrueClock) || errors.Is(err, masters.ErrNoCompiler) || errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrUnable, err)
	}
	return err
}
