// Command redlock takes, shows and inspects quorum locks over independent Redis masters.
package main

import (
	"context"
	"os"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // the commands report faults of masters themselves
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
