/* bitnet_extras.h - libbitnet-extras: operations on ternary weights in host memory, without a model
 * or a runtime. They are plain, exact and single-threaded: the meaning of the words. Pure
 * functions: any thread may call them.
 *
 * The rules of bitnet.h hold (errors, ownership, threads); there is no promise of stability between
 * versions. */
#ifndef BITNET_EXTRAS_H
#define BITNET_EXTRAS_H

#include "bitnet_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reference operations: plain, exact, single-threaded; the meaning of the words ---- */

/* c [m][n] = a [m][k] times b [k][n], b one I2S code per byte (above 2: 0). Exact for k <= 131072.
 * Fails ARGUMENT: "Matrix dimension mismatch" unless n_a = m*k, n_b = k*n, n_c = m*n. */
BITNET_API bitnet_status bitnet_matmul_i2s(const int8_t *a, size_t n_a, const uint8_t *b,
                                           size_t n_b, float *c, size_t n_c, size_t m, size_t n,
                                           size_t k, bitnet_error *err);

/* Many at once, in the order of their shapes (m, n, k); each result lies in its item's c. None: OK.
 * All are checked before the first is computed; the message names the item. */
BITNET_API bitnet_status bitnet_batch_matmul_i2s(const bitnet_matmul *items, size_t n_items,
                                                 bitnet_error *err);

/* Bytes n weights take packed. */
BITNET_API size_t bitnet_quantized_bytes(bitnet_qtype type, size_t n);
/* n floats to ternary with n_scales scales, each for ceil(n / n_scales) weights. The three types
 * hold the same weights. Fails ARGUMENT: unknown type or rule, sizes, a value that is not finite.
 */
BITNET_API bitnet_status bitnet_quantize(bitnet_qtype type, bitnet_scale_rule rule, const float *in,
                                         size_t n, uint8_t *out, size_t n_out, float *scales,
                                         size_t n_scales, bitnet_error *err);
BITNET_API bitnet_status bitnet_dequantize(bitnet_qtype type, const uint8_t *in, size_t n_in,
                                           size_t n, const float *scales, size_t n_scales,
                                           float *out, bitnet_error *err);
/* n codes of packed I2S, one per byte: what bitnet_matmul_i2s takes. */
BITNET_API void bitnet_i2s_unpack(const uint8_t *packed, size_t n, uint8_t *codes);
/* The trit of a code: 0,1,2 = -1,0,+1; anything else 0. */
BITNET_API int bitnet_i2s_trit(uint8_t code);

/* y [rows] = w x for rows of 2-bit codes (lowest bits first) in blocks of 256 = 64 bytes, each row
 * padded to whole blocks, so n_w = rows * ceil(cols / 256) * 64; scales one per block, or NULL
 * for 1. Fails ARGUMENT: sizes, unknown map. */
BITNET_API bitnet_status bitnet_qk256_gemv(const uint8_t *w, size_t n_w, const float *scales,
                                           size_t n_scales, size_t rows, size_t cols,
                                           const float *x, bitnet_code_map map, float *y,
                                           bitnet_error *err);

/* BitNet32-F16: blocks of 32 weights in 10 bytes, codes then an f16 scale. Maps OFFSET (the one
 * that has a zero) and NOZERO (|scale| limited to 1e-3..1e3) both occur; files do not say which.
 * n_data = ceil(n / 32) * 10; for _gemv cols must be a multiple of 32. */
BITNET_API bitnet_status bitnet_bitnet32_decode(const uint8_t *data, size_t n_data, size_t n,
                                                bitnet_code_map map, float *out, bitnet_error *err);
BITNET_API bitnet_status bitnet_bitnet32_gemv(const uint8_t *data, size_t n_data, size_t rows,
                                              size_t cols, const float *x, bitnet_code_map map,
                                              float *y, bitnet_error *err);

#ifdef __cplusplus
}
#endif
#endif
