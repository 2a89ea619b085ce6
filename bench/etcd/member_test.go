package etcd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// This file starts etcd: each member is a process of its own, which runs this test program again.

// member says what a process needs to be one of the members of a cluster.
type member struct {
	Name, Dir    string
	Client, Peer string // URLs
	Cluster      string // all names and peers' URLs
	NoFsync      bool   // writes are not forced to the disk, as the masters here do not
}

// asMember is the variable of the environment that has the member, as JSON.
const asMember = "REDLOCK_ETCD_MEMBER"

func TestMain(m *testing.M) {
	if text := os.Getenv(asMember); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve runs a member until the parent closes the standard input.
func serve(text string) error {
	var me member
	if err := json.Unmarshal([]byte(text), &me); err != nil {
		return err
	}
	conf := embed.NewConfig()
	conf.Name, conf.Dir, conf.UnsafeNoFsync = me.Name, me.Dir, me.NoFsync
	conf.LogLevel, conf.LogOutputs = "fatal", []string{"stderr"}
	client, err := url.Parse(me.Client)
	if err != nil {
		return err
	}
	peer, err := url.Parse(me.Peer)
	if err != nil {
		return err
	}
	conf.ListenClientUrls, conf.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	conf.ListenPeerUrls, conf.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	conf.InitialCluster = me.Cluster
	server, err := embed.StartEtcd(conf)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		return fmt.Errorf("member %s is not ready after a minute", me.Name)
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startMembers starts a cluster of three members, and returns the URLs for clients.
func startMembers(b *testing.B, noFsync bool) (endpoints []string) {
	b.Helper()
	members, cluster := make([]member, 3), ""
	for i := range members {
		name := fmt.Sprint("m", i)
		members[i] = member{Name: name, Dir: b.TempDir(), Client: freeURL(b), Peer: freeURL(b), NoFsync: noFsync}
		endpoints = append(endpoints, members[i].Client)
		if i > 0 {
			cluster += ","
		}
		cluster += name + "=" + members[i].Peer
	}
	ready := make(chan string, len(members))
	for _, m := range members {
		m.Cluster = cluster
		text, err := json.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), asMember+"="+string(text)), os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = stdin.Close()
			_ = cmd.Wait()
		})
		go func() {
			line, _ := bufio.NewReader(stdout).ReadString('\n')
			ready <- line
		}()
	}
	for range members {
		if line := <-ready; line != "ready\n" {
			b.Fatalf("a member said %q, want ready", line)
		}
	}
	return endpoints
}

// freeURL returns a URL with a port of 127.0.0.1 that was free a moment ago.
func freeURL(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}
