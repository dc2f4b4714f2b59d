/* cachefile.c - layout: header, identity, index, checksum of these; then the pieces, each at a
 * multiple of 4096. All numbers as this machine writes them: the file is for this machine alone. */
#include "base/cachefile.h"

#include "base/file.h"

#define MAGIC "bnetpck2"
enum { PAGE = 4096, PIECES_MAX = 1 << 16, IDENTITY_MAX = 1024 };

typedef struct header {
    char magic[8];
    uint32_t n_pieces, n_identity;
    uint64_t n_bytes; /* of the whole file */
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

static bitnet_status damaged(const char *path, const char *what, bitnet_error *err)
{
    return bnet_fail(err, BITNET_IO, "%s: damaged (%s): ignored, it is written anew", path, what);
}

static bitnet_status truncated(const char *path, const bnet_map *m, const char *at_least,
                               uint64_t want, bitnet_error *err)
{
    return bnet_fail(err, BITNET_IO,
                     "%s: truncated: %llu of %s%llu bytes: ignored, it is written anew", path,
                     (unsigned long long)m->n_bytes, at_least, (unsigned long long)want);
}

/* Whether the head is whole and fits the file, whatever it was written for. */
static bitnet_status check_head(const bnet_map *m, const char *path, header *h, bitnet_error *err)
{
    uint64_t sum;
    if (m->n_bytes < sizeof *h)
        return truncated(path, m, "at least ", sizeof *h, err);
    memcpy(h, m->data, sizeof *h);
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0 || h->n_identity > IDENTITY_MAX ||
        h->n_pieces > PIECES_MAX)
        return damaged(path, "its first bytes", err);
    if (m->n_bytes < h->n_bytes)
        return truncated(path, m, "", h->n_bytes, err);
    size_t n = head_bytes(h->n_identity, h->n_pieces);
    if (m->n_bytes > h->n_bytes || m->n_bytes < n + sizeof sum)
        return damaged(path, "its size", err);
    memcpy(&sum, m->data + n, sizeof sum);
    return sum == checksum(m->data, n) ? BITNET_OK : damaged(path, "its index", err);
}

static bool is_of(const bnet_map *m, const header *h, const char *identity)
{
    return !identity || (h->n_identity == strlen(identity) &&
                         memcmp(m->data + sizeof *h, identity, h->n_identity) == 0);
}

bnet_cachefile *bnet_cachefile_open(const char *path, const char *identity, bitnet_error *err)
{
    bnet_cachefile *c = bnet_calloc(1, sizeof *c);
    header h;
    if (!c || bnet_map_open(path, &c->map, NULL) != BITNET_OK) {
        bnet_free(c);
        return NULL;
    }
    if (bnet_file_own(&c->map.id, path, err) != BITNET_OK ||
        check_head(&c->map, path, &h, err) != BITNET_OK || !is_of(&c->map, &h, identity)) {
        bnet_cachefile_close(c);
        return NULL;
    }
    c->n = h.n_pieces;
    size_t at = head_bytes(h.n_identity, c->n) - c->n * sizeof(entry);
    c->entries = (const entry *)(const void *)(c->map.data + at);
    if (identity)
        bnet_file_touch(path); /* used: not the next to be removed */
    return c;
}

static const entry *entry_of(const bnet_cachefile *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strncmp(c->entries[i].name, name, sizeof c->entries[i].name) == 0)
            return &c->entries[i];
    return NULL;
}

const void *bnet_cachefile_piece(const bnet_cachefile *c, const char *name, uint64_t *n_bytes)
{
    const entry *e = entry_of(c, name);
    double unused;
    if (!e)
        return NULL;
    *n_bytes = e->n_bytes;
    return bnet_cachefile_find(c, name, e->n_bytes, &unused);
}

bool bnet_cachefile_holds(const bnet_cachefile *c, const void *address)
{
    return c && bnet_map_holds(&c->map, address);
}

const void *bnet_cachefile_find(const bnet_cachefile *c, const char *name, uint64_t n_bytes,
                                double *note)
{
    const entry *e = entry_of(c, name);
    if (!e || e->n_bytes != n_bytes || e->offset > c->map.n_bytes ||
        n_bytes > c->map.n_bytes - e->offset || e->offset % PAGE != 0 ||
        checksum(c->map.data + e->offset, (size_t)n_bytes) != e->sum)
        return NULL;
    *note = e->note;
    return c->map.data + e->offset;
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
    h.n_bytes = bytes + sizeof(uint64_t); /* without pieces */
    uint64_t offset = (bytes + sizeof(uint64_t) + PAGE - 1) / PAGE * PAGE;
    uint8_t *head = bnet_calloc(1, bytes + sizeof(uint64_t));
    if (!head)
        return NULL;
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(head + sizeof h, identity, h.n_identity);
    uint8_t *at = head + bytes - n * sizeof(entry);
    for (size_t i = 0; i < n; i++, at += sizeof(entry)) {
        entry e = {.offset = offset, .n_bytes = pieces[i].n_bytes, .note = pieces[i].note};
        memcpy(e.name, pieces[i].name, sizeof e.name);
        e.sum = checksum(pieces[i].data, (size_t)pieces[i].n_bytes);
        memcpy(at, &e, sizeof e);
        h.n_bytes = offset + e.n_bytes;
        offset += (e.n_bytes + PAGE - 1) / PAGE * PAGE;
    }
    memcpy(head, &h, sizeof h);
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
    bitnet_status st = bnet_writer_open_private(path, &w, err);
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
