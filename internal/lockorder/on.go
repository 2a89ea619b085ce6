//go:build lockorder

package lockorder

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
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

// order is the places, as lockorder.go has them.
var order = []any{Calls{}, Lines{}, Grant{}, Outage{}, Renewer{}, Admission{}, Node{}, Watch{}, Servers{}, Events{}}

// place is an index in order.
type place int

func (p place) String() string { return strings.TrimPrefix(fmt.Sprintf("%T", order[p]), "lockorder.") }

func placeOf[P Place]() place {
	var p P
	i := slices.Index(order, any(p))
	if i < 0 {
		panic(fmt.Sprintf("%T has no place in the order", p))
	}
	return place(i)
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
