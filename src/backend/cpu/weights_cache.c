/* weights_cache.c - packed weights kept in a file between runs, so that a second load maps them.
 * Hides: which weights are kept and under what names. A model whose packing gave warnings is not
 * kept, so that every load repeats them. */
#include "backend/cpu/cpu.h"
#include "base/cachefile.h"

#include <stdio.h>

bitnet_status bnet_cpu_cache_open(cpu_backend *be, const bnet_pack_cache *want, const bnet_log *log,
                                  bitnet_error *err)
{
    cpu_cache *c = &be->cache;
    bitnet_error why = {0};
    if (!want)
        return BITNET_OK;
    c->path = bnet_strdup(want->path);
    c->identity = bnet_strdup(want->identity);
    c->source = bnet_strdup(want->source);
    c->min_bytes = want->min_bytes;
    c->max_bytes = want->max_bytes;
    if (!c->path || !c->identity || !c->source)
        return bnet_no_memory(err, "cache of packed weights");
    c->file = bnet_cachefile_open(c->path, c->identity, &why);
    if (why.message[0])
        bnet_logf(log, BITNET_LOG_WARN, "cache", "%s", why.message);
    return BITNET_OK;
}

bool bnet_cpu_cache_maps(const bnet_backend *b, const void *address)
{
    return bnet_cachefile_holds(((const cpu_backend *)b)->cache.file, address);
}

void bnet_cpu_cache_close(cpu_backend *be)
{
    bnet_cachefile_close(be->cache.file);
    bnet_free(be->cache.pieces);
    bnet_free(be->cache.identity);
    bnet_free(be->cache.source);
    bnet_free(be->cache.path);
}

static bool name_of(const char *kind, const char *tensor, char name[BNET_CACHE_NAME])
{
    int n = snprintf(name, BNET_CACHE_NAME, "%s %s", kind, tensor);
    return n > 0 && n < BNET_CACHE_NAME;
}

const void *bnet_cpu_cache_find(cpu_backend *be, const char *kind, const char *tensor,
                                uint64_t n_bytes, double *note)
{
    char name[BNET_CACHE_NAME];
    if (!be->cache.file || !name_of(kind, tensor, name))
        return NULL;
    return bnet_cachefile_find(be->cache.file, name, n_bytes, note);
}

void bnet_cpu_cache_note(cpu_backend *be, const char *kind, const char *tensor, const void *data,
                         uint64_t n_bytes, double note, bool fresh)
{
    cpu_cache *c = &be->cache;
    bnet_cachepiece p = {.data = data, .n_bytes = n_bytes, .note = note};
    if (!c->path)
        return;
    c->missed = c->missed || fresh;
    c->n_bytes += n_bytes;
    if (!name_of(kind, tensor, p.name) ||
        !bnet_grow(&c->pieces, &c->cap, c->n + 1, sizeof *c->pieces)) {
        c->unfit = true;
        return;
    }
    c->pieces[c->n++] = p;
}

bool bnet_cpu_cache_ternary(cpu_backend *be, bnet_weight *w, const bnet_weight_request *r)
{
    size_t n_cols = (w->info.n_in + 127) / 128 * 128;
    bnet_kernel_query q = {.op = BNET_OP_LINEAR,
                           .format = BNET_FORMAT_I2S,
                           .dtype = BNET_DTYPE_I8,
                           .m = 1,
                           .n = w->info.n_out,
                           .k = n_cols};
    double scale;
    if (!be->cache.file || !w->info.ternary || !bnet_cpu_wants_packing(be, &q, BNET_FORMAT_I2S_R16))
        return false;
    uint64_t n_bytes = bnet_r16_groups(w->info.n_out) * bnet_r16_group_bytes(n_cols);
    const void *data = bnet_cpu_cache_find(be, "r16", r->source.tensor->name, n_bytes, &scale);
    if (!data)
        return false;
    w->data = data;
    w->row_bytes = n_cols / 4;
    w->info.scale = (float)scale;
    w->packed = true;
    bnet_cpu_cache_note(be, "r16", r->source.tensor->name, data, n_bytes, scale, false);
    return true;
}

/* The name of the model file, for `bitnet cache list`; without it nothing is lost. */
static void add_source(cpu_cache *c)
{
    if (!bnet_grow(&c->pieces, &c->cap, c->n + 1, sizeof *c->pieces))
        return;
    c->pieces[c->n++] = (bnet_cachepiece){
        .name = BNET_CACHE_SOURCE, .data = c->source, .n_bytes = strlen(c->source)};
}

/* Bytes of the file, at most: pieces begin at pages. */
static uint64_t file_bytes(const cpu_cache *c)
{
    return c->n_bytes + ((uint64_t)c->n + 2) * 4096;
}

static void write_file(cpu_cache *c, const bnet_log *log)
{
    bitnet_error err = {0};
    add_source(c);
    if (file_bytes(c) > c->max_bytes)
        bnet_logf(log, BITNET_LOG_INFO, "cache",
                  "packed weights are not kept: they take %.0f MB, the cache has room for %.0f",
                  (double)file_bytes(c) / 1e6, (double)c->max_bytes / 1e6);
    else if (bnet_cachefile_write(c->path, c->identity, c->pieces, c->n, &err) != BITNET_OK)
        bnet_logf(log, BITNET_LOG_WARN, "cpu", "packed weights are not kept: %s", err.message);
    else
        bnet_logf(log, BITNET_LOG_INFO, "cpu", "packed weights kept in %s (%.0f MB)", c->path,
                  (double)c->n_bytes / 1e6);
}

void bnet_cpu_weights_done(bnet_backend *b, const bnet_log *log)
{
    cpu_backend *be = (cpu_backend *)b;
    cpu_cache *c = &be->cache;
    if (c->path && c->missed && !c->unfit && c->n_bytes >= c->min_bytes)
        write_file(c, log);
    else if (c->file && !c->missed)
        bnet_logf(log, BITNET_LOG_INFO, "cpu", "packed weights mapped from %s (%.0f MB)", c->path,
                  (double)c->n_bytes / 1e6);
    bnet_free(c->pieces); /* what they point to may be freed before the backend */
    c->pieces = NULL;
    c->n = c->cap = 0;
}
