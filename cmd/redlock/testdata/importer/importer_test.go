package importer

import (
	"context"
	"testing"
	"time"

	"github.com/d0720281/redlock/redlocktest"
)

func TestService(t *testing.T) {
	masters := redlocktest.Start(t, 3)
	s, err := New(masters.Options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Locker.Close()
	ran := false
	if err := s.Report(t.Context(), time.Now(), func(context.Context) error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("got %v, run %v; want the job run", err, ran)
	}
	if all, err := s.Metrics.Gather(); err != nil || len(all) == 0 {
		t.Errorf("got %d metrics, %v; want some", len(all), err)
	}
}
