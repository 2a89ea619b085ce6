package main

import (
	"context"
	"errors"

	"github.com/d0720281/redlock/bench/internal/contender"
	"github.com/d0720281/redlock/bench/internal/measure"
	"github.com/d0720281/redlock/internal/masters"
)

// cluster has masters that all contenders may use.
type cluster struct {
	nodes   []*masters.Process
	proxies []*masters.Proxy // in front of the first nodes
	addrs   []string         // the addresses that clients connect to
	stats   *measure.Servers
}

// startCluster starts n masters, the first of them behind proxies, and prepares them for
// each contender that can use them.
func startCluster(ctx context.Context, n, proxies int) (c *cluster, err error) {
	c = &cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for range n {
		node, err := masters.StartProcess(ctx, masters.ProcessConfig{})
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, node)
		addr := node.Addr()
		if len(c.proxies) < proxies {
			proxy, err := masters.NewProxy(addr)
			if err != nil {
				return c, err
			}
			c.proxies = append(c.proxies, proxy)
			addr = proxy.Addr()
		}
		c.addrs = append(c.addrs, addr)
	}
	for _, who := range contender.All() {
		if who.Prepare != nil && who.Takes(n) {
			if err := who.Prepare(ctx, c.addrs); err != nil {
				return c, err
			}
		}
	}
	var direct []string
	for _, node := range c.nodes {
		direct = append(direct, node.Addr())
	}
	c.stats, err = measure.NewServers(ctx, direct)
	return c, err
}

func (c *cluster) close() error {
	if c.stats != nil {
		c.stats.Close()
	}
	for _, p := range c.proxies {
		p.Close()
	}
	var errs []error
	for _, node := range c.nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}
