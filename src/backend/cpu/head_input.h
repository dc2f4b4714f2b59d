/* head_input.h - an input of the scan of the head (head.h), made from floats. */
#ifndef BNET_HEAD_INPUT_H
#define BNET_HEAD_INPUT_H

#include "backend/cpu/head.h"
#include "format/tensor.h"

/* What bnet_head_x points to, to be filled. */
typedef struct bnet_head_arrays {
    int8_t *q, *mult, *mult4;
    int32_t *start4;
    int8_t *q4;
    int16_t *pairs4;
    uint8_t *up;
    float *x, *raised;
} bnet_head_arrays;

/* The largest absolute value; NaN is passed over. */
float bnet_head_largest(const float *x, size_t n);
/* Block formats (Q6_K, Q8_0): x as integers of `unit`, in every order that kernels of this type
 * read. Returns the Euclidean length of what they differ by. */
double bnet_head_integers(bnet_type type, const float *x, size_t n, float unit,
                          const bnet_head_arrays *to);
/* 16-bit floats: x as it is. */
void bnet_head_floats(const float *x, size_t n, const bnet_head_arrays *to);
bnet_head_x bnet_head_view(const bnet_head_arrays *a);
/* Fills bnet_head_x.two of a, n / 64 * BNET_HEAD_TWO bytes, with a and b; b: NULL, zeros. */
void bnet_head_pair(const bnet_head_x *a, const bnet_head_x *b, size_t n, int8_t *two);

#endif
