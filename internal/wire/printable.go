package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns a text with each character that is not printable escaped as in a Go string:
// control characters, format characters such as those that reverse the direction of text, blanks
// other than U+0020, and bytes that are not UTF-8. What a client or a server has written could
// otherwise forge a line of a log or control a terminal. Of a text that it returned, Printable
// changes nothing.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, width := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[width:]
	}
	return b.String()
}

// Excerpt returns the beginning of a text, printable and at most so many bytes long. It ends in "..."
// if something was cut off.
func Excerpt(text string, most int) string {
	const dots = "..."
	text = Printable(text[:min(len(text), most+utf8.UTFMax)]) // Printable makes no text shorter
	if len(text) <= most {
		return text
	}
	end := most - len(dots)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + dots
}

// PrintableJSON returns a JSON text of the same meaning, in which each character that is not
// printable is escaped. Package json leaves some of them in its strings.
func PrintableJSON(text []byte) []byte {
	b := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch high, low := utf16.EncodeRune(r); {
		case r == '\n' || unicode.IsPrint(r): // a line feed is outside the strings
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}
