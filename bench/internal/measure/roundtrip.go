package measure

import (
	"bufio"
	"fmt"
	"net"
	"time"
)

// RoundTrip measures n PINGs to a server, one after another, over a bare connection: no lock
// can have an answer sooner.
func RoundTrip(addr string, n int) (Latency, error) {
	took := NewLatency()
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return took, fmt.Errorf("measure: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	r := bufio.NewReader(conn)
	for range n {
		start := time.Now()
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return took, fmt.Errorf("measure: %w", err)
		}
		if line, err := r.ReadString('\n'); err != nil || line != "+PONG\r\n" {
			return took, fmt.Errorf("measure: ping: %q, %w", line, err)
		}
		took.Record(time.Since(start))
	}
	return took, nil
}
