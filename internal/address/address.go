// Package address reads the addresses of masters, and checks what can be checked without asking a master.
//
// A text that is no valid address may have a password at any place. So an error has the number of
// the master in the list, and no part of the text. Only a valid address is ever shown.
package address

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock/internal/node"
	"github.com/d0720281/redlock/internal/reason"
)

// NeedPasswords returns an error if a URL has a user name alone, which is a password without its
// colon more often than the name of a user without a password.
func NeedPasswords(masters []*redis.Options) error {
	for i, o := range masters {
		if o.Username != "" && o.Password == "" {
			return reason.Configf("master %d: a user name without a password: write redis://user:password@host, or redis://:password@host for a password alone; "+
				"for a user that needs none give options", i+1)
		}
	}
	return nil
}

// Parse reads addresses in the forms that New takes.
func Parse(texts []string) ([]*redis.Options, error) {
	masters := make([]*redis.Options, len(texts))
	for i, text := range texts {
		var err error
		if masters[i], err = parseMaster(strings.TrimSpace(text)); err != nil {
			return nil, reason.Configf("master %d: %v", i+1, err)
		}
	}
	return masters, nil
}

func parseMaster(text string) (*redis.Options, error) {
	_, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		return &redis.Options{Network: "tcp", Addr: text}, checkHostPort(text)
	}
	o, err := parseURL(text)
	switch {
	case err == nil:
		return o, nil
	case isList(text):
		return nil, errors.New("two addresses in one URL: give them as two strings")
	}
	if strings.HasPrefix(strings.ToLower(text), "unix:") {
		err = fmt.Errorf("%w; the characters %s of a path must be percent-encoded", err, spaced(encodedInPath))
	}
	if strings.Contains(rest, "@") {
		err = fmt.Errorf("%w; the characters %s and blanks of a password must be percent-encoded (/ is %%2F), and in a user name the colon, too", err, spaced(encodedInPassword))
	}
	return nil, err
}

// The printable characters of ASCII that a URL has in percent-encoding alone.
const (
	encodedInPassword = "\"#%/<>?[\\]^`{|}" // and a blank
	encodedInPath     = "#%?@"              // of a socket
)

// spaced returns characters with blanks between them.
func spaced(chars string) string { return strings.Join(strings.Split(chars, ""), " ") }

// urlParameters are the parameters that a URL may have.
var urlParameters = []string{"client_name", "db", "skip_verify"}

// parseURL is redis.ParseURL, but for what that leaves out, replaces or leaves to the server in
// silence. It reads no parameter that the library does not use.
func parseURL(text string) (*redis.Options, error) {
	u, err := url.Parse(text)
	if err != nil { // which quotes the text
		return nil, errors.New("not a valid URL: write redis://user:password@host:6379/0")
	}
	o := &redis.Options{Network: "tcp"}
	scheme, _, _ := strings.Cut(text, "://")
	switch strings.ToLower(scheme) { // and not u.Scheme: in unix:/a://b the slashes are in the path
	case "redis", "valkey":
	case "rediss", "valkeys":
		o.TLSConfig = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	case "unix":
		o.Network = "unix"
	default:
		return nil, errors.New("unknown scheme: a URL begins with redis://, with rediss:// for TLS, or with unix:// for a socket")
	}
	if u.User != nil {
		o.Username = u.User.Username()
		if o.Password, _ = u.User.Password(); o.Username+o.Password == "" {
			return nil, errors.New("the user name and the password before the @ are empty: write user:password, or leave the @ out")
		}
	}
	if strings.Contains(text, "#") || strings.Contains(u.EscapedPath()+u.RawQuery, "@") {
		return nil, errors.New("there is a # in the URL, or an @ behind the host")
	}
	database := ""
	if o.Network == "unix" {
		if u.Host != "" {
			return nil, errors.New("the path of a unix:// URL must begin with a third slash: unix:///run/redis.sock")
		}
		if o.Addr = u.Path; strings.TrimSpace(o.Addr) != o.Addr {
			return nil, errors.New("the path of the socket must not end with a blank")
		}
	} else {
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		if o.Addr = net.JoinHostPort(u.Hostname(), port); strings.HasSuffix(u.Host, ":") {
			return nil, errors.New("no port behind the colon: write redis://host:6379")
		}
		if err := checkHostPort(o.Addr); err != nil {
			return nil, err
		}
		database = strings.Trim(u.Path, "/")
	}
	return o, useParameters(o, u.RawQuery, database)
}

// useParameters reads the parameters of a URL, and the database from its path.
func useParameters(o *redis.Options, query, database string) error {
	values, err := url.ParseQuery(query)
	if err != nil { // which quotes the parameter
		return errors.New("the parameters behind the ? are not valid: write ?db=1&client_name=worker")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name][0]
		switch {
		case !slices.Contains(urlParameters, name):
			return fmt.Errorf("%s has no effect: only %s have", quoteParameter(name), strings.Join(urlParameters, ", "))
		case len(values[name]) > 1 || value == "":
			return fmt.Errorf("the parameter %s must have one value", name)
		case name == "client_name":
			o.ClientName = value
		case name == "db" && database != "":
			return errors.New("the database is behind the slash and in the parameter db: leave one out")
		case name == "db":
			database = value
		case o.TLSConfig == nil:
			return errors.New("the parameter skip_verify is for rediss:// alone")
		case !slices.Contains([]string{"true", "1", "false", "0"}, value):
			return errors.New("the parameter skip_verify must be true or false")
		default:
			o.TLSConfig.InsecureSkipVerify = value == "true" || value == "1"
		}
	}
	if database == "" {
		return nil
	}
	var ok bool
	if o.DB, ok = number(database); !ok {
		return errors.New("the database must be a number from 0 on: write redis://host:6379/1 or ?db=1")
	}
	return nil
}

// quoteParameter names a parameter if go-redis knows it. Any other may be part of a password.
func quoteParameter(name string) string {
	if _, err := redis.ParseURL("redis://host?" + url.QueryEscape(name) + "="); err != nil {
		return "a parameter of the URL"
	}
	return "the parameter " + strconv.Quote(name)
}

// number reads a number without sign and leading zeros.
func number(text string) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == text
}

// isList reports whether a text that is no address is a list of addresses.
func isList(text string) bool {
	text, _, _ = strings.Cut(text, "?")
	parts := strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(",;|", c) || unicode.IsSpace(c) })
	for _, part := range parts {
		err := checkHost(part)
		if strings.Contains(part, "://") {
			_, err = parseURL(part)
		} else if err != nil {
			part, _, _ = strings.Cut(part, "/")
			err = hostPortError(part)
		}
		if err != nil {
			return false
		}
	}
	return len(parts) > 1
}

// checkHostPort returns an error if a text is not host:port.
func checkHostPort(text string) error {
	err := hostPortError(text)
	switch {
	case err == nil:
		return nil
	case text == "":
		return errors.New("no address: write host:6379, or a redis://, rediss:// or unix:// URL")
	case strings.Contains(text, "://"):
		return errors.New("the address is a URL: give it to New, or read it by redis.ParseURL")
	case isList(text):
		return errors.New("two addresses in one text: give them as two strings")
	case strings.Contains(text, "="):
		return errors.New("not host:port, but like the settings of another client: write redis://user:password@host:6379/0")
	case strings.Contains(text, "@"):
		return errors.New("a user name or a password needs a URL: write redis://user:password@host:6379")
	case strings.HasPrefix(text, "/"):
		return errors.New("the path of a socket needs a URL: write unix:///run/redis.sock")
	}
	return err
}

// hostPortError is checkHostPort without a guess at what the text is.
func hostPortError(text string) error {
	host, port, err := net.SplitHostPort(text)
	switch n, ok := number(port); {
	case err != nil && !strings.Contains(text, ":"):
		return errors.New("no port: write host:6379")
	case err != nil || host != "" && net.JoinHostPort(host, port) != text:
		return errors.New("must be host:port, with brackets around an IPv6 address alone: write host:6379 or [::1]:6379")
	case !ok || n < 1 || n > 65535:
		return errors.New("the port must be a number from 1 to 65535: write host:6379")
	}
	return checkHost(host)
}

// checkHost returns an error if no host can have the name.
func checkHost(host string) error {
	if host == "" {
		return errors.New("no host: write host:6379, or redis://host:6379")
	}
	ip, err := netip.ParseAddr(host)
	looksLikeIP := strings.Contains(host, ":") || strings.Contains(host, ".") && strings.Trim(host, "0123456789.") == ""
	switch name := strings.TrimSuffix(host, "."); {
	case err == nil && (ip.Zone() == "" || isName(ip.Zone())):
		return nil
	case looksLikeIP:
		return errors.New("the host is not a valid IP address: write 10.0.0.1:6379 or [::1]:6379")
	case !isName(name):
		return errors.New("not a valid host: a name has letters, digits, - and _, with single dots between")
	}
	return nil
}

// isName reports whether a text has the form of a host's name. An international name has it with
// xn--.
func isName(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			return false
		}
	}
	return len(text) <= 253
}

// checkSocket returns an error if a text cannot be the path of a socket.
func checkSocket(path string) error {
	most := 107
	switch runtime.GOOS {
	case "darwin", "ios", "dragonfly", "freebsd", "netbsd", "openbsd":
		most = 103
	}
	switch {
	case !strings.HasPrefix(path, "/") && !filepath.IsAbs(path):
		return errors.New("the path of a socket must be absolute, because it is the name of the master for all clients: write unix:///run/redis.sock")
	case strings.HasSuffix(path, "/"):
		return errors.New("the path of the socket is that of a directory")
	case strings.ContainsFunc(path, func(c rune) bool { return !unicode.IsPrint(c) }) || !utf8.ValidString(path):
		return errors.New("the path of the socket has a character that cannot be printed")
	case len(path) > most:
		return fmt.Errorf("the path of the socket has %d bytes: the system allows %d", len(path), most)
	}
	return nil
}

// Check returns the options that the library uses. The error says what is wrong with the
// list, as far as that can be told without asking a master.
func Check(masters []*redis.Options) ([]redis.Options, error) {
	if len(masters) == 0 {
		return nil, reason.Configf("no masters: give the address of at least one")
	}
	seen := make(map[string]int, len(masters))
	list := make([]redis.Options, len(masters))
	for i, m := range masters {
		if m == nil {
			return nil, reason.Configf("master %d: options are nil", i+1)
		}
		list[i] = usedOf(m)
		if err := checkMaster(&list[i]); err != nil {
			return nil, reason.Configf("master %d: %v", i+1, err)
		}
		server := list[i]
		server.DB = 0 // two databases of one server are no two masters
		member := node.Members([]redis.Options{server})
		if first, twice := seen[member]; twice {
			hint := ""
			if m.Dialer != nil { // every Sentinel client has the Addr FailoverClient
				hint = "; if each has a Dialer to a master of its own, give each an Addr of its own, in a copy of the options"
			}
			return nil, reason.Configf("master %d has the address of master %d, %s: a quorum needs independent masters%s", i+1, first, list[i].Addr, hint)
		}
		seen[member] = i + 1
	}
	return list, nil
}

// checkMaster returns an error if no connection can come of the options.
func checkMaster(o *redis.Options) error {
	var err error
	switch {
	case o.Network == "unix":
		err = checkSocket(o.Addr)
	case o.Dialer != nil && checkHost(o.Addr) == nil: // a name that the dialer knows
	case o.Dialer != nil || slices.Contains([]string{"tcp", "tcp4", "tcp6"}, o.Network):
		if err = checkHostPort(o.Addr); err == nil && o.Dialer == nil {
			err = checkFamily(o.Network, o.Addr)
		}
	default:
		err = errors.New("the field Network must be tcp, tcp4, tcp6 or unix")
	}
	switch {
	case err != nil:
		return err
	case o.DB < 0:
		return errors.New("the database is negative: numbers begin with 0")
	case strings.ContainsFunc(o.ClientName, func(c rune) bool { return c < '!' || c > '~' }):
		return errors.New("the client name must have printable ASCII characters, without blanks")
	}
	return nil
}

// checkFamily returns an error if a network cannot reach an IP address.
func checkFamily(network, addr string) error {
	ip, err := netip.ParseAddrPort(addr)
	if err == nil && network != "tcp" && ip.Addr().Unmap().Is4() != (network == "tcp4") {
		return errors.New("the field Network is " + network + ", and the address is of the other family: write tcp")
	}
	return nil
}

// usedOf returns the options that the library uses, as [NewFromOptions] lists them. The others are
// about retries, time-outs, pools and caches, which would be wrong for a lock.
func usedOf(o *redis.Options) redis.Options {
	used := redis.Options{
		Network:                      o.Network,
		Addr:                         strings.TrimSpace(o.Addr),
		Dialer:                       o.Dialer,
		TLSConfig:                    o.TLSConfig,
		ClientName:                   o.ClientName,
		Username:                     o.Username,
		Password:                     o.Password,
		CredentialsProvider:          o.CredentialsProvider,
		CredentialsProviderContext:   o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		DB:                           o.DB,
	}
	if used.Network == "" {
		used.Network = "tcp"
		if strings.HasPrefix(used.Addr, "/") {
			used.Network = "unix"
		}
	}
	return used
}
