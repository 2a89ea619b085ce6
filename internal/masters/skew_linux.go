package masters

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

//go:embed skew.c
var shimSource string

// shim returns the library of skew.c. It is built once, and kept in memory, so that no file
// is left behind.
func shim() ([]byte, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		cc, err = exec.LookPath("gcc")
	}
	if err != nil {
		return nil, ErrNoCompiler
	}
	builtShim.Do(func() { builtShim.lib, builtShim.err = buildShim(cc) })
	return builtShim.lib, builtShim.err
}

var builtShim struct {
	sync.Once
	lib []byte
	err error
}

func buildShim(cc string) (lib []byte, err error) {
	dir, err := os.MkdirTemp("", "redlock-skew-")
	if err != nil {
		return nil, fmt.Errorf("masters: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "skew.so")
	cmd := exec.Command(cc, "-O2", "-Wall", "-shared", "-fPIC", "-o", file, "-x", "c", "-")
	cmd.Stdin = strings.NewReader(shimSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("masters: build skew.c: %w\n%s", err, out)
	}
	return os.ReadFile(file)
}

// The files of a clock in the server's directory.
func (p *Process) shimFile() string { return filepath.Join(p.dir, "skew.so") }
func (p *Process) skewFile() string { return filepath.Join(p.dir, "skew") }

// installClock puts the shim and a true clock into the server's directory.
func (p *Process) installClock() error {
	lib, err := shim()
	if err != nil {
		return err
	}
	base := binary.NativeEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
	if err := errors.Join(
		os.WriteFile(p.shimFile(), lib, 0o700),
		os.WriteFile(p.skewFile(), append(base, make([]byte, 8)...), 0o600),
	); err != nil {
		return fmt.Errorf("masters: %w", err)
	}
	return nil
}

// clockEnv makes the server load the shim.
func (p *Process) clockEnv() []string {
	return []string{"LD_PRELOAD=" + p.shimFile(), "SKEW_FILE=" + p.skewFile()}
}

var errNotSkewed = errors.New("server did not load the clock")

// checkClock reports whether the server has loaded the shim: a statically linked server, for
// example, starts just as well without.
func (p *Process) checkClock() error {
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(p.child.cmd.Process.Pid) + "/maps")
	if err != nil {
		return err
	}
	// Only the end of the path, as the way to it may contain links.
	if !bytes.Contains(maps, []byte(filepath.Join(filepath.Base(p.dir), filepath.Base(p.skewFile()))+"\n")) {
		return errNotSkewed
	}
	return nil
}

// A clock's offset to the true time and its rate, as skew.c reads them.
const (
	rateBits  = 24
	maxOffset = 1<<(63-rateBits) - 1 // µs
)

func packSkew(offset, ppm int64) int64 { return offset<<rateBits | ppm&(1<<rateBits-1) }

func unpackSkew(skew int64) (offset, ppm int64) {
	return skew >> rateBits, skew << (64 - rateBits) >> (64 - rateBits)
}

// changeSkew changes the file that the shim has mapped. It changes the file through a
// mapping as well, not by writing, so that the server never sees half a word.
func (p *Process) changeSkew(change func(offset, ppm, run int64) (int64, int64)) (err error) {
	file, err := os.OpenFile(p.skewFile(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	const size = unsafe.Sizeof([2]int64{})
	mem, err := syscall.Mmap(int(file.Fd()), 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, syscall.Munmap(mem)) }()
	words := (*[2]int64)(unsafe.Pointer(&mem[0])) // base and skew

	offset, ppm := unpackSkew(words[1])
	offset, ppm = change(offset, ppm, (time.Now().UnixNano()-words[0])/1000)
	if offset < -maxOffset || offset > maxOffset {
		return fmt.Errorf("more than %v from the true time", time.Duration(maxOffset)*time.Microsecond)
	}
	atomic.StoreInt64(&words[1], packSkew(offset, ppm))
	return nil
}
