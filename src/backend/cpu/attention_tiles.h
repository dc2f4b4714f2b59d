/* attention_tiles.h - how a pass of attention is dealt out to threads: an item is some tokens that
 * follow each other, for one kv head. A block of the cache is read, and converted, once for an
 * item, so wide ones are cheap, and enough of them keep all threads busy. */
#ifndef BNET_ATTENTION_TILES_H
#define BNET_ATTENTION_TILES_H

#include "ops/backend.h"

/* Tokens begin .. end - 1 in tiles of `tile`, for n_heads kv heads from `head` on. */
typedef struct bnet_tiles {
    size_t tile, begin, end, head, n_heads, n_items;
} bnet_tiles;

enum { BNET_TILINGS = 4 };

/* Every token of the step is in one item for each of n_kv heads. Tiles have at most `most` tokens.
 * Returns how many of `out` there are, in the order in which they are meant to be taken. */
size_t bnet_choose_tiles(const bnet_step *s, size_t most, size_t n_kv, size_t n_threads,
                         bnet_tiles out[BNET_TILINGS]);

/* Item i < n_items: its first token is returned, those before *end and kv head *head are its. */
size_t bnet_tile_at(const bnet_tiles *tiles, size_t i, size_t *end, size_t *head);

#endif
