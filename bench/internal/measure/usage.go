package measure

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Usage is the total of what some servers did.
type Usage struct {
	Commands int64         // sent by clients; a script is one command
	Busy     time.Duration // in all commands
	Scripts  time.Duration // in scripts
	CPU      time.Duration // of the servers' processes, system calls included
	Bytes    int64         // sent by clients
}

// Minus returns the usage since an earlier usage.
func (u Usage) Minus(before Usage) Usage {
	return Usage{u.Commands - before.Commands, u.Busy - before.Busy, u.Scripts - before.Scripts, u.CPU - before.CPU, u.Bytes - before.Bytes}
}

// Servers reads the statistics of servers.
type Servers struct {
	clients []*redis.Client
	outer   map[string]bool // commands that no script can call
}

// NewServers connects to servers.
func NewServers(ctx context.Context, addrs []string) (*Servers, error) {
	s := &Servers{}
	for _, addr := range addrs {
		s.clients = append(s.clients, redis.NewClient(&redis.Options{Addr: addr}))
	}
	if len(addrs) == 0 {
		return s, nil
	}
	known, err := s.clients[0].Command(ctx).Result()
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("measure: %w", err)
	}
	s.outer = outerCommands(known)
	return s, nil
}

// outerCommands returns the commands that no script can call, and PING, which no script calls.
func outerCommands(known map[string]*redis.CommandInfo) map[string]bool {
	outer := map[string]bool{"ping": true}
	for name, info := range known {
		if slices.Contains(info.Flags, "noscript") {
			outer[name] = true
		}
	}
	return outer
}

// Usage returns the usage since the servers started. The servers count the commands that a
// script calls as if a client had sent them. So Usage counts only commands that no script can
// call, and those in sent, which the client sends outside of scripts.
func (s *Servers) Usage(ctx context.Context, sent []string) (Usage, error) {
	var u Usage
	for _, c := range s.clients {
		text, err := c.Info(ctx, "all").Result()
		if err != nil {
			return Usage{}, fmt.Errorf("measure: %w", err)
		}
		u.add(text, s.outer, sent)
	}
	return u, nil
}

// add adds some lines of INFO: cmdstat_NAME:calls=1,usec=2,... and the processor time and bytes.
func (u *Usage) add(text string, outer map[string]bool, sent []string) {
	for line := range strings.Lines(text) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "used_cpu_sys", "used_cpu_user":
			seconds, _ := strconv.ParseFloat(value, 64)
			u.CPU += time.Duration(seconds * float64(time.Second))
		case "total_net_input_bytes":
			bytes, _ := strconv.ParseInt(value, 10, 64)
			u.Bytes += bytes
		}
		line, ok := strings.CutPrefix(line, "cmdstat_")
		if !ok {
			continue
		}
		name, stats, _ := strings.Cut(line, ":")
		var calls, micros int64
		if n, _ := fmt.Sscanf(stats, "calls=%d,usec=%d,", &calls, &micros); n != 2 {
			continue
		}
		command, _, _ := strings.Cut(name, "|") // without the name of a subcommand
		if !outer[command] && !slices.Contains(sent, command) {
			continue
		}
		took := time.Duration(micros) * time.Microsecond
		u.Commands += calls
		u.Busy += took
		if command == "eval" || command == "evalsha" {
			u.Scripts += took
		}
	}
}

// Close drops the connections.
func (s *Servers) Close() {
	for _, c := range s.clients {
		_ = c.Close()
	}
}
