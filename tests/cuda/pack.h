/* pack.h - rows in the layouts of gpu/layouts.h, packed on the host. */
#ifndef TESTS_CUDA_PACK_H
#define TESTS_CUDA_PACK_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t bnet_w2_bytes(uint32_t n_tiles, uint32_t n_chunks);
/* Trits [n_rows][ld] (-1, 0, 1) into units. The caller fills the matrix with BNET_W2_ZERO bytes
 * first. Rows r0..r0+n_rows of a part: row r goes to tile first_tile + r / 16. */
void bnet_w2_pack(uint8_t *w, uint32_t n_chunks, uint32_t first_tile, uint32_t r0, uint32_t n_rows,
                  const int8_t *trits, size_t ld, uint32_t n_cols);
/* The same into paired tiles: row r of part `which` (0, 1) goes to tile r / 8. */
void bnet_w2_pack_paired(uint8_t *w, uint32_t n_chunks, uint32_t which, uint32_t r0,
                         uint32_t n_rows, const int8_t *trits, size_t ld, uint32_t n_cols);
/* Rows of Q8_0 and Q6_K blocks as files have them into planes; n_blocks per row. */
void bnet_pack_q8_row(const uint8_t *blocks, uint32_t n_blocks, uint32_t stride, int8_t *codes,
                      uint16_t *scales);
void bnet_pack_q6k_row(const uint8_t *blocks, uint32_t n_blocks, uint8_t *low, uint8_t *high,
                       int8_t *scales, uint16_t *d);

#ifdef __cplusplus
}
#endif

#endif
