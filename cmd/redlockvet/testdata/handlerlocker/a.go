package handlerlocker

import (
	"net/http"
	"sync"

	"github.com/d0720281/redlock"
)

var masters = []string{"10.0.0.1:6379"}

func sell(w http.ResponseWriter, r *http.Request) {
	l, err := redlock.New(masters) // want `each request makes a Locker, which dials all masters: make one per process`
	_, _ = l, err
}

type server struct{ locker *redlock.Locker }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		l, err := redlock.NewFromOptions(nil) // want `each request makes a Locker`
		_, _ = l, err
	}
}

func register() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		l, err := redlock.NewFromOptions(nil) // want `each request makes a Locker`
		_, _ = l, err
	})
}

func without() (http.Handler, error) {
	l, err := redlock.New(masters)
	if err != nil {
		return nil, err
	}
	var once sync.Once
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { l, err = redlock.New(masters) })
		_ = l.CheckResource(r.URL.Path)
	})
	return &server{l}, nil
}
