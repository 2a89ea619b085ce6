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
	nodes []*masters.Process
	addrs []string
	stats *measure.Servers
}

// startCluster starts n masters, and prepares them for each contender that can use them.
func startCluster(ctx context.Context, n int) (c *cluster, err error) {
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
		c.nodes, c.addrs = append(c.nodes, node), append(c.addrs, node.Addr())
	}
	for _, who := range contender.All() {
		if who.Prepare != nil && who.Takes(n) {
			if err := who.Prepare(ctx, c.addrs); err != nil {
				return c, err
			}
		}
	}
	c.stats, err = measure.NewServers(ctx, c.addrs)
	return c, err
}

func (c *cluster) close() error {
	if c.stats != nil {
		c.stats.Close()
	}
	var errs []error
	for _, node := range c.nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}
