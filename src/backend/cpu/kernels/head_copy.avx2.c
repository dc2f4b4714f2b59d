/* head_copy.avx2.c - the scan of the head's copy with vpmaddwd: a register is eight columns of two
 * rows with 16 bits each (products of bytes would not fit 16), a row's sum is in four lanes. */
#include "backend/cpu/kernels.h"

#include <immintrin.h>

enum { TWO = 2, PAIRS = 4 }; /* inputs at once; pairs of rows */

static inline __m256i columns_of(const int8_t *x)
{
    __m128i v = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)x));
    return _mm256_broadcastsi128_si256(v);
}

/* Sums of the lines w + 64 lines[i], or of all, with two inputs; what belongs to the codes' 128 is
 * in them. */
static inline void add_lines(const uint8_t *w, const uint32_t *lines, const int8_t *x, size_t n,
                             size_t ahead, __m256i sums[TWO][PAIRS])
{
    for (int t = 0; t < TWO; t++)
        for (int i = 0; i < PAIRS; i++)
            sums[t][i] = _mm256_setzero_si256();
    for (size_t k = 0; k < n; k++, x += BNET_COPY_LINE) {
        const uint8_t *line = w + BNET_COPY_LINE * (lines ? lines[k] : k);
        __m256i a = columns_of(x), b = columns_of(x + 8);
        _mm_prefetch((const char *)line + ahead, _MM_HINT_T1);
        for (int i = 0; i < PAIRS; i++) {
            __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(line + 16 * i));
            __m256i rows = _mm256_cvtepu8_epi16(codes);
            sums[0][i] = _mm256_add_epi32(sums[0][i], _mm256_madd_epi16(rows, a));
            sums[1][i] = _mm256_add_epi32(sums[1][i], _mm256_madd_epi16(rows, b));
        }
    }
}

/* The lanes of a row are added; that leaves rows 0 2 4 6 1 3 5 7. */
static inline __m256 as_floats(const __m256i sums[PAIRS], int32_t less)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i v =
        _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    v = _mm256_permutevar8x32_epi32(v, order);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(v, _mm256_set1_epi32(less)));
}

static void scan_two(const uint8_t *group, const bnet_head_eight *x, size_t first, size_t n_cols,
                     float (*y)[BNET_COPY_ROWS])
{
    __m256 scale = _mm256_loadu_ps((const float *)(const void *)(group + BNET_COPY_ROWS * n_cols));
    __m256i high[TWO][PAIRS], low[TWO][PAIRS];
    size_t at = 8 * first;
    add_lines(group, x->lines, x->high + at, x->n_high, 0, high);
    add_lines(group, NULL, x->low + at, n_cols / 8, bnet_copy_group_bytes(n_cols), low);
    for (size_t t = 0; t < TWO; t++) {
        __m256 h = as_floats(high[t], x->high_sum[first + t]);
        __m256 l = as_floats(low[t], x->low_sum[first + t]);
        h = _mm256_add_ps(_mm256_mul_ps(h, _mm256_set1_ps(BNET_COPY_HIGH)), l);
        _mm256_storeu_ps(y[t], _mm256_mul_ps(h, scale));
    }
}

static void scan_eight(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                       float (*y)[BNET_COPY_ROWS])
{
    for (size_t t = 0; t < x->n; t += TWO)
        scan_two(group, x, t, n_cols, y + t);
}

BNET_HEAD_COPY(avx2, scan_eight)
