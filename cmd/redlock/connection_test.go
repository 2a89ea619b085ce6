package main

import (
	"reflect"
	"testing"
)

// Commas stand between masters, and a slash between groups of masters. A slash of a URL is no such
// slash.
func TestGroups(t *testing.T) {
	for given, want := range map[string][][]string{
		"a:1":                        {{"a:1"}},
		"a:1,b:1,c:1":                {{"a:1", "b:1", "c:1"}},
		"a:1,b:1/c:1,d:1":            {{"a:1", "b:1"}, {"c:1", "d:1"}},
		"a:1 , b:1 / c:1 , d:1":      {{"a:1", "b:1"}, {"c:1", "d:1"}},
		"a:1/b:1/c:1":                {{"a:1"}, {"b:1"}, {"c:1"}},
		"[::1]:1/[::1]:2":            {{"[::1]:1"}, {"[::1]:2"}},
		"redis://a:1/0":              {{"redis://a:1/0"}},
		"redis://u:p@a:1":            {{"redis://u:p@a:1"}},
		"redis://u:p,q,@a:1,b:1":     {{"redis://u:p,q,@a:1", "b:1"}},
		"redis://u:p/q:r@a:1/b:1":    {{"redis://u:p/q:r@a:1"}, {"b:1"}},
		"a:1/REDIS://b:1":            {{"a:1"}, {"REDIS://b:1"}},
		"redis://u:p@a:1/0/b:1":      {{"redis://u:p@a:1/0"}, {"b:1"}},
		"redis://a:1/redis://b:1/3":  {{"redis://a:1"}, {"redis://b:1/3"}},
		"rediss://a:1/b:1,redis://c": {{"rediss://a:1"}, {"b:1", "redis://c"}},
		"a:1/unix:///run/redis/x.s":  {{"a:1"}, {"unix:///run/redis/x.s"}},
		"unix:///run/a:1/x":          {{"unix:///run/a:1/x"}},
		"unix:///run/x/redis://b:1":  {{"unix:///run/x"}, {"redis://b:1"}},
		"a:1,\n b:1 /\n c:1,d:1\n":   {{"a:1", "b:1"}, {"c:1", "d:1"}},
		"redis://a:1/0?db=2,a:6":     {{"redis://a:1/0?db=2", "a:6"}},
		"a:1/redis://b:1?db=2/c:1":   {{"a:1"}, {"redis://b:1?db=2"}, {"c:1"}},
	} {
		c := connection{masters: []string{given}}
		if got, err := c.groups(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, %v; want %q", given, got, err, want)
		}
	}
	t.Setenv(mastersEnv, "a:1")
	for _, list := range []string{"", ",", "a:1,,b:1", "a:1,b:1,", ",a:1", "a:1/b:1,"} {
		if got, err := (&connection{masters: []string{list}}).groups(); err == nil {
			t.Errorf("%q: got %q, want an error", list, got)
		}
	}
	t.Setenv(mastersEnv, "")
	if got, err := (&connection{}).groups(); err == nil {
		t.Errorf("no masters: got %q, want an error", got)
	}
}
