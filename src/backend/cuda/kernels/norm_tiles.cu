/* norm_tiles.cu - norm and int8 quantisation of the rows of a batch into the tiles of tiles.h or,
 * with the same bits, into rows, in float as inside the GEMV. One block per row. */
#include "backend/cuda/tiles.h"
#include "w2_units.cuh"

enum { THREADS = BNET_NORM_TILES_THREADS, WARPS = THREADS / 32, HELD = 7, STEP = 4 * THREADS };

static __device__ __forceinline__ float4 four(const float *x, uint32_t i, uint32_t k, bool aligned)
{
    if (aligned && i + 4 <= k)
        return *(const float4 *)(x + i);
    return make_float4(i < k ? x[i] : 0.0f, i + 1 < k ? x[i + 1] : 0.0f,
                       i + 2 < k ? x[i + 2] : 0.0f, i + 3 < k ? x[i + 3] : 0.0f);
}

/* Adds to the sum of squares; returns x w and keeps the largest of them. */
static __device__ __forceinline__ float4 gather(float4 v, float4 w, float *ss, float *top)
{
    *ss = fmaf(v.x, v.x, *ss), *ss = fmaf(v.y, v.y, *ss);
    *ss = fmaf(v.z, v.z, *ss), *ss = fmaf(v.w, v.w, *ss);
    float4 p = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
    *top = fmaxf(*top, fmaxf(fmaxf(fabsf(p.x), fabsf(p.y)), fmaxf(fabsf(p.z), fabsf(p.w))));
    return p;
}

/* The `inv` of code_scale; its divisions only where it could be another than that of the largest |x
 * w|. */
static __device__ __forceinline__ float code_factor(float2 both, bool norm, float n, float eps)
{
    float s = norm ? rsqrtf(__fdividef(both.x, n) + eps) : 1.0f, inv;
    if (both.y * s > 1.01e-5f)
        return 127.0f / both.y;
    code_scale(both, norm, n, eps, &inv);
    return inv;
}

/* Where the first columns of this thread lie, and how many bytes further those STEP columns on. */
template <bool TILES>
static __device__ __forceinline__ uint32_t *place(const bnet_dev_act8 &act, uint32_t *step)
{
    uint32_t i = 4 * threadIdx.x;
    if (!TILES) {
        *step = STEP;
        return (uint32_t *)(act.q + (size_t)blockIdx.x * act.stride + i);
    }
    *step = STEP * bnet_tile_tokens(gridDim.x);
    return (uint32_t *)(act.q + bnet_tile_place(gridDim.x, act.stride, blockIdx.x, i));
}

template <bool TILES> static __device__ __forceinline__ void norm(const bnet_cu_norm_args &a)
{
    __shared__ float2 scratch[WARPS];
    __shared__ int sums[WARPS];
    const float *x = a.x + (size_t)blockIdx.x * a.ld;
    uint32_t first = 4 * threadIdx.x, step;
    bool aligned = (a.ld & 3) == 0;
    float4 p[HELD];
    float ss = 0, top = 0;
    pdl_launch();
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        p[j] = make_float4(1, 1, 1, 1);
        if (a.norm && first + j * STEP < a.k)
            p[j] = four(a.norm, first + j * STEP, a.k, true);
    }
    pdl_wait();
    float4 v[HELD];
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        v[j] = make_float4(0, 0, 0, 0);
        if (first + j * STEP < a.k)
            v[j] = four(x, first + j * STEP, a.k, aligned);
    }
#pragma unroll
    for (int j = 0; j < HELD; j++)
        p[j] = gather(v[j], p[j], &ss, &top);
    for (uint32_t i = first + HELD * STEP; i < a.k; i += STEP) {
        float4 w = a.norm ? four(a.norm, i, a.k, true) : make_float4(1, 1, 1, 1);
        gather(four(x, i, a.k, aligned), w, &ss, &top);
    }
    float2 both = block_sum_top<WARPS>(ss, top, scratch);
    float inv = code_factor(both, a.norm != nullptr, (float)a.k, a.eps);
    uint32_t *to = place<TILES>(a.act, &step);
    int sum = 0, unused = 0;
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (first + j * STEP < a.act.stride) {
            uint32_t codes = codes4(&p[j].x, inv, &unused);
            to[j * (step / 4)] = codes;
            sum = __dp4a((int)codes, 0x01010101, sum);
        }
    to += HELD * (step / 4);
    for (uint32_t i = first + HELD * STEP; i < a.act.stride; i += STEP, to += step / 4) {
        float4 w = a.norm ? four(a.norm, i, a.k, true) : make_float4(1, 1, 1, 1), none;
        float nothing = 0;
        none = gather(four(x, i, a.k, aligned), w, &nothing, &nothing);
        *to = codes4(&none.x, inv, &sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            total += sums[w];
        a.act.scale[blockIdx.x] = code_scale(both, a.norm != nullptr, (float)a.k, a.eps, &inv);
        a.act.sum[blockIdx.x] = total;
    }
}

/* 64 registers: four blocks of them on a multiprocessor, 512 tokens at once. */
KERNEL __launch_bounds__(THREADS, 4) bnet_norm_tiles(const __grid_constant__ bnet_cu_norm_args a)
{
    norm<true>(a);
}

KERNEL __launch_bounds__(THREADS, 4) bnet_norm_rows(const __grid_constant__ bnet_cu_norm_args a)
{
    norm<false>(a);
}
