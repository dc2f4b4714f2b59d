/* head_scan.avx2.c - the scan of the head. Packed Q6_K, several inputs: head_q6_x86.h; one: a
 * register holds two times four columns of four rows, a 32-bit lane is a row. maddubs gives pairs
 * of products, 63 * 127 * 2 < 2^15 at most; with what makes 0..63 into -32..31 (x->pairs4) they are
 * within 2 * 32 * 127 = 8128; madd multiplies them with scale times multiplier and adds the two
 * pairs: 16 sub-blocks of four such sums per row and 256 columns stay below 16 * 4 * 8128 * 1920 <
 * 2^30. */
#include "backend/cpu/kernels/head_q6_ymm.h"

#define v_dot(acc, pairs, scale) v_add32(acc, _mm256_madd_epi16(pairs, scale))
#include "backend/cpu/kernels/head_q6_x86.h"
#include "base/mathf.h"

enum { AHEAD = 2048, MANY = 4 }; /* bytes; inputs at once */

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256i widen(const void *p)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
}

/* Eight columns' worth of one sub-block: pairs times the rows' scales, added to t. */
static inline __m256i add_products(__m256i t, __m256i codes, const int8_t *q4,
                                   const int16_t *pairs4, __m256i scale)
{
    __m256i p = _mm256_add_epi16(_mm256_maddubs_epi16(codes, load(q4)), load(pairs4));
    return _mm256_add_epi32(t, _mm256_madd_epi16(p, scale));
}

/* The fourth sub-block's codes, two bits from each. */
static inline __m256i fourth(__m256i a, __m256i b, __m256i c)
{
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(a, 2), _mm256_set1_epi8(0x30));
    __m256i mid = _mm256_and_si256(_mm256_srli_epi16(b, 4), _mm256_set1_epi8(0x0c));
    __m256i low = _mm256_and_si256(_mm256_srli_epi16(c, 6), _mm256_set1_epi8(0x03));
    return _mm256_or_si256(_mm256_or_si256(high, mid), low);
}

/* Adds the four sub-blocks of a quarter. q4, pairs4: of its first sub-block; the next one's lie two
 * sub-blocks further. */
static inline __m256i quarter(__m256i t, const uint8_t *w, const int8_t *q4, const int16_t *pairs4,
                              const int8_t *mult)
{
    const __m256i six = _mm256_set1_epi8(0x3f);
    __m256i s = _mm256_mullo_epi16(widen(w + 192), widen(mult));
    __m256i even = _mm256_unpacklo_epi16(s, s), odd = _mm256_unpackhi_epi16(s, s);
    __m256i s0 = _mm256_permute2x128_si256(even, even, 0x00);
    __m256i s1 = _mm256_permute2x128_si256(odd, odd, 0x00);
    __m256i s2 = _mm256_permute2x128_si256(even, even, 0x11);
    __m256i s3 = _mm256_permute2x128_si256(odd, odd, 0x11);
    for (int h = 0; h < 2; h++, w += 32, q4 += 32, pairs4 += 16) {
        __m256i a = load(w), b = load(w + 64), c = load(w + 128);
        t = add_products(t, _mm256_and_si256(a, six), q4, pairs4, s0);
        t = add_products(t, _mm256_and_si256(b, six), q4 + 128, pairs4 + 64, s1);
        t = add_products(t, _mm256_and_si256(c, six), q4 + 256, pairs4 + 128, s2);
        t = add_products(t, fourth(a, b, c), q4 + 384, pairs4 + 192, s3);
    }
    return t;
}

static void scan_one_q6_k_r4(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols,
                             float *y)
{
    size_t n_blocks = n_cols / 256, group = bnet_q6r4_group_bytes(n_cols);
    for (size_t r = 0; r < n_rows; r += 4, w += group) {
        const uint8_t *p = w, *f16 = w + n_blocks * BNET_Q6R4_BLOCK;
        __m128 sum = _mm_setzero_ps();
        for (size_t b = 0; b < n_blocks; b++, f16 += 8) {
            __m256i t = _mm256_setzero_si256();
            for (size_t k = 0; k < 4; k++, p += BNET_Q6R4_QUARTER) {
                size_t s = 16 * b + 8 * (k / 2) + k % 2; /* the first sub-block */
                for (int line = 0; line < 4; line++)
                    _mm_prefetch((const char *)p + AHEAD + 64 * line, _MM_HINT_T0);
                t = quarter(t, p, x->q4 + 64 * s, x->pairs4 + 32 * s, x->mult4 + 64 * b + 16 * k);
            }
            __m128i rows = _mm_add_epi32(_mm256_castsi256_si128(t), _mm256_extracti128_si256(t, 1));
            __m128 d = _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(const void *)f16));
            sum = _mm_add_ps(sum, _mm_mul_ps(_mm_cvtepi32_ps(rows), d));
        }
        _mm_storeu_ps(y + r, sum);
    }
}

static BNET_HEAD_SCAN(one_by_one, scan_one_q6_k_r4)

    void bnet_head_scan_q6_k_r4_avx2(const uint8_t *w, size_t n_rows, const bnet_head_x *x,
                                     size_t n_x, size_t n_cols, float *const *y)
{
    scan_all(w, n_rows, x, n_x, n_cols, y, bnet_head_scan_one_by_one);
}

/* ---- Q8_0 ---- */

/* Sums of products of one block in eight lanes: |w| times x with w's sign. Pairs stay below
 * 128 * 127 * 2 < 2^15. */
static inline __m256i block_dot(const uint8_t *w, const int8_t *q)
{
    __m256i a = load(w + 2);
    __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(load(q), a));
    return _mm256_madd_epi16(p, _mm256_set1_epi16(1));
}

static inline __m128i add_halves(__m256i v)
{
    return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

/* Lane b: (float)t * d of block b. The multiplier of a block stands twice, 8 bits each. */
static inline __m128 four_blocks(const uint8_t *w, const int8_t *q, const int8_t *mult)
{
    __m256i t01 = _mm256_hadd_epi32(block_dot(w, q), block_dot(w + 34, q + 32));
    __m256i t23 = _mm256_hadd_epi32(block_dot(w + 68, q + 64), block_dot(w + 102, q + 96));
    __m128i t = add_halves(_mm256_hadd_epi32(t01, t23));
    __m128i twice = _mm_loadl_epi64((const __m128i *)(const void *)mult);
    __m128i m = _mm_and_si128(_mm_cvtepu16_epi32(twice), _mm_set1_epi32(0xff));
    __m128i d = _mm_cvtsi32_si128(bnet_u16(w));
    d = _mm_insert_epi16(d, bnet_u16(w + 34), 1);
    d = _mm_insert_epi16(d, bnet_u16(w + 68), 2);
    d = _mm_insert_epi16(d, bnet_u16(w + 102), 3);
    return _mm_mul_ps(_mm_cvtepi32_ps(_mm_mullo_epi32(t, m)), _mm_cvtph_ps(d));
}

/* The blocks behind the last four, each in its lane; the others get zero. */
static __m128 last_blocks(const uint8_t *w, const int8_t *q, const int8_t *mult, size_t n)
{
    float lane[4] = {0};
    for (size_t b = 0; b < n; b++) {
        int32_t t[4];
        _mm_storeu_si128((__m128i *)(void *)t, add_halves(block_dot(w + 34 * b, q + 32 * b)));
        lane[b] =
            (float)((t[0] + t[1] + t[2] + t[3]) * mult[2 * b]) * _cvtsh_ss(bnet_u16(w + 34 * b));
    }
    return _mm_loadu_ps(lane);
}

static void scan_q8_0(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_cols,
                      float *y)
{
    size_t n_blocks = n_cols / 32, whole = n_blocks / 4 * 4;
    for (size_t r = 0; r < n_rows; r++, w += 34 * n_blocks) {
        __m128 sum = _mm_setzero_ps();
        for (size_t b = 0; b < whole; b += 4) {
            _mm_prefetch((const char *)w + 34 * b + AHEAD, _MM_HINT_T0);
            _mm_prefetch((const char *)w + 34 * b + AHEAD + 64, _MM_HINT_T0);
            sum = _mm_add_ps(sum, four_blocks(w + 34 * b, x->q + 32 * b, x->mult + 2 * b));
        }
        if (whole < n_blocks)
            sum = _mm_add_ps(sum, last_blocks(w + 34 * whole, x->q + 32 * whole,
                                              x->mult + 2 * whole, n_blocks - whole));
        __m128 half = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
        y[r] = _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
    }
}

BNET_HEAD_SCAN(q8_0_avx2, scan_q8_0)

/* ---- 16-bit floats ---- */

#define INLINE static inline __attribute__((always_inline))

/* Eight weights as floats. */
typedef __m256 load_fn(const uint8_t *p);

INLINE __m256 load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE __m256 load_bf16(const uint8_t *p)
{
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE float scan_row(load_fn *load_8, const uint8_t *row, const float *x, size_t n)
{
    __m256 sum[4];
    float all[16];
    for (int k = 0; k < 4; k++)
        sum[k] = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += 32) {
        _mm_prefetch((const char *)row + 2 * i + AHEAD, _MM_HINT_T0);
        for (size_t k = 0; k < 4; k++)
            sum[k] = _mm256_fmadd_ps(load_8(row + 2 * i + 16 * k), _mm256_loadu_ps(x + i + 8 * k),
                                     sum[k]);
    }
    _mm256_storeu_ps(all, _mm256_add_ps(sum[0], sum[2]));
    _mm256_storeu_ps(all + 8, _mm256_add_ps(sum[1], sum[3]));
    return bnet_fold16(all);
}

/* Every other 16 columns from `first` on, for m inputs. */
INLINE void sweep(load_fn *load_8, const uint8_t *row, const bnet_head_x *x, size_t m, size_t first,
                  size_t n, __m256 out[MANY][2])
{
    const float *xs[MANY];
    __m256 sum[MANY][2];
    for (size_t t = 0; t < m; t++) {
        xs[t] = x[t].x;
        sum[t][0] = sum[t][1] = _mm256_setzero_ps();
    }
    for (size_t i = first; i < n; i += 32) {
        __m256 lo = load_8(row + 2 * i), hi = load_8(row + 2 * i + 16);
        for (size_t t = 0; t < m; t++) {
            sum[t][0] = _mm256_fmadd_ps(lo, _mm256_loadu_ps(xs[t] + i), sum[t][0]);
            sum[t][1] = _mm256_fmadd_ps(hi, _mm256_loadu_ps(xs[t] + i + 8), sum[t][1]);
        }
    }
    for (size_t t = 0; t < m; t++)
        for (int k = 0; k < 2; k++)
            out[t][k] = sum[t][k];
}

/* Several inputs, m of them, a constant: weights become floats once for all. Two sweeps, so that
 * the sums of all inputs are in registers. */
INLINE void scan_some(load_fn *load_8, const uint8_t *row, const bnet_head_x *x, size_t m, size_t n,
                      float *out)
{
    __m256 a[MANY][2], b[MANY][2];
    float all[16];
    sweep(load_8, row, x, m, 0, n, a);
    sweep(load_8, row, x, m, 16, n, b);
    for (size_t t = 0; t < m; t++) {
        _mm256_storeu_ps(all, _mm256_add_ps(a[t][0], b[t][0]));
        _mm256_storeu_ps(all + 8, _mm256_add_ps(a[t][1], b[t][1]));
        out[t] = bnet_fold16(all);
    }
}

INLINE void scan(load_fn *load_8, const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                 size_t n, float *const *y)
{
    float out[MANY];
    for (size_t t = 0, m; t < n_x; t += m) {
        m = n_x - t >= MANY ? MANY : n_x - t >= 2 ? 2 : 1;
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *row = w + 2 * r * n;
            if (m == MANY)
                scan_some(load_8, row, x + t, MANY, n, out);
            else if (m == 2)
                scan_some(load_8, row, x + t, 2, n, out);
            else
                out[0] = scan_row(load_8, row, x[t].x, n);
            for (size_t i = 0; i < m; i++)
                y[t + i][r] = out[i];
        }
    }
}

void bnet_head_scan_f16_avx2(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                             size_t n_cols, float *const *y)
{
    scan(load_f16, w, n_rows, x, n_x, n_cols, y);
}

void bnet_head_scan_bf16_avx2(const uint8_t *w, size_t n_rows, const bnet_head_x *x, size_t n_x,
                              size_t n_cols, float *const *y)
{
    scan(load_bf16, w, n_rows, x, n_x, n_cols, y);
}
