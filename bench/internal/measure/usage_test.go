package measure

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/redistest"
)

func TestUsageOfInfo(t *testing.T) {
	info := map[string]map[string]string{
		"Commandstats": {
			"cmdstat_evalsha":        "calls=3,usec=70,usec_per_call=1,rejected_calls=0,failed_calls=0",
			"cmdstat_set":            "calls=5,usec=9,usec_per_call=1.80",
			"cmdstat_client|setinfo": "calls=2,usec=4,usec_per_call=2",
			"cmdstat_broken":         "calls=x",
		},
		"CPU":   {"used_cpu_sys": "0.500000", "used_cpu_user": "1.000000"},
		"Stats": {"total_net_input_bytes": "77"},
	}
	outer := outerCommands(map[string]*redis.CommandInfo{
		"evalsha": {Flags: []string{"noscript"}}, "client": {Flags: []string{"noscript"}}, "broken": {Flags: []string{"noscript"}},
		"set": {Flags: []string{"write"}},
	})
	var in, sent Usage
	in.add(info, outer, nil)
	if want := (Usage{5, 1500 * time.Millisecond, 77}); in != want {
		t.Errorf("with SET in scripts: got %+v, want %+v", in, want)
	}
	sent.add(info, outer, []string{"set"})
	if want := (Usage{10, 1500 * time.Millisecond, 77}); sent != want {
		t.Errorf("with SET sent: got %+v, want %+v", sent, want)
	}
	if got, want := sent.Minus(in), (Usage{5, 0, 0}); got != want {
		t.Errorf("the difference: got %+v, want %+v", got, want)
	}
}

// A script is one command, whatever it calls.
func TestUsage(t *testing.T) {
	addr := redistest.Masters(t, 1)[0].Addr()
	s, err := NewServers(t.Context(), []string{addr})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := redistest.Client(t, addr)
	if err := client.Ping(t.Context()).Err(); err != nil { // count the commands of connecting
		t.Fatal(err)
	}
	usage := func(sent ...string) Usage {
		t.Helper()
		u, err := s.Usage(t.Context(), sent)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	inside, all := usage(), usage("set")
	for range 10 {
		if err := client.Eval(t.Context(), "for i = 1, 5 do redis.call('SET', KEYS[1], i) end", []string{"k"}).Err(); err != nil && err != redis.Nil {
			t.Fatal(err)
		}
		if err := client.Set(t.Context(), "k", 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := usage().Minus(inside); got.Commands != 10 {
		t.Errorf("got %+v, want 10 commands, all of them scripts", got)
	}
	// A client that sends SET and also has it in scripts cannot be counted: that is why no
	// contender does both.
	if got := usage("set").Minus(all); got.Commands != 10+10*5+10 {
		t.Errorf("got %d, want every SET", got.Commands)
	}
	if _, err := NewServers(t.Context(), []string{"127.0.0.1:1"}); err == nil {
		t.Error("no error without a server")
	}
}
