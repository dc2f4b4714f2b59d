/* head_scan.dotprod.c - the scan of the head with sdot. Packed Q6_K: a lane is a row. Four streams
 * of loads and about 20 instructions per 64 weights; what memory delivers is the limit, if it is
 * asked for early enough: hence the prefetches. */
#include "backend/cpu/kernels/head_q6_neon.h"

/* Bytes. Of 0 to 8192, 768 to 1280 are best on Neoverse V1 (12.1 ms instead of 13.5 without, for
 * 128256 rows of 2560 columns); from 4096 on, another page, it takes twice as long. */
enum { AHEAD = 1024, MOST = 16 }; /* MOST: inputs at once */

/* Adds the four sub-blocks of a quarter to the integers of four rows. q: the columns of its first
 * sub-block; the next one's lie 32 further. */
static inline int32x4_t quarter(int32x4_t t, const uint8_t *w, const int8_t *q,
                                const int32_t *start, const int8_t *mult)
{
    int8x16_t x0 = vld1q_s8(q), x1 = vld1q_s8(q + 32), x2 = vld1q_s8(q + 64);
    int8x16_t x3 = vld1q_s8(q + 96);
    int32x4_t d0 = vld1q_s32(start), d1 = vld1q_s32(start + 4), d2 = vld1q_s32(start + 8);
    int32x4_t d3 = vld1q_s32(start + 12);
#define FOUR_COLUMNS(j)                                                                            \
    do {                                                                                           \
        uint8x16_t a = vld1q_u8(w + 16 * (j)), b = vld1q_u8(w + 64 + 16 * (j));                    \
        uint8x16_t c = vld1q_u8(w + 128 + 16 * (j));                                               \
        d0 = vdotq_laneq_s32(d0, codes(a), x0, j);                                                 \
        d1 = vdotq_laneq_s32(d1, codes(b), x1, j);                                                 \
        d2 = vdotq_laneq_s32(d2, codes(c), x2, j);                                                 \
        d3 = vdotq_laneq_s32(d3, fourth(a, b, c), x3, j);                                          \
    } while (0)
    FOUR_COLUMNS(0);
    FOUR_COLUMNS(1);
    FOUR_COLUMNS(2);
    FOUR_COLUMNS(3);
#undef FOUR_COLUMNS
    int8x16_t scale = vld1q_s8((const int8_t *)w + 192), m = vld1q_s8(mult);
    int16x8_t lo = vmull_s8(vget_low_s8(scale), vget_low_s8(m)), hi = vmull_high_s8(scale, m);
    t = vmlaq_s32(t, d0, vmovl_s16(vget_low_s16(lo)));
    t = vmlaq_s32(t, d1, vmovl_high_s16(lo));
    t = vmlaq_s32(t, d2, vmovl_s16(vget_low_s16(hi)));
    return vmlaq_s32(t, d3, vmovl_high_s16(hi));
}

static void scan_q6_k_r4(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols,
                         float *y)
{
    size_t n_blocks = n_cols / 256, group = bnet_q6r4_group_bytes(n_cols);
    for (size_t r = 0; r < n_rows; r += 4, w += group) {
        const uint8_t *p = w, *f16 = w + n_blocks * BNET_Q6R4_BLOCK;
        const int8_t *q = x->q, *mult = x->mult4;
        const int32_t *start = x->start4;
        float32x4_t sum = vdupq_n_f32(0);
        for (size_t b = 0; b < n_blocks; b++, q += 256, f16 += 8) {
            int32x4_t t = vdupq_n_s32(0);
#pragma GCC unroll 1
            for (int k = 0; k < 4; k++, p += BNET_Q6R4_QUARTER, start += 16, mult += 16) {
                __builtin_prefetch(p + AHEAD);
                __builtin_prefetch(p + AHEAD + 64);
                __builtin_prefetch(p + AHEAD + 128);
                t = quarter(t, p, q + 128 * (k / 2) + 16 * (k % 2), start, mult);
            }
            sum = vaddq_f32(sum, vmulq_f32(vcvtq_f32_s32(t), halves(f16)));
        }
        vst1q_f32(y + r, sum);
    }
}

/* Several inputs: a quarter is taken apart once, into 17 registers, and all of them pass it. */
typedef struct taken_apart {
    int8x16_t codes[4][4]; /* sub-block; four columns of every row */
    int8x16_t scales;      /* sub-block, row */
} taken_apart;

static inline taken_apart take_apart(const uint8_t *w)
{
    taken_apart to;
    for (size_t j = 0; j < 4; j++) {
        int8x16_t v[4];
        four_columns(w, j, v);
        for (size_t g = 0; g < 4; g++)
            to.codes[g][j] = v[g];
    }
    to.scales = vld1q_s8((const int8_t *)w + 192);
    return to;
}

static inline int32x4_t sub_block(const int8x16_t codes[4], int8x16_t x)
{
    int32x4_t d = vdotq_laneq_s32(zeros(), codes[0], x, 0);
    d = vdotq_laneq_s32(d, codes[1], x, 1);
    d = vdotq_laneq_s32(d, codes[2], x, 2);
    return vdotq_laneq_s32(d, codes[3], x, 3);
}

/* One input; q: the columns of the first sub-block. Added to t[row]. */
static inline void add_input(const taken_apart *w, const int8_t *q, const int8_t *mult, int32_t *at)
{
    int8x16_t m = vld1q_s8(mult);
    int16x8_t lo = vmull_s8(vget_low_s8(w->scales), vget_low_s8(m));
    int16x8_t hi = vmull_high_s8(w->scales, m);
    int32x4_t t = vld1q_s32(at);
    t = vmlaq_s32(t, sub_block(w->codes[0], vld1q_s8(q)), vmovl_s16(vget_low_s16(lo)));
    t = vmlaq_s32(t, sub_block(w->codes[1], vld1q_s8(q + 32)), vmovl_high_s16(lo));
    t = vmlaq_s32(t, sub_block(w->codes[2], vld1q_s8(q + 64)), vmovl_s16(vget_low_s16(hi)));
    t = vmlaq_s32(t, sub_block(w->codes[3], vld1q_s8(q + 96)), vmovl_high_s16(hi));
    vst1q_s32(at, t);
}

/* The integers of a block become floats in sum[input] and zeros. */
static inline void end_block(int32_t (*t)[4], size_t n_x, float32x4_t d, float (*sum)[4])
{
    for (size_t i = 0; i < n_x; i++) {
        float32x4_t a = vmulq_f32(vcvtq_f32_s32(vld1q_s32(t[i])), d);
        vst1q_f32(sum[i], vaddq_f32(vld1q_f32(sum[i]), a));
        vst1q_s32(t[i], vdupq_n_s32(0));
    }
}

static void scan_group(const uint8_t *w, const bnet_head_x *x, size_t n_x, size_t n_blocks,
                       float (*sum)[4])
{
    const uint8_t *f16 = w + n_blocks * BNET_Q6R4_BLOCK;
    int32_t t[MOST][4] = {{0}};
    for (size_t k = 0; k < 4 * n_blocks; k++, w += BNET_Q6R4_QUARTER) {
        size_t s = 8 * (k / 2) + k % 2; /* the first sub-block */
        __builtin_prefetch(w + AHEAD);
        __builtin_prefetch(w + AHEAD + 64);
        __builtin_prefetch(w + AHEAD + 128);
        taken_apart apart = take_apart(w);
#pragma GCC unroll 1
        for (size_t i = 0; i < n_x; i++)
            add_input(&apart, x[i].q + 16 * s, x[i].mult4 + 16 * k, t[i]);
        if (k % 4 == 3)
            end_block(t, n_x, halves(f16 + 2 * k - 6), sum);
    }
}

static void scan_some(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                      size_t n_cols, float *const *y)
{
    for (size_t r = 0; r < n_rows; r += 4, w += bnet_q6r4_group_bytes(n_cols)) {
        float sum[MOST][4] = {{0}};
        scan_group(w, x, n_x, n_cols / 256, sum);
        for (size_t i = 0; i < n_x; i++)
            memcpy(y[i] + r, sum[i], sizeof sum[i]);
    }
}

void bnet_head_scan_q6_k_r4_dotprod(const uint8_t *w, size_t n_rows, const bnet_head_x *x,
                                    size_t n_x, size_t n_cols, float *const *y)
{
    if (n_x == 1) {
        scan_q6_k_r4(w, n_rows, x, n_cols, y[0]);
        return;
    }
    for (size_t t = 0; t < n_x; t += MOST)
        scan_some(w, n_rows, x + t, BNET_MIN(n_x - t, (size_t)MOST), n_cols, y + t);
}

/* ---- Q8_0 ---- */

static inline int32x4_t block_dot(const uint8_t *w, const int8_t *q)
{
    const int8_t *p = (const int8_t *)w + 2;
    return vdotq_s32(vdotq_s32(vdupq_n_s32(0), vld1q_s8(p), vld1q_s8(q)), vld1q_s8(p + 16),
                     vld1q_s8(q + 16));
}

static inline float32x4_t four_scales(const uint8_t *w)
{
    uint16x4_t d = vdup_n_u16(bnet_u16(w));
    d = vset_lane_u16(bnet_u16(w + 34), d, 1);
    d = vset_lane_u16(bnet_u16(w + 68), d, 2);
    d = vset_lane_u16(bnet_u16(w + 102), d, 3);
    return vcvt_f32_f16(vreinterpret_f16_u16(d));
}

/* Lane b: (float)t * d of block b. The multiplier of a block stands twice, 8 bits each. */
static inline float32x4_t four_blocks(const uint8_t *w, const int8_t *q, const int8_t *mult)
{
    int32x4_t t01 = vpaddq_s32(block_dot(w, q), block_dot(w + 34, q + 32));
    int32x4_t t23 = vpaddq_s32(block_dot(w + 68, q + 64), block_dot(w + 102, q + 96));
    int32x4_t twice = vreinterpretq_s32_s16(vmovl_s8(vld1_s8(mult)));
    int32x4_t t = vmulq_s32(vpaddq_s32(t01, t23), vandq_s32(twice, vdupq_n_s32(0xffff)));
    return vmulq_f32(vcvtq_f32_s32(t), four_scales(w));
}

/* The blocks behind the last four, each in its lane; the others get zero. */
static float32x4_t last_blocks(const uint8_t *w, const int8_t *q, const int8_t *mult, size_t n)
{
    float lane[4] = {0};
    for (size_t b = 0; b < n; b++) {
        __fp16 d;
        memcpy(&d, w + 34 * b, sizeof d);
        int32_t t = vaddvq_s32(block_dot(w + 34 * b, q + 32 * b)) * mult[2 * b];
        lane[b] = (float)t * (float)d;
    }
    return vld1q_f32(lane);
}

static void scan_q8_0(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols,
                      float *y)
{
    size_t n_blocks = n_cols / 32, whole = n_blocks / 4 * 4;
    for (size_t r = 0; r < n_rows; r++, w += 34 * n_blocks) {
        float32x4_t sum = vdupq_n_f32(0);
        for (size_t b = 0; b < whole; b += 4) {
            __builtin_prefetch(w + 34 * b + AHEAD);
            __builtin_prefetch(w + 34 * b + AHEAD + 64);
            sum = vaddq_f32(sum, four_blocks(w + 34 * b, x->q + 32 * b, x->mult + 2 * b));
        }
        if (whole < n_blocks)
            sum = vaddq_f32(sum, last_blocks(w + 34 * whole, x->q + 32 * whole, x->mult + 2 * whole,
                                             n_blocks - whole));
        float32x2_t half = vadd_f32(vget_low_f32(sum), vget_high_f32(sum));
        y[r] = vget_lane_f32(half, 0) + vget_lane_f32(half, 1);
    }
}

/* 128 columns of a row for some inputs: the weights and their scales are loaded once. */
typedef struct q8_blocks {
    int8x16_t w[8];
    float32x4_t scales;
} q8_blocks;

static inline q8_blocks load_blocks(const uint8_t *w)
{
    q8_blocks b;
    for (size_t i = 0; i < 8; i++)
        b.w[i] = vld1q_s8((const int8_t *)w + 34 * (i / 2) + 2 + 16 * (i % 2));
    b.scales = four_scales(w);
    return b;
}

static inline int32x4_t pair_dot(const q8_blocks *b, size_t i, const int8_t *q)
{
    int32x4_t d = vdotq_s32(zeros(), b->w[2 * i], vld1q_s8(q + 32 * i));
    return vdotq_s32(d, b->w[2 * i + 1], vld1q_s8(q + 32 * i + 16));
}

/* As four_blocks. */
static inline float32x4_t blocks_dot(const q8_blocks *b, const int8_t *q, const int8_t *mult)
{
    int32x4_t t01 = vpaddq_s32(pair_dot(b, 0, q), pair_dot(b, 1, q));
    int32x4_t t23 = vpaddq_s32(pair_dot(b, 2, q), pair_dot(b, 3, q));
    int32x4_t twice = vreinterpretq_s32_s16(vmovl_s8(vld1_s8(mult)));
    int32x4_t t = vmulq_s32(vpaddq_s32(t01, t23), vandq_s32(twice, vdupq_n_s32(0xffff)));
    return vmulq_f32(vcvtq_f32_s32(t), b->scales);
}

/* One row for up to MOST inputs. */
static inline void scan_q8_0_row(const uint8_t *w, const bnet_head_x *x, size_t n_x,
                                 size_t n_blocks, float (*sum)[4])
{
    size_t whole = n_blocks / 4 * 4;
    for (size_t b = 0; b < whole; b += 4) {
        __builtin_prefetch(w + 34 * b + AHEAD);
        __builtin_prefetch(w + 34 * b + AHEAD + 64);
        q8_blocks four = load_blocks(w + 34 * b);
#pragma GCC unroll 1
        for (size_t i = 0; i < n_x; i++)
            vst1q_f32(sum[i], vaddq_f32(vld1q_f32(sum[i]),
                                        blocks_dot(&four, x[i].q + 32 * b, x[i].mult + 2 * b)));
    }
    for (size_t i = 0; i < n_x && whole < n_blocks; i++)
        vst1q_f32(sum[i], vaddq_f32(vld1q_f32(sum[i]),
                                    last_blocks(w + 34 * whole, x[i].q + 32 * whole,
                                                x[i].mult + 2 * whole, n_blocks - whole)));
}

static void scan_some_q8_0(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                           size_t n_cols, float *const *y)
{
    for (size_t r = 0; r < n_rows; r++, w += 34 * (n_cols / 32)) {
        float sum[MOST][4] = {{0}};
        scan_q8_0_row(w, x, n_x, n_cols / 32, sum);
        for (size_t i = 0; i < n_x; i++)
            y[i][r] = (sum[i][0] + sum[i][2]) + (sum[i][1] + sum[i][3]);
    }
}

void bnet_head_scan_q8_0_dotprod(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                                 size_t n_cols, float *const *y)
{
    if (n_x == 1) {
        scan_q8_0(w, n_rows, x, n_cols, y[0]);
        return;
    }
    for (size_t t = 0; t < n_x; t += MOST)
        scan_some_q8_0(w, n_rows, x + t, BNET_MIN(n_x - t, (size_t)MOST), n_cols, y + t);
}
