/* Loaded into the writers' process (LD_PRELOAD): writes down, in order, all that it does to the files of one folder, and all
 * that it says. tests/durable/power.rs makes of it what a disk may hold after a loss of power.
 *
 * A record, in the machine's byte order: kind (1 byte), length of the name (2), offset (8), length of the data (4), name, data.
 * Kinds: W write, T truncate to the offset, S sync, U unlink, A what was said on the standard output.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define FILES_MAX 1024

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char *names[FILES_MAX];
static int record = -1;
static const char *folder;

__attribute__((constructor)) static void begin(void) {
  folder = getenv("KUBEFOLD_DISK_FOLDER");
  const char *path = getenv("KUBEFOLD_DISK_RECORD");
  if (folder && path)
    record = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static const char *name_of(int file) {
  return record >= 0 && file >= 0 && file < FILES_MAX ? names[file] : NULL;
}

static void put(const void *data, size_t length) {
  const char *from = data;
  while (length > 0) {
    ssize_t done = syscall(SYS_write, record, from, length);
    if (done <= 0)
      abort();
    from += done;
    length -= (size_t)done;
  }
}

static void note(char kind, const char *name, uint64_t offset, const void *data, uint32_t length) {
  uint16_t name_length = (uint16_t)strlen(name);
  char head[15];
  head[0] = kind;
  memcpy(head + 1, &name_length, 2);
  memcpy(head + 3, &offset, 8);
  memcpy(head + 11, &length, 4);
  put(head, sizeof head);
  put(name, name_length);
  put(data, length);
}

static int opened(int file, const char *path) {
  size_t length = folder ? strlen(folder) : 0;
  if (record < 0 || file < 0 || file >= FILES_MAX || length == 0 || strncmp(path, folder, length) != 0)
    return file;
  pthread_mutex_lock(&turn);
  free(names[file]);
  names[file] = strdup(path + length + 1);
  pthread_mutex_unlock(&turn);
  return file;
}

static int open_as(const char *path, int flags, va_list rest) {
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  return opened((int)syscall(SYS_openat, AT_FDCWD, path, flags, mode), path);
}

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int file = open_as(path, flags, rest);
  va_end(rest);
  return file;
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int file = open_as(path, flags, rest);
  va_end(rest);
  return file;
}

int close(int file) {
  pthread_mutex_lock(&turn);
  if (name_of(file)) {
    free(names[file]);
    names[file] = NULL;
  }
  pthread_mutex_unlock(&turn);
  return (int)syscall(SYS_close, file);
}

ssize_t write(int file, const void *data, size_t length) {
  if (record < 0 || (file != 1 && !name_of(file)))
    return syscall(SYS_write, file, data, length);
  pthread_mutex_lock(&turn);
  off_t offset = file == 1 ? 0 : lseek(file, 0, SEEK_CUR);
  ssize_t done = syscall(SYS_write, file, data, length);
  if (done > 0)
    note(file == 1 ? 'A' : 'W', file == 1 ? "" : name_of(file), (uint64_t)offset, data, (uint32_t)done);
  pthread_mutex_unlock(&turn);
  return done;
}

ssize_t pwrite64(int file, const void *data, size_t length, off64_t offset) {
  if (!name_of(file))
    return syscall(SYS_pwrite64, file, data, length, offset);
  pthread_mutex_lock(&turn);
  ssize_t done = syscall(SYS_pwrite64, file, data, length, offset);
  if (done > 0)
    note('W', name_of(file), (uint64_t)offset, data, (uint32_t)done);
  pthread_mutex_unlock(&turn);
  return done;
}

ssize_t pwrite(int file, const void *data, size_t length, off_t offset) { return pwrite64(file, data, length, offset); }

int ftruncate64(int file, off64_t length) {
  if (!name_of(file))
    return (int)syscall(SYS_ftruncate, file, length);
  pthread_mutex_lock(&turn);
  int failed = (int)syscall(SYS_ftruncate, file, length);
  if (!failed)
    note('T', name_of(file), (uint64_t)length, "", 0);
  pthread_mutex_unlock(&turn);
  return failed;
}

int ftruncate(int file, off_t length) { return ftruncate64(file, length); }

static int synced(int file, long call) {
  if (!name_of(file))
    return (int)syscall(call, file);
  pthread_mutex_lock(&turn);
  int failed = (int)syscall(call, file);
  if (!failed)
    note('S', name_of(file), 0, "", 0);
  pthread_mutex_unlock(&turn);
  return failed;
}

int fsync(int file) { return synced(file, SYS_fsync); }

int fdatasync(int file) { return synced(file, SYS_fdatasync); }

int unlink(const char *path) {
  size_t length = folder ? strlen(folder) : 0;
  if (record < 0 || length == 0 || strncmp(path, folder, length) != 0)
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
  pthread_mutex_lock(&turn);
  int failed = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
  if (!failed)
    note('U', path + length + 1, 0, "", 0);
  pthread_mutex_unlock(&turn);
  return failed;
}
