/* Loaded before the C library: a disk on which a call that writes fails, for lack of room.
 *
 * full_disk_begin(folder, at, how) counts such calls in a folder from there on, and lets the one with
 * the number `at` fail (0 for none): alone (how = 0), with all after it (1), or by killing the process
 * before it (2). full_disk_end() gives the number of calls. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long calls = 0, fail_at = 0;
static int fail_how = 0;
static char fail_under[4096] = "";

void full_disk_begin(const char *folder, long at, int how) {
    snprintf(fail_under, sizeof fail_under, "%s", folder);
    calls = 0, fail_at = at, fail_how = how;
}

long full_disk_end(void) {
    fail_under[0] = 0;
    return calls;
}

static int is_under(const char *path) {
    return fail_under[0] && path && strncmp(path, fail_under, strlen(fail_under)) == 0;
}

static int descriptor_is_under(int descriptor) {
    char link[64], path[4096];
    if (!fail_under[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_under(path);
}

static int path_is_under(int folder, const char *path) {
    if (path && path[0] == '/') return is_under(path);
    if (!fail_under[0]) return 0;
    if (folder != AT_FDCWD) return descriptor_is_under(folder);
    char *here = getcwd(NULL, 0);
    int under = is_under(here);
    free(here);
    return under;
}

/* Whether this call fails. */
static int fails(int under) {
    if (!under) return 0;
    long number = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (!fail_at || number < fail_at || (fail_how == 0 && number > fail_at)) return 0;
    if (fail_how == 2) kill(getpid(), SIGKILL);
    errno = ENOSPC;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...) {                               \
        va_list more;                                                          \
        va_start(more, flags);                                                 \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;      \
        va_end(more);                                                          \
        if (flags & O_CREAT && fails(path_is_under(AT_FDCWD, path))) return -1; \
        return REAL(name)(path, flags, mode);                                  \
    }

OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                           \
    int name(int folder, const char *path, int flags, ...) {                   \
        va_list more;                                                          \
        va_start(more, flags);                                                 \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;      \
        va_end(more);                                                          \
        if (flags & O_CREAT && fails(path_is_under(folder, path))) return -1;  \
        return REAL(name)(folder, path, flags, mode);                          \
    }

OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
    return fails(descriptor_is_under(file)) ? -1 : REAL(write)(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    return fails(descriptor_is_under(file)) ? -1 : REAL(writev)(file, parts, count);
}

#define PWRITE(name, type)                                                     \
    ssize_t name(int file, const void *data, size_t size, type place) {        \
        if (fails(descriptor_is_under(file))) return -1;                       \
        return REAL(name)(file, data, size, place);                            \
    }

PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, type)                                                   \
    int name(int file, type size) {                                            \
        return fails(descriptor_is_under(file)) ? -1 : REAL(name)(file, size); \
    }

TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int fsync(int file) { return fails(descriptor_is_under(file)) ? -1 : REAL(fsync)(file); }

int fdatasync(int file) { return fails(descriptor_is_under(file)) ? -1 : REAL(fdatasync)(file); }

int mkdir(const char *path, mode_t mode) {
    return fails(path_is_under(AT_FDCWD, path)) ? -1 : REAL(mkdir)(path, mode);
}

int rename(const char *from, const char *to) {
    return fails(path_is_under(AT_FDCWD, to)) ? -1 : REAL(rename)(from, to);
}

int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
    if (fails(path_is_under(other, to))) return -1;
    return REAL(renameat2)(folder, from, other, to, flags);
}

int unlink(const char *path) {
    return fails(path_is_under(AT_FDCWD, path)) ? -1 : REAL(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags) {
    return fails(path_is_under(folder, path)) ? -1 : REAL(unlinkat)(folder, path, flags);
}

int rmdir(const char *path) {
    return fails(path_is_under(AT_FDCWD, path)) ? -1 : REAL(rmdir)(path);
}
