package results

import "testing"

func TestTable(t *testing.T) {
	table := Table{Head: []string{"who", "a", "b"}, Left: 1, Rows: [][]string{{"x", "1", "2"}, {"y", "3", "4"}}}
	want := "| who | a | b |\n|---|--:|--:|\n| x | 1 | 2 |\n| y | 3 | 4 |\n"
	if got := table.Markdown(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		text func(float64) string
		v    float64
		want string
	}{
		{number, 0, "0"}, {number, 5, "5"}, {number, 0.04567, "0.046"}, {number, 0.996, "1.00"},
		{number, 1.234, "1.23"}, {number, 9.996, "10.0"}, {number, 12.34, "12.3"}, {number, 99.96, "100"},
		{number, 123.4, "123"}, {number, 999.6, "1,000"}, {number, 1234, "1,230"}, {number, 1234567, "1,230,000"},
		{number, -1234, "-1,230"}, {number, -123456, "-123,000"},
		{micros, 0.25, "0.25 µs"}, {micros, 246, "246 µs"}, {micros, 999.6, "1.00 ms"}, {micros, 5033000, "5.03 s"}, {micros, 999900, "1.00 s"},
		{seconds, 1.5, "1.50 s"}, {percent, 12, "12 %"},
	} {
		if got := test.text(test.v); got != test.want {
			t.Errorf("%v: got %q, want %q", test.v, got, test.want)
		}
	}
}
