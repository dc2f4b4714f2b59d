/* model_cache.c - a file is the same if device, inode, size and time of change are, and the bytes
 * before its tensors. */
#include "model/model_cache.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/cachefile.h"
#include "base/file.h"
#include "base/str.h"
#include "base/sha256.h"

#define PACK_VERSION "packed 1" /* changes with the layouts of pack.h and pack_q6.h */
#define PACK_SUFFIX  ".pack"
static const uint64_t max_default = (uint64_t)8 << 30, min_default = (uint64_t)64 << 20;

static bitnet_status identify(const char *path, const bnet_gguf *g, int layout, bnet_model_cache *c,
                              bitnet_error *err)
{
    struct stat st;
    char head[65];
    if (stat(path, &st) != 0 || (uint64_t)st.st_size != bnet_gguf_file_bytes(g))
        return bnet_fail(err, BITNET_IO, "%s: changed while it was opened", path);
    bitnet_status s =
        bnet_sha256_hex(bnet_gguf_file_data(g), (size_t)bnet_gguf_head_bytes(g), head, err);
    if (s == BITNET_OK)
        snprintf(c->identity, sizeof c->identity,
                 "bitnet %s %s device %llu inode %llu size %llu time %lld.%09ld layout %d head %s",
                 BITNET_VERSION, PACK_VERSION, (unsigned long long)st.st_dev,
                 (unsigned long long)st.st_ino, (unsigned long long)st.st_size,
                 (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec, layout, head);
    return s;
}

static char *name_in(const char *folder, const char *stem, const char *suffix)
{
    bnet_str s = {0};
    bnet_str_addf(&s, "%s/%.16s%s", folder, stem, suffix);
    return s.data;
}

bitnet_status bnet_model_cache_open(const bitnet_engine_options *o, const char *path,
                                    const bnet_gguf *g, const bnet_log *log, bnet_model_cache *c,
                                    bitnet_error *err)
{
    char stem[65];
    bitnet_error why = {0};
    *c = (bnet_model_cache){.max_bytes = o->cache_max_bytes ? o->cache_max_bytes : max_default,
                            .min_bytes = o->cache_min_bytes ? o->cache_min_bytes : min_default};
    if (!o->cache_dir || !o->cache_dir[0] || !bnet_gguf_mapped(g) ||
        bnet_gguf_file_bytes(g) < c->min_bytes)
        return BITNET_OK;
    char *folder = bnet_strdup(o->cache_dir);
    if (!folder)
        return bnet_no_memory(err, "cache folder");
    if (!bnet_make_folder(folder)) {
        bnet_logf(log, BITNET_LOG_INFO, "cache", "%s cannot be made: nothing is kept", folder);
        bnet_free(folder);
        return BITNET_OK;
    }
    if (identify(path, g, (int)o->i2s_layout, c, &why) != BITNET_OK ||
        bnet_sha256_hex(c->identity, strlen(c->identity), stem, &why) != BITNET_OK) {
        bnet_logf(log, BITNET_LOG_INFO, "cache", "nothing is kept: %s", why.message);
        bnet_free(folder);
        return BITNET_OK;
    }
    c->folder = folder;
    c->pack_path = name_in(folder, stem, PACK_SUFFIX);
    c->sum_path = name_in(folder, stem, ".sha256");
    return c->pack_path && c->sum_path ? BITNET_OK : bnet_no_memory(err, "cache folder");
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
    *out = (bnet_pack_cache){c->pack_path, c->identity, c->min_bytes};
    return true;
}

void bnet_model_cache_trim(const bnet_model_cache *c)
{
    if (c->folder)
        bnet_cache_trim(c->folder, PACK_SUFFIX, c->max_bytes, c->pack_path);
}

/* ---- "<64 digits> <identity>" ---- */

bool bnet_model_cache_sum(const bnet_model_cache *c, char hex[65])
{
    enum { MOST = 65 + BNET_IDENTITY_CAP };
    char *text;
    size_t n;
    if (!c->folder || bnet_read_file(c->sum_path, MOST, &text, &n, NULL) != BITNET_OK)
        return false;
    bool ok = n > 65 && text[64] == ' ' && strcmp(text + 65, c->identity) == 0 &&
              strspn(text, "0123456789abcdef") == 64;
    if (ok) {
        memcpy(hex, text, 64);
        hex[64] = '\0';
    }
    bnet_free(text);
    return ok;
}

void bnet_model_cache_remember(const bnet_model_cache *c, const char *hex)
{
    bnet_writer *w;
    if (!c->folder || bnet_writer_open(c->sum_path, &w, NULL) != BITNET_OK)
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
