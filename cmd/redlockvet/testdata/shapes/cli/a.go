// Command cli is a tool with the mistakes that its kind makes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/d0720281/redlock"
)

func main() {
	ctx := context.Background()
	locker, err := redlock.New(os.Args[1:4])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer locker.Close()
	lease, err := locker.TryLock(ctx, "deploy")
	if err == redlock.ErrTaken { // want `redlock.ErrTaken is wrapped`
		fmt.Println("another deployment is under way")
		return
	} else if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Unlock(ctx)                           // want `the error of Unlock is dropped`
	cmd := exec.CommandContext(ctx, "make", "deploy") // want `ctx does not end with lease`
	fmt.Println(cmd.Run())
}

func migrate(ctx context.Context, locker *redlock.Locker, steps []func(context.Context) error) error {
	lease, _ := locker.Lock(ctx, "migrate") // want `the error of Lock is dropped`
	defer func() { _ = lease.Unlock(ctx) }()
	for _, step := range steps {
		if err := step(lease.Context()); err != nil {
			return err
		}
	}
	return nil
}

// Missed: the program of the tool does not end with the lease, and no context says so.
func plain(ctx context.Context, locker *redlock.Locker) error {
	return locker.Do(ctx, "k", func(context.Context, *redlock.Lease) error { return exec.Command("make", "deploy").Run() })
}
