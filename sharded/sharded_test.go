package sharded_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/locktest"
	"github.com/d0720281/redlock/sharded"
)

// Groups get equal shares of the resources. A group that is added at the end takes its share from
// all others, and no other resource moves.
//
// Source: ALGORITHM section 8, "Groups".
func TestGroupOf(t *testing.T) {
	const resources = 20_000
	var before *sharded.Locker
	for k := 1; k <= 5; k++ {
		var groups [][]string
		for i := range k {
			groups = append(groups, []string{fmt.Sprintf("10.0.%d.1:6379", i)})
		}
		l, err := sharded.New(groups)
		locktest.Must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		groupOf := func(l *sharded.Locker, r string) int { return slices.Index(l.Groups(), l.GroupOf(r)) }
		share := make([]int, k)
		for i := range resources {
			r := fmt.Sprint("resource:", i)
			group := groupOf(l, r)
			share[group]++
			if k > 1 && group != k-1 && group != groupOf(before, r) {
				t.Fatalf("%d groups: %q moved from group %d to group %d, which is not new", k, r, groupOf(before, r), group)
			}
		}
		for i, n := range share {
			if want := resources / k; n < want*95/100 || n > want*105/100 {
				t.Errorf("%d groups: group %d has %d resources, want about %d", k, i, n, want)
			}
		}
		before = l
	}
	if before.Groups()[0] = nil; before.Groups()[0] == nil {
		t.Error("Groups: got the list of the Locker itself")
	}
	got := ""
	for i := range 40 { // all clients must agree, whatever their version
		got += fmt.Sprint(slices.Index(before.Groups(), before.GroupOf(fmt.Sprint("resource:", i))))
	}
	if want := "0312014101033113332312244102231242322410"; got != want {
		t.Errorf("got the groups %s, want %s", got, want)
	}
}

// Groups that cannot work are refused before any master is asked, with the number of the group.
func TestGroupsRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		groups [][]string
		want   string
	}{
		{"no group", nil, "no groups"},
		{"an empty group", [][]string{{"a:1"}, {}}, "group 2: invalid configuration: no masters"},
		{"a wrong address", [][]string{{"a:1"}, {"b"}}, "group 2: invalid configuration: master 1: no port"},
		{"a wrong address in the first group", [][]string{{"b"}, {"a:1"}}, "group 1: invalid configuration: master 1: no port"},
		{"one group with a wrong address", [][]string{{"b"}}, "redlock: invalid configuration: master 1: no port"},
		{"a master twice in a group", [][]string{{"a:1"}, {"b:1", "b:1"}}, "group 2: invalid configuration: master 2 has the address of master 1"},
		{"a master in two groups", [][]string{{"a:1", "b:1"}, {"c:1", "b:1"}}, "b:1 is in group 1 and in group 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := sharded.New(test.groups)
			if !errors.Is(err, redlock.ErrConfig) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that matches ErrConfig, with %q", err, test.want)
			}
		})
	}
	if _, err := sharded.New([][]string{{"a:1"}, {"b:1"}}, nil); err == nil || !strings.Contains(err.Error(), "option 1 is nil") {
		t.Errorf("a nil option: got %v, want its number", err)
	}
	odd := &redis.Options{Addr: " /run/a b@c%?#"} // a path is no URL
	if l, err := sharded.NewFromOptions([][]*redis.Options{{odd}, {{Network: "unix", Addr: "/run/b"}}}); err != nil {
		t.Errorf("the paths of sockets: got %v, want them accepted", err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := sharded.NewFromOptions([][]*redis.Options{{nil}}); !errors.Is(err, redlock.ErrConfig) {
		t.Errorf("a master without options: got %v, want an error that matches ErrConfig", err)
	}
}
