/* sample.cu - the largest logits of each row, ties to the lower id; what is not finite is left out.
 *
 * A candidate is one number: the value's bits in an order that integers have, above the id from the
 * other end. Zero is no candidate. */
#include "common.cuh"

enum { SORTED = 2048, MERGED = BNET_TOPK_SLICES * BNET_TOPK_MAX };

static __device__ __forceinline__ unsigned long long key_of(float v, uint32_t id)
{
    uint32_t b = __float_as_uint(v);
    if ((b & 0x7f800000u) == 0x7f800000u)
        return 0;
    if (b == 0x80000000u)
        b = 0; /* -0 equals 0 */
    b = b & 0x80000000u ? ~b : b | 0x80000000u;
    return (unsigned long long)b << 32 | (0xffffffffu - id);
}

static __device__ __forceinline__ int id_of(unsigned long long key)
{
    return key ? (int)(0xffffffffu - (uint32_t)key) : -1;
}

static __device__ __forceinline__ float value_of(unsigned long long key)
{
    uint32_t b = (uint32_t)(key >> 32);
    return key ? __uint_as_float(b & 0x80000000u ? b & 0x7fffffffu : ~b) : 0.0f;
}

/* Blocks of a row take slices of it; the best key of all is found by atomicMax, the last block to
 * arrive tells and clears. work [rows][2]. */
KERNEL __launch_bounds__(256) bnet_argmax(const __grid_constant__ bnet_cu_sample_args a)
{
    __shared__ unsigned long long keys[8];
    uint32_t row = blockIdx.y, step = gridDim.x * 256 * 4;
    const float *x = a.logits + (size_t)row * a.ld;
    unsigned long long best = 0, *work = (unsigned long long *)a.work + 2 * row;
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

/* n keys (a power of two) in shared memory, the largest first. */
static __device__ void sort(unsigned long long *k, uint32_t n)
{
    for (uint32_t size = 2; size <= n; size *= 2)
        for (uint32_t gap = size / 2; gap; gap /= 2) {
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < n / 2; i += blockDim.x) {
                uint32_t low = i / gap * 2 * gap + i % gap, high = low + gap;
                unsigned long long x = k[low], y = k[high];
                if ((x < y) == ((low & size) == 0)) {
                    k[low] = y;
                    k[high] = x;
                }
            }
        }
    __syncthreads();
}

KERNEL __launch_bounds__(1024) bnet_topk_part(const __grid_constant__ bnet_cu_sample_args a)
{
    __shared__ unsigned long long k[SORTED];
    uint32_t row = blockIdx.y, per = (a.n + gridDim.x - 1) / gridDim.x;
    uint32_t at = min(blockIdx.x * per, a.n), end = min(at + per, a.n), kept = 0;
    const float *x = a.logits + (size_t)row * a.ld;
    pdl_launch();
    pdl_wait();
    do {
        for (uint32_t i = kept + threadIdx.x; i < SORTED; i += blockDim.x) {
            uint32_t id = at + i - kept;
            k[i] = id < end ? key_of(x[id], id) : 0;
        }
        sort(k, SORTED);
        at += SORTED - kept;
        kept = BNET_TOPK_MAX;
    } while (at < end);
    if (threadIdx.x < BNET_TOPK_MAX)
        a.work[((size_t)row * BNET_TOPK_SLICES + blockIdx.x) * BNET_TOPK_MAX + threadIdx.x] =
            k[threadIdx.x];
}

KERNEL __launch_bounds__(1024) bnet_topk_merge(const __grid_constant__ bnet_cu_sample_args a)
{
    __shared__ unsigned long long k[MERGED];
    uint32_t row = blockIdx.x;
    pdl_launch();
    pdl_wait();
    for (uint32_t i = threadIdx.x; i < MERGED; i += blockDim.x)
        k[i] = a.work[(size_t)row * MERGED + i];
    sort(k, MERGED);
    if (threadIdx.x < a.k) {
        a.id[(size_t)row * a.k + threadIdx.x] = id_of(k[threadIdx.x]);
        if (a.value)
            a.value[(size_t)row * a.k + threadIdx.x] = value_of(k[threadIdx.x]);
    }
}
