/* head_scan.i8mm.c - the scan of packed Q6_K for several inputs, by 2x8 * 8x2 integer matrix
 * products.
 *
 * A quarter (64 columns of four rows) is taken apart once, into 24 registers in the order smmla
 * reads, and all inputs pass it two by two; a lane is [t0 r0, t0 r1, t1 r0, t1 r1]. A sub-block of
 * two rows and two inputs is two products and two multiplications, of scales with multipliers and
 * of that with the sum. Neoverse V1 begins four products in a cycle, but two multiplications. */
#include "backend/cpu/kernels/head_q6_neon.h"

enum {
    AHEAD = 1024, /* bytes */
    FEW = 4,      /* inputs: fewer are quicker with sdot */
    MOST = 8      /* pairs of inputs at once */
};

/* 64 columns of four rows. */
typedef struct taken_apart {
    int8x16_t codes[4][2][2]; /* sub-block; rows 0 and 1, 2 and 3; eight columns of either row */
    int32x4_t scales[4][2];   /* sub-block; rows 0 and 1, twice; 2 and 3, twice */
} taken_apart;

static inline int8x16_t rows_01(int8x16_t left, int8x16_t right)
{
    return vreinterpretq_s8_s32(
        vzip1q_s32(vreinterpretq_s32_s8(left), vreinterpretq_s32_s8(right)));
}

static inline int8x16_t rows_23(int8x16_t left, int8x16_t right)
{
    return vreinterpretq_s8_s32(
        vzip2q_s32(vreinterpretq_s32_s8(left), vreinterpretq_s32_s8(right)));
}

/* Rows' scales of a sub-block, 16 bits each: [r0 r1 r0 r1 r2 r3 r2 r3]. */
static inline void widen(int32x4_t s, int32x4_t out[2])
{
    out[0] = vmovl_s16(vget_low_s16(vreinterpretq_s16_s32(s)));
    out[1] = vmovl_high_s16(vreinterpretq_s16_s32(s));
}

static inline taken_apart take_apart(const uint8_t *w)
{
    taken_apart to;
    for (size_t half = 0; half < 2; half++) {
        int8x16_t left[4], right[4];
        four_columns(w, 2 * half, left);
        four_columns(w, 2 * half + 1, right);
        for (size_t g = 0; g < 4; g++) {
            to.codes[g][0][half] = rows_01(left[g], right[g]);
            to.codes[g][1][half] = rows_23(left[g], right[g]);
        }
    }
    int8x16_t s = vld1q_s8((const int8_t *)w + 192);
    int32x4_t lo = vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(s)));
    int32x4_t hi = vreinterpretq_s32_s16(vmovl_high_s8(s));
    widen(vzip1q_s32(lo, lo), to.scales[0]);
    widen(vzip2q_s32(lo, lo), to.scales[1]);
    widen(vzip1q_s32(hi, hi), to.scales[2]);
    widen(vzip2q_s32(hi, hi), to.scales[3]);
    return to;
}

/* 16 columns of two rows and two inputs. */
static inline int32x4_t dot(int8x16_t x0, int8x16_t x1, const int8x16_t codes[2])
{
    return vmmlaq_s32(vmmlaq_s32(zeros(), x0, codes[0]), x1, codes[1]);
}

/* Two inputs; x: their columns of this quarter, then their multipliers. Added to t[rows]. */
static inline void add_pair(const taken_apart *w, const int8_t *x, int32_t *t)
{
    const int32_t *mult = (const int32_t *)(const void *)(x + 128);
    int32x4_t t01 = vld1q_s32(t), t23 = vld1q_s32(t + 4);
    for (int g = 0; g < 4; g++, x += 32, mult += 4) {
        int8x16_t x0 = vld1q_s8(x), x1 = vld1q_s8(x + 16);
        int32x4_t m = vld1q_s32(mult);
        t01 = vmlaq_s32(t01, dot(x0, x1, w->codes[g][0]), vmulq_s32(w->scales[g][0], m));
        t23 = vmlaq_s32(t23, dot(x0, x1, w->codes[g][1]), vmulq_s32(w->scales[g][1], m));
    }
    vst1q_s32(t, t01);
    vst1q_s32(t + 4, t23);
}

static inline void add_block(int64x2_t t, float32x4_t d, float *sum)
{
    float32x4_t a = vmulq_f32(vcvtq_f32_s32(vreinterpretq_s32_s64(t)), d);
    vst1q_f32(sum, vaddq_f32(vld1q_f32(sum), a));
}

/* The integers of a block become floats in sum[input] and zeros. */
static inline void end_block(int32_t (*t)[8], size_t n_pairs, float32x4_t d, float (*sum)[4])
{
    for (size_t p = 0; p < n_pairs; p++, t++, sum += 2) {
        int64x2_t a = vreinterpretq_s64_s32(vld1q_s32(*t));
        int64x2_t b = vreinterpretq_s64_s32(vld1q_s32(*t + 4));
        add_block(vzip1q_s64(a, b), d, sum[0]);
        add_block(vzip2q_s64(a, b), d, sum[1]);
        memset(*t, 0, sizeof *t);
    }
}

/* Four rows, all columns. */
static inline void scan_group(const uint8_t *w, const int8_t *const *two, size_t n_pairs,
                              size_t n_blocks, float (*sum)[4])
{
    const uint8_t *f16 = w + n_blocks * BNET_Q6R4_BLOCK;
    int32_t t[MOST][8] = {{0}};
    for (size_t q = 0; q < 4 * n_blocks; q++, w += BNET_Q6R4_QUARTER) {
        __builtin_prefetch(w + AHEAD);
        __builtin_prefetch(w + AHEAD + 64);
        __builtin_prefetch(w + AHEAD + 128);
        taken_apart apart = take_apart(w);
#pragma GCC unroll 1
        for (size_t p = 0; p < n_pairs; p++)
            add_pair(&apart, two[p] + q * BNET_HEAD_TWO, t[p]);
        if (q % 4 == 3)
            end_block(t, n_pairs, halves(f16 + 2 * q - 6), sum);
    }
}

static void scan_some(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                      size_t n_cols, float *const *y)
{
    size_t n_pairs = (n_x + 1) / 2;
    const int8_t *two[MOST];
    for (size_t p = 0; p < n_pairs; p++)
        two[p] = x[2 * p].two;
    for (size_t r = 0; r < n_rows; r += 4, w += bnet_q6r4_group_bytes(n_cols)) {
        float sum[2 * MOST][4] = {{0}};
        scan_group(w, two, n_pairs, n_cols / 256, sum);
        for (size_t t = 0; t < n_x; t++)
            memcpy(y[t] + r, sum[t], sizeof sum[t]);
    }
}

void bnet_head_scan_q6_k_r4_i8mm(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                                 size_t n_cols, float *const *y)
{
    if (n_x < FEW) {
        bnet_head_scan_q6_k_r4_dotprod(w, n_rows, x, n_x, n_cols, y);
        return;
    }
    for (size_t t = 0; t < n_x; t += 2 * MOST)
        scan_some(w, n_rows, x + t, BNET_MIN(n_x - t, (size_t)2 * MOST), n_cols, y + t);
}
