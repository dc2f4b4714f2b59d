/* file.c - mapping and atomic writing. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bitnet_status fail_errno(bitnet_error *err, const char *path, const char *what)
{
    char text[128];
    return bnet_fail(err, BITNET_IO, "%s: cannot %s: %s", path, what,
                     bnet_errno_text(errno, text, sizeof text));
}

static bitnet_status check_regular(int fd, const char *path, struct stat *st, bitnet_error *err)
{
    if (fstat(fd, st) != 0)
        return fail_errno(err, path, "stat");
    if (!S_ISREG(st->st_mode))
        return bnet_fail(err, BITNET_IO, "%s: is %s, not a regular file", path,
                         S_ISDIR(st->st_mode) ? "a directory" : "a device or pipe");
    return BITNET_OK;
}

/* ---- identity ---- */

static int64_t nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bnet_file_id id_of(const struct stat *st)
{
    return (bnet_file_id){.device = (uint64_t)st->st_dev,
                          .inode = (uint64_t)st->st_ino,
                          .n_bytes = (uint64_t)st->st_size,
                          .written_ns = nanoseconds(st->st_mtim),
                          .changed_ns = nanoseconds(st->st_ctim),
                          .owner = (uint32_t)st->st_uid,
                          .mode = (uint32_t)st->st_mode};
}

bool bnet_file_identify(const char *path, bnet_file_id *out)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *out = id_of(&st);
    return true;
}

void bnet_file_touch(const char *path)
{
    utimensat(AT_FDCWD, path, NULL, 0);
}

bool bnet_file_is(const bnet_file_id *a, const bnet_file_id *b)
{
    return a->device == b->device && a->inode == b->inode && a->n_bytes == b->n_bytes &&
           a->written_ns == b->written_ns && a->changed_ns == b->changed_ns;
}

bitnet_status bnet_file_own(const bnet_file_id *id, const char *path, bitnet_error *err)
{
    bool folder = S_ISDIR(id->mode);
    if (id->owner != (uint32_t)geteuid())
        return bnet_fail(err, BITNET_IO, "%s: belongs to user %u and you are user %u: ignored; %s",
                         path, id->owner, (unsigned)geteuid(),
                         folder ? "choose a folder of your own" : "remove it");
    if (id->mode & (S_IWGRP | S_IWOTH))
        return bnet_fail(err, BITNET_IO,
                         "%s: others may write to it (mode %04o): ignored; chmod go-w '%s'%s", path,
                         id->mode & 07777, path, folder ? ", or choose another folder" : "");
    return BITNET_OK;
}

/* ---- maps ---- */

static bitnet_status map_fd(int fd, const char *path, bnet_map *out, bitnet_error *err)
{
    struct stat st;
    bitnet_status status = check_regular(fd, path, &st, err);
    if (status != BITNET_OK)
        return status;
    bnet_map map = {NULL, (size_t)st.st_size, id_of(&st)};
    if (map.n_bytes > 0) {
        void *p = mmap(NULL, map.n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            return fail_errno(err, path, "map");
        map.data = p;
    }
    *out = map;
    return BITNET_OK;
}

bitnet_status bnet_map_open(const char *path, bnet_map *out, bitnet_error *err)
{
    /* O_NONBLOCK: opening a pipe must not hang before we can refuse it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_errno(err, path, "open");
    bitnet_status st = map_fd(fd, path, out, err);
    close(fd);
    return st;
}

void bnet_map_close(bnet_map *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->n_bytes);
    *map = (bnet_map){0};
}

void bnet_map_release(const void *p, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t lo = ((uintptr_t)p + page - 1) & ~(page - 1), hi = ((uintptr_t)p + n) & ~(page - 1);
    if (hi > lo)
        madvise((void *)lo, hi - lo, MADV_DONTNEED);
}

void bnet_map_fetch(const void *p, size_t n)
{
#ifdef MADV_POPULATE_READ
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t lo = (uintptr_t)p & ~(page - 1), hi = ((uintptr_t)p + n + page - 1) & ~(page - 1);
    madvise((void *)lo, hi - lo, MADV_POPULATE_READ); /* a wish: reading does it too, slower */
#else
    (void)p, (void)n;
#endif
}

struct bnet_writer {
    int fd;
    uint64_t offset;
    bool failed;
    char *path, *temp;
    size_t n_buffered;
    uint8_t buffer[1 << 16];
};

static void writer_free(bnet_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    bnet_free(w->path);
    bnet_free(w->temp);
    bnet_free(w);
}

/* True if a new temporary is ours: somebody who sweeps may have found it before it was locked. A
 * file system without locks keeps no order here, and nothing is swept there. */
static bool hold(int fd)
{
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return false;
    return fstat(fd, &st) != 0 || st.st_nlink > 0;
}

bool bnet_temp_sweep(int folder_fd, const char *name)
{
    int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool swept = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(folder_fd, name, 0) == 0;
    if (fd >= 0)
        close(fd);
    return swept;
}

/* Creates a file that did not exist before, with six letters written at name + at; with `mode` of
 * 0600 it is locked. The system applies the process's mask to the mode: asking for the mask would
 * change it for a moment for all threads. Returns -1 and errno on failure. */
static int open_new(char *name, size_t at, mode_t mode)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    enum { TRIES = 100 };
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t x = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + (uintptr_t)name;
    for (int i = 0; i < TRIES; i++) {
        x = (x ^ x >> 29) * 0x9e3779b97f4a7c15u + (uint64_t)getpid();
        for (size_t k = 0; k < 6; k++)
            name[at + k] = letters[x >> (34 + 5 * k) & 31];
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 && mode == 0600 && !hold(fd))
            close(fd);
        else if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

static bitnet_status make_temp(bnet_writer *w, const char *path, mode_t mode, bitnet_error *err)
{
    size_t n = strlen(path);
    w->path = bnet_strdup(path);
    w->temp = bnet_alloc(n + 16);
    if (!w->path || !w->temp)
        return bnet_no_memory(err, "output path");
    snprintf(w->temp, n + 16, "%s.XXXXXX.tmp", path);
    w->fd = open_new(w->temp, n + 1, mode);
    return w->fd < 0 ? fail_errno(err, path, "create") : BITNET_OK;
}

static bitnet_status open_writer(const char *path, mode_t mode, bnet_writer **out,
                                 bitnet_error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return bnet_fail(err, BITNET_IO,
                         "%s: exists and is not a regular file; choose another output", path);
    bnet_writer *w = bnet_calloc(1, sizeof *w);
    if (!w)
        return bnet_no_memory(err, "output buffer");
    w->fd = -1;
    bitnet_status status = make_temp(w, path, mode, err);
    if (status != BITNET_OK) {
        writer_free(w);
        return status;
    }
    *out = w;
    return BITNET_OK;
}

bitnet_status bnet_writer_open(const char *path, bnet_writer **out, bitnet_error *err)
{
    return open_writer(path, 0666, out, err);
}

bitnet_status bnet_writer_open_private(const char *path, bnet_writer **out, bitnet_error *err)
{
    return open_writer(path, 0600, out, err);
}

static bitnet_status write_all(bnet_writer *w, const uint8_t *p, size_t n, bitnet_error *err)
{
    while (n > 0) {
        ssize_t k = write(w->fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            w->failed = true;
            return fail_errno(err, w->path, "write");
        }
        p += k;
        n -= (size_t)k;
    }
    return BITNET_OK;
}

static bitnet_status flush(bnet_writer *w, bitnet_error *err)
{
    if (w->failed)
        return bnet_fail(err, BITNET_IO, "%s: an earlier write failed", w->path);
    size_t n = w->n_buffered;
    w->n_buffered = 0;
    return write_all(w, w->buffer, n, err);
}

bitnet_status bnet_writer_write(bnet_writer *w, const void *data, size_t n, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    if (w->failed || n > sizeof w->buffer - w->n_buffered)
        st = flush(w, err);
    if (st != BITNET_OK)
        return st;
    w->offset += n;
    if (n > sizeof w->buffer)
        return write_all(w, data, n, err);
    if (n)
        memcpy(w->buffer + w->n_buffered, data, n);
    w->n_buffered += n;
    return BITNET_OK;
}

bitnet_status bnet_writer_zeros(bnet_writer *w, size_t n, bitnet_error *err)
{
    static const uint8_t zeros[4096];
    while (n > 0) {
        size_t k = BNET_MIN(n, sizeof zeros);
        bitnet_status st = bnet_writer_write(w, zeros, k, err);
        if (st != BITNET_OK)
            return st;
        n -= k;
    }
    return BITNET_OK;
}

uint64_t bnet_writer_offset(const bnet_writer *w)
{
    return w->offset;
}

const char *bnet_writer_temp_path(const bnet_writer *w)
{
    return w->temp;
}

static bitnet_status finish(bnet_writer *w, bool sync_it, bitnet_error *err)
{
    bitnet_status st = flush(w, err);
    if (st == BITNET_OK && sync_it && fsync(w->fd) != 0 && errno != EINVAL)
        st = fail_errno(err, w->path, "sync");
    if (st == BITNET_OK && close(w->fd) != 0)
        st = fail_errno(err, w->path, "close");
    else if (st != BITNET_OK)
        close(w->fd);
    w->fd = -1;
    if (st == BITNET_OK && rename(w->temp, w->path) != 0)
        st = fail_errno(err, w->path, "rename the finished file to");
    if (st != BITNET_OK)
        unlink(w->temp);
    writer_free(w);
    return st;
}

bitnet_status bnet_writer_commit(bnet_writer *w, bitnet_error *err)
{
    return finish(w, true, err);
}

bitnet_status bnet_writer_publish(bnet_writer *w, bitnet_error *err)
{
    return finish(w, false, err);
}

void bnet_writer_abort(bnet_writer *w)
{
    if (!w)
        return;
    unlink(w->temp);
    writer_free(w);
}

static bitnet_status read_fd(int fd, const char *path, size_t max, char **data, size_t *n,
                             bitnet_error *err)
{
    char *buf = NULL;
    size_t cap = 0, used = 0;
    for (;;) {
        if (!bnet_grow(&buf, &cap, used + 65536 + 1, 1)) {
            bnet_free(buf);
            return bnet_no_memory(err, path);
        }
        ssize_t k = read(fd, buf + used, cap - used - 1);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 || used + (size_t)k > max) {
            bitnet_status st = k < 0
                                   ? fail_errno(err, path, "read")
                                   : bnet_fail(err, BITNET_IO,
                                               "%s: larger than the limit of %zu bytes", path, max);
            bnet_free(buf);
            return st;
        }
        if (k == 0)
            break;
        used += (size_t)k;
    }
    buf[used] = '\0';
    *data = buf;
    *n = used;
    return BITNET_OK;
}

bitnet_status bnet_read_file(const char *path, size_t max, char **data, size_t *n,
                             bitnet_error *err)
{
    struct stat there;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* as in bnet_map_open */
    if (fd < 0)
        return fail_errno(err, path, "open");
    bitnet_status st = check_regular(fd, path, &there, err);
    if (st == BITNET_OK)
        st = read_fd(fd, path, max, data, n, err);
    close(fd);
    return st;
}

bool bnet_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool name_fits(const char *entry, const char *name)
{
    size_t n = strlen(entry), k = strlen(name);
    return name[0] == '.' ? n > k && strcmp(entry + n - k, name) == 0 : strcmp(entry, name) == 0;
}

bool bnet_folder_find(const char *folder, const char *name, char *buf, size_t cap)
{
    DIR *dir = opendir(folder);
    const struct dirent *e;
    bool found = false;
    while (dir && (e = readdir(dir))) {
        if (!name_fits(e->d_name, name) || strlen(e->d_name) >= cap ||
            (found && strcmp(e->d_name, buf) > 0))
            continue;
        found = true;
        memcpy(buf, e->d_name, strlen(e->d_name) + 1);
    }
    if (dir)
        closedir(dir);
    return found;
}

bool bnet_make_folder(char *path)
{
    for (char *p = path + 1;; p++) {
        char c = *p;
        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        bool ok = mkdir(path, 0700) == 0 || errno == EEXIST;
        *p = c;
        if (!ok || c == '\0')
            return ok;
    }
}
