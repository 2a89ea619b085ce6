package locktest

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/admin"
	"github.com/d0720281/redlock/internal/masters"
)

// NewMasters starts three masters inside this process, so that the examples run everywhere.
// They have no votes yet.
func NewMasters() (addrs []string, stop func()) {
	var started []*masters.Mini
	for range 3 {
		m, err := masters.StartMini()
		if err != nil {
			log.Panic(err)
		}
		started = append(started, m)
		addrs = append(addrs, m.Addr())
	}
	return addrs, func() {
		for _, m := range started {
			if err := m.Close(); err != nil {
				log.Panic(err)
			}
		}
	}
}

// patient is the master timeout of examples: they run on busy machines, too.
var patient = redlock.WithMasterTimeout(500 * time.Millisecond)

// ExampleLocker returns a Locker for three masters that have their votes. stop closes it.
func ExampleLocker(opts ...redlock.Option) (locker *redlock.Locker, stop func()) {
	addrs, stopMasters := ExampleMasters()
	locker, err := redlock.New(addrs, append([]redlock.Option{patient}, opts...)...)
	if err != nil {
		log.Panic(err)
	}
	return locker, func() {
		_ = locker.Close()
		stopMasters()
	}
}

// ExampleMasters starts three masters that have their votes. opts are those of the Locker that
// vouches for them.
func ExampleMasters(opts ...redlock.Option) (addrs []string, stop func()) {
	addrs, stop = NewMasters()
	locker, err := redlock.New(addrs, append([]redlock.Option{patient}, opts...)...)
	if err != nil {
		log.Panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for err = errors.New("not tried"); err != nil && ctx.Err() == nil; {
		err = admin.Bootstrap(ctx, locker) // under load a master may be too late
	}
	if err := errors.Join(err, locker.Close()); err != nil {
		log.Panic(err)
	}
	return addrs, stop
}
