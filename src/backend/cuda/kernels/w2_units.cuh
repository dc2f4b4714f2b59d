/* w2_units.cuh - one unit of 16 x 128 ternary weights times int8 vectors on the tensor cores, as the
 * decode kernels do it.
 *
 * A unit is 16 bytes per lane: four m16n8k32 products whose A registers come from masks alone. Bits
 * 2s of a byte stay where they are (a factor 4^s), each s has its own accumulators, and the factors
 * leave at the end: two instructions per four weights, no shifts. The code is trit + 1; the sum of
 * the activations takes the 1 away again. */
#ifndef BNET_W2_UNITS_CUH
#define BNET_W2_UNITS_CUH

#include "common.cuh"

/* Where byte k of a token's activations lies: the 32 bytes a lane's four products take are
 * neighbours. */
static __device__ __forceinline__ uint32_t act_at(uint32_t k)
{
    return (k & ~127u) + (k >> 2 & 3) * 32 + (k >> 5 & 3) * 8 + (k >> 4 & 1) * 4 + (k & 3);
}

/* One unit: four products. acc [s][4]. x: the lane's 32 bytes of its token. */
static __device__ __forceinline__ void unit_multiply(uint4 w, const uint8_t *x, bool has_token,
                                                     int acc[4][4])
{
    uint4 lo = make_uint4(0, 0, 0, 0), hi = lo;
    if (has_token) {
        lo = *(const uint4 *)x;
        hi = *(const uint4 *)(x + 16);
    }
    const uint32_t b[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint32_t mask = 0x03030303u << 2 * s;
        uint32_t r[4] = {w.x & mask, w.y & mask, w.z & mask, w.w & mask};
        mma_u8s8(acc[s], r, b[2 * s], b[2 * s + 1]);
    }
}

/* Element i of a lane's sums; clears it. */
static __device__ __forceinline__ int unit_sum(int acc[4][4], int i)
{
    int v = acc[0][i] + (acc[1][i] >> 2) + (acc[2][i] >> 4) + (acc[3][i] >> 6);
    acc[0][i] = acc[1][i] = acc[2][i] = acc[3][i] = 0;
    return v;
}

/* Four values to int8 by adding 1.5 * 2^23: the low byte is the nearest integer. Returns the word,
 * adds up the codes. */
static __device__ __forceinline__ uint32_t codes4(const float *v, float inv, int *sum)
{
    uint32_t q[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        q[i] = __float_as_uint(fmaf(v[i], inv, 12582912.0f));
        *sum += (int)(int8_t)q[i];
    }
    return __byte_perm(__byte_perm(q[0], q[1], 0x0040), __byte_perm(q[2], q[3], 0x0040), 0x5410);
}

/* From the sum of squares and the largest |x w| to what makes codes of x w: inv; and their scale. The
 * norm's factor is the same for all elements, so the codes need only the largest |x w|. */
static __device__ __forceinline__ float code_scale(float2 both, bool norm, float n, float eps,
                                                   float *inv)
{
    float s = norm ? 1.0f / sqrtf(both.x / n + eps) : 1.0f;
    float most = both.y * s;
    *inv = 127.0f / both.y;
    if (!(most >= 1e-5f)) {
        most = 1e-5f;
        *inv = 127.0f * s / most;
    }
    return __fdiv_rn(most, 127.0f);
}

/* Sum and largest value over a block of WARPS warps, one barrier; all threads get both. `scratch`
 * [WARPS] must not be in use. */
template <int WARPS>
static __device__ __forceinline__ float2 block_sum_top(float sum, float top, float2 *scratch)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, o);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
    }
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = make_float2(sum, top);
    __syncthreads();
    float2 r = scratch[threadIdx.x % WARPS];
#pragma unroll
    for (int o = WARPS / 2; o; o >>= 1) {
        r.x += __shfl_xor_sync(0xffffffffu, r.x, o);
        r.y = fmaxf(r.y, __shfl_xor_sync(0xffffffffu, r.y, o));
    }
    return r;
}

/* Rounds to int8 as vector.scalar.c for values within 2^31 and NaN. */
static __device__ __forceinline__ int code_of(double v)
{
    return max(-128, min(127, __double2int_rn(v)));
}

/* Sum and largest value over a block of WARPS warps, one barrier; `scratch` [WARPS] must not be in
 * use. All threads get both, in one fixed order. */
template <int WARPS>
static __device__ __forceinline__ double2 block_sum_max(double sum, double top, double2 *scratch)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, o);
        top = fmax(top, __shfl_xor_sync(0xffffffffu, top, o));
    }
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = make_double2(sum, top);
    __syncthreads();
    double2 r = scratch[threadIdx.x % WARPS];
#pragma unroll
    for (int o = WARPS / 2; o; o >>= 1) {
        r.x += __shfl_xor_sync(0xffffffffu, r.x, o);
        r.y = fmax(r.y, __shfl_xor_sync(0xffffffffu, r.y, o));
    }
    return r;
}

#endif
