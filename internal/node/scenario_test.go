package node

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/redistest"
	"github.com/d0720281/redlock/internal/virtual"
	"github.com/d0720281/redlock/internal/wire"
)

var update = flag.Bool("update", false, "write what came out into the files in testdata")

// The files in testdata have scenarios, with a blank line between two. A comment says the rule. In
//
//	with k=b|64 1h then acquire a -> busy 0 1h => KEYS
//
// what goes in is on the left: keys are set, then a request is sent. "->" is before what comes out: a code as the head
// of the Lua file names it, counter and extra, and the processes that were told. "=>" is before the keys that the
// request changed. A line that is indented goes on with the one above. What goes in:
//
//	with KEY=VALUE LIFE ...  sets keys, or deletes one without a value: a text, a [list], or a sorted set or hash (a:1,b:2)
//	hears CHANNEL ...        processes listen
//	clock TIME               the node's time is so much later than at first; no key ends by that
//	client SETTING=VALUE ... what the caller sends with each request: run (with which the guard is on), longest, trust, heard, sees; off, how far the other
//	                         nodes' clocks are ahead, us, or unknown; lacks, a version or a right without that
//	NAME ARGUMENT ...        a request; a semicolon stands between several that go in one call
//
// k is the lock key, and ~fence, for example, is k~fence. T is the node's time at first in us, t in ms. What the first
// paragraph of a file has below its comment is the beginning of each scenario.
const theTime = 1760000000 * second

const (
	hour    = int64(time.Hour / time.Millisecond)
	second  = int64(time.Second / time.Microsecond) // of a node's clock
	theSkew = 5150 * second / 1000                  // largest difference of a clock, us
)

// stage is a node on which scenarios are played.
type stage struct {
	*redis.Client
	own    string // identity of the server
	source string // of the requests
	real   bool
	seen   map[answer]bool

	// Of the scenario that is played.
	began    time.Time
	listener *redis.PubSub
	later    time.Duration // of the node's clock
	whole    bool          // the marker is shown as a whole: the request is about the node
	client   map[string]string
}

// answer is a code that was the reply to a request of a writer.
type answer struct {
	op   wire.Op
	code wire.Code
}

// TestScripts plays all scenarios on a real server.
//
// Source: ALGORITHM sections 2 to 6, 8, 10, 12 and 13.
func TestScripts(outer *testing.T) {
	t := redistest.Timed(outer)
	c := redistest.Client(t, redistest.Masters(t, 1)[0].Addr())
	n := &stage{Client: c, own: ParseInfo(c.Info(context.Background()).Val()).Identity(), source: wire.Requests.Source, real: true}
	for _, problem := range n.playAll(t) {
		t.Error(problem)
	}
}

// On the fakes of other tests the outcome is the same, and so it is without the short cut of common.lua. That the
// outcome of another script is another one is the control of this test.
func TestScriptsOnMiniredis(t *testing.T) {
	for _, script := range []struct{ name, old, new string }{
		{"as it is", "", ""},
		{"without the short cut", "isCommon, oldest, counterTTL, skew = true", "isCommon, oldest, counterTTL, skew = false"},
		{"wrong", "turnMillis, noteMillis = 250", "turnMillis, noteMillis = 251"},
	} {
		t.Run(script.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				master := virtual.New("10.0.0.1:6379")
				c := redis.NewClient(&redis.Options{Addr: master.Addr(), Dialer: master.Dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
				n := &stage{Client: c, own: master.Identity(), source: strings.Replace(wire.Requests.Source, script.old, script.new, 1)}
				problems := n.playAll(t)
				if (script.name == "wrong") != (len(problems) > 0) || (script.old == "") != (n.source == wire.Requests.Source) {
					t.Errorf("got %d problems: %s", len(problems), strings.Join(problems, "\n"))
				}
				_ = c.Close()
				master.Close()
				time.Sleep(10 * time.Second) // for pending dials
			})
		})
	}
}

// playAll plays all files, and returns where the outcome is another one.
func (n *stage) playAll(t testing.TB) (problems []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 12 {
		t.Fatalf("got %q, %v, want the files", files, err)
	}
	n.seen = make(map[answer]bool)
	writes := *update && !n.real && n.source == wire.Requests.Source
	for _, file := range files {
		text := must(os.ReadFile(file))
		place, all := 1, ""
		scenarios := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n\n")
		before := strings.Split(scenarios[0], "\n")
		for i, scenario := range scenarios {
			lines := strings.Split(scenario, "\n")
			out := n.play(before[:len(before)*min(i, 1)], lines)
			for again := 0; n.real && again < 3 && !slices.Equal(out, lines); again++ { // a busy machine may let keys end
				out = n.play(before, lines)
			}
			same := 0
			for same < min(len(out), len(lines)) && out[same] == lines[same] {
				same++
			}
			if !slices.Equal(out, lines) && !writes {
				problems = append(problems, fmt.Sprintf("%s:%d: got %q, want %q", file, place+same, append(out, "")[same], append(lines, "")[same]))
			}
			all += strings.Join(out, "\n") + "\n\n"
			place += len(lines) + 1
		}
		if writes {
			if err := os.WriteFile(file, []byte(all[:len(all)-1]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for o := range sources {
		for code := range mostCodes {
			if seen := n.seen[answer{o, code}]; seen != code.Answers(o) {
				t.Errorf("code %d to %s: got %v in these files, wire.go says %v", code, o, seen, !seen)
			}
		}
	}
	return problems
}

// play returns the lines of a scenario with what came out now.
func (n *stage) play(before, lines []string) (out []string) {
	n.begin(before...)
	for i := 0; i < len(lines); i++ {
		from, line := i, lines[i]
		for i+1 < len(lines) && lines[i+1][0] == ' ' {
			i++
			line += " " + strings.TrimSpace(lines[i])
		}
		input, want, _ := strings.Cut(line, " -> ")
		request := n.prepare(input)
		if request == "" {
			out = append(out, line)
			continue
		}
		name, _, _ := strings.Cut(request, " ")
		n.whole = slices.Contains([]string{wire.Look, wire.Join, wire.Vouch, wire.Mark}, name)
		before := n.keys()
		got, after := n.request(request)+n.told(), n.keys()
		said, changes, _ := strings.Cut(want, " => ")
		if n.same(got, said) && maps.EqualFunc(after, overlay(before, changes), n.same) {
			out = append(out, lines[from:i+1]...)
			continue
		}
		line = input
		for _, part := range []string{" -> " + got, changed(before, after)} {
			if len(line)+len(part) > 120 {
				out, line = append(out, line), "   "
			}
			line += part
		}
		out = append(out, line)
	}
	if n.listener != nil { // a process must not listen in the next scenario
		must(0, n.listener.Unsubscribe(context.Background()))
		for {
			if m, is := must(n.listener.Receive(context.Background())).(*redis.Subscription); is && m.Count == 0 {
				break
			}
		}
		_ = n.listener.Close()
	}
	return out
}

// begin empties the node, and prepares it.
func (n *stage) begin(lines ...string) {
	n.do("FLUSHALL")
	n.began, n.listener, n.later, n.client = time.Now(), nil, 0, make(map[string]string)
	for _, line := range lines {
		n.prepare(line)
	}
}

// changed returns the keys that are not as before.
func changed(before, after map[string]string) (text string) {
	both := maps.Clone(before)
	maps.Copy(both, after)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		if before[key] != after[key] {
			text += " " + key + "=" + after[key]
		}
	}
	if text != "" {
		text = " =>" + text
	}
	return text
}

// overlay returns the keys that should be there after changes.
func overlay(before map[string]string, changes string) map[string]string {
	keys := maps.Clone(before)
	for _, pair := range pairs(split(changes, ' ')) {
		keys[pair[0]] = strings.TrimSuffix(pair[1]+" "+pair[2], " ")
		if pair[1] == "" {
			delete(keys, pair[0])
		}
	}
	return keys
}

// pairs returns keys, their values and lives.
func pairs(fields []string) (list [][3]string) {
	for _, f := range fields {
		if key, value, isKey := strings.Cut(f, "="); isKey {
			list = append(list, [3]string{key, value, ""})
		} else if f != "" {
			list[len(list)-1][2] = f
		}
	}
	return list
}

// passing are the times that depend on the life of a key.
var passing = regexp.MustCompile(`\bt\+\d+\b|\b[\d.]+[hms][\d.hms]*\b`)

// same reports whether a text is the one that is wanted. On a real server lives differ by the time that has passed.
func (n *stage) same(got, want string) bool {
	a, b := passing.FindAllString(got, -1), passing.FindAllString(want, -1)
	if !n.real || len(a) != len(b) || passing.ReplaceAllString(got, "") != passing.ReplaceAllString(want, "") {
		return got == want
	}
	slack := time.Since(n.began) + 2*time.Millisecond
	duration := func(text string) time.Duration {
		if ms, is := strings.CutPrefix(text, "t+"); is {
			text = ms + "ms"
		}
		d, _ := time.ParseDuration(text) // the pattern has no other text
		return d
	}
	for i := range a {
		if (duration(a[i]) - duration(b[i])).Abs() > slack {
			return false
		}
	}
	return true
}

// prepare does what a line says before its request, which it returns.
func (n *stage) prepare(line string) (request string) {
	if line[0] == '#' {
		return ""
	}
	for part := range strings.SplitSeq(line, " then ") {
		fields := split(part, ' ')
		switch rest := fields[1:]; fields[0] {
		case "with":
			for _, pair := range pairs(rest) {
				key := lockKey(pair[0])
				n.do("DEL", key)
				n.put(key, pair[1])
				if pair[2] != "" {
					n.do("PEXPIRE", key, millis(pair[2]))
				}
			}
		case "hears":
			n.listener = n.Subscribe(context.Background(), append(rest, "end")...)
			for range len(rest) + 1 {
				must(n.listener.Receive(context.Background()))
			}
		case "clock":
			n.later = must(time.ParseDuration(rest[0]))
		case "client":
			for _, f := range rest {
				setting, v, _ := strings.Cut(f, "=")
				n.client[setting] = n.plain(v)
			}
		default:
			request = part
		}
	}
	return request
}

func (n *stage) do(command ...any) { must(n.Do(context.Background(), command...).Result()) }

// put sets a key, unless the value is missing. Of a set, "in*300" stands for 300 members.
func (n *stage) put(key, v string) {
	switch inside := strings.Trim(v, "()[]"); {
	case v == "":
	case v[0] == '[':
		n.do("RPUSH", key, inside)
	case v[0] != '(':
		n.do("SET", key, n.plain(v))
	default:
		for place, m := range split(inside, ',') {
			m, with, _ := strings.Cut(n.plain(m), ":")
			stem, times, _ := strings.Cut(m, "*")
			many, _ := strconv.Atoi(cmp.Or(times, "1"))
			for i := range many {
				m := stem
				if many > 1 {
					m = fmt.Sprintf("%s%03d", stem, i)
				}
				if strings.HasSuffix(key, wire.SeenSuffix) || strings.HasSuffix(key, wire.GuardSuffix) {
					n.do("HSET", key, m, n.plain(with))
				} else {
					n.do("ZADD", key, cmp.Or(with, strconv.Itoa(1000*place+i)), m)
				}
			}
		}
	}
}

// lockKey and its reverse, short, are the names of keys.
func lockKey(name string) string {
	if name[0] == '~' {
		return "k" + name
	}
	return name
}

func short(key string) string {
	if strings.HasPrefix(key, "k~") {
		return key[1:]
	}
	return key
}

// keysScript returns each key, its type, its life, and what it holds: of a queue, whether a process has a turn.
const keysScript = `local all = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  local kind, list = redis.call('TYPE', key).ok, {}
  if kind == 'string' then list = {redis.call('GETRANGE', key, 0, -1)} end
  if kind == 'list' then list = redis.call('LRANGE', key, 0, -1) end
  local paired = kind == 'zset' and redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') or kind == 'hash' and redis.call('HGETALL', key) or {}
  for j = 1, #paired, 2 do
    local with = ':' .. paired[j + 1]
    if string.sub(key, -6) == '~queue' then with = tonumber(paired[j + 1]) < 2 ^ 52 and '' or '^' end
    list[#list + 1] = paired[j] .. with
  end
  if kind == 'hash' or string.sub(key, -8) == '~adopted' then table.sort(list) end -- which end in the order of lives on a server
  all[i] = {key, kind, redis.call('PTTL', key), list}
end
return all`

// keys returns what the node has, by key.
func (n *stage) keys() map[string]string {
	keys := make(map[string]string)
	for _, one := range must(n.Eval(context.Background(), keysScript, nil).Slice()) {
		one := one.([]any)
		var list []string
		for _, m := range one[3].([]any) {
			list = append(list, n.symbols(m.(string)))
		}
		if one[0] == "k"+wire.GuardSuffix {
			list = slices.DeleteFunc(list, n.isNoise)
		}
		text := strings.Join(list, ",")
		if k := len(list); k > 8 {
			text = fmt.Sprintf("%s,%dmore,%s", list[0], k-2, list[k-1])
		}
		switch one[1] {
		case "list":
			text = "[" + text + "]"
		case "zset", "hash":
			text = "(" + text + ")"
		}
		if ms := one[2].(int64); ms != -1 {
			text += " " + life(ms)
		}
		keys[short(one[0].(string))] = text
	}
	return keys
}

// isNoise reports whether a field of the marker is left out: those that are empty, the protocol's version, and what
// the client of each request says when it joins.
func (n *stage) isNoise(field string) bool {
	field = strings.TrimPrefix(field, "\"")
	if strings.HasSuffix(field, ":") || strings.HasPrefix(field, "protocol:1 ") {
		return true
	}
	for _, boilerplate := range []string{"lists:", "ttls:", "servers:", "proof:", "maxttl:"} {
		if !n.whole && strings.HasPrefix(field, boilerplate) {
			return true
		}
	}
	return false
}

// told returns whom the script told since the last request.
func (n *stage) told() (text string) {
	if n.listener == nil {
		return ""
	}
	n.do("PUBLISH", "end", "")
	for {
		m := must(n.listener.ReceiveMessage(context.Background()))
		if m.Channel == "end" {
			return text
		}
		if text == "" {
			text = ", told"
		}
		text += " " + m.Channel
		if m.Payload != "k" {
			text += ":" + short(m.Payload)
		}
	}
}

// request sends what a line says, and returns the reply as text.
func (n *stage) request(line string) (text string) {
	var args []any
	fields := split(line, ' ')
	for _, f := range fields {
		args = append(args, n.plain(f))
	}
	switch fields[0] {
	case "break": // VALUE PLACEHOLDER
		reply := must(n.eval(wire.Break.Source, []string{"k"}, args[1], args[2], hour))
		return fmt.Sprint(reply[0], " ", life(reply[1].(int64)))
	case wire.Look, wire.Join, wire.Vouch, wire.Mark: // LISTS RUN MADE
		reply, err := n.marker(args...)
		if err != nil {
			return failure(err)
		}
		if reply[0] == theTime+n.later.Microseconds() {
			reply = reply[1:]
		}
		for _, v := range reply {
			text += n.symbols(fmt.Sprint(v)) + " "
		}
		return strings.TrimSuffix(text, " ")
	}
	batch, micros, replies := n.call(line)
	for i, rep := range replies {
		text += n.textOf(batch[i], rep) + "; "
	}
	text = strings.TrimSuffix(text, "; ")
	if needed := slices.ContainsFunc(batch, (*Request).guarded); needed != (micros == theTime+n.later.Microseconds()) || !needed && micros != 0 {
		text += fmt.Sprint(", at ", micros)
	}
	return text
}

// marker asks about the node: what to do, and the caller's list; for vouch run and made, too.
func (n *stage) marker(args ...any) ([]any, error) {
	for len(args) < 4 {
		args = append(args, "")
	}
	longest := millis(cmp.Or(n.client["longest"], "0s"))
	ttls := fmt.Sprintf("%d %d 0 own\n", theQuarantine(longest), longest)
	if length, age, is := strings.Cut(n.client["heard"], ":"); is {
		ttls += fmt.Sprintf("%d %d %d heard\n", theQuarantine(millis(length)), millis(length), millis(age))
	}
	servers := strings.NewReplacer(",", "\n", ":", " ").Replace(n.client["sees"])
	return n.eval(wire.Marker.Source, []string{"k" + wire.GuardSuffix}, append(n.common(n.client["run"]), args[0], args[1], servers, ttls, args[2], args[3])...)
}

// call sends requests.
func (n *stage) call(line string) (batch []*Request, micros int64, replies []Reply) {
	keys := []string{"k" + wire.GuardSuffix}
	for text := range strings.SplitSeq(line, "; ") {
		r := n.requestOf(split(text, ' '))
		batch, keys = append(batch, r), append(keys, r.Key.Lock)
	}
	proof, left := "", int64(0)
	if n.client["run"] != "" && slices.ContainsFunc(batch, (*Request).guarded) {
		if proof = n.client["proof"]; proof == "" { // as a client without a proof, it joins in front of the call
			proof = wire.Joining
			if reply, err := n.marker(wire.Join, "a"); err == nil {
				if left = reply[1].(int64); left < 0 {
					return batch, theTime + n.later.Microseconds(), slices.Repeat([]Reply{{Err: ErrStale}}, len(batch))
				}
			}
		}
	}
	args := n.common(n.plain(proof))
	for group := range groupsOf(batch) {
		args = append(args, valuesOf(group[0].appendGroup(nil, len(group)))...)
		for _, r := range group {
			args = append(args, valuesOf(r.append(nil))...)
		}
	}
	source := n.source
	if lacks, is := map[string][2]string{
		"readers":  {"~readers|0", "no sign"},
		"adoption": {"adopted(key, value) then return 26", "false then return 26"},
		"zrem":     {"'ZREM'", "'~ZREM'"},
	}[n.client["lacks"]]; is {
		if source = strings.ReplaceAll(source, lacks[0], lacks[1]); source == n.source {
			panic("the script has no " + lacks[0])
		}
	}
	values, err := n.eval(source, keys, args...)
	if err != nil {
		return batch, 0, slices.Repeat([]Reply{{Err: err}}, len(batch))
	}
	micros, replies, err = parseReplies(values, len(batch))
	for i := range replies {
		if replies[i].withoutVote() {
			replies[i].Extra = left // which the client knows from the join
		}
	}
	return batch, must(micros, err), replies
}

// eval runs a script by the clock of the scenario.
func (n *stage) eval(source string, keys []string, args ...any) ([]any, error) {
	now := theTime + n.later.Microseconds()
	return n.Eval(context.Background(), pinTime+source, keys, append(args, now/second, now%second)...).Slice()
}

// pinTime is prepended to a script: the last arguments are the node's time.
const pinTime = `local real = redis
local redis = {pcall = real.pcall, call = function(name, ...)
  if name == 'TIME' then return {ARGV[#ARGV - 1], ARGV[#ARGV]} end
  return real.call(name, ...)
end}
`

// theQuarantine is the length of a quarantine for a TTL, ms.
func theQuarantine(ttl int64) int64 {
	return QuarantineFor(time.Duration(ttl)*time.Millisecond, 0.01).Milliseconds()
}

// common returns the first arguments of a script.
func (n *stage) common(first string) []any {
	median := theTime + n.later.Microseconds()
	if off := n.client["off"]; off == "unknown" {
		median = 0
	} else {
		median += integer(cmp.Or(off, "0"))
	}
	trust := cmp.Or(n.client["trust"], "0")
	return []any{first, median, fmt.Sprintf("%d %d %d %s", 10*hour, theSkew, theQuarantine(millis(cmp.Or(n.client["longest"], "0s"))), trust)}
}

// requestOf reads a request: its name, the attempt id or the value of its grant, then the target or the wish.
func (n *stage) requestOf(fields []string) *Request {
	name, shared := strings.CutSuffix(fields[0], "Shared")
	r := &Request{Key: &Key{Lock: "k", TTL: hour}, Shared: shared}
	for r.Op = wire.Acquire; r.Op.String() != name; r.Op++ {
		if r.Op > wire.Adopt {
			panic("no request: " + name)
		}
	}
	id, counter, _ := strings.Cut(n.plain(fields[1]), "|")
	r.Key.ID, r.Counter = id, integer(cmp.Or(counter, "0"))
	if r.Op == wire.Rest {
		r.Target = wire.Listens
	} else if !r.Op.Wants() {
		r.Target = r.Counter
	}
	for _, f := range fields[2:] {
		what, arg, _ := strings.Cut(f, "=")
		switch arg = n.plain(arg); what {
		case "ttl":
			r.Key.TTL = millis(arg)
		case "by":
			r.notAfter = integer(arg)
		case "as", "from":
			r.Process = arg
		case "key":
			r.Key.Lock += arg
		case "polls":
			r.Target -= wire.Listens
		case "of":
			r.Target += integer(arg) * wire.PerResource
		default:
			r.Target = integer(n.plain(f))
		}
	}
	return r
}

// textOf returns a reply as text.
func (n *stage) textOf(r *Request, rep Reply) string {
	if rep.Err != nil {
		return failure(rep.Err)
	}
	if n.seen != nil && !r.Shared && r.Op != wire.Rest {
		n.seen[answer{r.Op, rep.Code}] = true
	}
	text := words[rep.Code]
	switch {
	case rep.Counter < 0: // how long what is in the way of a rest lasts
		text += " -" + life(-rep.Counter)
	case rep.Counter != 0 || rep.Extra != 0:
		text += " " + n.symbols(fmt.Sprint(rep.Counter))
	}
	if rep.Extra != 0 {
		switch rep.Code {
		case wire.Granted, wire.Mine, wire.BadType, wire.Released, wire.Gone:
			text += fmt.Sprint(" ", rep.Extra)
		default:
			text += " " + life(rep.Extra)
		}
	}
	if rep.Owner != "" {
		text += " " + strconv.Quote(rep.Owner)
	}
	return text
}

var words = map[wire.Code]string{
	wire.Granted: "granted", wire.Mine: "mine", wire.Busy: "busy", wire.SetVoteless: "set voteless", wire.Late: "late",
	wire.BadType: "badtype", wire.Queued: "queued", wire.Unseeded: "unseeded", wire.Raised: "raised", wire.Unheld: "unheld", wire.Ahead: "ahead",
	wire.Kept: "kept", wire.KeptVoteless: "kept voteless", wire.Filled: "filled", wire.FilledVoteless: "filled voteless", wire.Taken: "taken",
	wire.TakenAway: "taken away", wire.Adopted: "adopted", wire.Released: "released", wire.Gone: "gone",
}

// failure returns an error of the server as text: each version has texts of its own.
func failure(err error) string {
	if Says(err, "WRONGTYPE") {
		return "error WRONGTYPE"
	}
	return "error " + err.Error()
}

var symbol = regexp.MustCompile(`\b(own|[Tt])\b([+-]\d+)?`)

// plain returns the text that a field stands for.
func (n *stage) plain(field string) string {
	if text, err := strconv.Unquote(field); err == nil {
		field = text
	}
	return symbol.ReplaceAllStringFunc(field, func(m string) string {
		past, _ := strconv.ParseInt(m[1:], 10, 64) // 0 without
		switch m[0] {
		case 'T':
			return fmt.Sprint(theTime + past)
		case 't':
			return fmt.Sprint(theTime/1000 + past)
		}
		return n.own
	})
}

var large = regexp.MustCompile(`\d{13,16}`)

// symbols is the reverse of plain.
func (n *stage) symbols(text string) string {
	text = strings.ReplaceAll(text, cmp.Or(n.own, "own"), "own")
	if len(n.own) > 8 {
		text = strings.ReplaceAll(text, n.own[:8]+":", "own:") // in a proof
	}
	text = large.ReplaceAllStringFunc(text, func(m string) string {
		v, _ := strconv.ParseInt(m, 10, 64) // always digits
		for letter, past := range map[string]int64{"T": v - theTime, "t": v - theTime/1000} {
			if past > -100*hour && past < 100*hour {
				return strings.TrimSuffix(fmt.Sprintf("%s%+d", letter, past), "+0")
			}
		}
		return m
	})
	if text == "" || strings.ContainsAny(text, " ,()[]\"\t\n\x00") {
		return strconv.Quote(text)
	}
	return text
}

// split splits a text at each separator that is not in quotes.
func split(text string, separator byte) (list []string) {
	from, quoted := 0, false
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == separator && !quoted:
			list, from = append(list, text[from:i]), i+1
		}
	}
	return append(list, text[from:])
}

// must returns a value. Without one a scenario cannot go on.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

func integer(text string) int64 { return must(strconv.ParseInt(text, 10, 64)) }

func millis(text string) int64 { return must(time.ParseDuration(text)).Milliseconds() }

// life returns ms as text: "10h" and not "10h0m0s".
func life(ms int64) string {
	switch {
	case ms == -1:
		return "never"
	case ms > 1e12:
		return strconv.FormatInt(ms, 10)
	}
	text := (time.Duration(ms) * time.Millisecond).String()
	return strings.ReplaceAll(strings.ReplaceAll(text, "m0s", "m"), "h0m", "h")
}
