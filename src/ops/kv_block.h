/* kv_block.h - how one block of the cache lies in memory on every backend: for each kv head a K
 * part and a V part.
 * A part holds 64 positions x head_dim elements; int8 parts end with float scales [64][groups], one
 * for every 32 elements of a position: with one per position the logits of small models drift too
 * far from the reference. */
#ifndef BNET_KV_BLOCK_H
#define BNET_KV_BLOCK_H

#include "base/base.h"

enum { BNET_BLOCK_POS = 64, BNET_KV_GROUP = 32 };

static inline size_t bnet_kv_elem(bitnet_kv_type t)
{
    return t == BITNET_KV_F32 ? 4 : t == BITNET_KV_F16 ? 2 : 1;
}

static inline size_t bnet_kv_groups(size_t head_dim) /* scales per position of an int8 part */
{
    return (head_dim + BNET_KV_GROUP - 1) / BNET_KV_GROUP;
}

static inline size_t bnet_kv_part_bytes(bitnet_kv_type t, size_t head_dim)
{
    size_t n = BNET_BLOCK_POS * head_dim * bnet_kv_elem(t);
    if (t == BITNET_KV_INT8)
        n = (n + 3) / 4 * 4 + BNET_BLOCK_POS * bnet_kv_groups(head_dim) * sizeof(float);
    return (n + BNET_ALIGN - 1) / BNET_ALIGN * BNET_ALIGN;
}

static inline size_t bnet_kv_scale_offset(size_t head_dim) /* of an int8 part */
{
    return (BNET_BLOCK_POS * head_dim + 3) / 4 * 4;
}

#endif
