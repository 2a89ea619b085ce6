package fence

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Header is the name of the header that has tokens: for each lease its mode, its number and its
// resource, escaped as in a query. A comma separates leases.
//
//	Redlock-Fence: exclusive 1790000000000001 stock%3Aapple
const Header = "Redlock-Fence"

// AddHeader adds the tokens of leases to the header of a request. The service at the other end
// presents them to its store: see [FromHeader].
func AddHeader[L Lease](h http.Header, leases ...L) error {
	if h == nil {
		return in("AddHeader", isNil("header"))
	}
	tokens, err := tokensOf(leases)
	if err != nil {
		return in("AddHeader", err)
	}
	for _, t := range tokens {
		h.Add(Header, fmt.Sprintf("%s %d %s", t.mode(), t.fence, url.QueryEscape(t.resource)))
	}
	return nil
}

// FromHeader returns the token of a resource. The service names the resource that protects its data:
// a token of another one protects nothing. A header without exactly one token of the resource, or
// with what is no token, is an [ErrConfig]. The service believes its clients, as the masters do:
// the header is no credential.
func FromHeader(h http.Header, resource string) (Token, error) {
	found, err := parse(h, func(name string) bool { return name == resource })
	if err != nil {
		return Token{}, in(fmt.Sprintf("FromHeader: %q", resource), err)
	}
	return found[0], nil
}

// maxPermits is the largest number of permits of a semaphore. A client chooses how many a header has.
const maxPermits = 1000

// PermitsFromHeader returns the tokens of permits of a semaphore, whose resources are name~1 to
// name~1000: one or more of them, and one token of each. Each is compared with the tokens of its own
// permit. The errors are those of [FromHeader].
func PermitsFromHeader(h http.Header, name string) ([]Token, error) {
	found, err := parse(h, func(resource string) bool {
		number, ok := strings.CutPrefix(resource, name+"~")
		k, err := strconv.Atoi(number)
		return ok && err == nil && k > 0 && k <= maxPermits && strconv.Itoa(k) == number
	})
	if err != nil {
		return nil, in(fmt.Sprintf("PermitsFromHeader: %q", name), err)
	}
	return found, nil
}

// parse returns the tokens of the resources that are wanted: at least one, and one of each.
func parse(h http.Header, wanted func(resource string) bool) (found []Token, err error) {
	for _, text := range strings.Split(strings.Join(h.Values(Header), ","), ",") {
		var t Token
		mode, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
		number, name, _ := strings.Cut(rest, " ")
		fence, wrong := strconv.ParseInt(number, 10, 64)
		if wrong == nil {
			t.resource, wrong = url.QueryUnescape(name)
		}
		t.fence, t.shared = fence, mode == "shared"
		if wrong != nil || fence < 1 || t.resource == "" || mode != t.mode() {
			return nil, fmt.Errorf("%w: %s has no token: %.99q", ErrConfig, Header, text) // a client chooses how long it is
		}
		if wanted(t.resource) && !slices.Contains(found, t) { // or the same once more, as in a request that is sent again
			if slices.ContainsFunc(found, func(other Token) bool { return other.resource == t.resource }) {
				return nil, fmt.Errorf("%w: %s has several tokens of %q", ErrConfig, Header, t.resource)
			}
			found = append(found, t)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %s has no token of the resource", ErrConfig, Header)
	}
	return found, nil
}
