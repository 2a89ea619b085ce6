//go:build unix

package main

import "github.com/d0720281/redlock/internal/svg"

// wayOfAVote has the functions from the caller to a master, and from the master to the caller: in
// each row one on the way there, and one on the way back. TestVotePicture of test/docs finds them
// in the code.
var wayOfAVote = [][2][2]string{
	{{"redlock.go Lock", "a call"}, {"lease.go Lease", "context, validity, fencing token"}},
	{{"internal/line/line.go Join", "the callers of the process, in order"}, {"acquire.go grantLease", "a quorum: the grant becomes a lease"}},
	{{"attempt.go step", "pure: which masters to ask, and what"}, {"quorum.go decide", "pure: the votes are counted"}},
	{{"acquire.go stepLocked", "a request to each master"}, {"acquire.go Receive", "the reply becomes an event of the attempt"}},
	{{"internal/node/node.go Send", "the queue of requests of one master"}, {"internal/node/reply.go Refusal", "a vote, or why the reply is none"}},
	{{"internal/node/exchange.go write", "one call of the script for all of them"}, {"internal/node/clocks.go observeLocked", "each reply shows the master's clock"}},
	{{"internal/wire/lua/common.lua", "on the master: time, marker, key, counter"}, {"internal/node/exchange.go receive", "the replies, in the order of the requests"}},
}

func drawVote(file string) error {
	const width, height, top, row = 340.0, 44.0, 50.0, 64.0
	c := svg.New(60+2*width, top+row*float64(len(wayOfAVote)), "The way of a vote through the packages")
	c.Text(20, 30, "start", svg.Ink, "bold", "The way of a vote: to a master as a request, and back as a reply")
	for i, boxes := range wayOfAVote {
		for side, box := range boxes {
			x, y := 20+(width+20)*float64(side), top+row*float64(i)
			fill, colour := svg.Pale, svg.Blue
			from, to := y-row+height, y // of the arrow
			if side == 1 {
				fill, colour, from, to = svg.Mint, svg.Green, to, from
			}
			c.Rect(x, y, width, height, fill, colour)
			c.Code(x+10, y+18, colour, box[0])
			c.Code(x+10, y+36, svg.Ink, box[1])
			if i > 0 {
				c.Arrow(x+width/2, from, to, colour)
			}
		}
	}
	return c.WriteFile(file)
}
