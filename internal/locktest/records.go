package locktest

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Records is the handler of a logger, and keeps what it is told.
type Records struct {
	mu   sync.Mutex
	list []map[string]any // guarded by mu
}

// Enabled implements [slog.Handler].
func (r *Records) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements [slog.Handler]. The attributes are not kept.
func (r *Records) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements [slog.Handler]. The group is not kept.
func (r *Records) WithGroup(string) slog.Handler { return r }

// Handle implements [slog.Handler].
func (r *Records) Handle(_ context.Context, rec slog.Record) error {
	said := map[string]any{"text": rec.Message, "level": rec.Level}
	rec.Attrs(func(a slog.Attr) bool { said[a.Key] = a.Value.Any(); return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, said)
	return nil
}

// List returns the lines of the log. Each has its attributes by name, "text" and "level".
func (r *Records) List() []map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// With returns the lines whose text contains a text.
func (r *Records) With(text string) []map[string]any {
	return slices.DeleteFunc(r.List(), func(said map[string]any) bool {
		return !strings.Contains(said["text"].(string), text)
	})
}
