package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// holdings returns what a lease stands for: several keys in the order in which they were given, and
// permits by their numbers.
func (r *run) holdings(lease held) (parts []lockRecord) {
	for _, le := range lease.Parts() {
		p := lockRecord{Key: le.Resource(), Fence: le.Fence()}
		if r.permits > 0 {
			p.Slot, _ = strconv.Atoi(strings.TrimPrefix(p.Key, r.keys[0]+"/"))
			p.Key = r.keys[0]
		}
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b lockRecord) int {
		return a.Slot - b.Slot + slices.Index(r.keys, a.Key) - slices.Index(r.keys, b.Key)
	})
	return parts
}

var ownVariable = regexp.MustCompile(`^REDLOCK_(MODE|(KEY|SLOT|FENCE)(_[0-9]+)?)=`)

// environment returns the environment of the command. What a redlock around this one has set is
// left out.
func (r *run) environment(lease held) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return ownVariable.MatchString(v)
	})
	all := r.holdings(lease)
	mode := string(lease.Parts()[0].Mode())
	if r.permits > 0 {
		env = append(env, "REDLOCK_KEY="+r.keys[0])
		mode = "permit"
	}
	for i, part := range all {
		suffix := ""
		if len(all) > 1 {
			suffix = fmt.Sprint("_", i+1)
		}
		if part.Slot > 0 {
			env = append(env, fmt.Sprintf("REDLOCK_SLOT%s=%d", suffix, part.Slot))
		} else {
			env = append(env, "REDLOCK_KEY"+suffix+"="+part.Key)
		}
		env = append(env, fmt.Sprintf("REDLOCK_FENCE%s=%d", suffix, part.Fence))
	}
	return append(env, fmt.Sprint("REDLOCK_TTL_MS=", r.ttl.Milliseconds()), "REDLOCK_MODE="+mode)
}
