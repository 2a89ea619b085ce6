package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/d0720281/redlock"
	"github.com/d0720281/redlock/internal/address"
)

// Where a command looks for what its flags do not give: see variable for the others. A password comes from here or from
// a URL: every user of the machine could read it from a flag.
const (
	mastersEnv    = "REDLOCK_MASTERS"
	passwordEnv   = "REDLOCK_PASSWORD"
	cliPasswordEv = "REDISCLI_AUTH" // where redis-cli looks
)

// connection says which masters to use and how to reach them. The flags for TLS and the user
// have the names of redis-cli.
type connection struct {
	masters []string
	prefix  string
	maxTTL  time.Duration
	timeout time.Duration // of one master, if given reports the flag
	given   func(flag string) bool
	trusted bool

	tls                    bool
	cacert, cert, key, sni string
	insecure               bool
	user                   string

	asked map[string]*redis.Options // by address, once it is open
}

func (c *connection) register(f *pflag.FlagSet) {
	f.StringArrayVar(&c.masters, "masters", nil, "`URLs` of all masters, separated by commas: host:port, redis://, rediss:// or unix://")
	f.StringVar(&c.prefix, "prefix", redlock.DefaultKeyPrefix, "what comes before KEY on the masters; the same for all clients")
	c.maxTTL, c.given = redlock.DefaultMaxTTL, f.Changed
	f.Var((*duration)(&c.maxTTL), "max-ttl", "largest TTL of any client; the same for all clients")
	f.Var((*duration)(&c.timeout), "master-timeout", "how long one master may take to answer; by default a tenth of the TTL, and at most 250ms")
	f.BoolVar(&c.trusted, "trusted-disk", false, "a master that kept its data over a restart votes at once: see docs/operations.md")
	f.BoolVar(&c.tls, "tls", false, "use TLS, as rediss:// does")
	f.StringVar(&c.cacert, "cacert", "", "`file` with the certificates of authorities to trust instead of the system's")
	f.StringVar(&c.cert, "cert", "", "`file` with the client's certificate")
	f.StringVar(&c.key, "key", "", "`file` with the key of the client's certificate")
	f.StringVar(&c.sni, "sni", "", "host `name` to ask the masters for, and to check")
	f.BoolVar(&c.insecure, "insecure", false, "do not check the masters' certificates")
	f.StringVar(&c.user, "user", "", "`name` of the user; its password is in $"+passwordEnv+" or $"+cliPasswordEv+"; a URL with a user or a password of its own goes first")
	f.VisitAll(func(flag *pflag.Flag) {
		if name := variable(flag.Name); name != "" {
			flag.Usage += " [$" + name + "]"
		}
	})
}

// variable returns the name of the variable that has the value of a flag for masters; "" for another flag.
func variable(flag string) string {
	switch flag {
	case "key": // $REDLOCK_KEY is the KEY, for the command
		return "REDLOCK_CERT_KEY"
	case "masters", "prefix", "max-ttl", "master-timeout", "trusted-disk", "tls", "cacert", "cert", "sni", "insecure", "user":
		return "REDLOCK_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	}
	return ""
}

// fromEnvironment sets the flags for masters that are not given to the values of their variables. A variable that is
// empty counts as not set.
func fromEnvironment(f *pflag.FlagSet) (err error) {
	f.VisitAll(func(flag *pflag.Flag) {
		name := variable(flag.Name)
		value := os.Getenv(name)
		if name == "" || value == "" || flag.Changed || err != nil {
			return
		}
		if flag.Value.Set(value) != nil {
			err = usagef("$%s: its value is not one of --%s", name, flag.Name)
		}
		flag.Changed = true
	})
	return err
}

var errNoMasters = usagef("which masters? give them by --masters 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379, or by %s in the environment", mastersEnv)

// list returns the addresses of the masters.
func (c *connection) list() ([]string, error) {
	parts := strings.Split(strings.Join(c.masters, ","), ",")
	for i := len(parts) - 1; i > 0; i-- {
		if strings.Contains(parts[i], "@") && !strings.Contains(parts[i], "://") { // the comma was in a password
			parts[i-1] += "," + parts[i]
			parts = slices.Delete(parts, i, i+1)
		}
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	switch empty := slices.Index(parts, ""); {
	case !slices.ContainsFunc(parts, func(m string) bool { return m != "" }):
		return nil, errNoMasters
	case empty >= 0: // a shorter list has another quorum
		return nil, usagef("master %d of the list is empty, as from a variable that is not set", empty+1)
	}
	return parts, nil
}

// authenticate sets what the URL has not of user and password.
func (c *connection) authenticate(o *redis.Options) error {
	password := cmp.Or(os.Getenv(passwordEnv), os.Getenv(cliPasswordEv))
	switch {
	case o.Password != "":
	case o.Username != "" && password == "":
		return exitf(exitConfig, "a user name without a password: write redis://:password@host for a password alone, or give the password of the user in %s or %s", passwordEnv, cliPasswordEv)
	case c.user != "" && password == "":
		return usagef("--user needs a password, in %s or %s", passwordEnv, cliPasswordEv)
	default:
		o.Username, o.Password = cmp.Or(o.Username, c.user), password
	}
	return nil
}

// hasCredentials reports whether a variable of the environment, name=value, can have a password of
// the masters.
func hasCredentials(variable string) bool {
	name, value, _ := strings.Cut(variable, "=")
	return name == passwordEnv || name == cliPasswordEv || name == mastersEnv && strings.Contains(value, "@")
}

// encrypt sets up TLS if the flags ask for it.
func (c *connection) encrypt(o *redis.Options) error {
	switch {
	case o.TLSConfig != nil:
	case c.tls:
		o.TLSConfig = &tls.Config{}
		if host, _, err := net.SplitHostPort(o.Addr); err == nil { // a unix socket has no name to check
			o.TLSConfig.ServerName = host
		}
	default: // of a list that goes from plain to TLS, a part
		return nil
	}
	conf := o.TLSConfig
	conf.MinVersion = max(conf.MinVersion, tls.VersionTLS12)
	conf.InsecureSkipVerify = conf.InsecureSkipVerify || c.insecure
	if c.sni != "" {
		conf.ServerName = c.sni
	}
	if c.cacert != "" {
		pem, err := os.ReadFile(c.cacert)
		if err != nil {
			return exitf(exitConfig, "--cacert: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return exitf(exitConfig, "--cacert: %s has no certificate in it", c.cacert)
		}
	}
	if (c.cert == "") != (c.key == "") {
		return usagef("--cert and --key go together")
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return exitf(exitConfig, "--cert and --key: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// open makes a Locker for the masters.
func (c *connection) open(opts ...redlock.Option) (*redlock.Locker, error) {
	list, err := c.list()
	if err != nil {
		return nil, err
	}
	masters, err := address.Parse(list)
	if err != nil {
		return nil, err
	}
	c.asked = make(map[string]*redis.Options)
	withTLS := 0
	for i, o := range masters {
		if err := c.authenticate(o); err != nil {
			return nil, fmt.Errorf("master %d: %w", i+1, err)
		}
		if err := c.encrypt(o); err != nil {
			return nil, err
		}
		c.asked[o.Addr] = o
		if o.TLSConfig != nil {
			withTLS++
		}
	}
	if withTLS == 0 && (c.cacert+c.cert+c.key+c.sni != "" || c.insecure) {
		return nil, usagef("--cacert, --cert, --key, --sni and --insecure need --tls, or rediss:// for a master")
	}
	opts = append([]redlock.Option{redlock.WithKeyPrefix(c.prefix), redlock.WithMaxTTL(c.maxTTL)}, opts...)
	if c.given("master-timeout") {
		opts = append(opts, redlock.WithMasterTimeout(c.timeout))
	}
	if c.trusted {
		opts = append(opts, redlock.WithTrustedDisk())
	}
	return redlock.NewFromOptions(masters, opts...)
}
