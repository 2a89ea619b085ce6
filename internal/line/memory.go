package line

import "time"

// memories has what the process remembers of resources, also while none of its callers wants them.
// What is too old to matter goes: each call looks at two entries.
type memories struct {
	emptyPrefix bool
	holds       func(resource string) bool // the process has the resource
	crowds      map[Key]time.Time          // until when other processes are known to wait, for callers of a line
	libraries   map[string]*otherLibrary   // of a resource
}

// sweep drops entries that are old, of two that the map gives.
func sweep[K comparable, V any](entries map[K]V, old func(K, V) bool) {
	looked := 0
	for k, v := range entries {
		if old(k, v) {
			delete(entries, k)
		}
		if looked++; looked == 2 {
			return
		}
	}
}

// tidy drops what is too old. Leases of the process that follow each other are counted from the
// first of them, so what is known of another library is kept while the process has the resource.
func (s *memories) tidy(now time.Time) {
	sweep(s.crowds, func(_ Key, until time.Time) bool { return !now.Before(until) })
	sweep(s.libraries, func(resource string, o *otherLibrary) bool {
		return now.Sub(o.met) >= otherMemory && now.Sub(o.freed) >= otherGap && !s.holds(resource)
	})
}

// crowded reports whether processes are known to wait that are in the way of a line's callers.
func (s *memories) crowded(key Key, now time.Time) bool {
	s.tidy(now)
	return now.Before(s.crowds[key])
}

// crowd notes that such processes wait. It is remembered for a TTL.
func (s *memories) crowd(key Key, ttl time.Duration, now time.Time) {
	s.tidy(now)
	if s.crowds == nil {
		s.crowds = make(map[Key]time.Time)
	}
	s.crowds[key] = now.Add(ttl)
}

// library returns what is known of clients of another library that lock a resource.
func (s *memories) library(resource string, now time.Time) *otherLibrary {
	s.tidy(now)
	o := s.libraries[resource]
	if o == nil {
		if s.libraries == nil {
			s.libraries = make(map[string]*otherLibrary)
		}
		o = &otherLibrary{since: now}
		s.libraries[resource] = o
	}
	return o
}

// meet notes that a key of another library was in the way.
func (s *memories) meet(resource string, now time.Time) { s.library(resource, now).met = now }

// freed notes that this process does not have a resource any more.
func (s *memories) freed(resource string, now time.Time) {
	if s.libraries[resource] != nil || s.emptyPrefix {
		s.library(resource, now).freed = now
	}
}

// pause returns how long this process leaves a resource to clients of another library.
func (s *memories) pause(resource string, now time.Time) time.Duration {
	if o := s.libraries[resource]; o != nil {
		return o.pause(s.emptyPrefix, now)
	}
	return 0
}

// otherLibrary leaves room for clients of another library that lock the same key, such as redsync
// during a migration. They poll a few times a second, and stand in no queue. So a process that met
// such a client within the last minute pauses for a gap once its leases have followed each other
// for a share of time. With the empty prefix, by which it may share every key, it does so each
// second without having met one.
//
// Source: ALGORITHM section 10, "Other libraries".
type otherLibrary struct {
	met   time.Time // when a key of the other library was last in the way
	since time.Time // when the present leases began to follow each other
	freed time.Time // when the last of them ended
}

const (
	otherMemory = time.Minute
	otherShare  = 100 * time.Millisecond
	otherGap    = 50 * time.Millisecond
)

// pause returns how long this process leaves the resource free before it asks for it.
func (o *otherLibrary) pause(emptyPrefix bool, now time.Time) time.Duration {
	share, free := otherShare, now.Sub(o.freed)
	if now.Sub(o.met) >= otherMemory {
		share = time.Second
		if !emptyPrefix {
			return 0
		}
	}
	if free >= otherGap {
		o.since = now
	}
	if now.Sub(o.since) < share {
		return 0
	}
	return otherGap - free
}
