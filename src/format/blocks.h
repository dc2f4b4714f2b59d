/* blocks.h - the bytes of one block of every format we encode and decode, as C structs made of
 * bytes only, so that sizeof is the size on disk and a pointer into a file of any alignment may be
 * cast to them. */
#ifndef BNET_BLOCKS_H
#define BNET_BLOCKS_H

#include "format/tensor.h"

typedef struct block_q4_0 {
    uint8_t d[2];  /* f16 */
    uint8_t q[16]; /* low nibble: element i, high nibble: element i + 16 */
} block_q4_0;

typedef struct block_q8_0 {
    uint8_t d[2];
    int8_t q[32];
} block_q8_0;

typedef struct block_q6_k {
    uint8_t ql[128]; /* low four bits of the codes */
    uint8_t qh[64];  /* high two bits */
    int8_t sc[16];   /* scale of each 16 elements, times d */
    uint8_t d[2];
} block_q6_k;

typedef struct block_tq1_0 {
    uint8_t q[48]; /* five trits per byte: elements 0..159 in 32 bytes, 160..239 in 16 */
    uint8_t qh[4]; /* four trits per byte: elements 240..255 */
    uint8_t d[2];
} block_tq1_0;

typedef struct block_tq2_0 {
    uint8_t q[64];
    uint8_t d[2];
} block_tq2_0;

/* bytes of a type, from the table, as constants */
enum {
#define TYPE(id, NAME, block, bytes, kind)                                                         \
    BNET_BLOCK_ELEMS_##NAME = block, BNET_BLOCK_BYTES_##NAME = bytes,
#include "format/tensor_types.inc"
#undef TYPE
};

#endif
