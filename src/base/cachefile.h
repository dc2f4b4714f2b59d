/* cachefile.h - derived data kept between runs: named pieces in one file, mapped when they are
 * wanted again. Such a file may vanish, be damaged or be of another time at any moment: it is
 * checked whenever it is read, and nothing but time is lost without it. */
#ifndef BNET_CACHEFILE_H
#define BNET_CACHEFILE_H

#include "base/base.h"

enum { BNET_CACHE_NAME = 112 }; /* bytes of a piece's name, its NUL counted */

typedef struct bnet_cachefile bnet_cachefile;

typedef struct bnet_cachepiece {
    char name[BNET_CACHE_NAME];
    const void *data;
    uint64_t n_bytes;
    double note; /* a number that belongs to it */
} bnet_cachepiece;

/* The file, if it is there, whole, and was written for exactly this identity; else NULL. */
bnet_cachefile *bnet_cachefile_open(const char *path, const char *identity);
/* A piece of this name and size whose bytes are still what they were, 64-byte aligned and valid
 * until _close; else NULL. Reads all of it once. */
const void *bnet_cachefile_find(const bnet_cachefile *c, const char *name, uint64_t n_bytes,
                                double *note);
void bnet_cachefile_close(bnet_cachefile *c); /* NULL is legal */
/* Writes the pieces to a temporary file and renames it. Not synced to the disk: what a crash tears
 * is found by the checksums. */
bitnet_status bnet_cachefile_write(const char *path, const char *identity,
                                   const bnet_cachepiece *pieces, size_t n, bitnet_error *err);
/* Removes the files of a folder that end in `suffix`, the longest unused first, until no more than
 * max_bytes are left; `keep` (a path, or NULL) stays. */
void bnet_cache_trim(const char *folder, const char *suffix, uint64_t max_bytes, const char *keep);

#endif
