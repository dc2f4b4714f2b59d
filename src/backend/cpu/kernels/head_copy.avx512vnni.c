/* head_copy.avx512vnni.c - the scan of the head's copy by vpdpbusd: a register is a line of
 * weights, and eight columns of an input eight times; a row's sum is in two lanes. Three groups of
 * rows meet eight inputs, 24 sums: so many products for what is loaded that caches keep up. */
#include <immintrin.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/unroll.h"

enum { EIGHT = BNET_COPY_INPUTS, GROUPS = 3 /* at once */ };

/* Lines of groups that lie n_group bytes apart, and as many of eight inputs. */
typedef struct part {
    const uint8_t *w;
    size_t n_group, n;
    const uint32_t *lines; /* w + 64 lines[i]; NULL: one after the other */
    const int8_t *x;
    const uint8_t *next; /* of the latter: what is called into the second-level cache meanwhile */
    size_t step;         /* lines of that, for two of these: 1 or 2 */
} part;

static inline __m512i eight_times(const int8_t *x)
{
    int64_t columns;
    memcpy(&columns, x, sizeof columns);
    return _mm512_set1_epi64(columns);
}

/* gcc 12 keeps copies of the sums around its intrinsic, and then has no registers left */
static inline __m512i add_dot(__m512i sum, __m512i codes, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(x));
    return sum;
}

/* sums[input][group] += one line's sums; what belongs to the codes' 128 is in them. */
static ALWAYS_INLINE void add_line(const uint8_t *line, size_t n_group, const int8_t *x,
                                   __m512i *sums, const int n_g, const int n_x)
{
    __m512i rows[GROUPS];
    UNROLL for (int g = 0; g < n_g; g++) rows[g] = _mm512_loadu_si512(line + (size_t)g * n_group);
    UNROLL for (int t = 0; t < n_x; t++)
    {
        __m512i v = eight_times(x + 8 * t);
        UNROLL for (int g = 0; g < n_g; g++) sums[n_g * t + g] =
            add_dot(sums[n_g * t + g], rows[g], v);
    }
}

static ALWAYS_INLINE void add_listed(const part *p, __m512i *sums, const int n_g, const int n_x)
{
    const int8_t *x = p->x;
    for (size_t k = 0; k < p->n; k++, x += BNET_COPY_LINE)
        add_line(p->w + BNET_COPY_LINE * p->lines[k], p->n_group, x, sums, n_g, n_x);
}

/* Two by two: what is done beside the products counts where another thread shares the core. */
static ALWAYS_INLINE void add_all(const part *p, __m512i *sums, const int n_g, const int n_x)
{
    enum { TWO = 2 * BNET_COPY_LINE };
    const uint8_t *w = p->w, *last = w + BNET_COPY_LINE * p->n - BNET_COPY_LINE, *next = p->next;
    const size_t n_group = p->n_group, step = BNET_COPY_LINE * p->step;
    const int8_t *x = p->x;
    for (; w < last; w += TWO, x += TWO, next += step) {
        UNROLL for (int g = 0; g < n_g; g++)
            _mm_prefetch((const char *)next + (size_t)g * n_group, _MM_HINT_T1);
        for (int g = 0; step == TWO && g < n_g; g++)
            _mm_prefetch((const char *)next + (size_t)g * n_group + BNET_COPY_LINE, _MM_HINT_T1);
        add_line(w, n_group, x, sums, n_g, n_x);
        add_line(w + BNET_COPY_LINE, n_group, x + BNET_COPY_LINE, sums, n_g, n_x);
    }
    if (w == last)
        add_line(w, n_group, x, sums, n_g, n_x);
}

/* sums[input][group] of the part. */
#define SUM(n_g, n_x)                                                                              \
    static void sum_##n_g##_##n_x(const part *p, __m512i *sums)                                    \
    {                                                                                              \
        __m512i acc[(n_g) * (n_x)];                                                                \
        UNROLL for (int i = 0; i < (n_g) * (n_x); i++) acc[i] = _mm512_setzero_si512();            \
        if (p->lines)                                                                              \
            add_listed(p, acc, n_g, n_x);                                                          \
        else                                                                                       \
            add_all(p, acc, n_g, n_x);                                                             \
        UNROLL for (int i = 0; i < (n_g) * (n_x); i++) sums[i] = acc[i];                           \
    }
SUM(1, 2)
SUM(1, 4)
SUM(1, 8)
SUM(2, 2)
SUM(2, 4)
SUM(2, 8)
SUM(3, 2)
SUM(3, 4)
SUM(3, 8)
#undef SUM

static inline void sum_part(const part *p, size_t n_g, size_t n_x, __m512i *sums)
{
    static void (*const sum[GROUPS][3])(const part *, __m512i *) = {
        {sum_1_2, sum_1_4, sum_1_8}, {sum_2_2, sum_2_4, sum_2_8}, {sum_3_2, sum_3_4, sum_3_8}};
    sum[n_g - 1][n_x <= 2 ? 0 : n_x <= 4 ? 1 : 2](p, sums);
}

/* The lines with high parts of n_g groups. */
static inline void sum_high(const uint8_t *w, size_t n_group, size_t n_g, const bnet_head_eight *x,
                            __m512i *sums)
{
    const part p = {.w = w, .n_group = n_group, .n = x->n_high, .lines = x->lines, .x = x->high};
    sum_part(&p, n_g, x->n, sums);
}

static inline __m256 as_floats(__m512i sums, int32_t less)
{
    __m512i both = _mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32));
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(_mm512_cvtepi64_epi32(both), _mm256_set1_epi32(less)));
}

/* Sums of all lines with the low parts, and of some with the high parts, become y of one group;
 * from input to input they are n_g apart. */
static inline void finish(const uint8_t *group, const bnet_head_eight *x, size_t n_cols,
                          const __m512i *low, const __m512i *high, size_t n_g,
                          float (*y)[BNET_COPY_ROWS])
{
    __m256 scale = _mm256_loadu_ps((const float *)(const void *)(group + BNET_COPY_ROWS * n_cols));
    for (size_t t = 0; t < x->n; t++) {
        __m256 h =
            _mm256_mul_ps(as_floats(high[n_g * t], x->high_sum[t]), _mm256_set1_ps(BNET_COPY_HIGH));
        __m256 sum = _mm256_add_ps(h, as_floats(low[n_g * t], x->low_sum[t]));
        _mm256_storeu_ps(y[t], _mm256_mul_ps(sum, scale));
    }
}

/* n_g groups. The first pass over them calls half of the next ones, or all if there is no other. */
static void scan_groups(const uint8_t *w, size_t n_g, const bnet_head_eight *x, size_t n_eights,
                        size_t n_cols, float (*y)[BNET_COPY_ROWS])
{
    const size_t n_lines = n_cols / 8, n_group = bnet_copy_group_bytes(n_cols);
    __m512i low[GROUPS * EIGHT], high[GROUPS * EIGHT];
    for (size_t i = 0; i < n_eights; i++) {
        const part p = {.w = w,
                        .n_group = n_group,
                        .n = n_lines,
                        .x = x[i].low,
                        .next = w + n_g * n_group + BNET_COPY_LINE * (i * n_lines / 2),
                        .step = 3 - n_eights};
        sum_part(&p, n_g, x[i].n, low);
        sum_high(w, n_group, n_g, x + i, high);
        for (size_t g = 0; g < n_g; g++)
            finish(w + g * n_group, x + i, n_cols, low + g, high + g, n_g,
                   y + BNET_COPY_CALL * g + EIGHT * i);
    }
}

void bnet_head_scan_i8_r8_avx512vnni(const uint8_t *groups, size_t n_groups,
                                     const bnet_head_eight *x, size_t n_eights, size_t n_cols,
                                     float (*y)[BNET_COPY_ROWS])
{
    const size_t n_group = bnet_copy_group_bytes(n_cols);
    for (size_t g = 0, n; g < n_groups; g += n) {
        n = BNET_MIN((size_t)GROUPS, n_groups - g);
        scan_groups(groups + g * n_group, n, x, n_eights, n_cols, y + BNET_COPY_CALL * g);
    }
}
