/* reference.h - the plain operations a newcomer would write first, on unpacked or simply packed
 * ternary weights. They define what the words mean; production kernels are compared with them. Pure
 * functions, safe from any thread. */
#ifndef BNET_REFERENCE_H
#define BNET_REFERENCE_H

#include "base/base.h"
#include "bitnet_kernel.h"

/* 0b00 = -1, 0b01 = 0, 0b10 = +1; 0b11, and in unpacked form anything above, is 0 */
static inline int8_t bnet_ref_trit(uint8_t code)
{
    return code <= 2 ? (int8_t)(code - 1) : (int8_t)0;
}

/* c[i][j] = sum over l of a[i][l] * trit(b[l][j]); all row-major, sizes right, k < 2^24. */
typedef void bnet_matmul_fn(const int8_t *a, const uint8_t *b, float *c, size_t m, size_t n,
                            size_t k);
bnet_matmul_fn bnet_ref_matmul_scalar;
#if defined(__aarch64__)
bnet_matmul_fn bnet_ref_matmul_neon;
#elif defined(__x86_64__)
bnet_matmul_fn bnet_ref_matmul_avx2, bnet_ref_matmul_avx512;
#endif

/* Bytes that n weights take. I2S: 4 codes per byte, first lowest. TL1: pairs 3a + b + 4 in nibbles,
 * first pair high. TL2: triples v = 9a + 3b + c, |v| in nibbles, first high, then one sign bit per
 * triple (v < 0), first lowest. What is missing to a whole byte counts as weight 0. */
size_t bnet_ref_quantized_bytes(bitnet_qtype q, size_t n);

/* One scale for each `block` weights, n_scales blocks. Requires finite values. bnet_ref_quantize
 * says what the bits are; the others give the same ones. */
typedef void bnet_quantize_fn(bitnet_qtype q, bitnet_scale_rule rule, const float *in, size_t n,
                              uint8_t *out, float *scales, size_t n_scales, size_t block);
bnet_quantize_fn bnet_ref_quantize;
#if defined(__aarch64__)
bnet_quantize_fn bnet_quantize_neon;
#elif defined(__x86_64__)
bnet_quantize_fn bnet_quantize_avx2, bnet_quantize_avx512;
#endif
/* The first of n values that is not finite; n: all are. */
size_t bnet_first_not_finite(const float *in, size_t n);
void bnet_ref_dequantize(bitnet_qtype q, const uint8_t *in, size_t n, const float *scales,
                         size_t n_scales, float *out);

/* y[r] = sum over blocks of 256 of scale * sum of value(code) * x. Rows of ceil(cols / 256) * 64
 * bytes, codes lowest bits first; scales [rows][ceil(cols / 256)], NULL: all 1. */
void bnet_ref_qk256_gemv(const uint8_t *w, const float *scales, size_t rows, size_t cols,
                         const float *x, bitnet_code_map map, float *y);

#endif
