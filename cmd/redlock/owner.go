package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/d0720281/redlock"
)

// ownerFlag is the flag --owner: by which label redlock status shows the holder.
type ownerFlag struct{ label string }

func (o *ownerFlag) register(f *pflag.FlagSet) {
	f.StringVar(&o.label, "owner", "", "`label` of the holder, which redlock status shows; by default host:pid:command")
}

// option returns the option for the label. By default that is the host, a process and its command.
func (o *ownerFlag) option(pid int, command string) redlock.Option {
	if o.label != "" {
		return redlock.WithOwner(o.label)
	}
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return redlock.WithOwner(asLabel(fmt.Sprintf("%s:%d:%s", cmp.Or(host, "?"), pid, command)))
}

// asLabel makes a label of a text: it replaces what a label cannot have, and cuts the end off.
func asLabel(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == '|' || r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(text, "_"))
	for len(text) > redlock.MaxOwnerLength {
		runes := []rune(text)
		text = string(runes[:len(runes)-1])
	}
	return text
}
