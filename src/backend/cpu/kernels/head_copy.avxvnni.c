/* head_copy.avxvnni.c - the scan of the head's copy with vpdpbusd: a register is half a line of
 * weights, four rows, and eight columns of an input four times; a row's sum is in two lanes. */
#include "backend/cpu/kernels.h"

#include <immintrin.h>

enum { FOUR = 4 }; /* inputs at once */

static inline __m256i four_times(const int8_t *x)
{
    int64_t columns;
    memcpy(&columns, x, sizeof columns);
    return _mm256_set1_epi64x(columns);
}

/* Sums of the lines w + 64 lines[i], or of all, with four inputs; what belongs to the codes' 128 is
 * in them. */
static inline void add_lines(const uint8_t *w, const uint32_t *lines, const int8_t *x, size_t n,
                             size_t ahead, __m256i sums[FOUR][2])
{
    for (int t = 0; t < FOUR; t++)
        sums[t][0] = sums[t][1] = _mm256_setzero_si256();
    for (size_t k = 0; k < n; k++, x += BNET_COPY_LINE) {
        const uint8_t *line = w + BNET_COPY_LINE * (lines ? lines[k] : k);
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)line);
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(line + 32));
        _mm_prefetch((const char *)line + ahead, _MM_HINT_T1);
        for (int t = 0; t < FOUR; t++) {
            __m256i v = four_times(x + 8 * t);
            sums[t][0] = _mm256_dpbusd_avx_epi32(sums[t][0], a, v);
            sums[t][1] = _mm256_dpbusd_avx_epi32(sums[t][1], b, v);
        }
    }
}

/* Lanes of pairs are added; hadd leaves rows 0 1 4 5 2 3 6 7. */
static inline __m256 as_floats(const __m256i sums[2], int32_t less)
{
    __m256i v = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[0], sums[1]), 0xd8);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(v, _mm256_set1_epi32(less)));
}

static void scan_four(const uint8_t *group, const bnet_head_eight *x, size_t first, size_t n_cols,
                      float (*y)[BNET_COPY_ROWS])
{
    __m256 scale = _mm256_loadu_ps((const float *)(const void *)(group + BNET_COPY_ROWS * n_cols));
    __m256i high[FOUR][2], low[FOUR][2];
    size_t at = 8 * first;
    add_lines(group, x->lines, x->high + at, x->n_high, 0, high);
    add_lines(group, NULL, x->low + at, n_cols / 8, bnet_copy_group_bytes(n_cols), low);
    for (size_t t = 0; t < FOUR; t++) {
        __m256 h = as_floats(high[t], x->high_sum[first + t]);
        __m256 l = as_floats(low[t], x->low_sum[first + t]);
        h = _mm256_add_ps(_mm256_mul_ps(h, _mm256_set1_ps(BNET_COPY_HIGH)), l);
        _mm256_storeu_ps(y[t], _mm256_mul_ps(h, scale));
    }
}

static void scan_eight(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                       float (*y)[BNET_COPY_ROWS])
{
    for (size_t t = 0; t < x->n; t += FOUR)
        scan_four(group, x, t, n_cols, y + t);
}

BNET_HEAD_COPY(avxvnni, scan_eight)
