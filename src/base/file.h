/* file.h - files as bytes: a read-only map, and a writer whose output appears whole or not at all.
 */
#ifndef BNET_FILE_H
#define BNET_FILE_H

#include "base/base.h"

/* What tells one state of a file from another, and who may write to it. A program can set the time
 * of the bytes, not that of the last change. Times in nanoseconds since 1970. */
typedef struct bnet_file_id {
    uint64_t device, inode, n_bytes;
    int64_t written_ns, changed_ns; /* mtime, ctime */
    uint32_t owner, mode;
} bnet_file_id;

bool bnet_file_identify(const char *path, bnet_file_id *out); /* false: it cannot be had */
void bnet_file_touch(const char *path);                       /* written now, if it can be */
bool bnet_file_is(const bnet_file_id *a, const bnet_file_id *b);
/* Fails IO unless the file or folder is this user's and nobody else may write to it: whoever can
 * could choose what is computed. The message names it and the remedy. */
bitnet_status bnet_file_own(const bnet_file_id *id, const char *path, bitnet_error *err);

/* A read-only private map of a whole regular file. Size is taken once at open: a file truncated
 * later raises SIGBUS at access, which a program's handler turns into a message
 * (bitnet_engine_map); the library has none. */
typedef struct bnet_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t n_bytes;
    bnet_file_id id; /* when it was opened; zeros for bytes that came from no file */
} bnet_map;

/* Fails IO with path and reason (missing, directory, permission, ...). */
bitnet_status bnet_map_open(const char *path, bnet_map *out, bitnet_error *err);
void bnet_map_close(bnet_map *map);
/* Does the address lie in it? For signal handlers too. */
static inline bool bnet_map_holds(const bnet_map *map, const void *address)
{
    uintptr_t begin = (uintptr_t)map->data, at = (uintptr_t)address;
    return map->data && at >= begin && at - begin < map->n_bytes;
}
/* Tells the kernel that [p, p+n) of a map will not be needed soon (bounds RSS when streaming). */
void bnet_map_release(const void *p, size_t n);
/* Tells it that [p, p+n) of a map is read next: its pages are mapped in one go instead of one by
 * one. From several threads, each for its part, this is how fast a file in the page cache can be
 * read. */
void bnet_map_fetch(const void *p, size_t n);

/* Writes to "<path>.XXXXXX.tmp" beside the target; _commit flushes, syncs and renames; _abort (or a
 * failed _commit) removes the temporary. After the first failed write every call fails the same
 * way. */
typedef struct bnet_writer bnet_writer;

bitnet_status bnet_writer_open(const char *path, bnet_writer **out, bitnet_error *err);
/* For files of this user alone (mode 0600). The temporary is locked while its process lives,
 * so that bnet_temp_sweep leaves it alone. */
bitnet_status bnet_writer_open_private(const char *path, bnet_writer **out, bitnet_error *err);
bitnet_status bnet_writer_write(bnet_writer *w, const void *data, size_t n, bitnet_error *err);
bitnet_status bnet_writer_zeros(bnet_writer *w, size_t n, bitnet_error *err);
uint64_t bnet_writer_offset(const bnet_writer *w);
/* Frees w whatever it returns. */
bitnet_status bnet_writer_commit(bnet_writer *w, bitnet_error *err);
/* The same without waiting for the disk: for what can be made again. */
bitnet_status bnet_writer_publish(bnet_writer *w, bitnet_error *err);
void bnet_writer_abort(bnet_writer *w); /* NULL is legal */
/* Removes the temporary of a private writer (its name in the folder) if the process is gone that
 * wrote it. Returns whether it did. */
bool bnet_temp_sweep(int folder_fd, const char *name);
/* Path of the temporary, borrowed: a signal handler of the command removes it. */
const char *bnet_writer_temp_path(const bnet_writer *w);

/* Reads a whole regular file of at most `max` bytes into memory the caller frees with bnet_free; a
 * NUL is added behind the n bytes. A pipe, a device or a directory is refused at once instead of
 * waited for. */
bitnet_status bnet_read_file(const char *path, size_t max, char **data, size_t *n,
                             bitnet_error *err);
/* Makes the folder and those above it, for this user alone. `path` is changed and restored. */
bool bnet_make_folder(char *path);
/* True if the folder holds a file called `name`, or, where that begins with a dot, ending so;
 * its name goes into buf, the first in order of the alphabet. */
bool bnet_folder_find(const char *folder, const char *name, char *buf, size_t cap);
/* Both exist and are one file, by whatever names (links, "../"): never write to b while a is
 * read. */
bool bnet_same_file(const char *a, const char *b);

#endif
