/* head_scan.neon.c - the scan of heads of 16-bit floats: 32 running sums in eight registers.
 *
 * fcvtl can be issued once a cycle, which is less than memory delivers. So half of the F16 weights
 * become floats by shift and mask: sign, exponent and fraction of a half moved to their places in a
 * float are the number times 2^-112, exactly, subnormal halves included; the columns they meet were
 * multiplied by 2^112, and products and sums are the same bits. (Infinities would not be; rows that
 * have any are not scanned.) */
#include "backend/cpu/kernels.h"
#include "base/mathf.h"

#include <arm_neon.h>

enum { STEP = 32, AHEAD = 1024 };

#define INLINE static inline __attribute__((always_inline))

/* Adds 16 columns to four registers of sums. */
typedef void add_fn(float32x4_t sum[4], const uint8_t *w, const float *x, const float *raised);

INLINE float32x4_t lowered(int32x4_t shifted)
{
    const int32x4_t mask = vdupq_n_s32((int32_t)0x8fffffffu);
    return vreinterpretq_f32_s32(vandq_s32(shifted, mask));
}

INLINE void add_f16(float32x4_t sum[4], const uint8_t *w, const float *x, const float *raised)
{
    float16x8_t a = vreinterpretq_f16_u8(vld1q_u8(w));
    int16x8_t b = vreinterpretq_s16_u8(vld1q_u8(w + 16));
    sum[0] = vfmaq_f32(sum[0], vcvt_f32_f16(vget_low_f16(a)), vld1q_f32(x));
    sum[1] = vfmaq_f32(sum[1], vcvt_high_f32_f16(a), vld1q_f32(x + 4));
    sum[2] = vfmaq_f32(sum[2], lowered(vshll_n_s16(vget_low_s16(b), 13)), vld1q_f32(raised + 8));
    sum[3] = vfmaq_f32(sum[3], lowered(vshll_high_n_s16(b, 13)), vld1q_f32(raised + 12));
}

INLINE void add_bf16(float32x4_t sum[4], const uint8_t *w, const float *x, const float *raised)
{
    (void)raised;
    for (int k = 0; k < 2; k++) {
        uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(w + 16 * k));
        float32x4_t lo = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16));
        float32x4_t hi = vreinterpretq_f32_u32(vshll_high_n_u16(h, 16));
        sum[2 * k] = vfmaq_f32(sum[2 * k], lo, vld1q_f32(x + 8 * k));
        sum[2 * k + 1] = vfmaq_f32(sum[2 * k + 1], hi, vld1q_f32(x + 8 * k + 4));
    }
}

INLINE float scan_row(add_fn *add, const uint8_t *row, const bnet_head_x *x, size_t n)
{
    float32x4_t a[4], b[4];
    float all[16];
    for (int i = 0; i < 4; i++)
        a[i] = b[i] = vdupq_n_f32(0);
    for (size_t i = 0; i < n; i += STEP) {
        __builtin_prefetch(row + 2 * i + AHEAD);
        add(a, row + 2 * i, x->x + i, x->raised + i);
        add(b, row + 2 * i + 32, x->x + i + 16, x->raised + i + 16);
    }
    for (int i = 0; i < 4; i++)
        vst1q_f32(all + 4 * i, vaddq_f32(a[i], b[i]));
    return bnet_fold16(all);
}

void bnet_head_scan_f16_neon(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols,
                             float *y)
{
    for (size_t r = 0; r < n_rows; r++)
        y[r] = scan_row(add_f16, w + 2 * r * n_cols, x, n_cols);
}

void bnet_head_scan_bf16_neon(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols,
                              float *y)
{
    for (size_t r = 0; r < n_rows; r++)
        y[r] = scan_row(add_bf16, w + 2 * r * n_cols, x, n_cols);
}
