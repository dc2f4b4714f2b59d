/* codec_impl.h - what the codec files share among themselves: one block codec per format, and
 * rounding that no input can make undefined. */
#ifndef BNET_CODEC_IMPL_H
#define BNET_CODEC_IMPL_H

#include "format/blocks.h"
#include "format/codec.h"

#include <math.h>

/* A rounded float as a code in [lo, hi]; NaN becomes lo. */
static inline int bnet_code(float rounded, int lo, int hi)
{
    if (!(rounded > (float)lo))
        return lo;
    return rounded < (float)hi ? (int)rounded : hi;
}

static inline float bnet_get_f16(const uint8_t *p)
{
    return bnet_f16_to_f32(bnet_u16(p));
}

static inline void bnet_put_f16(uint8_t *p, float f)
{
    bnet_put_u16(p, bnet_f32_to_f16(f));
}

/* One block each; x holds as many floats as the type's block has elements. */
void bnet_q6_k_decode(const void *block, float *x);
void bnet_q6_k_encode(const float *x, void *block);
void bnet_tq1_0_encode(const float *x, void *block);
void bnet_tq2_0_encode(const float *x, void *block);

#endif
