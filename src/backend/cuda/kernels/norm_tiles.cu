/* norm_tiles.cu - norm and int8 quantisation of the rows of a batch into the tiles of tiles.h, in
 * float as inside the GEMV. One block per row. */
#include "backend/cuda/tiles.h"
#include "w2_units.cuh"

enum { THREADS = BNET_NORM_TILES_THREADS, WARPS = THREADS / 32, HELD = 4, STEP = 4 * THREADS };

/* Elements i .. i + 3 of a row, zeros from k on. */
static __device__ __noinline__ float4 four_slow(const float *x, uint32_t i, uint32_t k)
{
    return make_float4(i < k ? x[i] : 0.0f, i + 1 < k ? x[i + 1] : 0.0f, i + 2 < k ? x[i + 2] : 0.0f,
                       i + 3 < k ? x[i + 3] : 0.0f);
}

template <bool WHOLE>
static __device__ __forceinline__ float4 four(const float *x, uint32_t i, uint32_t k)
{
    if (WHOLE)
        return i < k ? *(const float4 *)(x + i) : make_float4(0, 0, 0, 0);
    return four_slow(x, i, k);
}

/* Sum and largest value (none is negative) over the block, one barrier; all threads get both. */
static __device__ __forceinline__ float2 sum_top(float sum, float top, float2 *scratch)
{
#if BNET_SM80
    top = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(top)));
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = make_float2(sum, top);
    __syncthreads();
    float2 r = scratch[threadIdx.x % WARPS];
    r.y = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(r.y)));
#pragma unroll
    for (int o = WARPS / 2; o; o >>= 1)
        r.x += __shfl_xor_sync(0xffffffffu, r.x, o);
    return r;
#else
    return block_sum_top<WARPS>(sum, top, scratch);
#endif
}

static __device__ __forceinline__ int int_sum(int v)
{
#if BNET_SM80
    return __reduce_add_sync(0xffffffffu, v);
#else
    return warp_sum(v);
#endif
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

/* Where columns i .. i + 3 of a token lie. */
static __device__ __forceinline__ uint32_t *place(const bnet_cu_act8 &act, uint32_t token, uint32_t i)
{
    uint32_t r = token % BNET_TILE_TOKENS, c = i % 128;
    size_t chunk = (size_t)(token / BNET_TILE_TOKENS) * (act.stride / 128) + i / 128;
    return (uint32_t *)(act.q + chunk * BNET_TILE_BYTES + r * 128 + ((c / 16 ^ (r & 7)) << 4) +
                        c % 16);
}

/* WHOLE: rows and norm come in aligned fours. What a thread holds stays in registers. */
template <bool WHOLE> static __device__ __forceinline__ void norm_row(const bnet_cu_norm_args &a)
{
    __shared__ float2 scratch[WARPS];
    __shared__ int sums[WARPS];
    const float *x = a.x + (size_t)blockIdx.x * a.ld;
    uint32_t first = 4 * threadIdx.x;
    float4 p[HELD], v[HELD];
    float ss = 0, top = 0;
    pdl_launch();
#pragma unroll
    for (int j = 0; j < HELD; j++)
        p[j] = a.norm ? four<WHOLE>(a.norm, first + j * STEP, a.k) : make_float4(1, 1, 1, 1);
    pdl_wait();
#pragma unroll
    for (int j = 0; j < HELD; j++)
        v[j] = four<WHOLE>(x, first + j * STEP, a.k);
#pragma unroll
    for (int j = 0; j < HELD; j++)
        p[j] = gather(v[j], p[j], &ss, &top);
    for (uint32_t i = first + HELD * STEP; i < a.k; i += STEP)
        gather(four<false>(x, i, a.k), a.norm ? four<false>(a.norm, i, a.k) : make_float4(1, 1, 1, 1), &ss,
               &top);
    float2 both = sum_top(ss, top, scratch);
    float inv, scale = code_scale(both, a.norm != nullptr, (float)a.k, a.eps, &inv);
    int sum = 0;
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (first + j * STEP < a.act.stride)
            *place(a.act, blockIdx.x, first + j * STEP) = codes4(&p[j].x, inv, &sum);
    for (uint32_t i = first + HELD * STEP; i < a.act.stride; i += STEP) {
        float unused = 0;
        float4 w = a.norm ? four<false>(a.norm, i, a.k) : make_float4(1, 1, 1, 1);
        w = gather(four<false>(x, i, a.k), w, &unused, &unused);
        *place(a.act, blockIdx.x, i) = codes4(&w.x, inv, &sum);
    }
    sum = int_sum(sum);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    int total = int_sum(threadIdx.x < WARPS ? sums[threadIdx.x] : 0);
    if (threadIdx.x == 0) {
        a.act.scale[blockIdx.x] = scale;
        a.act.sum[blockIdx.x] = total;
    }
}

KERNEL __launch_bounds__(THREADS) bnet_norm_tiles(const __grid_constant__ bnet_cu_norm_args a)
{
    if ((a.ld & 3) == 0 && (a.k & 3) == 0 && ((uintptr_t)a.x & 15) == 0)
        norm_row<true>(a);
    else
        norm_row<false>(a);
}
