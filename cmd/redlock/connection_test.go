package main

import (
	"reflect"
	"testing"
)

// Commas stand between masters.
func TestList(t *testing.T) {
	for given, want := range map[string][]string{
		"a:1":                    {"a:1"},
		"a:1,b:1,c:1":            {"a:1", "b:1", "c:1"},
		"redis://u:p,q,@a:1,b:1": {"redis://u:p,q,@a:1", "b:1"},
		"a:1,\n b:1\n":           {"a:1", "b:1"},
	} {
		c := connection{masters: []string{given}}
		if got, err := c.list(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, %v; want %q", given, got, err, want)
		}
	}
	t.Setenv(mastersEnv, "a:1")
	for _, list := range []string{"", ",", "a:1,,b:1", "a:1,b:1,", ",a:1"} {
		if got, err := (&connection{masters: []string{list}}).list(); err == nil {
			t.Errorf("%q: got %q, want an error", list, got)
		}
	}
	t.Setenv(mastersEnv, "")
	if got, err := (&connection{}).list(); err == nil {
		t.Errorf("no masters: got %q, want an error", got)
	}
}
