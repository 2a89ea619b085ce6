package redlock

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file turns the list of masters into connection options.

// parseMasters reads addresses: "host:port", redis://, rediss:// or unix:// URLs.
func parseMasters(masters []string) ([]*redis.Options, error) {
	opts := make([]*redis.Options, 0, len(masters))
	for i, m := range masters {
		o, err := parseMaster(m)
		if err != nil {
			return nil, configErrorf("master %d (%s): %v", i+1, redactMaster(m), err)
		}
		opts = append(opts, o)
	}
	return opts, nil
}

func parseMaster(master string) (*redis.Options, error) {
	if !strings.Contains(master, "://") {
		if err := checkHostPort(master); err != nil {
			return nil, err
		}
		return &redis.Options{Network: "tcp", Addr: master}, nil
	}
	const mustEncode = "the characters # / ? @ of a password must be percent-encoded in a URL"
	if strings.Contains(master, "#") {
		return nil, masterError(mustEncode)
	}
	o, err := redis.ParseURL(master)
	if err != nil {
		// The error may quote the URL with its password.
		return nil, masterError("not a redis://, rediss:// or unix:// URL that the client understands")
	}
	u, err := url.Parse(master)
	switch {
	case err != nil || strings.Contains(u.EscapedPath()+u.RawQuery, "@"):
		return nil, masterError(mustEncode)
	case o.Network == "unix" && u.Host != "":
		return nil, masterError("the path of a unix:// URL must begin with a third slash")
	case o.Network == "tcp":
		return o, checkHostPort(o.Addr)
	}
	return o, nil
}

type masterError string

func (e masterError) Error() string { return string(e) }

func checkHostPort(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || strings.ContainsAny(host, "@/?#") {
		return masterError("must be host:port, or a redis://, rediss:// or unix:// URL")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return masterError("port must be a number from 1 to 65535")
	}
	return nil
}

// redactMaster returns an address without user, password and parameters.
func redactMaster(master string) string {
	scheme, rest, isURL := strings.Cut(master, "://")
	switch {
	case !isURL:
		scheme, rest = "", master
	case slices.Contains([]string{"redis", "rediss", "unix"}, scheme):
		scheme += "://"
	default:
		scheme = ""
	}
	at := strings.LastIndexByte(rest, '@')
	if at >= 0 {
		rest = rest[at+1:]
	}
	cut := strings.IndexAny(rest, "?#&")
	if cut >= 0 {
		rest = rest[:cut]
	}
	return strconv.Quote(scheme + rest)
}

// checkMasters returns an error if the list of masters is wrong, as far as that can be told
// without asking a master.
func checkMasters(masters []*redis.Options) ([]redis.Options, error) {
	if len(masters) == 0 {
		return nil, configErrorf("no masters: give the address of at least one")
	}
	seen := make(map[string]int, len(masters))
	list := make([]redis.Options, 0, len(masters))
	for i, m := range masters {
		if m == nil {
			return nil, configErrorf("master %d: options are nil", i+1)
		}
		o := *m
		if o.Addr == "" {
			return nil, configErrorf("master %d: no address", i+1)
		}
		if o.Network == "" {
			o.Network = "tcp"
			if strings.HasPrefix(o.Addr, "/") {
				o.Network = "unix"
			}
		}
		if o.Network == "tcp" && o.Dialer == nil {
			if err := checkHostPort(o.Addr); err != nil {
				return nil, configErrorf("master %d (%s): %v", i+1, redactMaster(o.Addr), err)
			}
		}
		if first, twice := seen[o.Addr]; twice {
			return nil, configErrorf("master %d has the address of master %d, %s: a quorum needs independent masters", i+1, first, o.Addr)
		}
		seen[o.Addr] = i + 1
		if name := setByCaller(&o); name != "" {
			return nil, configErrorf("master %d (%s): %s is set, which only the library may set", i+1, o.Addr, name)
		}
		list = append(list, o)
	}
	return list, nil
}

// setByCaller returns the name of an option that is set although the library sets it, or "".
func setByCaller(o *redis.Options) string {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"Protocol", o.Protocol != 0 && o.Protocol != 2},
		{"MaxRetries", o.MaxRetries > 0},
		{"MinRetryBackoff", o.MinRetryBackoff != 0},
		{"MaxRetryBackoff", o.MaxRetryBackoff != 0},
		{"DialTimeout (see WithMasterTimeout)", o.DialTimeout != 0},
		{"DialerRetries", o.DialerRetries > 1},
		{"DialerRetryTimeout", o.DialerRetryTimeout != 0},
		{"DialerRetryBackoff", o.DialerRetryBackoff != nil},
		{"ReadTimeout (see WithMasterTimeout)", o.ReadTimeout != 0},
		{"WriteTimeout (see WithMasterTimeout)", o.WriteTimeout != 0},
		{"PoolSize", o.PoolSize > 1},
		{"PoolFIFO", o.PoolFIFO},
		{"PipelinePoolSize", o.PipelinePoolSize > 0},
		{"PoolTimeout", o.PoolTimeout != 0},
		{"MinIdleConns", o.MinIdleConns != 0},
		{"MaxIdleConns", o.MaxIdleConns != 0},
		{"MaxActiveConns", o.MaxActiveConns != 0},
		{"MaxConcurrentDials", o.MaxConcurrentDials > 1},
		{"ConnMaxIdleTime", o.ConnMaxIdleTime > 0},
		{"ConnMaxLifetime", o.ConnMaxLifetime > 0},
		{"ConnMaxLifetimeJitter", o.ConnMaxLifetimeJitter != 0},
		{"PipelineReadBufferSize", o.PipelineReadBufferSize != 0},
		{"PipelineWriteBufferSize", o.PipelineWriteBufferSize != 0},
		{"IdentitySuffix", o.IdentitySuffix != ""},
		{"Limiter", o.Limiter != nil},
		{"AutoPipelineOptions", o.AutoPipelineOptions != nil},
		{"ClientSideCache", o.ClientSideCache != nil || o.ClientSideCacheConfig != nil},
		{"MaintNotificationsConfig", o.MaintNotificationsConfig != nil &&
			o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled},
	} {
		if f.set {
			return f.name
		}
	}
	return ""
}
