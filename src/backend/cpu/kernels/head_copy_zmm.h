/* head_copy_zmm.h - lines of the head's copy by vpdpbusd: a register is a line of weights, and
 * eight columns of an input eight times; a row's sum is in two lanes. */
#ifndef BNET_KERNELS_HEAD_COPY_ZMM_H
#define BNET_KERNELS_HEAD_COPY_ZMM_H

#include "backend/cpu/kernels.h"

#include <immintrin.h>

enum { EIGHT = BNET_COPY_INPUTS };

static inline __m512i eight_times(const int8_t *x)
{
    int64_t columns;
    memcpy(&columns, x, sizeof columns);
    return _mm512_set1_epi64(columns);
}

/* Sums of the lines w + 64 lines[i], or of all, with n_x inputs; what belongs to the codes' 128 is
 * in them. */
static inline void add_lines(const uint8_t *w, const uint32_t *lines, const int8_t *x, size_t n,
                             size_t ahead, const int n_x, __m512i sums[EIGHT])
{
    for (int t = 0; t < n_x; t++)
        sums[t] = _mm512_setzero_si512();
    for (size_t k = 0; k < n; k++, x += BNET_COPY_LINE) {
        const uint8_t *line = w + BNET_COPY_LINE * (lines ? lines[k] : k);
        __m512i rows = _mm512_loadu_si512(line);
        _mm_prefetch((const char *)line + ahead, _MM_HINT_T1);
        for (int t = 0; t < n_x; t++)
            sums[t] = _mm512_dpbusd_epi32(sums[t], rows, eight_times(x + 8 * t));
    }
}

static inline __m256 as_floats(__m512i sums, int32_t less)
{
    __m512i both = _mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32));
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(_mm512_cvtepi64_epi32(both), _mm256_set1_epi32(less)));
}

/* What the high parts add to the rows of n_x inputs. */
static inline void add_high(const uint8_t *group, const bnet_head_eight *x, const int n_x,
                            __m256 high[EIGHT])
{
    __m512i sums[EIGHT];
    add_lines(group, x->lines, x->high, x->n_high, 0, n_x, sums);
    for (int t = 0; t < n_x; t++)
        high[t] = _mm256_mul_ps(as_floats(sums[t], x->high_sum[t]), _mm256_set1_ps(BNET_COPY_HIGH));
}

/* Sums of all lines with the low parts, and those of the high parts, become y. */
static inline void finish(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                          const __m512i low[EIGHT], const __m256 high[EIGHT], const int n_x,
                          float (*y)[BNET_COPY_ROWS])
{
    __m256 scale = _mm256_loadu_ps((const float *)(const void *)(group + BNET_COPY_ROWS * n_cols));
    for (int t = 0; t < n_x; t++)
        _mm256_storeu_ps(
            y[t], _mm256_mul_ps(_mm256_add_ps(high[t], as_floats(low[t], x->low_sum[t])), scale));
}

static inline void scan(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                        float (*y)[BNET_COPY_ROWS], const int n_x)
{
    __m256 high[EIGHT];
    __m512i low[EIGHT];
    add_high(group, x, n_x, high);
    add_lines(group, NULL, x->low, n_cols / 8, bnet_copy_group_bytes(n_cols), n_x, low);
    finish(group, x, n_cols, low, high, n_x, y);
}

/* Up to eight inputs. */
static inline void scan_eight(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                              float (*y)[BNET_COPY_ROWS])
{
    if (x->n <= 2)
        scan(group, x, n_cols, y, 2);
    else if (x->n <= 4)
        scan(group, x, n_cols, y, 4);
    else
        scan(group, x, n_cols, y, EIGHT);
}

#endif
