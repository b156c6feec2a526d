/* System calls on the files below a folder, counted; when its turn has come, one of them fails once.
 *
 * Loaded before the C library (LD_PRELOAD), it sees what Python, PyTorch and safetensors ask the system for. Without
 * fault_arm it passes everything on. The 64 in a name is how programs with large files call the same function.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define FILES 4096

static char below[4096];
static atomic_long count, turn = -1;
static int failure;
static char what[4352];
static atomic_int ours[FILES]; /* descriptors of files below the folder */

void fault_arm(const char *folder, long which, int error) {
    snprintf(below, sizeof below, "%s/", folder);
    failure = error;
    count = 0;
    turn = which;
}
long fault_count(void) { return count; }
const char *fault_place(void) { return what; }

static int is_ours(int folder, const char *path) {
    if (!below[0] || !path) return 0;
    if (path[0] == '/') return !strncmp(path, below, strlen(below));
    if (folder == AT_FDCWD) return strncmp(path, "..", 2) != 0; /* jobs run in the folder */
    return folder >= 0 && folder < FILES && ours[folder];
}
static int is_open(int file) { return file >= 0 && file < FILES && ours[file]; }

/* Whether this call is to fail. */
static int strikes(const char *call, const char *path) {
    if (atomic_fetch_add(&count, 1) != turn) return 0;
    snprintf(what, sizeof what, "%s %s", call, path ? path : "");
    errno = failure;
    return 1;
}
static int opened(int file, int mine) {
    if (file >= 0 && file < FILES) ours[file] = mine;
    return file;
}

#define REAL(name, type) static __typeof__(type) real; if (!real) real = (__typeof__(type))dlsym(RTLD_NEXT, name)

#define OPEN(name)                                                                                    \
    int name(const char *path, int flags, ...) {                                                      \
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest);               \
        REAL(#name, int (*)(const char *, int, ...));                                                 \
        int mine = is_ours(AT_FDCWD, path);                                                           \
        return mine && strikes("open", path) ? -1 : opened(real(path, flags, mode), mine);            \
    }
OPEN(open) OPEN(open64)

#define OPENAT(name)                                                                                  \
    int name(int folder, const char *path, int flags, ...) {                                          \
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest);               \
        REAL(#name, int (*)(int, const char *, int, ...));                                            \
        int mine = is_ours(folder, path);                                                             \
        return mine && strikes("open", path) ? -1 : opened(real(folder, path, flags, mode), mine);    \
    }
OPENAT(openat) OPENAT(openat64)

int close(int file) {
    REAL("close", int (*)(int));
    opened(file, 0);
    return real(file);
}

#define ON_PATH(name)                                                                                 \
    int name(const char *path, void *more) {                                                          \
        REAL(#name, int (*)(const char *, void *));                                                   \
        return is_ours(AT_FDCWD, path) && strikes(#name, path) ? -1 : real(path, more);               \
    }
ON_PATH(stat) ON_PATH(stat64) ON_PATH(lstat) ON_PATH(lstat64)

#define ON_PATH_MODE(name)                                                                            \
    int name(const char *path, mode_t mode) {                                                         \
        REAL(#name, int (*)(const char *, mode_t));                                                   \
        return is_ours(AT_FDCWD, path) && strikes(#name, path) ? -1 : real(path, mode);               \
    }
ON_PATH_MODE(mkdir)
int access(const char *path, int mode) {
    REAL("access", int (*)(const char *, int));
    return is_ours(AT_FDCWD, path) && strikes("access", path) ? -1 : real(path, mode);
}

#define FSTATAT(name)                                                                                 \
    int name(int folder, const char *path, void *buffer, int flags) {                                 \
        REAL(#name, int (*)(int, const char *, void *, int));                                         \
        return is_ours(folder, path) && strikes("stat", path) ? -1 : real(folder, path, buffer, flags); \
    }
FSTATAT(fstatat) FSTATAT(fstatat64)

#define FSTAT(name)                                                                                   \
    int name(int file, void *buffer) {                                                                \
        REAL(#name, int (*)(int, void *));                                                            \
        return is_open(file) && strikes("fstat", "") ? -1 : real(file, buffer);                       \
    }
FSTAT(fstat) FSTAT(fstat64)

/* As programs call it that were built for an older C library. */
int __fxstat64(int version, int file, void *buffer) {
    REAL("__fxstat64", int (*)(int, int, void *));
    return is_open(file) && strikes("fstat", "") ? -1 : real(version, file, buffer);
}

#define ON_FILE(name)                                                                                 \
    int name(int file) {                                                                              \
        REAL(#name, int (*)(int));                                                                    \
        return is_open(file) && strikes(#name, "") ? -1 : real(file);                                 \
    }
ON_FILE(fsync) ON_FILE(fdatasync)

ssize_t read(int file, void *buffer, size_t size) {
    REAL("read", ssize_t (*)(int, void *, size_t));
    return is_open(file) && strikes("read", "") ? -1 : real(file, buffer, size);
}
ssize_t pread64(int file, void *buffer, size_t size, off_t offset) {
    REAL("pread64", ssize_t (*)(int, void *, size_t, off_t));
    return is_open(file) && strikes("read", "") ? -1 : real(file, buffer, size, offset);
}
ssize_t write(int file, const void *buffer, size_t size) {
    REAL("write", ssize_t (*)(int, const void *, size_t));
    if (is_open(file) && strikes("write", "")) { /* as disks do: some of it has been written */
        real(file, buffer, size / 2);
        errno = failure;
        return -1;
    }
    return real(file, buffer, size);
}
void *mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    REAL("mmap64", void *(*)(void *, size_t, int, int, int, off_t));
    return is_open(file) && strikes("mmap", "") ? MAP_FAILED : real(address, size, protection, flags, file, offset);
}
int rename(const char *from, const char *to) {
    REAL("rename", int (*)(const char *, const char *));
    return is_ours(AT_FDCWD, to) && strikes("rename", to) ? -1 : real(from, to);
}
int renameat(int folder, const char *from, int target, const char *to) {
    REAL("renameat", int (*)(int, const char *, int, const char *));
    return is_ours(target, to) && strikes("rename", to) ? -1 : real(folder, from, target, to);
}
int unlink(const char *path) {
    REAL("unlink", int (*)(const char *));
    return is_ours(AT_FDCWD, path) && strikes("unlink", path) ? -1 : real(path);
}
int unlinkat(int folder, const char *path, int flags) {
    REAL("unlinkat", int (*)(int, const char *, int));
    return is_ours(folder, path) && strikes("unlink", path) ? -1 : real(folder, path, flags);
}
int flock(int file, int operation) {
    REAL("flock", int (*)(int, int));
    return is_open(file) && strikes("flock", "") ? -1 : real(file, operation);
}
int posix_fallocate64(int file, off_t offset, off_t size) {
    REAL("posix_fallocate64", int (*)(int, off_t, off_t));
    return is_open(file) && strikes("fallocate", "") ? failure : real(file, offset, size);
}

/* Listings: a DIR has a descriptor that the C library opens by itself. */
DIR *opendir(const char *path) {
    REAL("opendir", DIR *(*)(const char *));
    int mine = is_ours(AT_FDCWD, path);
    if (mine && strikes("opendir", path)) return NULL;
    DIR *folder = real(path);
    if (folder) opened(dirfd(folder), mine);
    return folder;
}
int closedir(DIR *folder) {
    REAL("closedir", int (*)(DIR *));
    opened(dirfd(folder), 0);
    return real(folder);
}
#define READDIR(name, type)                                                                           \
    struct type *name(DIR *folder) {                                                                  \
        REAL(#name, struct type *(*)(DIR *));                                                         \
        return is_open(dirfd(folder)) && strikes("readdir", "") ? NULL : real(folder);                \
    }
READDIR(readdir, dirent) READDIR(readdir64, dirent64)
