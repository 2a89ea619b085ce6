package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestCommand(t *testing.T) {
	b := AppendCommand(nil, 5)
	b = AppendString(b, "SET")
	b = AppendString(b, "a\r\nb")
	b = AppendString(b, "")
	b = AppendInt(b, -9223372036854775808)
	b = AppendJoined(b, "a", "|", 10, " z")
	want := "*5\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n$20\r\n-9223372036854775808\r\n$6\r\na|10 z\r\n"
	if string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
}

// replies is what servers send, and what it means.
var replies = []struct {
	text string
	want any
}{
	{"+OK\r\n", "OK"},
	{"+\r\n", ""},
	{"-ERR no\r\n", Error("ERR no")},
	{":0\r\n", int64(0)},
	{":-9223372036854775808\r\n", int64(-9223372036854775808)},
	{":9223372036854775807\r\n", int64(9223372036854775807)},
	{"$0\r\n\r\n", ""},
	{"$4\r\na\r\nb\r\n", "a\r\nb"},
	{"$-1\r\n", nil},
	{"*-1\r\n", nil},
	{"*0\r\n", []any{}},
	{"*3\r\n:1\r\n$1\r\na\r\n-ERR in it\r\n", []any{int64(1), "a", Error("ERR in it")}},
	{"*2\r\n*1\r\n:1\r\n*2\r\n$-1\r\n*0\r\n", []any{[]any{int64(1)}, []any{nil, []any{}}}},
	{fmt.Sprintf("$%d\r\n%s\r\n", MaxBulk, strings.Repeat("x", MaxBulk)), strings.Repeat("x", MaxBulk)},
	{fmt.Sprintf("*%d\r\n%s", MaxArray, strings.Repeat(":7\r\n", MaxArray)), slices.Repeat([]any{int64(7)}, MaxArray)},
	{"-" + strings.Repeat("x", 9*MaxLine) + "\r\n", NewError(strings.Repeat("x", MaxLine-1))},
	{"+" + strings.Repeat("x", MaxLine-2) + "\r\n", strings.Repeat("x", MaxLine-2)},
}

// garbage is what no server should send: among it the lengths that a reader which believes
// them panics by, or runs out of memory.
var garbage = []string{
	"$9223372036854775800\r\n", "$2147483647000\r\n", "*9223372036854775807\r\n", "*2147483647\r\n",
	fmt.Sprintf("$%d\r\n", MaxBulk+1), fmt.Sprintf("*%d\r\n", MaxArray+1),
	"$1\r\nax\n", "$1\r\na\rx", "$-2\r\n", "*-2\r\n", "$\r\n", "$x\r\n", "$1x\r\n", "$ 1\r\n", "$99999999999999999999\r\n", ":\r\n", ":1.5\r\n", ":9223372036854775808\r\n", ":-\r\n",
	"x\r\n", "\r\n", "\n", "+OK\n", "%1\r\n+a\r\n+b\r\n", ">1\r\n+a\r\n", "_\r\n", "#t\r\n", ",1.5\r\n",
	"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "+" + strings.Repeat("x", 2*MaxLine) + "\r\n", strings.Repeat("x", 2*MaxLine), "-" + strings.Repeat("x", MaxBulk+1),
}

// pieces is a text as it may arrive.
func pieces(text string) map[string]io.Reader {
	return map[string]io.Reader{
		"whole":        strings.NewReader(text),
		"byte by byte": iotest.OneByteReader(strings.NewReader(text)),
		"by halves":    iotest.HalfReader(strings.NewReader(text)),
	}
}

func TestReader(t *testing.T) {
	for _, test := range replies {
		for how, from := range pieces(test.text + "$4\r\nnext\r\n") {
			r := NewReader(from)
			got, err := r.Value()
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%.40q %s: got %.40v, %v, want %.40v", test.text, how, got, err, test.want)
			}
			if next, err := r.Value(); err != nil || next != "next" {
				t.Errorf("%.40q %s: then got %v, %v, want the next reply", test.text, how, next, err)
			}
			if _, err := r.Value(); err != io.EOF || r.Buffered() {
				t.Errorf("%.40q %s: at the end got %v", test.text, how, err)
			}
		}
	}
	for _, text := range garbage {
		for how, from := range pieces(text + strings.Repeat("\r\n", 8)) {
			if got, err := NewReader(from).Value(); !errors.Is(err, ErrProtocol) {
				t.Errorf("%.40q %s: got %.40v, %v, want ErrProtocol", text, how, got, err)
			}
		}
	}
	const many = 10_000
	r := NewReader(iotest.OneByteReader(strings.NewReader(strings.Repeat("+OK\r\n", many))))
	for range many {
		if got, err := r.Value(); err != nil || got != "OK" {
			t.Fatalf("one of many replies: got %v, %v", got, err)
		}
	}
	if len(r.buf) > 4<<10 {
		t.Errorf("after many short replies: got a buffer of %d bytes, want it to stay as it was", len(r.buf))
	}
}

// Nothing makes the reader panic, and it ends.
func FuzzReader(f *testing.F) {
	for _, test := range replies {
		if len(test.text) < 1000 {
			f.Add([]byte(test.text))
		}
	}
	for _, text := range garbage {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for {
			_, err := r.Value()
			if errors.Is(err, io.EOF) || errors.Is(err, ErrProtocol) {
				return
			} else if err != nil {
				t.Fatalf("%q: got %v, want the end or ErrProtocol", b, err)
			}
		}
	})
}
