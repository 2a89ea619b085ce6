//go:build unix

// Command pictures draws the pictures of the README and of docs/ from runs on real masters, which
// it starts:
//
//	go run ./internal/pictures        # writes docs/pictures; needs redis-server on the PATH
//	go run ./internal/pictures top    # one of them
//
// The times in the pictures are those of the runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/redis/go-redis/v9/logging"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
)

func main() {
	log.SetFlags(0)
	logging.Disable() // it would log the masters that a run kills
	if len(os.Args) > 1 && os.Args[1] == holderName {
		if err := holder(os.Args[2:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	folder := filepath.Join("docs", "pictures")
	draw := map[string]func(file string) error{
		"life": drawLife, "pause": drawPause, "top": drawTop, "vote": drawVote,
		"demo": func(file string) error {
			return drawCommand(file, "Services sell a stock while masters fail", "demo")
		},
	}
	names := os.Args[1:]
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(draw))
	}
	for _, name := range names {
		if draw[name] == nil {
			log.Fatalf("there is no picture %q", name)
		}
		if err := draw[name](filepath.Join(folder, name+".svg")); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
	}
}

// fleet has the masters of a run, and a Redis for the data that is protected.
type fleet struct {
	list  []*masters.Process
	store *masters.Process
	addrs []string
}

func start() (f *fleet, err error) {
	f = &fleet{}
	for i := range 4 {
		p, err := masters.StartProcess(context.Background(), masters.ProcessConfig{})
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		if i == 3 {
			f.store = p
			break
		}
		f.list, f.addrs = append(f.list, p), append(f.addrs, p.Addr())
	}
	return f, nil
}

func (f *fleet) close() (err error) {
	for _, p := range f.list {
		err = errors.Join(err, p.Close())
	}
	if f.store != nil {
		err = errors.Join(err, f.store.Close())
	}
	return err
}

// locker makes a Locker for leases with a TTL, for masters that were never used.
func (f *fleet) locker(opts ...redlock.Option) (*redlock.Locker, error) {
	l, err := redlock.New(f.addrs, append(opts, redlock.WithLogger(nil))...)
	if err != nil {
		return nil, err
	}
	if err := admin.Bootstrap(context.Background(), l); err != nil {
		return nil, fmt.Errorf("%w, %w", err, l.Close())
	}
	return l, nil
}
