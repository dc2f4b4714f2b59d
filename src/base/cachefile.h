/* cachefile.h - derived data kept between runs: named pieces in one file, mapped when they are
 * wanted again. Such a file may vanish, be damaged or be of another time at any moment: it is
 * checked whenever it is read, and nothing but time is lost without it. */
#ifndef BNET_CACHEFILE_H
#define BNET_CACHEFILE_H

#include "base/base.h"

#define BNET_CACHE_SOURCE "source" /* the piece with the name of the file all others are of */
enum { BNET_CACHE_NAME = 112 };    /* bytes of a piece's name, its NUL counted */

typedef struct bnet_cachefile bnet_cachefile;

typedef struct bnet_cachepiece {
    char name[BNET_CACHE_NAME];
    const void *data;
    uint64_t n_bytes;
    double note; /* a number that belongs to it */
} bnet_cachepiece;

/* The file, if it is there, whole, this user's alone, and was written for exactly this identity
 * (NULL: for any); else NULL. If a file is there and cannot be used, err says why, and what to do;
 * it is left as it is where there is no file, or one of another identity. */
bnet_cachefile *bnet_cachefile_open(const char *path, const char *identity, bitnet_error *err);
/* A piece of this name and size whose bytes are still what they were, 64-byte aligned and valid
 * until _close; else NULL. Reads all of it once. */
const void *bnet_cachefile_find(const bnet_cachefile *c, const char *name, uint64_t n_bytes,
                                double *note);
/* The same for a piece of any size. */
const void *bnet_cachefile_piece(const bnet_cachefile *c, const char *name, uint64_t *n_bytes);
/* Does the address lie in the map of the file (NULL: of none)? For signal handlers too. */
bool bnet_cachefile_holds(const bnet_cachefile *c, const void *address);
void bnet_cachefile_close(bnet_cachefile *c); /* NULL is legal */
/* Writes the pieces to a temporary file and renames it. Not synced to the disk: what a crash tears
 * is found by the checksums. */
bitnet_status bnet_cachefile_write(const char *path, const char *identity,
                                   const bnet_cachepiece *pieces, size_t n, bitnet_error *err);

#endif
