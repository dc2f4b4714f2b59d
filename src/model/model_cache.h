/* model_cache.h - what may be remembered of a model file between runs: its packed weights, its
 * checksum. Hides: what makes a file the same file, and the names in the folder. */
#ifndef BNET_MODEL_CACHE_H
#define BNET_MODEL_CACHE_H

#include "bitnet.h"
#include "format/gguf.h"
#include "ops/open.h"

enum { BNET_IDENTITY_CAP = 256 };

typedef struct bnet_model_cache {
    char *folder; /* NULL: nothing is remembered */
    char *pack_path, *sum_path;
    char identity[BNET_IDENTITY_CAP]; /* device, inode, size, time of change, layout, head */
    uint64_t max_bytes, min_bytes;
} bnet_model_cache;

/* Looks at the options and the file. What cannot be had (no folder, no right to make it) is logged
 * and done without; fails for want of memory alone. */
bitnet_status bnet_model_cache_open(const bitnet_engine_options *o, const char *path,
                                    const bnet_gguf *g, const bnet_log *log, bnet_model_cache *out,
                                    bitnet_error *err);
void bnet_model_cache_close(bnet_model_cache *c);
/* For the backend; false: nothing is kept. */
bool bnet_model_cache_want(const bnet_model_cache *c, bnet_pack_cache *out);
void bnet_model_cache_trim(const bnet_model_cache *c);
/* The checksum of the whole file, if it was remembered; 64 digits. */
bool bnet_model_cache_sum(const bnet_model_cache *c, char hex[65]);
void bnet_model_cache_remember(const bnet_model_cache *c, const char *hex);

#endif
