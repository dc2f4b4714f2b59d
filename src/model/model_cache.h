/* model_cache.h - what may be remembered of a model file between runs: its packed weights, its
 * checksum. Hides: what makes a file the same file, and the names in the folder. */
#ifndef BNET_MODEL_CACHE_H
#define BNET_MODEL_CACHE_H

#include "bitnet.h"
#include "format/gguf.h"
#include "ops/open.h"

enum { BNET_IDENTITY_CAP = 512 };

typedef struct bnet_model_cache {
    char *folder; /* NULL: nothing is remembered */
    char *pack_path, *sum_path;
    const char *model_path;           /* the engine's */
    bnet_file_id id;                  /* of the file as it was opened */
    char identity[BNET_IDENTITY_CAP]; /* id, layout, checksums of the head and of samples */
    uint64_t max_bytes, min_bytes;
} bnet_model_cache;

/* Looks at the options and the file. What cannot be had (no folder, no right to make it, a file
 * that was changed a moment ago) is logged and done without, a folder that others may write to with
 * a warning; fails for want of memory alone. `path` must outlive the cache. */
bitnet_status bnet_model_cache_open(const bitnet_engine_options *o, const char *path,
                                    const bnet_gguf *g, const bnet_log *log, bnet_model_cache *out,
                                    bitnet_error *err);
void bnet_model_cache_close(bnet_model_cache *c);
/* For the backend; false: nothing is kept. */
bool bnet_model_cache_want(const bnet_model_cache *c, bnet_pack_cache *out);
/* After loading: sweeps what dead processes left, and makes the folder fit into max_bytes. */
void bnet_model_cache_tidy(const bnet_model_cache *c, const bnet_log *log);
/* The checksum of the whole file, if it was remembered and the file is what it was then; 64
 * digits. */
bool bnet_model_cache_sum(const bnet_model_cache *c, char hex[65]);
/* Not if the file was changed since it was opened: nobody knows what was summed. */
void bnet_model_cache_remember(const bnet_model_cache *c, const char *hex);

#endif
