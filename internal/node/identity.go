package node

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/d0720281/redlock/internal/lockorder"
	"github.com/d0720281/redlock/internal/reason"
	"github.com/d0720281/redlock/internal/resp"
	"github.com/d0720281/redlock/internal/wire"
)

// This file finds out which server a node is, and how the server is configured. It asks INFO at
// each new connection, before any request. If a server does not tell something, that is
// unknown, and reported as unknown.
//
// Source: ALGORITHM section 8, "Start-up audit".

// maxValue is the largest length of a value that a server tells of itself, in bytes.
const maxValue = 64

// Info is the reply of INFO. A field that the reply lacks is empty. All are printable.
type Info struct {
	RunID   string // new with each start of the process
	ReplID  string // new with each promotion to master
	Second  string // second_repl_offset: "-1" if there was no promotion, or nothing is left of it
	Version string
	Role    string
	Cluster string // "1" for a node of a cluster
	Policy  string // maxmemory_policy
	Memory  string // maxmemory, bytes; "0" for no limit
	AOF     string // "1" for an append-only file

	Used     string // used_memory, bytes
	Save     string // rdb_last_bgsave_status: "ok" or "err"
	Append   string // aof_last_write_status: the same
	Replicas string // min_slaves_good_slaves; "" without min-replicas-to-write

	Disk Disk // asked for if disks are trusted
}

// Disk has the configuration of when the append-only file is written to disk.
type Disk struct {
	Fsync     string // appendfsync
	OnRewrite string // no-appendfsync-on-rewrite: "yes" for no sync while the file is rewritten
	Err       error  // why the configuration is not known
}

// durable reports whether each write is on disk before it is answered.
func (i Info) durable() bool {
	return i.AOF == "1" && i.Disk.Fsync == "always" && i.Disk.OnRewrite == "no"
}

func diskTask() *task { return wordsTask("config", "get", "*appendfsync*") }

// readDisk reads the reply of diskTask.
func readDisk(reply any) (d Disk) {
	if refused, ok := reply.(resp.Error); ok {
		return Disk{Err: nodeFailure(refused)}
	}
	values, _ := reply.([]any)
	for ; len(values) > 1; values = values[2:] {
		value, _ := values[1].(string)
		switch value = wire.Excerpt(value, maxValue); values[0] {
		case "appendfsync":
			d.Fsync = value
		case "no-appendfsync-on-rewrite":
			d.OnRewrite = value
		}
	}
	if d.Fsync == "" || d.OnRewrite == "" {
		d.Err = ErrBadReply
	}
	return d
}

// ParseInfo reads the reply of INFO. Some fields have other names on servers other than Redis.
func ParseInfo(text string) Info {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[name] = wire.Excerpt(value, maxValue)
		}
	}
	version := fields["redis_version"]
	if v := fields["valkey_version"]; v != "" {
		version = "valkey " + v
	}
	return Info{
		RunID:   fields["run_id"],
		ReplID:  fields["master_replid"],
		Second:  fields["second_repl_offset"],
		Version: version,
		Role:    fields["role"],
		Cluster: fields["cluster_enabled"],
		Policy:  fields["maxmemory_policy"],
		Memory:  fields["maxmemory"],
		AOF:     fields["aof_enabled"],

		Used:     fields["used_memory"],
		Save:     fields["rdb_last_bgsave_status"],
		Append:   fields["aof_last_write_status"],
		Replicas: fields["min_slaves_good_slaves"],
	}
}

// Identity returns the identity of this server as a master, or "" if it is not known. A replica
// that was promoted has another identity, even if it had been this master before. lua/guard.lua
// makes the identity in the same way.
func (i Info) Identity() string {
	if i.RunID == "" {
		return ""
	}
	if i.Second == "-1" { // the replication id says no more than whether there are replicas
		return shortened(i.RunID) + ":"
	}
	return shortened(i.RunID) + ":" + shortened(i.ReplID)
}

// isSame reports whether a server that was known by its identity still is the same master. lua/guard.lua does so in the
// same way.
func isSame(known, present string) bool {
	run, _, _ := strings.Cut(known, ":")
	return known == present || run+":" == present
}

// shortened returns enough of a random id of 160 bits to know it by.
func shortened(id string) string { return id[:min(len(id), 16)] }

// Hash is FNV-1a, which is the same in every process.
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// hashed returns the server's hash, which all clients compute from the same text: its run id, from INFO
// or from the marker, or its address if neither has a run id.
func (a *Audit) hashed(addr string) uint64 {
	run := a.Info.RunID
	if run == "" {
		run, _, _ = strings.Cut(a.Marker.run, ":")
	}
	if run == "" || run == wire.UnknownRun {
		run = addr
	}
	return Hash(run)
}

// usable returns an error if the server must not be asked at all, because its vote would not be
// that of an independent master.
func (i Info) usable() error {
	switch {
	case i.Cluster == "1":
		return &Marked{reason.ClusterNode, errors.New("it is a node of a cluster")} // which becomes no independent master, unlike a replica
	case i.Role != "" && i.Role != "master":
		return &Marked{reason.NotMaster, fmt.Errorf("its role is %s", i.Role)}
	}
	return nil
}

// Audit is what a node said of itself at a connection.
type Audit struct {
	Info      Info
	InfoErr   error // why Info is not known
	Marker    Marker
	MarkerErr error    // ErrGuardOff without the guard
	Lacks     []string // commands that the server lacks, and what works worse for that
	RoundTrip time.Duration
	Void      error // why this client does not count the node's vote, even if the node has one
}

// sections are those of INFO that have the fields of Info. The other sections grow with the use of
// the server: errorstats to megabytes. Redis before 7.0 takes one section at a time.
var sections = []string{"server", "memory", "persistence", "replication", "cluster"}

func infoTask() *task {
	return &task{replies: len(sections), write: func(_ *Node, _ *link, _ int64, b []byte) []byte {
		for _, s := range sections {
			b = appendWords(b, "info", s)
		}
		return b
	}}
}

// readInfo reads the replies to infoTask. refused is the error by which the server refused for good
// to say who it is. Another section that it refuses for good is unknown. An error that may pass is an
// error of the connection: its identity must not count as never told.
func readInfo(replies []any) (info Info, refused, err error) {
	var told strings.Builder
	for i, reply := range replies {
		switch v := reply.(type) {
		case string:
			told.WriteString(v)
			told.WriteByte('\n')
		case resp.Error:
			if lasting(v) == nil {
				return info, nil, v
			}
			if i == 0 {
				refused = nodeFailure(v)
			}
		default:
			return info, nil, ErrBadReply
		}
	}
	return ParseInfo(told.String()), refused, nil
}

// identities remembers which server each node leads to, so that no server votes twice.
type identities struct {
	addrs []string

	mu    lockorder.Mutex[lockorder.Servers]
	runs  []string // guarded by mu; "" = not known, or no longer there
	known []bool   // guarded by mu; the node had a server of its own at some time
	twins []error  // guarded by mu; found before that

	first atomic.Pointer[error] // of twins
}

func newIdentities(addrs []string) *identities {
	n := len(addrs)
	return &identities{addrs: addrs, runs: make([]string, n), known: make([]bool, n), twins: make([]error, n)}
}

// enroll notes which server a node has reached. A server that another node has reached
// before is refused: it would vote twice.
func (r *identities) enroll(index int, run string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.sumUpLocked()
	r.runs[index], r.twins[index] = "", nil
	if run == "" {
		return nil // the server does not tell its identity
	}
	if first := slices.Index(r.runs, run); first >= 0 {
		err := &Marked{reason.SameServer, fmt.Errorf("it is the same server as %s", strconv.Quote(r.addrs[first]))}
		if !r.known[index] {
			r.twins[index] = fmt.Errorf("%w: %s and %s", reason.SameServer, r.addrs[index], r.addrs[first])
		}
		return err
	}
	r.runs[index], r.known[index] = run, true
	return nil
}

// lost notes that a node does not reach the server that it shared with another.
func (r *identities) lost(index int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.twins[index] = nil
	r.sumUpLocked()
}

func (r *identities) sumUpLocked() {
	var first *error
	for _, err := range r.twins {
		if err != nil {
			first = &err
			break
		}
	}
	r.first.Store(first)
}

// misconfigured returns an error if two masters turned out to be one server when they were first
// reached: such a list cannot make a quorum. If a name leads to another server later, that node
// has no vote, and the other nodes go on.
func (r *identities) misconfigured() error {
	if err := r.first.Load(); err != nil {
		return *err
	}
	return nil
}
