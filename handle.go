package redlock

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/wire"
)

// A Handle names an exclusive lease to other processes, which can adopt, extend or unlock the lease by it.
// [Lease.Handle] and [Lease.Detach] return one. Handles can be compared with ==. A Handle is no password, but a
// process that has it, and access to the masters, can end the lease: do not log it. Its text is one word, in a
// shell, too, which the command redlock prints and reads. The zero Handle names no lease, and its text is "".
type Handle struct {
	resource, token string
	fence           int64
}

// handleVersion begins the text of a Handle.
const handleVersion = "redlock1"

// Resource returns the name of the resource, or "" if the Handle is zero.
func (h Handle) Resource() string { return h.resource }

// Fence returns the fencing token of the lease when the Handle was made, see [Lease.Fence].
func (h Handle) Fence() int64 { return h.fence }

// String returns the text of the Handle.
func (h Handle) String() string {
	if h == (Handle{}) {
		return ""
	}
	word := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "~", "%7E") }
	return fmt.Sprintf("%s:%d:%s:%s", handleVersion, h.fence, word(h.token), word(h.resource))
}

// MarshalText implements [encoding.TextMarshaler]. The error is always nil.
func (h Handle) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. If text is not that of a Handle, the error matches [ErrConfig]. The
// error does not show the text.
func (h *Handle) UnmarshalText(text []byte) error {
	var read Handle
	plain, _ := url.QueryUnescape(string(text))
	switch words := strings.Split(string(text), ":"); {
	case len(words) == 4 && words[0] == handleVersion:
		read.fence, _ = strconv.ParseInt(words[1], 10, 64)
		read.token, _ = url.QueryUnescape(words[2])
		read.resource, _ = url.QueryUnescape(words[3])
	case wire.IsToken(plain): // earlier versions of the command printed it
		return reason.Configf("the text is a token, and no Handle")
	case len(words) > 1 && words[0] != handleVersion && strings.HasPrefix(words[0], "redlock"):
		return reason.Configf("the text is a Handle of another version of the library, and not of %s", handleVersion)
	}
	if read.String() != string(text) || len(text) > 0 && (!wire.IsToken(read.token) || read.fence < 1 || read.resource == "") {
		return reason.Configf("the text is no Handle")
	}
	*h = read
	return nil
}
