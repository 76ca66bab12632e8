/* Has one system call on files below FAILING_UNDER fail; loaded into the broker by LD_PRELOAD.

   FAILING_CALL is "NAME:NUMBER:ERRNO": the NUMBER-th call of NAME (from 1) fails with ERRNO; 0 writes half of the
   bytes instead. FAILING_LOG gets one line a call: its name, its number and the path. With FAILING_LIE, writes to files
   whose path ends with it write nothing and say that they did, as a disk that lies: what a check must find out. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE, PWRITE, WRITEV, PWRITEV, FSYNC, FDATASYNC, FTRUNCATE, RENAME, OPEN, CALLS };
static const char *NAMES[CALLS] = {"write", "pwrite", "writev", "pwritev", "fsync", "fdatasync", "ftruncate", "rename", "open"};
static int counts[CALLS];
static int log_fd = -2;

/* -1: goes on as ever; -2: says that it did; 0: half of the bytes; else the errno. */
#define LIE -2
static int judge(int call, const char *path) {
    const char *under = getenv("FAILING_UNDER"), *wanted = getenv("FAILING_CALL"), *log = getenv("FAILING_LOG");
    char line[5000], name[32];
    int number, error, wanted_number, saved = errno, hit = 0;
    if (!under || strncmp(path, under, strlen(under))) return -1;
    number = __atomic_add_fetch(&counts[call], 1, __ATOMIC_SEQ_CST);
    if (wanted && sscanf(wanted, "%31[a-z]:%d:%d", name, &wanted_number, &error) == 3)
        hit = !strcmp(name, NAMES[call]) && number == wanted_number;
    if (log) {
        if (log_fd == -2) log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        int size = snprintf(line, sizeof line, "%s %d %d %s\n", NAMES[call], number, hit, path);
        syscall(SYS_write, log_fd, line, size);
    }
    errno = saved;
    if (hit) return error;
    const char *lie = getenv("FAILING_LIE");
    size_t size = strlen(path);
    return lie && size >= strlen(lie) && !strcmp(path + size - strlen(lie), lie) ? LIE : -1;
}

static int judge_fd(int call, int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = syscall(SYS_readlink, link, path, sizeof path - 1);
    if (size < 0) return -1;
    path[size] = 0;
    return judge(call, path);
}

#define REFUSE(verdict) if ((verdict) > 0) { errno = (verdict); return -1; }

ssize_t write(int fd, const void *data, size_t size) {
    int verdict = judge_fd(WRITE, fd);
    REFUSE(verdict)
    return syscall(SYS_write, fd, data, verdict == 0 && size > 1 ? size / 2 : size);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    int verdict = judge_fd(PWRITE, fd);
    REFUSE(verdict)
    if (verdict == LIE) return size;
    return syscall(SYS_pwrite64, fd, data, verdict == 0 && size > 1 ? size / 2 : size, at);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) {
    int verdict = judge_fd(WRITEV, fd);
    REFUSE(verdict)
    if (verdict == 0) return syscall(SYS_write, fd, parts[0].iov_base, (parts[0].iov_len + 1) / 2);
    return syscall(SYS_writev, fd, parts, count);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    int verdict = judge_fd(PWRITEV, fd);
    REFUSE(verdict)
    if (verdict == LIE) {
        ssize_t sum = 0;
        for (int i = 0; i < count; i++) sum += parts[i].iov_len;
        return sum;
    }
    if (verdict == 0) return syscall(SYS_pwrite64, fd, parts[0].iov_base, (parts[0].iov_len + 1) / 2, at);
    return syscall(SYS_pwritev, fd, parts, count, at, 0);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return pwritev64(fd, parts, count, at); }
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) { return pwritev64(fd, parts, count, at); }
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) { return pwritev64(fd, parts, count, at); }
int fsync(int fd) {
    int verdict = judge_fd(FSYNC, fd);
    REFUSE(verdict)
    return syscall(SYS_fsync, fd);
}
int fdatasync(int fd) {
    int verdict = judge_fd(FDATASYNC, fd);
    REFUSE(verdict)
    return syscall(SYS_fdatasync, fd);
}
int ftruncate64(int fd, off64_t size) {
    int verdict = judge_fd(FTRUNCATE, fd);
    REFUSE(verdict)
    return syscall(SYS_ftruncate, fd, size);
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    int verdict = judge(RENAME, to);
    REFUSE(verdict)
    return syscall(SYS_renameat, from_fd, from, to_fd, to);
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
int openat64(int fd, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    int verdict = judge(OPEN, path);
    REFUSE(verdict)
    return syscall(SYS_openat, fd, path, flags | O_LARGEFILE, mode);
}
#define OPENER(name)                                        \
    int name(const char *path, int flags, ...) {            \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode_t mode = va_arg(rest, mode_t);                 \
        va_end(rest);                                       \
        return openat64(AT_FDCWD, path, flags, mode);       \
    }
OPENER(open)
OPENER(open64)
