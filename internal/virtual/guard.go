package virtual

import (
	"math"
	"strconv"
)

// guard is lua/guard.lua: ms without a vote, -1 for a stale caller.
func (s store) guard() int64 {
	run, given, trusted := s.common[2], number(s.common[3]), s.common[5] == "1"
	stretch, _ := strconv.ParseFloat(s.common[4], 64)
	now, born, longest := s.now/1000, number(s.known("born")), number(s.known("maxttl"))
	known := longest > 0
	if !known || s.known("run") != run && run != "?" {
		if known && s.known("run") == s.own {
			return -1
		}
		if !trusted || !known {
			born = now
		}
		s.learn("run", s.own)
		s.learn("born", text(born))
		longest = max(longest, given)
		s.learn("maxttl", text(longest))
	} else if longest < given {
		longest = given
		s.learn("maxttl", text(longest))
	}
	whole := int64(math.Ceil(float64(longest)*stretch)) + 100
	left := born + whole - now
	if left > whole {
		s.learn("born", text(now))
		left = whole
	}
	return max(left, 0)
}

// known is a field of the marker, and learn sets one.
func (s store) known(field string) string { return s.redis.HGet(s.marker, field) }
func (s store) learn(field, value string) { s.redis.HSet(s.marker, field, value) }

// mark is lua/marker.lua.
func (s store) mark(argv []string) []any {
	what, masters := argv[0], argv[1]
	stale := []any{s.now, int64(-1), int64(0), "", "", ""}
	left := s.guard()
	if left < 0 {
		return stale
	}
	switch what {
	case "vouch":
		if s.known("run") == argv[2] && s.known("born") == argv[3] {
			s.learn("born", "0")
		}
	case "mark":
		s.learn("born", text(s.now/1000))
	}
	if what != "look" {
		if left = s.guard(); left < 0 { // the first has just learned who the node is
			return stale
		}
	}
	before := s.known("masters")
	reply := []any{s.now, left, number(s.known("maxttl")), before, s.known("run"), s.known("born")}
	if before != masters {
		s.learn("masters", masters)
	}
	return reply
}
