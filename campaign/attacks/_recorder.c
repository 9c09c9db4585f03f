/* Writes down, in order, every change that a process makes to the files under one folder.

   Loaded before all other libraries (LD_PRELOAD), so that it hears of calls made in C, C++ and Rust
   as well. A record is a line `KIND inode number length path[\tpath]` and `length` bytes. Changes
   through mapped memory make no call: the content of a file is written down when it is synced or
   closed, and whoever reads the record finds what it was not told, as it does with renames by system
   calls that pass the C library by. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char under[PATH_MAX];
static int record = -1;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

/* Record from now on what happens under `folder`. */
int ipot_record(const char *folder, const char *file) {
  snprintf(under, sizeof under, "%s/", folder);
  record = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  return record;
}

static void put(const void *data, size_t size) {
  const char *at = data;
  while (size) {
    long done = syscall(SYS_write, record, at, size);
    if (done <= 0) abort();
    at += done, size -= done;
  }
}

static void tell(char kind, ino_t inode, long number, const void *data, size_t size,
                 const char *path, const char *other) {
  int before = errno;
  char line[2 * PATH_MAX + 100];
  int length = snprintf(line, sizeof line, "%c %lu %ld %zu %s%s%s\n", kind, (unsigned long)inode,
                        number, size, path, other ? "\t" : "", other ? other : "");
  pthread_mutex_lock(&turn);
  put(line, length);
  put(data, size);
  pthread_mutex_unlock(&turn);
  errno = before;
}

/* The path of an open file; 0 where it does not lie under the folder. */
static int path_of(int file, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, path, PATH_MAX - 1);
  if (size < 0) return 0;
  path[size] = 0;
  return !strncmp(path, under, strlen(under)) || !strncmp(path, under, strlen(under) - 1);
}

static int watched(int file, struct stat *about, char *path) {
  int before = errno;
  int yes = record >= 0 && file != record && path_of(file, path) && !fstat(file, about);
  errno = before;
  return yes;
}

/* A path in full; 0 where it does not lie under the folder. */
static int full(int folder, const char *given, char *path) {
  int before = errno;
  if (record < 0 || !given) return 0;
  if (given[0] == '/') {
    snprintf(path, PATH_MAX, "%s", given);
  } else {
    char base[PATH_MAX];
    if (folder == AT_FDCWD) {
      if (!getcwd(base, sizeof base)) return 0;
    } else {
      char link[64];
      snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
      ssize_t size = readlink(link, base, sizeof base - 1);
      if (size < 0) { errno = before; return 0; }
      base[size] = 0;
    }
    if (snprintf(path, PATH_MAX, "%s/%s", base, given) >= PATH_MAX) return 0;
  }
  errno = before;
  return !strncmp(path, under, strlen(under));
}

/* The whole content of a file as it is now. */
static void tell_content(char kind, int file, struct stat *about, const char *path) {
  int own = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  char *content = malloc(about->st_size + 1);
  size_t size = 0;
  if (own >= 0 && content)
    for (ssize_t got; (got = pread(own, content + size, about->st_size - size, size)) > 0;)
      size += got;
  if (own >= 0) syscall(SYS_close, own);
  tell(kind, about->st_ino, about->st_size, content, size, path, NULL);
  free(content);
}

static int opened(int folder, const char *given, int flags, mode_t mode) {
  char path[PATH_MAX];
  struct stat before, after;
  int ours = full(folder, given, path) && (flags & O_ACCMODE) != O_RDONLY;
  int there = ours && !stat(path, &before);
  int file = syscall(SYS_openat, folder, given, flags, mode);
  if (ours && file >= 0 && !(flags & O_DIRECTORY) && !fstat(file, &after)) {
    if (!there) tell('C', after.st_ino, 0, "", 0, path, NULL);
    else if (flags & O_TRUNC) tell('T', after.st_ino, 0, "", 0, path, NULL);
  }
  return file;
}

#define OPEN(name, before, folder, path)                       \
  int name(before const char *path, int flags, ...) {          \
    mode_t mode = 0;                                           \
    if (flags & (O_CREAT | __O_TMPFILE)) {                     \
      va_list more;                                            \
      va_start(more, flags);                                   \
      mode = va_arg(more, mode_t);                             \
      va_end(more);                                            \
    }                                                          \
    return opened(folder, path, flags, mode);                  \
  }
#define NOTHING
#define FOLDER int folder,
OPEN(open, NOTHING, AT_FDCWD, path)
OPEN(open64, NOTHING, AT_FDCWD, path)
OPEN(openat, FOLDER, folder, path)
OPEN(openat64, FOLDER, folder, path)
int creat(const char *path, mode_t mode) {
  return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

static void wrote(int file, const void *data, ssize_t size, off_t at) {
  char path[PATH_MAX];
  struct stat about;
  if (size > 0 && watched(file, &about, path) && S_ISREG(about.st_mode)) {
    if (at < 0) at = lseek(file, 0, SEEK_CUR) - size;
    tell('W', about.st_ino, at, data, size, path, NULL);
  }
}

ssize_t write(int file, const void *data, size_t size) {
  ssize_t done = syscall(SYS_write, file, data, size);
  if (record >= 0) wrote(file, data, done, -1);
  return done;
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
  ssize_t done = syscall(SYS_pwrite64, file, data, size, at);
  if (record >= 0) wrote(file, data, done, at);
  return done;
}
ssize_t pwrite64(int file, const void *data, size_t size, off_t at) {
  return pwrite(file, data, size, at);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
  ssize_t done = syscall(SYS_writev, file, parts, count);
  if (record >= 0 && done > 0) {
    char *whole = malloc(done);
    ssize_t have = 0;
    for (int i = 0; i < count && have < done; i++) {
      ssize_t size = parts[i].iov_len < (size_t)(done - have) ? (ssize_t)parts[i].iov_len : done - have;
      memcpy(whole + have, parts[i].iov_base, size);
      have += size;
    }
    wrote(file, whole, done, -1);
    free(whole);
  }
  return done;
}

/* What is not followed call by call is told by the content that it leaves. */
static void changed(int file) {
  char path[PATH_MAX];
  struct stat about;
  if (watched(file, &about, path) && S_ISREG(about.st_mode)) tell_content('K', file, &about, path);
}
ssize_t sendfile(int to, int from, off_t *at, size_t size) {
  ssize_t done = REAL(sendfile)(to, from, at, size);
  if (record >= 0 && done > 0) changed(to);
  return done;
}
ssize_t sendfile64(int to, int from, off_t *at, size_t size) { return sendfile(to, from, at, size); }
ssize_t copy_file_range(int from, off_t *at, int to, off_t *there, size_t size, unsigned flags) {
  ssize_t done = syscall(SYS_copy_file_range, from, at, to, there, size, flags);
  if (record >= 0 && done > 0) changed(to);
  return done;
}
int posix_fallocate(int file, off_t at, off_t size) {
  int done = REAL(posix_fallocate)(file, at, size);
  if (record >= 0) changed(file);
  return done;
}
int posix_fallocate64(int file, off_t at, off_t size) { return posix_fallocate(file, at, size); }
int fallocate(int file, int mode, off_t at, off_t size) {
  int done = syscall(SYS_fallocate, file, mode, at, size);
  if (record >= 0) changed(file);
  return done;
}
int ftruncate(int file, off_t size) {
  int done = syscall(SYS_ftruncate, file, size);
  char path[PATH_MAX];
  struct stat about;
  if (!done && watched(file, &about, path)) tell('T', about.st_ino, size, "", 0, path, NULL);
  return done;
}
int ftruncate64(int file, off_t size) { return ftruncate(file, size); }

static int synced(int call, int file) {
  int done = syscall(call, file);
  char path[PATH_MAX];
  struct stat about;
  if (!done && watched(file, &about, path)) {
    if (S_ISDIR(about.st_mode)) tell('D', about.st_ino, 0, "", 0, path, NULL);
    else tell_content('S', file, &about, path);
  }
  return done;
}
int fsync(int file) { return synced(SYS_fsync, file); }
int fdatasync(int file) { return synced(SYS_fdatasync, file); }

int close(int file) {
  char path[PATH_MAX];
  struct stat about;
  if (record >= 0 && (fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY &&
      watched(file, &about, path) && S_ISREG(about.st_mode) && about.st_nlink)
    tell_content('K', file, &about, path);
  return syscall(SYS_close, file);
}

static int renamed(int one, const char *from, int other, const char *to, unsigned flags) {
  char old[PATH_MAX], new[PATH_MAX];
  int ours = full(one, from, old) && full(other, to, new);
  int done = syscall(SYS_renameat2, one, from, other, to, flags);
  if (ours && !done) tell(flags & 2 ? 'X' : 'R', 0, 0, "", 0, old, new);
  return done;
}
int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int one, const char *from, int other, const char *to) {
  return renamed(one, from, other, to, 0);
}
int renameat2(int one, const char *from, int other, const char *to, unsigned flags) {
  return renamed(one, from, other, to, flags);
}
int linkat(int one, const char *from, int other, const char *to, int flags) {
  char old[PATH_MAX], new[PATH_MAX];
  int ours = full(one, from, old) && full(other, to, new);
  int done = syscall(SYS_linkat, one, from, other, to, flags);
  if (ours && !done) tell('L', 0, 0, "", 0, old, new);
  return done;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int unlinkat(int folder, const char *given, int flags) {
  char path[PATH_MAX];
  int ours = full(folder, given, path);
  int done = syscall(SYS_unlinkat, folder, given, flags);
  if (ours && !done) tell('U', 0, 0, "", 0, path, NULL);
  return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int folder, const char *given, mode_t mode) {
  char path[PATH_MAX];
  int ours = full(folder, given, path);
  int done = syscall(SYS_mkdirat, folder, given, mode);
  if (ours && !done) tell('M', 0, 0, "", 0, path, NULL);
  return done;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
