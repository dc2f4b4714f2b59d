/* head_copy.h - a copy of the head with 8 bits a weight and one scale a row, which is scanned in
 * its place (ops_head.c): for several inputs, since its products need no scales on the way, which
 * cost more than the products themselves; of 16-bit floats for any, since it is half of them.
 *
 * Eight rows are a group: n_cols / 8 lines of 64 bytes, eight columns of every row, code + 128 with
 * codes from -127 to 127; then the scales of the rows, eight floats, and 32 bytes of nothing.
 * Inputs come in the same order, eight at a time, so a line of them meets a line of weights. */
#ifndef BNET_HEAD_COPY_H
#define BNET_HEAD_COPY_H

#include "base/base.h"

enum {
    BNET_COPY_ROWS = 8,         /* of a group */
    BNET_COPY_INPUTS = 8,       /* in the order of lines */
    BNET_COPY_EIGHTS = 2,       /* of these that are scanned together, at most */
    BNET_COPY_CALL = BNET_COPY_INPUTS * BNET_COPY_EIGHTS,
    BNET_COPY_LINE = 64,        /* bytes */
    BNET_COPY_HIGH = 254,       /* what a high part counts */
    BNET_COPY_COLUMNS = 1 << 16 /* at most: sums stay below 255 * 127 * 2^16 < 2^31 */
};

static inline size_t bnet_copy_group_bytes(size_t n_cols)
{
    return BNET_COPY_ROWS * n_cols + BNET_COPY_LINE;
}

/* Up to eight inputs; input t is about unit[t] (254 high + low). Few columns have high parts, and
 * only the lines with one are there. Inputs that do not exist are zeros. */
typedef struct bnet_head_eight {
    int8_t *low;   /* [n_cols / 8][input][8] */
    int8_t *high;  /* [n_high][input][8] */
    uint32_t *lines; /* [n_high] which of n_cols / 8 these are, ascending */
    size_t n_high;
    size_t n;                          /* inputs, 1 to 8 */
    int32_t low_sum[BNET_COPY_INPUTS]; /* 128 times the sum of the input's low parts, high parts */
    int32_t high_sum[BNET_COPY_INPUTS];
} bnet_head_eight;

/* y[16 g + 8 i + t][r] = (254 (float)h + (float)l) scale[r], each operation rounded, with h and l
 * the exact sums of codes times high and low parts of input t of x[i] in row r of group g; g <
 * n_groups, which lie one behind the other, i < n_eights, t < x[i].n. Only the last of the eights
 * has fewer inputs than eight. y of inputs that do not exist is not kept. Lines of groups that
 * follow in memory may be called into a cache. */
typedef void bnet_fn_head_copy(const uint8_t *groups, size_t n_groups, const bnet_head_eight *x,
                               size_t n_eights, size_t n_cols, float (*y)[BNET_COPY_ROWS]);

/* A kernel that takes a group and eight inputs at a time: one(group, x, n_cols, y). */
#define BNET_HEAD_COPY(isa, one)                                                                   \
    void bnet_head_scan_i8_r8_##isa(const uint8_t *groups, size_t n_groups,                        \
                                    const bnet_head_eight *x, size_t n_eights, size_t n_cols,      \
                                    float(*y)[BNET_COPY_ROWS])                                     \
    {                                                                                              \
        for (size_t g = 0; g < n_groups; g++, groups += bnet_copy_group_bytes(n_cols))             \
            for (size_t i = 0; i < n_eights; i++)                                                  \
                one(groups, x + i, n_cols, y + BNET_COPY_CALL * g + BNET_COPY_INPUTS * i);         \
    }

/* Writes row r of a group. Returns the length of what its codes times its scale differ by; a row of
 * weights so small that products could be lost has no codes, and differs by itself. */
double bnet_copy_row(const float *row, size_t n_cols, size_t r, uint8_t *group);

/* What rounding made of an input, as lengths. */
typedef struct bnet_copy_loss {
    float unit;
    double x, rest; /* the input; what unit (254 high + low) differs by */
    double parts;   /* unit (254 |high| + |low|) */
} bnet_copy_loss;

/* Eight zeros, then one input after the other, then the list of lines. Arrays have room for all
 * lines. Inputs are finite; most, at least 1e-30: the largest absolute value, length: Euclidean. */
void bnet_copy_clear(bnet_head_eight *to, size_t n_cols);
bnet_copy_loss bnet_copy_input(bnet_head_eight *to, const float *x, size_t n_cols, float most,
                               double length);
void bnet_copy_finish(bnet_head_eight *to, size_t n_cols);

#endif
