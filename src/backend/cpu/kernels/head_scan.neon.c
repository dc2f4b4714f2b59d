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

enum { STEP = 32, AHEAD = 1024, MANY = 4 }; /* MANY: inputs at once */

#define INLINE static inline __attribute__((always_inline))

/* 16 weights as floats, the last eight times `lowered`: what the columns they meet were raised by.
 */
typedef void decode_fn(const uint8_t *w, float32x4_t v[4]);

INLINE float32x4_t lowered(int32x4_t shifted)
{
    const int32x4_t mask = vdupq_n_s32((int32_t)0x8fffffffu);
    return vreinterpretq_f32_s32(vandq_s32(shifted, mask));
}

INLINE void decode_f16(const uint8_t *w, float32x4_t v[4])
{
    float16x8_t a = vreinterpretq_f16_u8(vld1q_u8(w));
    int16x8_t b = vreinterpretq_s16_u8(vld1q_u8(w + 16));
    v[0] = vcvt_f32_f16(vget_low_f16(a));
    v[1] = vcvt_high_f32_f16(a);
    v[2] = lowered(vshll_n_s16(vget_low_s16(b), 13));
    v[3] = lowered(vshll_high_n_s16(b, 13));
}

INLINE void decode_plain_f16(const uint8_t *w, float32x4_t v[4])
{
    for (int k = 0; k < 4; k++)
        v[k] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(w + 8 * k)));
}

INLINE void decode_bf16(const uint8_t *w, float32x4_t v[4])
{
    for (int k = 0; k < 2; k++) {
        uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(w + 16 * k));
        v[2 * k] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16));
        v[2 * k + 1] = vreinterpretq_f32_u32(vshll_high_n_u16(h, 16));
    }
}

/* Columns [i, i + 16) of one input, in four registers of sums. */
INLINE void add(float32x4_t sum[4], const float32x4_t v[4], const float *x, const float *raised,
                size_t i)
{
    sum[0] = vfmaq_f32(sum[0], v[0], vld1q_f32(x + i));
    sum[1] = vfmaq_f32(sum[1], v[1], vld1q_f32(x + i + 4));
    sum[2] = vfmaq_f32(sum[2], v[2], vld1q_f32(raised + i + 8));
    sum[3] = vfmaq_f32(sum[3], v[3], vld1q_f32(raised + i + 12));
}

INLINE float fold(const float32x4_t a[4], const float32x4_t b[4])
{
    float all[16];
    for (int i = 0; i < 4; i++)
        vst1q_f32(all + 4 * i, vaddq_f32(a[i], b[i]));
    return bnet_fold16(all);
}

INLINE float scan_row(decode_fn *decode, const uint8_t *row, const float *x, const float *raised,
                      size_t n)
{
    float32x4_t a[4], b[4], v[4];
    for (int i = 0; i < 4; i++)
        a[i] = b[i] = vdupq_n_f32(0);
    for (size_t i = 0; i < n; i += STEP) {
        __builtin_prefetch(row + 2 * i + AHEAD);
        decode(row + 2 * i, v);
        add(a, v, x, raised, i);
        decode(row + 2 * i + 32, v);
        add(b, v, x, raised, i + 16);
    }
    return fold(a, b);
}

/* Every other 16 columns from `first` on, for MANY inputs. The first sweep asks for the weights
 * ahead; the second finds them in the cache. */
INLINE void sweep(decode_fn *decode, const uint8_t *row, const bnet_head_x *x, size_t first,
                  size_t n, float32x4_t out[MANY][4])
{
    const float *x0 = x[0].x, *x1 = x[1].x, *x2 = x[2].x, *x3 = x[3].x;
    float32x4_t sum[MANY][4], v[4];
    for (size_t t = 0; t < MANY; t++)
        for (int i = 0; i < 4; i++)
            sum[t][i] = vdupq_n_f32(0);
    for (size_t i = first; i < n; i += STEP) {
        if (first == 0)
            __builtin_prefetch(row + 2 * i + AHEAD);
        decode(row + 2 * i, v);
        add(sum[0], v, x0, x0, i);
        add(sum[1], v, x1, x1, i);
        add(sum[2], v, x2, x2, i);
        add(sum[3], v, x3, x3, i);
    }
    for (size_t t = 0; t < MANY; t++)
        for (int i = 0; i < 4; i++)
            out[t][i] = sum[t][i];
}

/* MANY inputs: weights become floats once for all. Two sweeps, so that all sums are in registers.
 */
INLINE void scan_many(decode_fn *decode, const uint8_t *row, const bnet_head_x *x, size_t n,
                      float *out)
{
    float32x4_t a[MANY][4], b[MANY][4];
    sweep(decode, row, x, 0, n, a);
    sweep(decode, row, x, 16, n, b);
    for (size_t t = 0; t < MANY; t++)
        out[t] = fold(a[t], b[t]);
}

/* fast: for one input, with raised columns; plain: for many. */
INLINE void scan(decode_fn *fast, decode_fn *plain, const uint8_t *w, size_t n_rows,
                 const bnet_head_x *x, size_t n_x, size_t n, float *const *y)
{
    float out[MANY];
    for (size_t t = 0, m; t < n_x; t += m) {
        m = n_x - t >= MANY ? MANY : 1;
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *row = w + 2 * r * n;
            if (m == MANY)
                scan_many(plain, row, x + t, n, out);
            else
                out[0] = scan_row(fast, row, x[t].x, fast == plain ? x[t].x : x[t].raised, n);
            for (size_t i = 0; i < m; i++)
                y[t + i][r] = out[i];
        }
    }
}

void bnet_head_scan_f16_neon(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                             size_t n_cols, float *const *y)
{
    scan(decode_f16, decode_plain_f16, w, n_rows, x, n_x, n_cols, y);
}

void bnet_head_scan_bf16_neon(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                              size_t n_cols, float *const *y)
{
    scan(decode_bf16, decode_bf16, w, n_rows, x, n_x, n_cols, y);
}
