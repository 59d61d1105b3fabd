/* Fails, or kills the process at, the n-th system call of one kind below one folder.

   Preloaded before libc; does nothing until fault_arm is called. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WRITE, FSYNC, RENAME, MKDIR, READ, CREATE, KINDS };
enum { ONCE, ON, KILL };
static const int REASON[KINDS] = {ENOSPC, EIO, EIO, ENOSPC, EIO, ENOSPC};

static char folder[4096];
static int armed, kind, mode;
static long at;
static atomic_long counts[KINDS];

void fault_arm(const char *below, int what, long number, int how) {
    snprintf(folder, sizeof folder, "%s", below);
    kind = what, at = number, mode = how;
    for (int k = 0; k < KINDS; k++) counts[k] = 0;
    armed = 1;
}

long fault_count(int what) { return counts[what]; }

static int below(const char *path) { return path && strncmp(path, folder, strlen(folder)) == 0; }

static int open_below(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

/* Whether this call is to fail; counts it. */
static int fails(int what) {
    long number = atomic_fetch_add(&counts[what], 1) + 1;
    if (what != kind || number < at || (number > at && mode != ON)) return 0;
    if (mode == KILL) raise(SIGKILL);
    errno = REASON[what];
    return 1;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define BYTES(name, what) \
    if (armed && open_below(descriptor) && fails(what)) return -1

ssize_t write(int descriptor, const void *data, size_t length) {
    REAL(write);
    if (armed && open_below(descriptor) && fails(WRITE)) {
        /* A disk that fills up takes what still fits. */
        if (mode == ON && counts[WRITE] == at && length > 1) return real(descriptor, data, length / 2);
        errno = ENOSPC;
        return -1;
    }
    return real(descriptor, data, length);
}
ssize_t pwrite(int descriptor, const void *data, size_t length, off_t where) {
    REAL(pwrite);
    BYTES(pwrite, WRITE);
    return real(descriptor, data, length, where);
}
ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t where) {
    REAL(pwrite64);
    BYTES(pwrite64, WRITE);
    return real(descriptor, data, length, where);
}
ssize_t read(int descriptor, void *data, size_t length) {
    REAL(read);
    BYTES(read, READ);
    return real(descriptor, data, length);
}
ssize_t pread(int descriptor, void *data, size_t length, off_t where) {
    REAL(pread);
    BYTES(pread, READ);
    return real(descriptor, data, length, where);
}
ssize_t pread64(int descriptor, void *data, size_t length, off64_t where) {
    REAL(pread64);
    BYTES(pread64, READ);
    return real(descriptor, data, length, where);
}
int fsync(int descriptor) {
    REAL(fsync);
    BYTES(fsync, FSYNC);
    return real(descriptor);
}
int rename(const char *from, const char *to) {
    REAL(rename);
    if (armed && below(to) && fails(RENAME)) return -1;
    return real(from, to);
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(renameat2);
    if (armed && below(to) && fails(RENAME)) return -1;
    return real(a, from, b, to, flags);
}
int mkdir(const char *path, mode_t bits) {
    REAL(mkdir);
    if (armed && below(path) && fails(MKDIR)) return -1;
    return real(path, bits);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        mode_t bits = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            bits = va_arg(more, mode_t); \
            va_end(more); \
        } \
        if (armed && (flags & O_CREAT) && below(path) && fails(CREATE)) return -1; \
        return real(path, flags, bits); \
    }
OPEN(open)
OPEN(open64)
