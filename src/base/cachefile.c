/* cachefile.c - layout: header, identity, index, checksum of these; then the pieces, each at a
 * multiple of 4096. All numbers as this machine writes them: the file is for this machine alone. */
#include "base/cachefile.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define MAGIC "bnetpck1"
enum { PAGE = 4096, PIECES_MAX = 1 << 16, IDENTITY_MAX = 1024 };

typedef struct header {
    char magic[8];
    uint32_t n_pieces, n_identity;
} header;

typedef struct entry {
    char name[BNET_CACHE_NAME];
    uint64_t offset, n_bytes, sum;
    double note;
} entry;

struct bnet_cachefile {
    bnet_map map;
    const entry *entries;
    size_t n;
};

/* Eight running products, so that memory and not multiplication is waited for. */
static uint64_t checksum(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t lane[8] = {1, 2, 3, 4, 5, 6, 7, 8}, h = n;
    size_t i = 0;
    for (; i + 64 <= n; i += 64)
        for (size_t l = 0; l < 8; l++) {
            uint64_t w;
            memcpy(&w, p + i + 8 * l, 8);
            lane[l] = (lane[l] ^ w) * 0x9e3779b97f4a7c15u;
            lane[l] ^= lane[l] >> 29;
        }
    for (; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    for (size_t l = 0; l < 8; l++)
        h = (h ^ lane[l]) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* Bytes before the checksum of the head. */
static size_t head_bytes(size_t n_identity, size_t n_pieces)
{
    size_t identity = (n_identity + 7) / 8 * 8;
    return sizeof(header) + identity + n_pieces * sizeof(entry);
}

static bool head_fits(const bnet_map *m, const char *identity, size_t *n_pieces)
{
    header h;
    uint64_t sum;
    size_t n_identity = strlen(identity);
    if (m->n_bytes < sizeof h)
        return false;
    memcpy(&h, m->data, sizeof h);
    if (memcmp(h.magic, MAGIC, sizeof h.magic) != 0 || h.n_identity != n_identity ||
        h.n_pieces > PIECES_MAX)
        return false;
    size_t n = head_bytes(n_identity, h.n_pieces);
    if (m->n_bytes < n + sizeof sum || memcmp(m->data + sizeof h, identity, n_identity) != 0)
        return false;
    memcpy(&sum, m->data + n, sizeof sum);
    *n_pieces = h.n_pieces;
    return sum == checksum(m->data, n);
}

bnet_cachefile *bnet_cachefile_open(const char *path, const char *identity)
{
    bnet_cachefile *c = bnet_calloc(1, sizeof *c);
    if (!c || bnet_map_open(path, &c->map, NULL) != BITNET_OK) {
        bnet_free(c);
        return NULL;
    }
    if (!head_fits(&c->map, identity, &c->n)) {
        bnet_cachefile_close(c);
        return NULL;
    }
    size_t at = head_bytes(strlen(identity), c->n) - c->n * sizeof(entry);
    c->entries = (const entry *)(const void *)(c->map.data + at);
    utimensat(AT_FDCWD, path, NULL, 0); /* used: not the next to be removed */
    return c;
}

const void *bnet_cachefile_find(const bnet_cachefile *c, const char *name, uint64_t n_bytes,
                                double *note)
{
    for (size_t i = 0; i < c->n; i++) {
        const entry *e = &c->entries[i];
        if (strncmp(e->name, name, sizeof e->name) != 0)
            continue;
        if (e->n_bytes != n_bytes || e->offset > c->map.n_bytes ||
            n_bytes > c->map.n_bytes - e->offset || e->offset % PAGE != 0 ||
            checksum(c->map.data + e->offset, (size_t)n_bytes) != e->sum)
            return NULL;
        *note = e->note;
        return c->map.data + e->offset;
    }
    return NULL;
}

void bnet_cachefile_close(bnet_cachefile *c)
{
    if (!c)
        return;
    bnet_map_close(&c->map);
    bnet_free(c);
}

/* ---- writing ---- */

/* Header, identity, index and their checksum in one piece of memory. */
static uint8_t *make_head(const char *identity, const bnet_cachepiece *pieces, size_t n,
                          size_t *n_head)
{
    header h = {.n_pieces = (uint32_t)n, .n_identity = (uint32_t)strlen(identity)};
    size_t bytes = head_bytes(h.n_identity, n);
    uint64_t offset = (bytes + sizeof(uint64_t) + PAGE - 1) / PAGE * PAGE;
    uint8_t *head = bnet_calloc(1, bytes + sizeof(uint64_t));
    if (!head)
        return NULL;
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(head, &h, sizeof h);
    memcpy(head + sizeof h, identity, h.n_identity);
    uint8_t *at = head + bytes - n * sizeof(entry);
    for (size_t i = 0; i < n; i++, at += sizeof(entry)) {
        entry e = {.offset = offset, .n_bytes = pieces[i].n_bytes, .note = pieces[i].note};
        memcpy(e.name, pieces[i].name, sizeof e.name);
        e.sum = checksum(pieces[i].data, (size_t)pieces[i].n_bytes);
        memcpy(at, &e, sizeof e);
        offset += (e.n_bytes + PAGE - 1) / PAGE * PAGE;
    }
    uint64_t sum = checksum(head, bytes);
    memcpy(head + bytes, &sum, sizeof sum);
    *n_head = bytes + sizeof sum;
    return head;
}

static bitnet_status pad(bnet_writer *w, bitnet_error *err)
{
    return bnet_writer_zeros(w, (size_t)(-bnet_writer_offset(w) % PAGE), err);
}

bitnet_status bnet_cachefile_write(const char *path, const char *identity,
                                   const bnet_cachepiece *pieces, size_t n, bitnet_error *err)
{
    size_t n_head;
    if (n > PIECES_MAX || strlen(identity) > IDENTITY_MAX)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: too much for one cache file", path);
    uint8_t *head = make_head(identity, pieces, n, &n_head);
    if (!head)
        return bnet_no_memory(err, path);
    bnet_writer *w;
    bitnet_status st = bnet_writer_open(path, &w, err);
    if (st != BITNET_OK) {
        bnet_free(head);
        return st;
    }
    st = bnet_writer_write(w, head, n_head, err);
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        st = pad(w, err);
        if (st == BITNET_OK)
            st = bnet_writer_write(w, pieces[i].data, (size_t)pieces[i].n_bytes, err);
    }
    bnet_free(head);
    if (st == BITNET_OK)
        return bnet_writer_publish(w, err);
    bnet_writer_abort(w);
    return st;
}

/* ---- keeping the folder small ---- */

typedef struct oldest {
    char name[256];
    int64_t used; /* nanoseconds */
    uint64_t total;
} oldest;

static bool ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return n > k && strcmp(s + n - k, suffix) == 0;
}

/* Adds up the sizes and finds the file that was used longest ago. False: the folder cannot be read.
 */
static bool survey(int fd, const char *suffix, const struct stat *keep, oldest *out)
{
    int again = dup(fd);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    *out = (oldest){.used = INT64_MAX};
    if (!d) {
        if (again >= 0)
            close(again);
        return false;
    }
    rewinddir(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        if (!ends_with(e->d_name, suffix) || strlen(e->d_name) >= sizeof out->name ||
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        int64_t used = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        out->total += (uint64_t)st.st_size;
        if (used < out->used && (st.st_ino != keep->st_ino || st.st_dev != keep->st_dev)) {
            out->used = used;
            snprintf(out->name, sizeof out->name, "%s", e->d_name);
        }
    }
    closedir(d);
    return true;
}

void bnet_cache_trim(const char *folder, const char *suffix, uint64_t max_bytes, const char *keep)
{
    struct stat kept = {0};
    oldest o;
    if (keep)
        (void)!stat(keep, &kept);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    while (survey(fd, suffix, &kept, &o) && o.total > max_bytes && o.name[0])
        if (unlinkat(fd, o.name, 0) != 0)
            break;
    close(fd);
}
