/* head_copy.cuh - what the copy of a head says of one logit (head_copy.cu has the proof). */
#ifndef BNET_HEAD_COPY_CUH
#define BNET_HEAD_COPY_CUH

#include "backend/cuda/head_copy.h"
#include "common.cuh"

/* Floats in an order that integers have. */
static __device__ __forceinline__ uint32_t order(float v)
{
    uint32_t b = __float_as_uint(v);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

/* What is known of a token's vector. */
struct input {
    float unit, inverse, reach, slack;
};

/* A logit is `most` at most, and at least what stands in `least` by order(); 0: it is not known. */
struct limits {
    float most;
    uint32_t least;
};

/* Of a row (bnet_cu_screen_row) with sums of high and low bytes. */
static __device__ __forceinline__ limits limits_of(const float4 &row, const input &in, int high,
                                                   int low)
{
    float v = fmaf(256.0f, (float)high, (float)low) * (row.x * in.unit);
    float b = fmaf(row.y, in.reach, fmaf(row.z, in.slack, 1e-33f));
    if (row.z * in.reach < 1e37f)
        return {v + b, order(v - b)};
    return {INFINITY, 0};
}

#endif
