/* cache_folder.h - the folder of what is kept between runs. Hides: which files in it are ours,
 * which were left unfinished, and which go first when there is no room. */
#ifndef BNET_CACHE_FOLDER_H
#define BNET_CACHE_FOLDER_H

#include "base/base.h"

#define BNET_PACK_SUFFIX ".pack"   /* packed weights */
#define BNET_SUM_SUFFIX  ".sha256" /* checksum of a model file */
#define BNET_CODE_SUFFIX ".cubin"  /* compiled kernels */
#define BNET_CODE_FOLDER "nvrtc"   /* where they lie, below the folder */

typedef struct bnet_cached {
    char name[280];   /* below the folder: "0123.pack", "nvrtc/0123.cubin" */
    const char *kind; /* "packed weights", "checksum", "kernels", "unfinished" */
    bool unfinished;
    uint64_t n_bytes;
    int64_t used_ns; /* since 1970 */
} bnet_cached;

/* Makes the folder if it is missing. False: nothing in it may be used, and the log says why: a
 * folder that others may write to is a warning, one that cannot be made is not. */
bool bnet_cache_folder(const char *folder, const bnet_log *log);
/* Our files there, the longest unused first, to be freed with bnet_free; a folder that is missing
 * has none. Fails IO, MEMORY. */
bitnet_status bnet_cache_list(const char *folder, bnet_cached **out, size_t *n, bitnet_error *err);
/* Removes one of them. False: it is still there, or (unfinished) still being written. */
bool bnet_cache_remove(const char *folder, const bnet_cached *file);
/* Removes what dead processes left unfinished; returns how many files, *n_bytes what they took. */
size_t bnet_cache_sweep(const char *folder, uint64_t *n_bytes);
/* Removes the longest unused until all that is left takes no more than max_bytes. */
void bnet_cache_trim(const char *folder, uint64_t max_bytes);

#endif
