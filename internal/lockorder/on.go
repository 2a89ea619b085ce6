//go:build lockorder

package lockorder

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// Mutex is a mutex at a place. It panics if it is locked out of order.
type Mutex[P Place] struct{ mu sync.Mutex }

// Lock locks the mutex.
func (m *Mutex[P]) Lock() {
	held.lock(placeOf[P]())
	m.mu.Lock()
}

// Unlock unlocks the mutex.
func (m *Mutex[P]) Unlock() {
	m.mu.Unlock()
	held.unlock(placeOf[P]())
}

// MustBeFree marks what may block, panic or call the library: code of the caller of the library,
// a log, the end of a context. It panics if the goroutine holds a mutex.
func MustBeFree() {
	if places := held.of(goroutine()); len(places) > 0 {
		panic(fmt.Sprintf("called with the mutexes %v locked", places))
	}
}

// A place is its number in the order.
type place int

var names = [...]string{"Calls", "Waitlines", "Grant", "Renewer", "Admission", "Node", "Watch", "Servers", "Events"}

func (p place) String() string { return names[p] }

func placeOf[P Place]() place {
	var p P
	switch any(p).(type) {
	case Calls:
		return 0
	case Waitlines:
		return 1
	case Grant:
		return 2
	case Renewer:
		return 3
	case Admission:
		return 4
	case Node:
		return 5
	case Watch:
		return 6
	case Servers:
		return 7
	default:
		return 8
	}
}

// holding is which places each goroutine has locked: by its number, a *[]place that it alone uses.
type holding struct{ places sync.Map }

var held holding

func (h *holding) of(id int) []place {
	if p, ok := h.places.Load(id); ok {
		return *p.(*[]place)
	}
	return nil
}

func (h *holding) lock(p place) {
	id := goroutine()
	places := h.of(id)
	for _, other := range places {
		if other >= p {
			panic(fmt.Sprintf("the mutex %v is locked while %v is", p, other))
		}
	}
	places = append(places, p)
	h.places.Store(id, &places)
}

func (h *holding) unlock(p place) {
	id := goroutine()
	places := h.of(id)
	if i := slices.Index(places, p); i >= 0 {
		places = slices.Delete(places, i, i+1)
	}
	if len(places) == 0 {
		h.places.Delete(id)
		return
	}
	h.places.Store(id, &places)
}

// goroutine is the number of the present goroutine, as its stack trace begins with it.
func goroutine() int {
	var text [64]byte
	_, rest, _ := bytes.Cut(text[:runtime.Stack(text[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(rest, []byte(" "))
	id, err := strconv.Atoi(string(number))
	if err != nil {
		panic(err)
	}
	return id
}
