/* head_q6_x86.h - the scan of packed Q6_K for several inputs with AVX2 or AVX-512. Before it:
 * head_q6_ymm.h or head_q6_zmm.h, and v_dot.
 *
 * A quarter (64 columns) of V_GROUPS groups of rows is taken apart once, and all inputs pass it. A
 * 32-bit lane is a row, so nothing is summed across lanes, and four columns of an input are the
 * same for all lanes. The input is unsigned, q + 128, the weights are signed, code - 32; what the
 * 128 add is the same for every input. Half a lane holds the sum of eight products of a sub-block:
 * within 8 * 127 * 32 = 32512 when the 128 are out again, and modulo 2^16 until then. Scale times
 * multiplier, within 1920, is multiplied with both halves. */
#ifndef BNET_HEAD_Q6_X86_H
#define BNET_HEAD_Q6_X86_H

enum {
    V_ROWS = BNET_Q6R4_ROWS * V_GROUPS,
    FEW = 3, /* with fewer inputs each is scanned for itself */
    MOST = 16,
    FAR = 2048 /* bytes that are asked for ahead */
};

/* 64 columns of V_ROWS rows. */
typedef struct taken_apart {
    int8_t codes[4][4][4 * V_ROWS]; /* sub-block, four columns: of every row */
    int16_t scales[4][2 * V_ROWS];  /* sub-block: of every row, twice */
    int16_t extra[4][2 * V_ROWS];   /* sub-block: what 128 times the codes are */
} __attribute__((aligned(64))) taken_apart;

static inline __m256i ymm_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline void ymm_store(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}

/* Eight columns of four rows, of the four sub-blocks of a quarter: what the codes mean. */
static inline void eight_columns(const uint8_t *quarter, size_t half, __m256i out[4])
{
    const __m256i six = _mm256_set1_epi8(0x3f), middle = _mm256_set1_epi8(32);
    __m256i a = ymm_load(quarter + 32 * half), b = ymm_load(quarter + 64 + 32 * half);
    __m256i c = ymm_load(quarter + 128 + 32 * half);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(a, 2), _mm256_set1_epi8(0x30));
    __m256i mid = _mm256_and_si256(_mm256_srli_epi16(b, 4), _mm256_set1_epi8(0x0c));
    __m256i low = _mm256_and_si256(_mm256_srli_epi16(c, 6), _mm256_set1_epi8(0x03));
    out[0] = _mm256_sub_epi8(_mm256_and_si256(a, six), middle);
    out[1] = _mm256_sub_epi8(_mm256_and_si256(b, six), middle);
    out[2] = _mm256_sub_epi8(_mm256_and_si256(c, six), middle);
    out[3] = _mm256_sub_epi8(_mm256_or_si256(_mm256_or_si256(high, mid), low), middle);
}

/* Eight rows' scales as 32-bit lanes, in both halves of a lane. */
static inline __m256i both_halves(__m128i scales)
{
    __m256i v = _mm256_cvtepi8_epi32(scales);
    return _mm256_blend_epi16(v, _mm256_slli_epi32(v, 16), 0xaa);
}

/* The quarters of two groups of rows, a and b, number 2 i and 2 i + 1 of them. */
static inline void take_two(const uint8_t *a, const uint8_t *b, size_t i, taken_apart *to)
{
    __m128i sa = _mm_loadu_si128((const __m128i *)(const void *)(a + 192));
    __m128i sb = _mm_loadu_si128((const __m128i *)(const void *)(b + 192));
    __m128i s01 = _mm_unpacklo_epi32(sa, sb), s23 = _mm_unpackhi_epi32(sa, sb);
    for (size_t half = 0; half < 2; half++) {
        __m256i ca[4], cb[4];
        eight_columns(a, half, ca);
        eight_columns(b, half, cb);
        for (size_t g = 0; g < 4; g++) {
            ymm_store(to->codes[g][2 * half] + 32 * i,
                      _mm256_permute2x128_si256(ca[g], cb[g], 0x20));
            ymm_store(to->codes[g][2 * half + 1] + 32 * i,
                      _mm256_permute2x128_si256(ca[g], cb[g], 0x31));
        }
    }
    ymm_store(to->scales[0] + 16 * i, both_halves(s01));
    ymm_store(to->scales[1] + 16 * i, both_halves(_mm_unpackhi_epi64(s01, s01)));
    ymm_store(to->scales[2] + 16 * i, both_halves(s23));
    ymm_store(to->scales[3] + 16 * i, both_halves(_mm_unpackhi_epi64(s23, s23)));
}

/* group: bytes from a group of rows to the next. */
static inline void take_apart(const uint8_t *w, size_t group, taken_apart *to)
{
    for (size_t i = 0; i < V_GROUPS; i++)
        for (int line = 0; line < 4; line++)
            _mm_prefetch((const char *)w + i * group + FAR + 64 * line, _MM_HINT_T0);
    for (size_t i = 0; i < V_GROUPS / 2; i++)
        take_two(w + 2 * i * group, w + (2 * i + 1) * group, i, to);
}

/* At least 8 * 128 * -32 = -2^15. */
static inline void find_extra(taken_apart *w)
{
    const vint most = v_bytes(-128);
    for (size_t g = 0; g < 4; g++) {
        vint p = v_maddubs(most, v_load(w->codes[g][0]));
        for (size_t j = 1; j < 4; j++)
            p = v_add16(p, v_maddubs(most, v_load(w->codes[g][j])));
        v_store(w->extra[g], p);
    }
}

/* Eight columns of one input and every row. */
static inline vint two_pairs(const uint8_t *up, const int8_t *left, const int8_t *right)
{
    return v_add16(v_maddubs(v_four(up), v_load(left)), v_maddubs(v_four(up + 4), v_load(right)));
}

/* One input; up, mult: of the first sub-block. Added to t[row]. */
static inline void add_input(const taken_apart *w, const uint8_t *up, const int8_t *mult,
                             int32_t *at)
{
    vint t = v_load(at);
    for (size_t g = 0; g < 4; g++) {
        const uint8_t *x = up + 32 * g;
        vint p = v_add16(two_pairs(x, w->codes[g][0], w->codes[g][1]),
                         two_pairs(x + 8, w->codes[g][2], w->codes[g][3]));
        vint scale = v_mul16(v_load(w->scales[g]), mult[2 * g]);
        t = v_dot(t, v_sub16(p, v_load(w->extra[g])), scale);
    }
    v_store(at, t);
}

typedef struct sums {
    int32_t t[MOST][V_ROWS]; /* of a block */
    float y[MOST][V_ROWS];
} __attribute__((aligned(64))) sums;

/* The integers of a block become floats and zeros. */
static inline void end_block(sums *s, size_t n_x, vfloat d)
{
    for (size_t i = 0; i < n_x; i++) {
        vf_store(s->y[i], vf_add(vf_load(s->y[i]), vf_mul(v_to_float(v_load(s->t[i])), d)));
        v_store(s->t[i], v_zero());
    }
}

static inline void scan_groups(const uint8_t *w, const bnet_head_x *x, size_t n_x, size_t n_cols,
                               sums *s)
{
    size_t group = bnet_q6r4_group_bytes(n_cols), n_blocks = n_cols / 256;
    const uint8_t *f16 = w + n_blocks * BNET_Q6R4_BLOCK;
    taken_apart apart;
    for (size_t k = 0; k < 4 * n_blocks; k++, w += BNET_Q6R4_QUARTER) {
        size_t first = 8 * (k / 2) + k % 2; /* sub-block */
        take_apart(w, group, &apart);
        find_extra(&apart);
#pragma GCC unroll 1
        for (size_t i = 0; i < n_x; i++)
            add_input(&apart, x[i].up + 16 * first, x[i].mult + first, s->t[i]);
        if (k % 4 == 3)
            end_block(s, n_x, vf_halves(f16 + 2 * k - 6, group));
    }
}

/* As many whole V_ROWS of n_rows as there are, for up to MOST inputs. Returns how many rows. */
static size_t scan_many(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                        size_t n_cols, float *const *y)
{
    size_t r = 0;
    for (; r + V_ROWS <= n_rows; r += V_ROWS) {
        sums s = {{{0}}, {{0}}};
        scan_groups(w + r / 4 * bnet_q6r4_group_bytes(n_cols), x, n_x, n_cols, &s);
        for (size_t i = 0; i < n_x; i++)
            memcpy(y[i] + r, s.y[i], sizeof s.y[i]);
    }
    return r;
}

/* A kernel: many inputs together, few, and the rows that are left, with one of the others. */
static inline void scan_all(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                            size_t n_cols, float *const *y, bnet_fn_head_scan *other)
{
    size_t group = bnet_q6r4_group_bytes(n_cols);
    for (size_t t = 0, m; t < n_x; t += m) {
        m = BNET_MIN(n_x - t, (size_t)MOST);
        size_t r = m < FEW ? 0 : scan_many(w, n_rows, x + t, m, n_cols, y + t);
        for (size_t i = t; i < t + m && r < n_rows; i++) {
            float *rest = y[i] + r;
            other(w + r / 4 * group, n_rows - r, &x[i], 1, n_cols, &rest);
        }
    }
}

#endif
