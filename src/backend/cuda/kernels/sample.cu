/* sample.cu - the largest logits of each row, ties to the lower id; what is not finite is left out. */
#include "backend/cuda/tiles.h"
#include "best.cuh"

/* Blocks of a row take slices of it; the best key of all is found by atomicMax, the last block to
 * arrive tells and clears. work [rows][2]. */
KERNEL __launch_bounds__(256) bnet_argmax(const __grid_constant__ bnet_cu_sample_args a)
{
    __shared__ key keys[8];
    uint32_t row = blockIdx.y, step = gridDim.x * 256 * 4;
    const float *x = a.logits + (size_t)row * a.ld;
    key best = 0, *work = (key *)a.work + 2 * row;
    pdl_launch();
    pdl_wait();
    bool aligned = (a.ld & 3) == 0;
#pragma unroll 4
    for (uint32_t i = (blockIdx.x * 256 + threadIdx.x) * 4; i < a.n; i += step) {
        float4 v;
        if (aligned && i + 4 <= a.n)
            v = *(const float4 *)(x + i);
        else
            v = make_float4(x[i], i + 1 < a.n ? x[i + 1] : NAN, i + 2 < a.n ? x[i + 2] : NAN,
                            i + 3 < a.n ? x[i + 3] : NAN);
        best = max(max(best, max(key_of(v.x, i), key_of(v.y, i + 1))),
                   max(key_of(v.z, i + 2), key_of(v.w, i + 3)));
    }
#pragma unroll
    for (int o = 16; o; o >>= 1)
        best = max(best, __shfl_xor_sync(0xffffffffu, best, o));
    if (threadIdx.x % 32 == 0)
        keys[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x)
        return;
    for (int i = 0; i < 8; i++)
        best = max(best, keys[i]);
    atomicMax(work, best);
    __threadfence();
    if (atomicAdd(work + 1, 1) + 1 != gridDim.x)
        return;
    __threadfence();
    best = atomicExch(work, 0);
    work[1] = 0;
    a.id[row] = id_of(best);
    if (a.value)
        a.value[row] = value_of(best);
    if (a.next_id)
        a.next_id[row] = id_of(best);
    if (a.next_pos)
        a.next_pos[row] += 1;
}

enum { PART_WARPS = BNET_TOPK_PART_THREADS / 32, MERGE_WARPS = BNET_TOPK_MERGE_THREADS / 32 };

/* A slice of a row; a warp sorts 64 values at a time. */
KERNEL __launch_bounds__(BNET_TOPK_PART_THREADS)
    bnet_topk_part(const __grid_constant__ bnet_cu_sample_args a)
{
    __shared__ key lists[PART_WARPS][64];
    uint32_t row = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t step = gridDim.x * PART_WARPS * 64;
    const float *x = a.logits + (size_t)row * a.ld;
    list best = {{0, 0}};
    pdl_launch();
    pdl_wait();
    uint32_t at = (blockIdx.x * PART_WARPS + warp) * 64 + lane;
    float next[2] = {at < a.n ? x[at] : NAN, at + 32 < a.n ? x[at + 32] : NAN};
    for (; at - lane < a.n; at += step) {
        list l = {{key_of(next[0], at), key_of(next[1], at + 32)}};
        uint32_t to = at + step;
        next[0] = to < a.n ? x[to] : NAN;
        next[1] = to + 32 < a.n ? x[to + 32] : NAN;
        key least = __shfl_sync(0xffffffffu, best.k[1], 31);
        if (!__any_sync(0xffffffffu, max(l.k[0], l.k[1]) > least))
            continue;
        sort(l);
        merge(best, l);
    }
    merge_warps(best, PART_WARPS, lists);
    if (warp == 0) {
        key *to = (key *)a.work + ((size_t)row * BNET_TOPK_SLICES + blockIdx.x) * BNET_TOPK_MAX;
        to[lane] = best.k[0];
        to[lane + 32] = best.k[1];
    }
}

/* The lists of a row's slices. */
KERNEL __launch_bounds__(BNET_TOPK_MERGE_THREADS)
    bnet_topk_merge(const __grid_constant__ bnet_cu_sample_args a)
{
    __shared__ key lists[MERGE_WARPS][64];
    uint32_t row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    pdl_launch();
    pdl_wait();
    const key *from = (const key *)a.work + (size_t)row * BNET_TOPK_SLICES * BNET_TOPK_MAX + lane;
    list best = {{0, 0}}, all[BNET_TOPK_SLICES / MERGE_WARPS];
#pragma unroll
    for (uint32_t i = 0; i < BNET_TOPK_SLICES / MERGE_WARPS; i++) {
        const key *l = from + (i * MERGE_WARPS + warp) * BNET_TOPK_MAX;
        all[i].k[0] = __ldcg(l);
        all[i].k[1] = __ldcg(l + 32);
    }
#pragma unroll
    for (uint32_t i = 0; i < BNET_TOPK_SLICES / MERGE_WARPS; i++)
        merge(best, all[i]);
    merge_warps(best, MERGE_WARPS, lists);
    for (uint32_t i = lane; warp == 0 && i < a.k; i += 32) {
        key k = i < 32 ? best.k[0] : best.k[1];
        a.id[(size_t)row * a.k + i] = id_of(k);
        if (a.value)
            a.value[(size_t)row * a.k + i] = value_of(k);
    }
}

/* ---- many rows: the 64th of the threads' best bounds the 64th of all from below, so that a second
 * reading leaves few to sort, and none outside the 64 threads that reach it ---- */

enum { ROWS_THREADS = BNET_TOPK_ROWS_THREADS, EACH = BNET_TOPK_ROWS_EACH };
enum { ROWS_WARPS = ROWS_THREADS / 32 };

/* Four values from i on as keys, those from n on none. */
static __device__ __forceinline__ void keys4(const float *x, uint32_t i, uint32_t n, bool aligned,
                                             key k[4])
{
    float4 v;
    if (aligned && i + 4 <= n)
        v = *(const float4 *)(x + i);
    else
        v = make_float4(i < n ? x[i] : NAN, i + 1 < n ? x[i + 1] : NAN, i + 2 < n ? x[i + 2] : NAN,
                        i + 3 < n ? x[i + 3] : NAN);
    k[0] = key_of(v.x, i), k[1] = key_of(v.y, i + 1);
    k[2] = key_of(v.z, i + 2), k[3] = key_of(v.w, i + 3);
}

/* The 64 best of n keys in shared memory, in warp 0. */
static __device__ __forceinline__ list best_of(const key *from, uint32_t n, key (*lists)[64])
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    list best = {{0, 0}};
    for (uint32_t i = warp * 64; i < n; i += ROWS_WARPS * 64) {
        list l = {{i + lane < n ? from[i + lane] : 0, i + lane + 32 < n ? from[i + lane + 32] : 0}};
        sort(l);
        merge(best, l);
    }
    merge_warps(best, ROWS_WARPS, lists);
    return best;
}

KERNEL __launch_bounds__(ROWS_THREADS) bnet_topk_rows(const __grid_constant__ bnet_cu_sample_args a)
{
    extern __shared__ __align__(16) uint8_t dynamic[];
    __shared__ key lists[ROWS_WARPS][64];
    __shared__ key bound;
    __shared__ uint32_t n_found;
    key *found = (key *)dynamic, best = 0, k[4];
    uint32_t per = ((a.n + gridDim.x - 1) / gridDim.x + 3) / 4 * 4, lane = threadIdx.x % 32;
    uint32_t begin = blockIdx.x * per, end = min(begin + per, a.n);
    const float *x = a.logits + (size_t)blockIdx.y * a.ld;
    bool aligned = (a.ld & 3) == 0;
    pdl_launch();
    if (threadIdx.x == 0)
        n_found = 0;
    pdl_wait();
#pragma unroll 4
    for (uint32_t i = begin + 4 * threadIdx.x; i < end; i += 4 * ROWS_THREADS) {
        keys4(x, i, end, aligned, k);
        best = max(best, max(max(k[0], k[1]), max(k[2], k[3])));
    }
    found[threadIdx.x] = best;
    __syncthreads();
    list l = best_of(found, ROWS_THREADS, lists);
    if (threadIdx.x == 31)
        bound = max(l.k[1], (key)1);
    __syncthreads();
    key least = bound;
    for (uint32_t i = begin + 4 * threadIdx.x; best >= least && i < end; i += 4 * ROWS_THREADS) {
        keys4(x, i, end, aligned, k);
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (k[j] >= least)
                found[atomicAdd(&n_found, 1)] = k[j];
    }
    __syncthreads();
    l = best_of(found, n_found, lists);
    if (threadIdx.x < 32) {
        key *to = (key *)a.work + ((size_t)blockIdx.y * BNET_TOPK_SLICES + blockIdx.x) * BNET_TOPK_MAX;
        to[lane] = l.k[0];
        to[lane + 32] = l.k[1];
    }
}

KERNEL __launch_bounds__(32) bnet_topk_join(const __grid_constant__ bnet_cu_sample_args a)
{
    uint32_t row = blockIdx.x, lane = threadIdx.x;
    uint32_t n = (a.n + ROWS_THREADS * EACH - 1) / (ROWS_THREADS * EACH);
    pdl_launch();
    pdl_wait();
    const key *from = (const key *)a.work + (size_t)row * BNET_TOPK_SLICES * BNET_TOPK_MAX + lane;
    list best = {{0, 0}};
    for (uint32_t i = 0; i < n; i++) {
        list l = {{__ldcg(from + i * BNET_TOPK_MAX), __ldcg(from + i * BNET_TOPK_MAX + 32)}};
        merge(best, l);
    }
    for (uint32_t i = lane; i < a.k; i += 32) {
        key k = i < 32 ? best.k[0] : best.k[1];
        a.id[(size_t)row * a.k + i] = id_of(k);
        if (a.value)
            a.value[(size_t)row * a.k + i] = value_of(k);
    }
}
