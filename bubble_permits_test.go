package redlock_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/wire"
)

// The requests about permits in Go do as the Lua does, beside those about their slots.
func TestBubbleScriptsOfPermits(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, b *bubble) {
		b.nodes[1].Native(true)
		var clients [2]*redis.Client
		var heard [2]func() string
		for i, n := range b.nodes {
			clients[i] = redis.NewClient(&redis.Options{Addr: n.Addr(), Dialer: n.Dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
			t.Cleanup(func() { _ = clients[i].Close() })
			var stop func()
			heard[i], _, stop = n.hear("p", "q")
			t.Cleanup(stop)
			n.RunAs("one")
		}
		rng := rand.New(rand.NewPCG(3, 4))
		const base, skew = "k~slots", 101_000
		ids := []string{"a", "b;web 1", "c"}
		seen := make(map[string]int) // by code
		calls, differ, partly := 0, 0, 0
		for step := range 4000 {
			time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
			if rng.IntN(50) == 0 {
				time.Sleep(4 * time.Second) // waiting processes lose their place
			}
			now := time.Now().UnixMicro()
			run := []string{"", "one:virtual", "one:virtual", "two:virtual"}[rng.IntN(4)]
			median := []int64{0, now, now, now, now + skew + 1}[rng.IntN(5)]
			argv := []any{run, median, fmt.Sprintf("2000 %d 100 1.02 0", skew)}
			keys := []string{"k~guard"}
			for range 1 + rng.IntN(2) {
				id, ttl, of := ids[rng.IntN(3)], 50+rng.IntN(300), 1+rng.IntN(4)
				permits := wire.Permits{Count: uint16(1 + rng.IntN(of)), Of: uint16(of)}
				by := []int64{0, now - 5, now + 5}[rng.IntN(3)]
				process := []string{"", "-", "p", "q", "r"}[rng.IntN(5)] // r never listens
				if len(process) == 1 && process != "-" {
					process += permits.Suffix()
				}
				slot := wire.Slot(base, 1+rng.IntN(of))
				switch rng.IntN(8) {
				case 0, 1, 2:
					keys = append(keys, base)
					argv = append(argv, int(wire.Acquire.OfPermits()), 1, process, ttl, by, id, fmt.Sprintf("%d %d %d %d", now, permits.Count, of, 1+rng.IntN(of)))
				case 3:
					keys = append(keys, base)
					argv = append(argv, int(wire.Release.OfPermits()), 1, process, id+"|0", of)
				case 4, 5:
					if process == "" {
						process = "-"
					}
					keys = append(keys, base)
					argv = append(argv, int(wire.Rest.OfPermits()), 1, process, id+[]string{"|0", "|1"}[rng.IntN(2)], of)
				case 6:
					keys = append(keys, slot)
					argv = append(argv, int(wire.Extend), 1, "", ttl, by, id+"|0", 0)
				case 7:
					keys = append(keys, slot)
					argv = append(argv, int(wire.Acquire), 1, "", ttl, by, id, now)
				}
			}
			if rng.IntN(20) == 0 {
				broken := rng.IntN(2) == 0
				for _, n := range b.nodes {
					if broken {
						n.put(wire.Slot(base, 1), wire.Placeholder("a"), 300*time.Millisecond)
					} else {
						n.put("k~guard", "", 0) // the node has lost its data
					}
				}
			}
			if rng.IntN(12) == 0 { // a counter further ahead than it can be
				ahead := fmt.Sprint(now + skew + 1e6 + 1000)
				slot := wire.Slot(base, 1+rng.IntN(4))
				for _, n := range b.nodes {
					n.put(slot+wire.FenceSuffix, ahead, 500*time.Millisecond)
				}
			}
			before := b.nodes[0].queued(base)
			var got [2]string
			for i, c := range clients {
				reply, err := c.Eval(t.Context(), wire.Requests.Source, keys, argv...).Slice()
				got[i] = fmt.Sprint(reply, err)
				for at := 2; at < len(reply); at += 3 {
					seen[fmt.Sprint(reply[at])]++
					if text, is := reply[at+2].(string); is && strings.HasPrefix(text, "1 ") {
						differ++
					}
				}
				for n := range 5 {
					for _, k := range []string{wire.Slot(base, n+1), wire.Slot(base, n+1) + wire.FenceSuffix} {
						b.nodes[i].inside(func(r *miniredis.Miniredis) {
							v, _ := r.Get(k)
							got[i] += fmt.Sprintf(" %s=%s for %v", k, v, r.TTL(k))
						})
					}
				}
				told := heard[i]()
				calls += len(strings.Fields(told))
				got[i] += b.nodes[i].queued(base) + " told " + told
			}
			if got[0] != got[1] {
				t.Fatalf("step %d, %v: Go got %s, want %s as Lua; before%s", step, slices.Concat([]any{keys}, argv), got[1], got[0], before)
			}
			if strings.Contains(before, "/") && strings.Contains(got[0], " 3 ") {
				partly++
			}
		}
		for _, code := range []string{"3", "5", "6", "8", "12", "13", "30", "31"} {
			if seen[code] < 20 {
				t.Errorf("replies with code %s: got %d, want at least 20, or little was compared", code, seen[code])
			}
		}
		if calls < 40 || differ < 20 || partly < 20 {
			t.Errorf("got %d messages told, %d replies that another client has more permits, %d refusals while processes wait; want at least 40, 20 and 20", calls, differ, partly)
		}
	})
}
