//go:build ignore
// (The line above keeps the go tool from taking this file for cgo's.)

// A library to preload into a server on 64-bit Linux: it replaces the functions
// that read the wall clock by ones that add what the file named by SKEW_FILE says.
// Clocks other than the wall clock are left alone.
//
// The true time is read by a system call of its own and not by the function that
// was replaced: to look that up may allocate, and redis-server's allocator reads
// the clock before it can allocate.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MILLION 1000000LL
#define BILLION 1000000000LL

// What the file holds. The skew is one word so that one load gets an offset and the
// rate that belongs to it: microseconds, and in the low 24 bits parts per million.
static const struct {
	int64_t base; // ns since 1970, from which on the rate counts; never changes
	int64_t skew;
} *file;

__attribute__((constructor)) static void map_file(void) {
	const char *name = getenv("SKEW_FILE");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *m = mmap(NULL, sizeof *file, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (m != MAP_FAILED)
		file = m;
}

static int read_clock(clockid_t id, struct timespec *ts) {
	int r = syscall(SYS_clock_gettime, id, ts);
	if (r || !file || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return r;
	int64_t skew = __atomic_load_n(&file->skew, __ATOMIC_RELAXED);
	int64_t us = skew >> 24, ppm = (int64_t)((uint64_t)skew << 40) >> 40;
	int64_t ns = ts->tv_sec * BILLION + ts->tv_nsec, run = ns - file->base;
	ns += us * 1000 + run / MILLION * ppm + run % MILLION * ppm / MILLION;
	ts->tv_sec = ns / BILLION;
	ts->tv_nsec = ns % BILLION;
	return 0;
}

int clock_gettime(clockid_t id, struct timespec *ts) { return read_clock(id, ts); }

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	struct timespec ts;
	(void)tz;
	if (read_clock(CLOCK_REALTIME, &ts))
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec ts;
	if (read_clock(CLOCK_REALTIME, &ts))
		return -1;
	if (t)
		*t = ts.tv_sec;
	return ts.tv_sec;
}
