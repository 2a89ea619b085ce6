package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"größe 東京 🔒 \\ \" ' \ufffd": "größe 東京 🔒 \\ \" ' \ufffd",
		"\x1b]0;pwned\x07":          `\x1b]0;pwned\a`,
		"a\r\nb\tc\x00\x7f":         `a\r\nb\tc\x00\x7f`,
		"\u009b31m\u202eevil\u2066": `\u009b31m\u202eevil\u2066`,
		"\ufeff\u00ad\u2028\u3000":  `\ufeff\u00ad\u2028\u3000`,
		"\xff\xef\xbf.\xc3":         `\xff\xef\xbf.\xc3`,
		"\U000e0041":                `\U000e0041`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("Printable(%q) = %q, want %q", text, got, want)
		}
	}
}

// Excerpt cuts between two characters, and JSON keeps its meaning.
func FuzzPrintable(f *testing.F) {
	f.Add("größe\x1b]0;\u009b\u202e\xff\uffff\U000e0041\r\n", 9)
	f.Add("8 bytes.", 1)               // as long as it may be
	f.Add(strings.Repeat("東", 30), 21) // cut inside a character
	f.Add(strings.Repeat("東", 30), 20)
	f.Fuzz(func(t *testing.T, text string, most int) {
		const least = len("...") + utf8.UTFMax
		most = least + max(most, -most, 0)%100
		whole, part := Printable(text), Excerpt(text, most)
		for _, s := range []string{whole, part} {
			if !isClean(s) || Printable(s) != s {
				t.Errorf("%q became %q", text, s)
			}
		}
		if len(part) > most || part != whole && (len(whole) <= most || !strings.HasSuffix(part, "...")) || !strings.HasPrefix(whole, strings.TrimSuffix(part, "...")) {
			t.Errorf("Excerpt(%q, %d) = %q", text, most, part)
		}
		was, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		is := PrintableJSON(was)
		if err := json.Unmarshal(was, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(is, &after); err != nil || after != before || !isClean(string(is)) {
			t.Errorf("%s became %s: %v", was, is, err)
		}
	})
}

func isClean(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
