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
	CPU      time.Duration // of the servers' processes, system calls included
	Bytes    int64         // sent by clients
}

// Minus returns the usage since an earlier usage.
func (u Usage) Minus(before Usage) Usage {
	return Usage{u.Commands - before.Commands, u.CPU - before.CPU, u.Bytes - before.Bytes}
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
		info, err := c.InfoMap(ctx, "all").Result()
		if err != nil {
			return Usage{}, fmt.Errorf("measure: %w", err)
		}
		u.add(info, s.outer, sent)
	}
	return u, nil
}

// During returns the usage while do runs.
func (s *Servers) During(ctx context.Context, sent []string, do func()) (Usage, error) {
	before, err := s.Usage(ctx, sent)
	if err != nil {
		return Usage{}, err
	}
	do()
	after, err := s.Usage(ctx, sent)
	return after.Minus(before), err
}

// add adds the INFO of a server by section and name. Commands have calls=1,usec=2,...
func (u *Usage) add(info map[string]map[string]string, outer map[string]bool, sent []string) {
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, _ := strconv.ParseFloat(info["CPU"][name], 64)
		u.CPU += time.Duration(seconds * float64(time.Second))
	}
	bytes, _ := strconv.ParseInt(info["Stats"]["total_net_input_bytes"], 10, 64)
	u.Bytes += bytes
	for name, stats := range info["Commandstats"] {
		command, _, _ := strings.Cut(strings.TrimPrefix(name, "cmdstat_"), "|") // without the name of a subcommand
		var calls int64
		n, _ := fmt.Sscanf(stats, "calls=%d,", &calls)
		if n == 1 && (outer[command] || slices.Contains(sent, command)) {
			u.Commands += calls
		}
	}
}

// Close drops the connections.
func (s *Servers) Close() {
	for _, c := range s.clients {
		_ = c.Close()
	}
}
