package wire

import "time"

// Word is the report of a queue node on its queue, beside its vote or its confirmation of a release.
// The zero value reports nothing.
//
// Source: ALGORITHM section 10, "attend".
type Word struct {
	Heard   bool          // the reply is to an acquire or to a release
	Ended   bool          // the reply is to a release: Others has the holder of the key, too
	Refused bool          // another process has the resource, or has the turn
	Vetoed  bool          // another process has the turn: no other process gets the resource for now
	Others  int           // how many other processes wait
	Left    time.Duration // of the holder's key or of the other process's turn, of several keys of the first that ends; negative if that is not known
	Foreign bool          // the holder's key is that of another library

	Joined bool // the reply is to a rest: the process is in the queue
	Turn   bool // the process has the turn, and the key is free
	Number int  // of the key whose turn the process has, among several; 0 for none
	Before int  // how many processes wait before this one; negative if the node keeps no queue for it
}
