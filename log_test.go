package redlock

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Several observers are told, in order, of everything; where none wants to know there is no
// callback, so that nothing is found out for nobody.
func TestObservers(t *testing.T) {
	var got []string
	all := func(name string) (o Observer) {
		v := reflect.ValueOf(&o).Elem()
		for i := range v.NumField() {
			field := v.Type().Field(i).Name
			switch f := v.Field(i).Addr().Interface().(type) {
			case *func(Event):
				*f = func(e Event) { got = append(got, name+" "+field+" "+e.Node) }
			case *func(int):
				*f = func(n int) { got = append(got, fmt.Sprint(name, " ", field, " ", n)) }
			}
		}
		return o
	}
	both := reflect.ValueOf(Observers(all("a"), Observer{}, all("b")))
	for i := range both.NumField() {
		field := both.Type().Field(i).Name
		if both.Field(i).IsNil() {
			t.Errorf("%s: got no callback, want one", field)
			continue
		}
		got = nil
		arg, told := reflect.ValueOf(Event{Node: "n"}), "n"
		if field == "Dropped" {
			arg, told = reflect.ValueOf(3), "3"
		}
		both.Field(i).Call([]reflect.Value{arg})
		if want := []string{"a " + field + " " + told, "b " + field + " " + told}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", field, got, want)
		}
	}
	none := reflect.ValueOf(Observers(Observer{}, Observer{}))
	for i := range none.NumField() {
		if !none.Field(i).IsNil() {
			t.Errorf("%s of none: got a callback, want nil", none.Type().Field(i).Name)
		}
	}
}

func TestLogObserver(t *testing.T) {
	e := Event{Resource: "r", Fence: 7, Node: "10.0.0.1:6379", Err: ErrTaken}
	down := e
	down.Err = ErrNoQuorum
	for _, test := range []struct {
		name string
		say  func(Observer)
		want string
	}{
		{"acquired", func(o Observer) { o.Acquired(e) }, `level=DEBUG msg="redlock: acquired" resource=r fence=7`},
		{"taken", func(o Observer) { o.NotAcquired(e) }, `level=DEBUG msg="redlock: not acquired" resource=r`},
		{"no quorum", func(o Observer) { o.NotAcquired(down) }, `level=WARN msg="redlock: not acquired" resource=r`},
		{"extended", func(o Observer) { o.Extended(e) }, `level=DEBUG msg="redlock: extended" resource=r fence=7`},
		{"extend failed", func(o Observer) { o.ExtendFailed(down) }, `level=WARN msg="redlock: extension failed" resource=r`},
		{"lost", func(o Observer) { o.Lost(e) }, `level=WARN msg="redlock: lease lost" resource=r fence=7`},
		{"released", func(o Observer) { o.Released(e) }, `level=DEBUG msg="redlock: released" resource=r`},
		{"down", func(o Observer) { o.NodeDown(down) }, `level=WARN msg="redlock: master is down" node=10.0.0.1:6379`},
		{"up", func(o Observer) { o.NodeUp(e) }, `level=INFO msg="redlock: master is up again" node=10.0.0.1:6379`},
		{"forgot", func(o Observer) { o.NodeForgot(e) }, `level=WARN msg="redlock: master has lost a key" node=10.0.0.1:6379 resource=r`},
		{"quarantined", func(o Observer) { o.Quarantined(e) }, `level=WARN msg="redlock: master has no vote for a time"`},
		{"dropped", func(o Observer) { o.Dropped(3) }, `level=WARN msg="redlock: events were dropped" count=3`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			test.say(LogObserver(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
			if _, got, _ := strings.Cut(strings.TrimSpace(out.String()), " "); !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q, want it to begin with %q", got, test.want)
			}
		})
	}
	o := LogObserver(nil)
	if o.Warning != nil || o.ClockStepped != nil || o.StoodStill != nil {
		t.Error("got callbacks for what the logger of WithLogger has been told, want none")
	}
}
