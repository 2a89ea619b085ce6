package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/d0720281/redlock"
)

// withoutQuorum returns the error of a command that too few masters answered. Where waiting cannot
// help it has another exit code, so that no wrapper tries for ever, and says what to correct.
func (c *connection) withoutQuorum(err error) error {
	var refused *redlock.QuorumError
	hint, permanent := "", redlock.Reason(err) == sameServer
	if errors.As(err, &refused) {
		errs := make(map[string]error)
		for _, m := range refused.Masters {
			errs[m.Master] = m.Err
		}
		hints := c.mistakes(errs)
		permanent = permanent || refused.Permanent() || refused.Total-len(hints) < refused.Need
		for _, m := range refused.Masters {
			hint = cmp.Or(hint, hints[m.Master])
		}
	}
	if !permanent {
		return exitError{exitNoQuorum, err}
	}
	switch redlock.Reason(err) {
	case "wrong_type":
		hint = "give another KEY or --prefix"
	case sameServer, "membership", "cluster_node":
		hint = "correct --masters"
	case "other_server":
		hint = "make sure that each address leads all clients to one server"
	}
	if hint == "" {
		return exitError{exitConfig, err}
	}
	return exitf(exitConfig, "%w (%s)", err, hint)
}

// mistakes returns how to correct the errors of masters that could not be asked, by address. A
// master that has no error, or one with another reason, is left out.
func (c *connection) mistakes(errs map[string]error) map[string]string {
	hints := make(map[string]string)
	var mu sync.Mutex
	var asked sync.WaitGroup
	for addr, err := range errs {
		asked.Go(func() {
			if hint := c.mistake(addr, err); hint != "" {
				mu.Lock()
				defer mu.Unlock()
				hints[addr] = hint
			}
		})
	}
	asked.Wait()
	return hints
}

// mistake returns how to correct the error of a master; "" if that is not known. A server without TLS
// may answer nothing at all to a client that expects it, so that the other protocol is tried.
func (c *connection) mistake(addr string, err error) string {
	o := c.asked[addr]
	switch {
	case err == nil || o == nil:
	case strings.Contains(err.Error(), "NOAUTH"):
		return fmt.Sprintf("give the password in $%s, and its user by --user", passwordEnv)
	case strings.Contains(err.Error(), "WRONGPASS"):
		return fmt.Sprintf("correct --user, or the password in $%s", passwordEnv)
	case redlock.Reason(err) == "permission":
		return "correct the user's rights: docs/operations.md lists them"
	case redlock.Reason(err) == "unsupported" && strings.Contains(err.Error(), "database"):
		return "correct the database of the URL"
	case redlock.Reason(err) == "unsupported" && strings.Contains(err.Error(), "Sentinel"):
		return "if it is a Sentinel, list masters in its place: docs/managed.md"
	case redlock.Reason(err) == "unsupported":
		return "docs/operations.md has the commands that locks need"
	case errors.Is(err, syscall.ECONNREFUSED) || redlock.Reason(err) == "quarantine":
	case o.TLSConfig != nil && isPlain(o):
		return "the master speaks no TLS: write redis:// for rediss://, or leave --tls out"
	case o.TLSConfig == nil && redlock.Reason(err) == "connection" && isTLS(o): // a server that expects TLS hangs up
		return "the master speaks TLS: write rediss://" + addr + ", or add --tls"
	case redlock.Reason(err) == "tls":
		return "correct --cacert, --sni, or --cert and --key"
	}
	return ""
}

// isPlain reports whether a server speaks the protocol of Redis without TLS. A server that hangs costs a second.
func isPlain(o *redis.Options) bool {
	conn, err := net.DialTimeout(o.Network, o.Addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	reply := make([]byte, 1)
	err = conn.SetDeadline(time.Now().Add(time.Second))
	if err == nil {
		_, err = conn.Write([]byte("PING\r\n"))
	}
	if err == nil {
		_, err = conn.Read(reply)
	}
	return err == nil && strings.Contains("+-", string(reply))
}

// isTLS reports whether a server speaks TLS, also if it wants the certificate of the client.
func isTLS(o *redis.Options) bool {
	conf := &tls.Config{InsecureSkipVerify: true} // nothing is sent over this connection
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 3 * time.Second}, o.Network, o.Addr, conf)
	if err == nil {
		_ = conn.Close() // the server may have ended it, for want of a certificate
		return true
	}
	return errors.As(err, new(tls.AlertError))
}
