// Command redlock shows and inspects quorum locks over independent Redis masters.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // the commands say themselves what is wrong with a master
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second Ctrl-C does not wait for anything
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
