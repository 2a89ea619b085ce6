package virtual

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/d0720281/redlock/internal/wire"
)

// guard is lua/guard.lua: it returns the ms without a vote, -1 for a stale caller.
func (s store) guard() int64 {
	run, given, stretch, trusted := s.common[0], number(s.setting(2)), s.stretch(), s.setting(4) == "1"
	born, longest := s.known("born"), number(s.known("maxttl"))
	moment := text(s.now / 1000)
	known := longest > 0 && born != ""
	if !known || s.known("run") != run && run != "?" {
		own := cmp.Or(s.own, run)
		if known && s.known("run") == own {
			return -1
		}
		if !trusted || !known {
			born = "?"
		}
		s.learn("run", own)
		s.learn("made", moment)
		s.learn("born", born)
		longest = max(longest, given)
		s.learn("maxttl", text(longest))
	} else if longest < given {
		longest = given
		s.learn("maxttl", text(longest))
	}
	whole := int64(math.Ceil(float64(longest)*stretch)) + 100
	left, is := whole, born
	since, err := strconv.ParseInt(born, 10, 64)
	counting := err == nil
	if counting {
		left = since + whole - s.now/1000
	}
	switch {
	case left <= 0:
		return 0
	case s.near():
		if !counting || left > whole {
			is = moment
		}
	case counting && (s.median() > 0 || left > whole):
		is = "?"
	}
	if is != born {
		s.learn("born", is)
		left = whole
	}
	return left
}

// known returns a field of the marker, and learn sets one.
func (s store) known(field string) string { return s.redis.HGet(s.marker, field) }
func (s store) learn(field, value string) { s.redis.HSet(s.marker, field, value) }

// mark is lua/marker.lua.
func (s store) mark(argv []string) []any {
	what, list := argv[0], argv[1]
	left := s.guard()
	if left >= 0 && (what == wire.Vouch || what == wire.Mark) {
		switch {
		case what == wire.Mark:
			s.learn("made", text(s.now/1000))
			s.learn("born", "?")
		case s.known("run") == argv[2] && s.known("made") == argv[3]:
			s.learn("born", "0")
		}
		left = s.guard() // stale if the first guard has just learned the node's run id
	}
	if left < 0 {
		return []any{s.now, int64(-1), int64(0), "", "", "", "", int64(0)}
	}
	longest, moment := number(s.known("maxttl")), s.now/1000
	inUse := 2 * (int64(math.Ceil(float64(longest)*s.stretch())) + 100)
	settles := inUse
	if born, err := strconv.ParseInt(s.known("born"), 10, 64); err == nil {
		settles = max(0, born+inUse-moment)
	}
	var kept, others []string
	against, joined, fresh := "", false, false
	for line := range strings.SplitSeq(s.known("lists"), "\n") {
		seen, other, isLine := strings.Cut(line, " ")
		at := min(number(seen), moment)
		switch {
		case !isLine || moment-at >= inUse:
			continue
		case other == list:
			joined, fresh = true, moment-at < inUse/2
			continue
		}
		kept = append(kept, text(at)+" "+other)
		others = append(others, other)
		if conflict(list, other) {
			against = other
		}
	}
	if what == wire.Join && (against == "" || joined || left > 0) {
		s.learn("lists", strings.Join(append(kept, text(moment)+" "+list), "\n"))
		if !fresh && (s.known("since") != "" || strings.Contains(list, wire.BetweenGroups)) {
			s.learn("since", text(moment))
		}
	}
	return []any{s.now, left, longest, s.known("run"), s.known("made"), strings.Join(others, "\n"), against, settles}
}

// conflict and apart are the functions of the same names in lua/marker.lua.
func conflict(a, b string) bool {
	ofA, ofB := strings.Split(a, wire.BetweenGroups), strings.Split(b, wire.BetweenGroups)
	if len(ofA) != len(ofB) {
		return true
	}
	for i := range ofA {
		if apart(ofA[i], ofB[i], len(ofA) > 1) {
			return true
		}
	}
	return false
}

func apart(a, b string, several bool) bool {
	first, second := strings.Fields(a), strings.Fields(b)
	shared := 0
	for _, m := range second {
		if slices.Contains(first, m) {
			shared++
		}
	}
	all := len(first) + len(second) - shared
	if shared == 0 {
		return several
	}
	return len(first)/2+1+len(second)/2+1 <= all
}

// look is lua/inspect.lua.
func (s store) look(key, counterKey string) []any {
	left := int64(0)
	if s.common[0] != "" {
		left = s.guard()
	}
	if left < 0 {
		return []any{s.now, left, "", int64(-2), ""}
	}
	counter, _ := s.get(counterKey)
	held, exists := s.get(key)
	if !exists {
		return []any{s.now, left, "", int64(-2), counter}
	}
	life := s.pttl(key)
	if s.redis.TTL(key) == 0 {
		life = -1
	}
	reply := []any{s.now, left, held, life, counter}
	if held != wire.Sign {
		return reply
	}
	all := s.readers(key)
	maps.DeleteFunc(all, func(_ string, ends float64) bool { return int64(ends) <= s.now/1000 })
	if len(all) == 0 {
		return []any{s.now, left, "", int64(-2), counter}
	}
	reply = append(reply, int64(len(all)))
	for _, id := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(all[a], all[b]), cmp.Compare(a, b)) }) {
		reply = append(reply, id, int64(all[id])-s.now/1000)
	}
	return reply
}
