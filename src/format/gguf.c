/* gguf.c - opening a GGUF file: header, the order of the sections, duplicate names, lookup. No
 * number from the file is used before it was compared with the bytes that are left. */
#include "format/gguf_impl.h"

#include "format/foreign.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the cursor ---- */

static void describe(const gguf_cursor *c, char *buf, size_t cap)
{
    char name[160];
    if (c->name.data)
        snprintf(buf, cap, "%s %s", c->section,
                 bnet_quote(c->name.data, c->name.n, name, sizeof name));
    else if (c->n)
        snprintf(buf, cap, "%s %llu of %llu", c->section, (unsigned long long)c->index + 1,
                 (unsigned long long)c->n);
    else
        snprintf(buf, cap, "%s", c->section);
}

bitnet_status bnet_gguf_fail_at(const gguf_cursor *c, uint64_t at, const char *fmt, ...)
{
    char where[200], text[400], cut[120] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    describe(c, where, sizeof where);
    if (c->promised)
        snprintf(cut, sizeof cut,
                 "incomplete, %llu of %llu bytes are there: download or copy it again; ",
                 (unsigned long long)c->g->n_bytes, (unsigned long long)c->promised);
    return bnet_fail(c->err, BITNET_MODEL, "%s: %s%s: %s (offset 0x%llx)", c->g->label, cut, where,
                     text, (unsigned long long)at);
}

bitnet_status bnet_gguf_take(gguf_cursor *c, uint64_t n, const char *what, const uint8_t **out)
{
    uint64_t left = c->g->n_bytes - c->pos;
    if (n > left)
        return bnet_gguf_fail_at(c, c->pos,
                                 "truncated: %s needs %llu bytes, the file has %llu left" GGUF_CUT,
                                 what, (unsigned long long)n, (unsigned long long)left);
    *out = c->g->data + c->pos;
    c->pos += n;
    return BITNET_OK;
}

bitnet_status bnet_gguf_take_u32(gguf_cursor *c, const char *what, uint32_t *out)
{
    const uint8_t *p = NULL;
    bitnet_status st = bnet_gguf_take(c, 4, what, &p);
    if (st == BITNET_OK)
        *out = bnet_u32(p);
    return st;
}

bitnet_status bnet_gguf_take_u64(gguf_cursor *c, const char *what, uint64_t *out)
{
    const uint8_t *p = NULL;
    bitnet_status st = bnet_gguf_take(c, 8, what, &p);
    if (st == BITNET_OK)
        *out = bnet_u64(p);
    return st;
}

bitnet_status bnet_gguf_take_name(gguf_cursor *c, const char *what, uint64_t max)
{
    uint64_t n, at = c->pos;
    const uint8_t *p = NULL;
    char length[32];
    c->name = (bnet_span){0};
    snprintf(length, sizeof length, "the length of the %s", what);
    bitnet_status st = bnet_gguf_take_u64(c, length, &n);
    if (st != BITNET_OK)
        return st;
    if (n == 0)
        return bnet_gguf_fail_at(c, at, "the %s is empty", what);
    if (n > max)
        return bnet_gguf_fail_at(c, at, "the %s has %llu bytes, the limit is %llu", what,
                                 (unsigned long long)n, (unsigned long long)max);
    st = bnet_gguf_take(c, n, length + strlen("the length of "), &p);
    if (st != BITNET_OK)
        return st;
    if (memchr(p, 0, (size_t)n))
        return bnet_gguf_fail_at(c, at, "the %s contains a NUL byte", what);
    c->name = (bnet_span){(const char *)p, (size_t)n};
    return BITNET_OK;
}

/* ---- header ---- */

static bitnet_status read_magic(gguf_cursor *c)
{
    const uint8_t *m = NULL;
    char is[320];
    if (c->g->n_bytes == 0)
        return bnet_gguf_fail_at(c, 0, "the file is empty; download or copy it again");
    bool right = memcmp(c->g->data, "GGUF", (size_t)BNET_MIN(c->g->n_bytes, 4)) == 0;
    if (!right && bnet_foreign_tell(c->g->data, (size_t)c->g->n_bytes, is, sizeof is))
        return bnet_gguf_fail_at(c, 0, "not a GGUF file but %s", is);
    bitnet_status st = bnet_gguf_take(c, 4, "the magic", &m);
    if (st == BITNET_OK && !right)
        return bnet_gguf_fail_at(c, 0,
                                 "not a GGUF file: it starts with %02x %02x %02x %02x instead of "
                                 "47 47 55 46",
                                 m[0], m[1], m[2], m[3]);
    return st;
}

static bitnet_status read_version(bnet_gguf *g, gguf_cursor *c)
{
    uint64_t at = c->pos;
    bitnet_status st = bnet_gguf_take_u32(c, "the version", &g->version);
    if (st != BITNET_OK || g->version == 2 || g->version == 3)
        return st;
    if ((g->version & 0xffff) == 0 && g->version != 0)
        return bnet_gguf_fail_at(c, at, "big-endian file; only little-endian ones can be read");
    if (g->version == 1)
        return bnet_gguf_fail_at(
            c, at, "GGUF version 1 is not supported: convert the model anew to get version 3");
    return bnet_gguf_fail_at(c, at, "GGUF version %u is not supported (2 and 3 are)", g->version);
}

/* A count is accepted only if that many of the smallest records fit in the rest of the file. */
static bitnet_status read_count(gguf_cursor *c, const char *what, uint64_t max, uint64_t record,
                                size_t *out)
{
    uint64_t n, at = c->pos;
    bitnet_status st = bnet_gguf_take_u64(c, what, &n);
    if (st != BITNET_OK)
        return st;
    if (n > max)
        return bnet_gguf_fail_at(c, at, "%s is %llu, more than the limit of %llu", what,
                                 (unsigned long long)n, (unsigned long long)max);
    if (n * record > c->g->n_bytes - c->pos)
        return bnet_gguf_fail_at(c, at, "%s is %llu, but only %llu bytes follow" GGUF_CUT, what,
                                 (unsigned long long)n,
                                 (unsigned long long)(c->g->n_bytes - c->pos));
    *out = (size_t)n;
    return BITNET_OK;
}

static bitnet_status read_header(bnet_gguf *g, gguf_cursor *c)
{
    bitnet_status st = read_magic(c);
    if (st == BITNET_OK)
        st = read_version(g, c);
    if (st == BITNET_OK)
        st = read_count(c, "n_tensors", GGUF_MAX_TENSORS, GGUF_MIN_TENSOR, &g->n_tensors);
    if (st == BITNET_OK)
        st = read_count(c, "n_kv", GGUF_MAX_KEYS, GGUF_MIN_KEY, &g->n_kv);
    return st;
}

/* ---- names: sorted references serve lookup and show duplicates as neighbours ---- */

static int compare_spans(bnet_span a, bnet_span b)
{
    int r = memcmp(a.data, b.data, BNET_MIN(a.n, b.n));
    return r ? r : (a.n > b.n) - (a.n < b.n);
}

static int compare_refs(const void *pa, const void *pb)
{
    const gguf_ref *a = pa, *b = pb;
    int r = compare_spans(a->name, b->name);
    return r ? r : (a->index > b->index) - (a->index < b->index);
}

static const gguf_ref *find_ref(const gguf_ref *refs, size_t n, const char *name)
{
    gguf_ref want = {{name, strlen(name)}, 0};
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int r = compare_spans(want.name, refs[mid].name);
        if (r == 0)
            return &refs[mid];
        if (r < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* The later of two records with the same name, or NULL. */
static const gguf_ref *sort_refs(gguf_ref *refs, size_t n)
{
    qsort(refs, n, sizeof *refs, compare_refs);
    for (size_t i = 1; i < n; i++)
        if (compare_spans(refs[i - 1].name, refs[i].name) == 0)
            return &refs[i];
    return NULL;
}

/* Sorts the names of all records of a section; fails if one occurs twice. */
static bitnet_status index_names(bnet_gguf *g, gguf_cursor *c, size_t n, gguf_ref **out)
{
    bool keys = out == &g->kv_refs;
    gguf_ref *refs = *out = bnet_calloc(n, sizeof *refs);
    if (!refs)
        return bnet_no_memory(c->err, g->label);
    for (size_t i = 0; i < n; i++) {
        const char *name = keys ? NULL : g->tensors[i].name;
        refs[i] = (gguf_ref){keys ? g->kv[i].key : (bnet_span){name, strlen(name)}, (uint32_t)i};
    }
    const gguf_ref *twice = sort_refs(refs, n);
    if (!twice)
        return BITNET_OK;
    c->name = twice->name;
    if (keys)
        return bnet_gguf_fail_at(c, (uint64_t)((const uint8_t *)twice->name.data - g->data),
                                 "the key occurs twice");
    return bnet_gguf_fail_at(c, g->tensors[twice->index].t.n_span, "two tensors have this name");
}

/* ---- sections in order ---- */

static bitnet_status read_alignment(bnet_gguf *g, gguf_cursor *c)
{
    const bnet_gguf_kv *kv = bnet_gguf_find(g, "general.alignment");
    g->alignment = 32;
    if (!kv)
        return BITNET_OK;
    c->name = kv->key;
    if (kv->type != BNET_GGUF_U32)
        return bnet_gguf_fail_at(c, kv->offset, "the alignment must be a u32, it is %s",
                                 bnet_gguf_vtype_name(kv->type));
    uint32_t v = bnet_u32(kv->data);
    if (v == 0 || (v & (v - 1)) != 0)
        return bnet_gguf_fail_at(c, kv->offset, "the alignment %u is not a power of two", v);
    if (v > GGUF_MAX_ALIGNMENT)
        return bnet_gguf_fail_at(c, kv->offset, "the alignment %u exceeds the limit of %u", v,
                                 GGUF_MAX_ALIGNMENT);
    g->alignment = v;
    return BITNET_OK;
}

static void enter(gguf_cursor *c, const char *section, uint64_t n)
{
    c->section = section;
    c->index = 0;
    c->n = n;
    c->name = (bnet_span){0};
}

static bitnet_status parse(bnet_gguf *g, gguf_cursor *c)
{
    bitnet_status st = read_header(g, c);
    enter(c, "key", g->n_kv);
    if (st == BITNET_OK)
        st = bnet_gguf_read_keys(g, c);
    if (st == BITNET_OK)
        st = index_names(g, c, g->n_kv, &g->kv_refs);
    if (st == BITNET_OK)
        st = read_alignment(g, c);
    enter(c, "tensor", g->n_tensors);
    if (st == BITNET_OK)
        st = bnet_gguf_read_infos(g, c);
    if (st == BITNET_OK)
        st = index_names(g, c, g->n_tensors, &g->tensor_refs);
    if (st == BITNET_OK)
        st = bnet_gguf_place_tensors(g, c);
    return st;
}

/* ---- opening and closing ---- */

static bnet_gguf *new_file(const char *path)
{
    bnet_gguf *g = bnet_calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->path = bnet_strdup(path);
    if (!g->path) {
        bnet_free(g);
        return NULL;
    }
    size_t n = strlen(path), cap = sizeof g->label;
    if (n < cap)
        memcpy(g->label, path, n + 1);
    else
        snprintf(g->label, cap, "...%s", path + n - (cap - 4));
    return g;
}

static bitnet_status finish_open(bnet_gguf *g, const bnet_log *log, bnet_gguf **out,
                                 bitnet_error *err)
{
    gguf_cursor c = {.g = g, .err = err, .log = log, .section = "header"};
    bitnet_status st = parse(g, &c);
    if (st == BITNET_OK)
        *out = g;
    else
        bnet_gguf_close(g);
    return st;
}

bitnet_status bnet_gguf_open(const char *path, const bnet_log *log, bnet_gguf **out,
                             bitnet_error *err)
{
    bnet_gguf *g = new_file(path);
    if (!g)
        return bnet_no_memory(err, path);
    char is[400];
    bitnet_status st = bnet_map_open(path, &g->map, err);
    if (st != BITNET_OK) {
        if (bnet_foreign_folder(path, is, sizeof is))
            bnet_fail(err, st, "%s: is %s", g->label, is);
        bnet_gguf_close(g);
        return st;
    }
    g->data = g->map.data;
    g->n_bytes = g->map.n_bytes;
    return finish_open(g, log, out, err);
}

bitnet_status bnet_gguf_open_memory(const void *data, size_t n_bytes, const char *name,
                                    const bnet_log *log, bnet_gguf **out, bitnet_error *err)
{
    bnet_gguf *g = new_file(name);
    if (!g)
        return bnet_no_memory(err, name);
    g->data = data;
    g->n_bytes = n_bytes;
    return finish_open(g, log, out, err);
}

bool bnet_gguf_mapped(const bnet_gguf *g)
{
    return g->map.data != NULL;
}

const bnet_file_id *bnet_gguf_file_id(const bnet_gguf *g)
{
    return &g->map.id;
}

bool bnet_gguf_holds(const bnet_gguf *g, const void *address)
{
    return bnet_map_holds(&g->map, address);
}

void bnet_gguf_close(bnet_gguf *g)
{
    if (!g)
        return;
    bnet_free(g->tensor_refs);
    bnet_free(g->kv_refs);
    bnet_free(g->tensors);
    bnet_free(g->kv);
    bnet_map_close(&g->map);
    bnet_free(g->path);
    bnet_free(g);
}

/* ---- what is in it ---- */

const char *bnet_gguf_path(const bnet_gguf *g)
{
    return g->path;
}

uint32_t bnet_gguf_version(const bnet_gguf *g)
{
    return g->version;
}

uint64_t bnet_gguf_head_bytes(const bnet_gguf *g)
{
    return BNET_MIN(g->data_start, g->n_bytes);
}

uint64_t bnet_gguf_file_bytes(const bnet_gguf *g)
{
    return g->n_bytes;
}

const uint8_t *bnet_gguf_file_data(const bnet_gguf *g)
{
    return g->data;
}

size_t bnet_gguf_n_kv(const bnet_gguf *g)
{
    return g->n_kv;
}

const bnet_gguf_kv *bnet_gguf_kv_at(const bnet_gguf *g, size_t i)
{
    return i < g->n_kv ? &g->kv[i] : NULL;
}

const bnet_gguf_kv *bnet_gguf_find(const bnet_gguf *g, const char *key)
{
    const gguf_ref *r = find_ref(g->kv_refs, g->n_kv, key);
    return r ? &g->kv[r->index] : NULL;
}

size_t bnet_gguf_n_tensors(const bnet_gguf *g)
{
    return g->n_tensors;
}

const bnet_tensor *bnet_gguf_tensor_at(const bnet_gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i].t : NULL;
}

const bnet_tensor *bnet_gguf_tensor(const bnet_gguf *g, const char *name)
{
    const gguf_ref *r = find_ref(g->tensor_refs, g->n_tensors, name);
    return r ? &g->tensors[r->index].t : NULL;
}
