package locktest

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
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

// Buffer is a bytes.Buffer for several goroutines.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// logTo is a logger for go-redis.
type logTo struct {
	w interface{ Write([]byte) (int, error) }
}

func (l logTo) Printf(_ context.Context, format string, v ...any) {
	fmt.Fprintf(l.w, format+"\n", v...)
}

// LogText returns a logger, and a function that returns what was logged.
func LogText() (l *slog.Logger, text func() string) {
	b := new(Buffer)
	return slog.New(slog.NewTextHandler(b, nil)), b.String
}

// RedisLog returns what go-redis and package log write until the test ends.
func RedisLog(t testing.TB) *Buffer {
	b := new(Buffer)
	log.SetOutput(b)
	redis.SetLogger(logTo{b})
	t.Cleanup(func() { log.SetOutput(os.Stderr); redis.SetLogger(logTo{os.Stderr}) })
	return b
}
