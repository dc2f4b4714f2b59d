/* codec_extra.h - decoders of types that no kernel reads: Q4_K, IQ4_NL, Q1_0, Q2_0 and the IQ*_BN
 * rows. With them such weights can still be computed with, slowly, and tensors be looked at. */
#ifndef BNET_CODEC_EXTRA_H
#define BNET_CODEC_EXTRA_H

#include "format/codec.h"

/* Elements [first, first + n) of one row as floats; both multiples of the type's block. Knows every
 * type bnet_decode_row knows and those above. False: a type without a decoder. */
bool bnet_decode_part(bnet_type t, const void *row, size_t first, size_t n, float *dst);
static inline bool bnet_can_decode(bnet_type t)
{
    return t != BNET_I2_S && bnet_decode_part(t, NULL, 0, 0, NULL);
}
/* Ternary by construction, one scale per row: their inputs are quantised like those of I2_S. */
static inline bool bnet_type_is_bn(bnet_type t)
{
    return t == BNET_IQ1_BN || t == BNET_IQ2_BN;
}

#endif
