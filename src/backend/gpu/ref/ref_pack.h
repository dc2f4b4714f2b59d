/* ref_pack.h - from rows as files have them to rows as the kernels read them (layouts.h). Runs once
 * per weight, when it is loaded. */
#ifndef BNET_REF_PACK_H
#define BNET_REF_PACK_H

#include "backend/gpu/ref/ref_math.h"

/* Canonical I2_S keeps group s of a byte at bits 6 - 2s, the tiles at bits 2s. */
REF_FN uint8_t turned(uint8_t b)
{
    return (uint8_t)(b >> 6 | (b >> 2 & 12) | (b << 2 & 48) | b << 6);
}

/* one thread per 4 bytes of the source: 16 weights of one row; the rest of the tiles was prefilled
 */
REF_FN void pack_i2s(const ref_pack_args *a, uint64_t i)
{
    uint64_t words = a->row_bytes / 4, row = a->first_row + i / words;
    uint64_t chunk = i % words / 8;
    int at = (int)(i % words % 8); /* column 4 at of the chunk's first group */
    int r = (int)(row % 16 / 8) + 2 * (at / 4), lane = (int)(4 * (row % 8)) + at % 4;
    const uint8_t *from = a->src + (i / words) * a->row_bytes + i % words * 4;
    uint8_t *to =
        a->w[0] + (row / 16 * (uint64_t)a->n_chunks + chunk) * BNET_W2_UNIT + 16 * lane + 4 * r;
    for (int b = 0; b < 4; b++)
        to[b] = turned(from[b]);
}

/* one thread per element */
REF_FN void pack_plain(const ref_pack_args *a, uint64_t i)
{
    uint64_t n = a->row_bytes / (uint64_t)a->elem, row = i / n;
    const uint8_t *from = a->src + row * a->row_bytes + i % n * (uint64_t)a->elem;
    uint8_t *to =
        a->w[0] + ((a->first_row + row) * (uint64_t)a->stride + i % n) * (uint64_t)a->elem;
    for (int b = 0; b < a->elem; b++)
        to[b] = from[b];
}

/* one thread per block of 32 */
REF_FN void pack_q8(const ref_pack_args *a, uint64_t i, int four)
{
    uint64_t bytes = four ? 18 : 34, n = a->row_bytes / bytes, row = a->first_row + i / n;
    const uint8_t *from = a->src + i / n * a->row_bytes + i % n * bytes;
    uint64_t at = row * (uint64_t)a->stride + i % n * 32;
    for (int j = 0; j < 2; j++)
        a->w[1][2 * (at / 32) + (uint64_t)j] = from[j];
    for (int j = 0; j < 32; j++)
        a->w[0][at + (uint64_t)j] = !four    ? from[2 + j]
                                    : j < 16 ? (uint8_t)((from[2 + j] & 15) - 8)
                                             : (uint8_t)((from[2 + j - 16] >> 4) - 8);
}

/* one thread per block of 256: planes by 32 elements */
REF_FN void pack_q6_k(const ref_pack_args *a, uint64_t i)
{
    uint64_t n = a->row_bytes / 210, row = a->first_row + i / n;
    uint64_t to = row * ((uint64_t)a->stride / 256) + i % n;
    const uint8_t *from = a->src + i * 210;
    for (int e = 0; e < 256; e++) {
        int s = e / 16, h = s / 8, g = s % 8 / 2, at = 16 * (s % 2) + e % 16, j = e % 32;
        uint8_t low = (uint8_t)(from[64 * h + 32 * (g & 1) + at] >> (g < 2 ? 0 : 4) & 15);
        uint8_t high = (uint8_t)(from[128 + 32 * h + at] >> (2 * g) & 3);
        uint64_t group = 8 * to + (uint64_t)(e / 32);
        uint8_t *l = &a->w[0][16 * group + (uint64_t)(j % 16)];
        uint8_t *u = &a->w[1][8 * group + (uint64_t)(j % 8)];
        *l = (uint8_t)(j < 16 ? low : *l | low << 4);
        *u = (uint8_t)(j < 8 ? high : *u | high << (j / 8 * 2));
    }
    for (int j = 0; j < 16; j++)
        a->w[2][16 * to + (uint64_t)j] = from[192 + j];
    a->w[3][2 * to] = from[208];
    a->w[3][2 * to + 1] = from[209];
}

REF_KERNEL(bnet_ref_pack, ref_pack_args)
{
    uint64_t i = REF_THREAD, unit = a.from == REF_FROM_I2S     ? 4
                                    : a.from == REF_FROM_PLAIN ? (uint64_t)a.elem
                                    : a.from == REF_FROM_Q8_0  ? 34
                                    : a.from == REF_FROM_Q4_0  ? 18
                                                               : 210;
    if (i >= a.n_rows * (a.row_bytes / unit))
        return;
    if (a.from == REF_FROM_I2S)
        pack_i2s(&a, i);
    else if (a.from == REF_FROM_PLAIN)
        pack_plain(&a, i);
    else if (a.from == REF_FROM_Q6_K)
        pack_q6_k(&a, i);
    else
        pack_q8(&a, i, a.from == REF_FROM_Q4_0);
}

/* one thread per word of the result; tiles of the sources that are not there count as zeros */
REF_KERNEL(bnet_ref_pair, ref_pair_args)
{
    uint64_t i = REF_THREAD;
    if (i >= a.n_words)
        return;
    uint64_t unit = i / 128, chunk = unit % (uint64_t)a.n_chunks,
             tile = unit / (uint64_t)a.n_chunks;
    int lane = (int)(i % 128 / 4), r = (int)(i % 4);
    uint64_t from = (tile / 2 * (uint64_t)a.n_chunks + chunk) * 128 + (uint64_t)lane * 4 +
                    (tile & 1) + 2 * (uint64_t)(r / 2);
    a.out[i] = (r & 1 ? a.b : a.a)[from];
}

#endif
