/* codec.h - THE reference encoders and decoders of every weight format. Plain C, one row at a time,
 * the arbiter for every fast kernel. Sources: docs/FORMATS.md. */
#ifndef BNET_CODEC_H
#define BNET_CODEC_H

#include "format/tensor.h"

/* ---- 16-bit floats (round to nearest even; NaN stays NaN, subnormals exact) ---- */
float bnet_f16_to_f32(uint16_t h);
uint16_t bnet_f32_to_f16(float f);
float bnet_bf16_to_f32(uint16_t h);
uint16_t bnet_f32_to_bf16(float f);

/* ---- rows of every type but I2_S and IQ*_BN ----
 * n must be a multiple of the type's block. False: a type without a codec. Q4_K, IQ4_NL, Q1_0 and
 * Q2_0, which no kernel reads, can be decoded only. */
bool bnet_decode_row(bnet_type t, const void *src, float *dst, size_t n);
bool bnet_encode_row(bnet_type t, const float *src, void *dst, size_t n);

/* Ternary by construction, one scale per row: their inputs are quantised like those of I2_S. */
static inline bool bnet_type_is_bn(bnet_type t)
{
    return t == BNET_IQ1_BN || t == BNET_IQ2_BN;
}
/* Elements [first, first + n) of one row as floats; both multiples of the type's block. Knows
 * IQ1_BN and IQ2_BN too. False: a type without a decoder. */
bool bnet_decode_part(bnet_type t, const void *row, size_t first, size_t n, float *dst);
bool bnet_can_decode(bnet_type t); /* by bnet_decode_part */

/* ---- I2_S: whole tensors, codes 0,1,2 = -1,0,+1 (3 invalid, decodes as 0), one f32 scale ---- */

/* Byte and shift of element (row, col) of an [n_cols, n_rows] tensor in the given layout. */
void bnet_i2s_locate(bitnet_i2s_layout layout, uint64_t n_cols, uint64_t row, uint64_t col,
                     uint64_t *byte, unsigned *shift);
static inline uint64_t bnet_i2s_bytes(uint64_t n)
{
    return n / 4 + 32;
}
float bnet_i2s_scale(const uint8_t *data, uint64_t n_elems); /* at byte n/4 */
/* The last 32 bytes of a tensor, behind its codes: the scale and zeros. */
static inline void bnet_i2s_tail(float scale, uint8_t tail[32])
{
    memset(tail, 0, 32);
    bnet_put_f32(tail, scale);
}
/* One row of trits (-1,0,1); returns how many codes were 3. */
size_t bnet_i2s_decode_row(bitnet_i2s_layout layout, const uint8_t *data, uint64_t n_cols,
                           uint64_t row, int8_t *trits);
/* ORs one row of trits into zeroed storage. */
void bnet_i2s_encode_row(bitnet_i2s_layout layout, uint8_t *data, uint64_t n_cols, uint64_t row,
                         const int8_t *trits);
static inline bool bnet_type_is_tq(bnet_type t)
{
    return t == BNET_TQ1_0 || t == BNET_TQ2_0;
}
/* Rows of trits of TQ1_0 / TQ2_0 blocks and the block scales (n / 256 of them). */
void bnet_tq_decode_row(bnet_type t, const void *src, int8_t *trits, float *scales, size_t n);

/* The flavour of a tensor with type id 36, told by its byte span (formats: FORMATS.md). */
typedef enum bnet_i2s_flavour {
    BNET_I2S_MICROSOFT, /* n/4 + 32 bytes, f32 scale */
    BNET_I2S_QK256,     /* n/4 bytes, no scale: refuse, it carries no scale to multiply with */
    BNET_I2S_BITNET32,  /* 10 bytes per 32 weights */
    BNET_I2S_UNKNOWN,
} bnet_i2s_flavour;
bnet_i2s_flavour bnet_i2s_detect(const bnet_tensor *t, uint64_t alignment);

/* Absmean quantisation of a master weight tensor (HF "online" mode): scale = max(mean|w|, 1e-5),
 * t = clamp(round-half-even(w/scale), -1, 1). The mean is accumulated in double. */
float bnet_absmean_finish(double sum_abs, uint64_t n);
void bnet_absmean_row(const float *w, float scale, int8_t *trits, size_t n);

#endif
