/* model_cache.c - a file is the same if device, inode, size and the times of its bytes and of its
 * last change are, and the bytes before its tensors, and samples of these. */
#include "model/model_cache.h"

#include <stdio.h>
#include <time.h>

#include "base/cache_folder.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/str.h"

#define PACK_VERSION "packed 2" /* changes with the layouts of pack.h and pack_q6.h */
enum { SAMPLES = 64, SAMPLE_BYTES = 256 };
static const uint64_t max_default = (uint64_t)8 << 30, min_default = (uint64_t)64 << 20;

/* ---- identity ---- */

/* A change within one tick of the file system's clock leaves the times as they are, so a file that
 * is younger than that may still change unnoticed. Some keep whole seconds, FAT every other. */
static bool too_young(const bnet_file_id *id)
{
    const int64_t second = 1000000000;
    struct timespec t;
    bool whole = id->changed_ns % second == 0 && id->written_ns % second == 0;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * second + t.tv_nsec <
           id->changed_ns + (whole ? 2 * second : second / 10);
}

/* Adds pieces of the tensors' bytes, the first and the last among them. */
static void add_samples(bnet_sha256 *h, const uint8_t *data, uint64_t n)
{
    uint64_t size = BNET_MIN(n, (uint64_t)SAMPLE_BYTES), room = n - size;
    for (uint64_t i = 0; i < SAMPLES; i++)
        bnet_sha256_add(h,
                        data + room / (SAMPLES - 1) * i + room % (SAMPLES - 1) * i / (SAMPLES - 1),
                        (size_t)size);
}

/* The checksum of all before the tensors and of samples of these. */
static bitnet_status digest(const bnet_gguf *g, char hex[65], bitnet_error *err)
{
    bnet_sha256 *h;
    uint8_t sum[BNET_SHA256_BYTES];
    const uint8_t *data = bnet_gguf_file_data(g);
    uint64_t head = bnet_gguf_head_bytes(g);
    bitnet_status st = bnet_sha256_open(&h, err);
    if (st != BITNET_OK)
        return st;
    bnet_sha256_add(h, data, (size_t)head);
    add_samples(h, data + head, bnet_gguf_file_bytes(g) - head);
    st = bnet_sha256_finish(h, sum, err);
    bnet_sha256_close(h);
    for (size_t i = 0; st == BITNET_OK && i < sizeof sum; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    return st;
}

static bitnet_status identify(const bnet_gguf *g, int layout, bnet_model_cache *c,
                              bitnet_error *err)
{
    char hex[65];
    const bnet_file_id *id = bnet_gguf_file_id(g);
    if (too_young(id))
        return bnet_fail(err, BITNET_IO, "%s: was changed a moment ago", c->model_path);
    bitnet_status s = digest(g, hex, err);
    if (s != BITNET_OK)
        return s;
    c->id = *id;
    snprintf(c->identity, sizeof c->identity,
             "bitnet %s %s device %llu inode %llu size %llu written %lld changed %lld layout %d "
             "sum %s",
             BITNET_VERSION, PACK_VERSION, (unsigned long long)id->device,
             (unsigned long long)id->inode, (unsigned long long)id->n_bytes,
             (long long)id->written_ns, (long long)id->changed_ns, layout, hex);
    return BITNET_OK;
}

/* Whether the file is still the one that was opened: a map shows what others write into it. */
static bool unchanged(const bnet_model_cache *c)
{
    bnet_file_id now;
    return bnet_file_identify(c->model_path, &now) && bnet_file_is(&now, &c->id);
}

static char *name_in(const char *folder, const char *stem, const char *suffix)
{
    bnet_str s = {0};
    bnet_str_addf(&s, "%s/%.16s%s", folder, stem, suffix);
    return s.data;
}

/* False: nothing is kept, and the log says why. */
static bool allowed(bnet_model_cache *c, const bnet_gguf *g, const bitnet_engine_options *o,
                    const bnet_log *log, char stem[65])
{
    bitnet_error why = {0};
    if (!bnet_cache_folder(o->cache_dir, log))
        return false;
    if (identify(g, (int)o->i2s_layout, c, &why) == BITNET_OK &&
        bnet_sha256_hex(c->identity, strlen(c->identity), stem, &why) == BITNET_OK)
        return true;
    bnet_logf(log, BITNET_LOG_INFO, "cache", "nothing is kept: %s", why.message);
    return false;
}

bitnet_status bnet_model_cache_open(const bitnet_engine_options *o, const char *path,
                                    const bnet_gguf *g, const bnet_log *log, bnet_model_cache *c,
                                    bitnet_error *err)
{
    char stem[65];
    *c = (bnet_model_cache){.max_bytes = o->cache_max_bytes ? o->cache_max_bytes : max_default,
                            .min_bytes = o->cache_min_bytes ? o->cache_min_bytes : min_default,
                            .model_path = path};
    if (!o->cache_dir || !o->cache_dir[0] || !bnet_gguf_mapped(g) ||
        bnet_gguf_file_bytes(g) < c->min_bytes || !allowed(c, g, o, log, stem))
        return BITNET_OK;
    c->folder = bnet_strdup(o->cache_dir);
    c->pack_path = name_in(o->cache_dir, stem, BNET_PACK_SUFFIX);
    c->sum_path = name_in(o->cache_dir, stem, BNET_SUM_SUFFIX);
    return c->folder && c->pack_path && c->sum_path ? BITNET_OK
                                                    : bnet_no_memory(err, "cache folder");
}

void bnet_model_cache_close(bnet_model_cache *c)
{
    bnet_free(c->folder);
    bnet_free(c->pack_path);
    bnet_free(c->sum_path);
    *c = (bnet_model_cache){0};
}

bool bnet_model_cache_want(const bnet_model_cache *c, bnet_pack_cache *out)
{
    if (!c->folder)
        return false;
    *out = (bnet_pack_cache){.path = c->pack_path,
                             .identity = c->identity,
                             .source = c->model_path,
                             .min_bytes = c->min_bytes,
                             .max_bytes = c->max_bytes};
    return true;
}

void bnet_model_cache_tidy(const bnet_model_cache *c, const bnet_log *log)
{
    uint64_t n_bytes;
    if (!c->folder)
        return;
    size_t n = bnet_cache_sweep(c->folder, &n_bytes);
    if (n)
        bnet_logf(log, BITNET_LOG_INFO, "cache",
                  "%s: removed %zu unfinished file%s of processes that are gone (%.1f MB)",
                  c->folder, n, n == 1 ? "" : "s", (double)n_bytes / 1e6);
    bnet_cache_trim(c->folder, c->max_bytes);
}

/* ---- "<64 digits> <identity>" ---- */

bool bnet_model_cache_sum(const bnet_model_cache *c, char hex[65])
{
    bnet_map m;
    size_t n = strlen(c->identity);
    if (!c->folder || !unchanged(c) || bnet_map_open(c->sum_path, &m, NULL) != BITNET_OK)
        return false;
    const char *text = (const char *)m.data;
    bool ok = bnet_file_own(&m.id, c->sum_path, NULL) == BITNET_OK && m.n_bytes == 65 + n &&
              text[64] == ' ' && memcmp(text + 65, c->identity, n) == 0;
    for (size_t i = 0; ok && i < 64; i++)
        ok = memchr("0123456789abcdef", text[i], 16) != NULL;
    if (ok) {
        memcpy(hex, text, 64);
        hex[64] = '\0';
        bnet_file_touch(c->sum_path);
    }
    bnet_map_close(&m);
    return ok;
}

void bnet_model_cache_remember(const bnet_model_cache *c, const char *hex)
{
    bnet_writer *w;
    if (!c->folder || !unchanged(c) || bnet_writer_open_private(c->sum_path, &w, NULL) != BITNET_OK)
        return;
    bitnet_status st = bnet_writer_write(w, hex, 64, NULL);
    if (st == BITNET_OK)
        st = bnet_writer_write(w, " ", 1, NULL);
    if (st == BITNET_OK)
        st = bnet_writer_write(w, c->identity, strlen(c->identity), NULL);
    if (st == BITNET_OK)
        bnet_writer_publish(w, NULL);
    else
        bnet_writer_abort(w);
}
