package adoption

import (
	"testing"

	"github.com/d0720281/redlock/chaos/model/searchtest"
)

var none [most]int // extensions

func of(adopters int, change func(c *Config)) Config {
	c := Default(adopters)
	change(&c)
	return c
}

func TestSound(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
	}{
		{"an adopter", Default(1)},
		{"an adopter that does not know the fencing token", of(1, func(c *Config) { c.Fence = false })},
		{"an adopter with a longer TTL", of(1, func(c *Config) { c.TTL[1] = 3 })},
		{"an adopter with a shorter TTL", of(1, func(c *Config) { c.TTL[0], c.TTL[1], c.Void = 3, 1, 5 })},
		{"an adopter, a late acquire", of(1, func(c *Config) { c.Late, c.Extensions = true, none })},
		{"an adopter, the former holder extends twice", of(1, func(c *Config) {
			c.TTL[0], c.Void, c.Extensions, c.Releases, c.NoOutsider = 3, 5, [most]int{2}, [most]bool{1: true}, true
		})},
		{"an adopter that takes any key of the former holder", of(1, func(c *Config) {
			c.AnyValue, c.Extensions = true, [most]int{1}
		})},
		{"a release by token, the former holder extends twice", of(1, func(c *Config) {
			c.ByToken, c.NoOutsider, c.Extensions[0] = true, true, 2
		})},
		{"two adopters, no extension", of(2, func(c *Config) { c.Extensions = none })},
		{"two adopters, the former holder extends", of(2, func(c *Config) {
			c.NoOutsider, c.Extensions, c.Releases = true, [most]int{1}, [most]bool{1: true}
		})},
		{"two adopters that extend", of(2, func(c *Config) { c.NoOutsider, c.Extensions[0], c.Releases = true, 0, [most]bool{false, true, true} })},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Sound(t, test.Model()) })
	}
}

// Without any one of the rules the search finds a fault.
func TestControls(t *testing.T) {
	for _, test := range []struct {
		name string
		Config
		want string
	}{
		{"one id for both, the former holder releases", of(1, func(c *Config) {
			c.SharedID, c.Extensions, c.Releases = true, none, [most]bool{true}
		}), TwoHolders},
		{"one id for both, the adopter releases", of(1, func(c *Config) {
			c.SharedID, c.Releases = true, [most]bool{1: true}
		}), FalseEvidence},
		{"no id is void", of(1, func(c *Config) { c.KeepWhereTaken, c.KeepWhereGone = true, true }), VoidActs},
		{"the former id is not void where the key was taken over", of(1, func(c *Config) {
			c.KeepWhereTaken, c.Releases = true, [most]bool{1: true}
		}), FalseEvidence},
		{"the former id is not void where the key is gone", of(1, func(c *Config) { c.KeepWhereGone = true }), VoidActs},
		{"a release by token does not make the id void", of(1, func(c *Config) {
			c.ByToken, c.NoOutsider, c.KeepWhereTaken = true, true, true
		}), FalseEvidence},
		{"the former id is void for a TTL", of(1, func(c *Config) { c.Void, c.Releases = 2, [most]bool{} }), VoidActs},
		{"the former id is void for a TTL and notAfter", of(1, func(c *Config) {
			c.TTL[0], c.Void, c.Extensions, c.Releases, c.NoOutsider = 3, 4, [most]int{2}, [most]bool{}, true
		}), VoidActs},
		{"adoption shortens the life of a key", of(1, func(c *Config) {
			c.Shortens, c.TTL, c.Void, c.Extensions = true, [most]int{3, 1, 2}, 5, none
		}), TwoHolders},
		{"an adoption that failed releases", of(1, func(c *Config) { c.FailedReleases, c.Extensions = true, none }), TwoHolders},
		{"adoption takes a missing key", of(1, func(c *Config) {
			c.TakesMissing, c.VotesUnread, c.Extensions = true, true, none
		}), NotAlone},
		{"adoption takes a missing key, two adopters", of(2, func(c *Config) {
			c.TakesMissing, c.VotesUnread, c.Extensions, c.Releases = true, true, none, [most]bool{1: true}
		}), TwoAdoptions},
		{"adoption takes any key", of(1, func(c *Config) { c.NoExclusion, c.VotesUnread, c.Extensions = true, true, none }), TwoHolders},
		{"adoption keeps the counter", of(1, func(c *Config) { c.KeepsCounter, c.Extensions = true, none }), OldToken},
		{"the look is content with the keys", of(1, func(c *Config) {
			c.KeysAlone, c.Extensions, c.Releases = true, [most]int{1}, [most]bool{2: true}
		}), NotAlone},
		{"the votes are not looked at", of(1, func(c *Config) {
			c.VotesUnread, c.Extensions, c.Releases = true, [most]int{1}, [most]bool{2: true}
		}), NotAlone},
		{"the votes are not looked at, nor the values that were seen", of(1, func(c *Config) {
			c.AnyValue, c.VotesUnread, c.Extensions, c.Releases = true, true, [most]int{1}, [most]bool{2: true}
		}), NotAlone},
		{"a late grant counts as that of the lease", of(1, func(c *Config) {
			c.AnyGrant, c.Late, c.Extensions, c.Releases = true, true, none, [most]bool{true, false, true}
		}), NotAlone},
		{"a late grant, and adopters that do not know the fencing token", of(1, func(c *Config) {
			c.Fence, c.Late, c.Extensions, c.Releases = false, true, none, [most]bool{true, false, true}
		}), NotAlone},
		{"an acquire that comes twice", of(1, func(c *Config) {
			c.Late, c.Twice, c.Extensions, c.Releases = true, true, [most]int{1}, [most]bool{1: true}
		}), Revived},
	} {
		t.Run(test.name, func(t *testing.T) { searchtest.Breaks(t, test.Model(), test.want) })
	}
}
