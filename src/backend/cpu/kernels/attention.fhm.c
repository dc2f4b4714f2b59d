/* attention.fhm.c - attention over one block of an f16 cache by `fmlal`, which multiplies halves
 * into floats: nothing is converted. The bits are those of attention_rows.h.
 *
 * Up to four queries of a token are a pack. Its first one fetches ahead: the values into the first
 * cache while the keys are read, and while the values are read the keys of the next block into the
 * second cache and its values into the third: a part fills a way of the first one. */
#include "backend/cpu/kernels/simd_neon.h"

#include "backend/cpu/kernels/attention_rows.h"

enum {
    PACK = 4,
    LINE = 64,
    SUMS = 16,   /* vectors of running sums held at once */
    COLUMNS = 16 /* elements of a value whose weighted sums are held at once */
};

/* One pack over one block. */
typedef struct pack {
    const float16_t *q; /* [nq][hd] */
    const float16_t *k, *v;
    const uint8_t
        *next; /* keys of the next block, its values behind them; NULL: nothing to fetch */
    size_t hd, n_pos, part_bytes;
    float scale;
    bool far; /* this block has not been read yet */
} pack;

/* ---- scores ---- */

/* nq queries and np positions from j on: two vectors of running sums each. */
SIMD void score_tile(const pack *p, const int nq, const int np, size_t j, float *s,
                     float32x4_t *max)
{
    float32x4_t acc[PACK][8][2];
    const float16_t *k = p->k + j * p->hd;
    for (int a = 0; a < nq; a++)
        for (int r = 0; r < np; r++)
            acc[a][r][0] = acc[a][r][1] = vdupq_n_f32(0);
    for (size_t i = 0; i < p->hd; i += 8) {
        float16x8_t key[8];
        for (int r = 0; r < np; r++)
            key[r] = vld1q_f16(k + (size_t)r * p->hd + i);
        for (int a = 0; a < nq; a++) {
            float16x8_t q = vld1q_f16(p->q + (size_t)a * p->hd + i);
            for (int r = 0; r < np; r++) {
                acc[a][r][0] = vfmlalq_low_f16(acc[a][r][0], q, key[r]);
                acc[a][r][1] = vfmlalq_high_f16(acc[a][r][1], q, key[r]);
            }
        }
    }
    for (int r = 0; r < np; r++) {
        float32x4_t f[PACK];
        for (int a = 0; a < PACK; a++)
            f[a] = a < nq ? vaddq_f32(acc[a][r][0], acc[a][r][1]) : vdupq_n_f32(0);
        float32x4_t dots = vmulq_n_f32(v4_fold_each(f[0], f[1], f[2], f[3]), p->scale);
        vst1q_f32(s + PACK * (j + (size_t)r), dots);
        *max = vf_pick_max(dots, *max);
    }
}

/* s[position][query]; returns the maxima. */
SIMD float32x4_t scores(const pack *p, const int nq, float *s)
{
    const int np = SUMS / 2 / (nq == 3 ? 4 : nq);
    float32x4_t max = vdupq_n_f32(-INFINITY);
    size_t j = 0, row = 2 * p->hd;
    for (; j + (size_t)np <= p->n_pos; j += (size_t)np) {
        if (p->far)
            for (size_t i = j * row; i < (j + (size_t)np) * row; i += LINE)
                __builtin_prefetch((const uint8_t *)p->v + i);
        score_tile(p, nq, np, j, s, &max);
    }
    for (; j < p->n_pos; j++)
        score_tile(p, nq, 1, j, s, &max);
    return max;
}

/* ---- weights ---- */

/* w[position][query] = e^(s - maximum), for 4 positions at a time: rounded up, so s and w have room
 * for a multiple of 4. Returns the sums. Not inlined: the constants shall stay in registers. */
static __attribute__((noinline)) float32x4_t weights(float *s, size_t n_pos, float32x4_t max,
                                                     float16_t *w)
{
    float32x4_t sum = vdupq_n_f32(0);
    const float16x8_t ones = vreinterpretq_f16_u16(vdupq_n_u16(0x3c00));
    const float16x8_t none = vreinterpretq_f16_u16(vdupq_n_u16(0));
    for (size_t j = n_pos; j % 4 != 0; j++)
        vst1q_f32(s + PACK * j, max);
    for (size_t i = 0; i < PACK * n_pos; i += 4 * PACK) {
        float32x4_t e[4];
        for (size_t k = 0; k < 4; k++)
            e[k] = vf_exp_negative(vsubq_f32(vld1q_f32(s + i + PACK * k), max));
        for (size_t k = 0; k < 4; k += 2) {
            float16x8_t pair = vcvt_high_f16_f32(vcvt_f16_f32(e[k]), e[k + 1]);
            vst1q_f16(w + i + PACK * k, pair);
            sum = vfmlalq_low_f16(sum, pair, i + PACK * k < PACK * n_pos ? ones : none);
            sum = vfmlalq_high_f16(sum, pair, i + PACK * (k + 1) < PACK * n_pos ? ones : none);
        }
    }
    return sum;
}

/* ---- values ---- */

/* acc += the lower (fmlal) or upper (fmlal2) half of x times one lane of w. The instruction has
 * bits for 16 registers to hold w, and clang 14 takes any of 32 for the intrinsic: wrong sums as
 * soon as many are in use. So clang is told the register class (x: 0 to 15) by hand. */
#ifdef __clang__
#define TIMES_LANE(op, acc, x, w, lane)                                                            \
    __asm__(op " %0.4s, %1.4h, %2.h[%3]" : "+w"(acc) : "w"(x), "x"(w), "i"(lane))
#define TIMES_LOW(acc, x, w, lane)  TIMES_LANE("fmlal", acc, x, w, lane)
#define TIMES_HIGH(acc, x, w, lane) TIMES_LANE("fmlal2", acc, x, w, lane)
#else
#define TIMES_LOW(acc, x, w, lane)  acc = vfmlalq_laneq_low_f16(acc, x, w, lane)
#define TIMES_HIGH(acc, x, w, lane) acc = vfmlalq_laneq_high_f16(acc, x, w, lane)
#endif

/* One position: 16 elements v of it times four weights, which are those from `lane` of w on. */
#define WEIGH_QUERY(a, lane)                                                                       \
    if (nq > (a)) {                                                                                \
        TIMES_LOW(acc[a][0], x, w, lane);                                                          \
        TIMES_HIGH(acc[a][1], x, w, lane);                                                         \
        TIMES_LOW(acc[a][2], y, w, lane);                                                          \
        TIMES_HIGH(acc[a][3], y, w, lane);                                                         \
    }
#define WEIGH_POSITION(v, lane)                                                                    \
    do {                                                                                           \
        float16x8_t x = vld1q_f16(v), y = vld1q_f16((v) + 8);                                      \
        WEIGH_QUERY(0, lane)                                                                       \
        WEIGH_QUERY(1, (lane) + 1)                                                                 \
        WEIGH_QUERY(2, (lane) + 2)                                                                 \
        WEIGH_QUERY(3, (lane) + 3)                                                                 \
    } while (0)

SIMD void fetch_next(const uint8_t *next, size_t part_bytes)
{
    __builtin_prefetch(next, 0, 2);
    __builtin_prefetch(next + part_bytes, 0, 1);
}

/* Elements i .. i + 15 of the weighted values. All columns and pairs of positions together ask for
 * every line of the next block once: 2 * hd of them. */
SIMD void weigh_columns(const pack *p, const int nq, const bool fetch, const float16_t *weight,
                        size_t i, float *o)
{
    float32x4_t acc[PACK][4];
    const float16_t *v = p->v + i;
    size_t j = 0, hd = p->hd;
    const uint8_t *next = fetch ? p->next + i / COLUMNS * (BNET_BLOCK_POS / 2) * LINE : NULL;
    for (int a = 0; a < nq; a++)
        for (int c = 0; c < 4; c++)
            acc[a][c] = vdupq_n_f32(0);
    for (; j + 2 <= p->n_pos; j += 2, v += 2 * hd) {
        float16x8_t w = vld1q_f16(weight + PACK * j);
        if (fetch) {
            fetch_next(next, p->part_bytes);
            next += LINE;
        }
        WEIGH_POSITION(v, 0);
        WEIGH_POSITION(v + hd, 4);
    }
    if (j < p->n_pos) {
        float16x4_t four = vld1_f16(weight + PACK * j);
        float16x8_t w = vcombine_f16(four, four);
        WEIGH_POSITION(v, 0);
    }
    for (; fetch && j < BNET_BLOCK_POS; j += 2, next += LINE)
        fetch_next(next, p->part_bytes);
    for (int a = 0; a < nq; a++)
        for (int c = 0; c < 4; c++)
            vst1q_f32(o + (size_t)a * hd + i + 4 * (size_t)c, acc[a][c]);
}

/* ---- packs, tokens ---- */

SIMD void attend_pack(pack *p, const int nq, const bnet_attend *a, size_t t, size_t g)
{
    _Alignas(64) float s[BNET_BLOCK_POS * PACK];
    _Alignas(64) float16_t w[BNET_BLOCK_POS * PACK + PACK];
    float16_t *q = a->temp; /* [PACK][hd] */
    float m[PACK], l[PACK];
    size_t at = t * a->n_heads + g;
    const float *from = a->q + t * a->q_stride + g * p->hd;
    for (size_t i = 0; i < (size_t)nq * p->hd; i += 8)
        vst1q_f16(q + i,
                  vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(from + i)), vld1q_f32(from + i + 4)));
    p->q = q;
    p->n_pos = a->n_pos[t];
    float32x4_t max = scores(p, nq, s);
    vst1q_f32(m, max);
    vst1q_f32(l, weights(s, p->n_pos, max, w));
    for (size_t i = 0; i < p->hd; i += COLUMNS)
        if (p->next)
            weigh_columns(p, nq, true, w, i, a->o + at * p->hd);
        else
            weigh_columns(p, nq, false, w, i, a->o + at * p->hd);
    for (int i = 0; i < nq; i++)
        a->block[at + (size_t)i] = (bnet_softmax){m[i], l[i]};
    p->far = false;
    p->next = NULL;
}

void bnet_attention_f16_fhm(const bnet_attend *a)
{
    if (a->head_dim % COLUMNS != 0) {
        attend_rows(row_f16, a);
        return;
    }
    pack p = {.k = (const float16_t *)(const void *)a->k_part,
              .v = (const float16_t *)(const void *)a->v_part,
              .next = a->k_next,
              .hd = a->head_dim,
              .part_bytes = bnet_kv_part_bytes(BITNET_KV_F16, a->head_dim),
              .scale = a->scale,
              .far = true};
    for (size_t t = 0; t < a->n_tokens; t++) {
        size_t g = 0;
        for (; g + 4 <= a->n_heads; g += 4)
            attend_pack(&p, 4, a, t, g);
        if (a->n_heads - g == 3)
            attend_pack(&p, 3, a, t, g);
        else if (a->n_heads - g == 2)
            attend_pack(&p, 2, a, t, g);
        else if (a->n_heads - g == 1)
            attend_pack(&p, 1, a, t, g);
    }
    join_block(a);
}
