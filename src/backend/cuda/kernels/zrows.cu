/* zrows.cu - rows of activations: norm and quantisation, embedding, rope with the cache, the best
 * of a row of logits. */
#include "kv.cuh"
#include "matrix.cuh"

/* ---- norm and quantisation: one block per row ---- */

enum { NORM_THREADS = 512 };

KERNEL __launch_bounds__(NORM_THREADS)
    bnet_norm_quantize(const __grid_constant__ bnet_cu_norm_args a)
{
    __shared__ double sums[32];
    __shared__ float tops[32];
    __shared__ int totals[32];
    pdl_launch();
    pdl_wait();
    const float *x = a.x + (size_t)blockIdx.x * a.ld;
    double scale = 0, sum = 0;
    if (a.norm) {
        for (uint32_t i = threadIdx.x; i < a.k; i += NORM_THREADS)
            sum += (double)x[i] * x[i];
        sum = block_sum<NORM_THREADS>(sum, sums);
        scale = 1.0 / sqrt(sum / (double)a.k + (double)a.eps);
    }
    float top = 1e-5f;
    float *y = a.y ? a.y + (size_t)blockIdx.x * a.k : nullptr;
    for (uint32_t i = threadIdx.x; i < a.k; i += NORM_THREADS) {
        float h = a.norm ? (float)((double)x[i] * scale * (double)a.norm[i]) : x[i];
        if (y)
            y[i] = h;
        top = fmaxf(top, fabsf(h));
    }
    if (!a.act.q)
        return;
    top = block_max<NORM_THREADS>(top, tops);
    double s = 127.0 / (double)top;
    int8_t *q = a.act.q + (size_t)blockIdx.x * a.act.stride;
    int total = 0;
    for (uint32_t i = 4 * threadIdx.x; i < a.act.stride; i += 4 * NORM_THREADS) {
        int r[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            float h = 0;
            if (i + j < a.k)
                h = a.norm ? (float)((double)x[i + j] * scale * (double)a.norm[i + j]) : x[i + j];
            r[j] = i + j < a.k ? round_i8((double)h * s) : 0;
            total += r[j];
        }
        *(char4 *)(q + i) = make_char4((char)r[0], (char)r[1], (char)r[2], (char)r[3]);
    }
    total = warp_sum(total);
    if (threadIdx.x % 32 == 0)
        totals[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x < 32) {
        total = warp_sum(threadIdx.x < NORM_THREADS / 32 ? totals[threadIdx.x] : 0);
        if (threadIdx.x == 0) {
            a.act.sum[blockIdx.x] = total;
            a.act.scale[blockIdx.x] = __fdiv_rn(top, 127.0f);
        }
    }
}

/* ---- embedding: one block per token ---- */

template <typename ROWS> static __device__ __forceinline__ void embed(const bnet_cu_embed_args &a)
{
    pdl_launch();
    pdl_wait();
    int32_t id = a.ids[blockIdx.x];
    float *y = a.y + (size_t)blockIdx.x * a.m.k;
    bool known = id >= 0 && (uint32_t)id < a.m.n_rows;
    for (uint32_t at = threadIdx.x * ROWS::E; at < a.m.k; at += blockDim.x * ROWS::E) {
        float f[ROWS::E];
        ROWS r;
        if (known) {
            r.load(a.m, (size_t)id, at);
            r.floats(f);
        }
#pragma unroll
        for (uint32_t j = 0; j < ROWS::E; j++)
            if (at + j < a.m.k)
                y[at + j] = known ? f[j] : 0.0f;
    }
}

#define EMBED(name)                                                                                \
    KERNEL bnet_embed_##name(const __grid_constant__ bnet_cu_embed_args a)                         \
    {                                                                                              \
        embed<rows_##name>(a);                                                                     \
    }
EMBED(f16)
EMBED(bf16)
EMBED(f32)
EMBED(q8)
EMBED(q6k)

/* ---- rope and cache: one block per token ---- */

template <int KV>
static __device__ __forceinline__ void append(const bnet_cu_attn_args &a, float *shared)
{
    uint32_t token = blockIdx.x, hd = a.head_dim, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int pos = a.step.pos[token];
    if (pos < 0)
        return;
    const float *cs = a.cs + (size_t)token * a.n_rot;
    float *row = shared + warp * hd;
    for (uint32_t h = warp; h < a.n_heads + 2 * a.n_kv_heads; h += blockDim.x / 32) {
        bool is_q = h < a.n_heads, is_k = !is_q && h < a.n_heads + a.n_kv_heads;
        uint32_t kv = is_q ? 0 : (h - a.n_heads) % a.n_kv_heads;
        float *x = is_q   ? a.q + (size_t)token * a.ldq + h * hd
                   : is_k ? a.k + (size_t)token * a.ldk + kv * hd
                          : a.v + (size_t)token * a.ldk + kv * hd;
        for (uint32_t d = lane; d < hd; d += 32)
            row[d] = is_q || is_k ? rotated(x, cs, d, a.n_rot, a.neox) : x[d];
        __syncwarp();
        if (is_q || is_k)
            for (uint32_t d = lane; d < hd; d += 32)
                x[d] = row[d];
        if (!is_q)
            kv_put_row<KV>(kv_of(a, token, kv).part(pos / KV_POS, is_k ? 0 : 1), hd, pos % KV_POS,
                           row);
        __syncwarp();
    }
}

KERNEL __launch_bounds__(256) bnet_rope_append(const __grid_constant__ bnet_cu_attn_args a)
{
    __shared__ float rows[8 * 256];
    pdl_launch();
    pdl_wait();
    if (a.kv_type == KV_F16)
        append<KV_F16>(a, rows);
    else if (a.kv_type == KV_F32)
        append<KV_F32>(a, rows);
    else
        append<KV_I8>(a, rows);
}

/* ---- the best of a row ----
 * Keys order as the values do, ties by the lower index: the float's bits made monotonic above, the
 * index's complement below. 0: not finite. */

static __device__ __forceinline__ uint64_t key_of(float v, uint32_t i)
{
    uint32_t u = __float_as_uint(v);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return 0;
    if (u == 0x80000000u)
        u = 0; /* -0 equals 0 */
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (0xffffffffu - i);
}

static __device__ __forceinline__ float value_of(uint64_t key)
{
    uint32_t u = (uint32_t)(key >> 32);
    return __uint_as_float(u & 0x80000000u ? u & 0x7fffffffu : ~u);
}

enum { TOP_THREADS = 1024 };

/* Sorts n keys (a power of two, at most 2 TOP_THREADS) descending in shared memory. */
static __device__ __forceinline__ void sort_keys(uint64_t *k, uint32_t n)
{
    for (uint32_t size = 2; size <= n; size *= 2)
        for (uint32_t step = size / 2; step; step /= 2) {
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < n / 2; i += blockDim.x) {
                uint32_t lo = 2 * step * (i / step) + i % step, hi = lo + step;
                bool down = (lo & size) == 0;
                uint64_t x = k[lo], y = k[hi];
                if (down ? x < y : x > y) {
                    k[lo] = y;
                    k[hi] = x;
                }
            }
        }
    __syncthreads();
}

/* Slice s of the row: its 64 best, sorted. Pieces of 2048 - 64 keys are sorted with the best so
 * far. */
KERNEL __launch_bounds__(TOP_THREADS) bnet_topk_part(const __grid_constant__ bnet_cu_sample_args a)
{
    __shared__ uint64_t keys[2048];
    const float *x = a.logits + (size_t)blockIdx.y * a.ld;
    uint32_t per = (a.n + BNET_TOPK_SLICES - 1) / BNET_TOPK_SLICES;
    uint32_t begin = min(blockIdx.x * per, a.n), end = min(begin + per, a.n);
    for (uint32_t i = threadIdx.x; i < 64; i += blockDim.x)
        keys[i] = 0;
    __syncthreads();
    for (uint32_t at = begin; at < end; at += 2048 - 64) {
        for (uint32_t i = threadIdx.x; i < 2048 - 64; i += blockDim.x)
            keys[64 + i] = at + i < end ? key_of(x[at + i], at + i) : 0;
        sort_keys(keys, 2048);
    }
    uint64_t *out = a.work + ((size_t)blockIdx.y * BNET_TOPK_SLICES + blockIdx.x) * BNET_TOPK_MAX;
    if (threadIdx.x < BNET_TOPK_MAX)
        out[threadIdx.x] = keys[threadIdx.x];
}

KERNEL __launch_bounds__(TOP_THREADS) bnet_topk_merge(const __grid_constant__ bnet_cu_sample_args a)
{
    __shared__ uint64_t keys[2048];
    const uint64_t *from = a.work + (size_t)blockIdx.x * BNET_TOPK_SLICES * BNET_TOPK_MAX;
    for (uint32_t i = threadIdx.x; i < 64; i += blockDim.x)
        keys[i] = 0;
    __syncthreads();
    for (uint32_t at = 0; at < BNET_TOPK_SLICES * BNET_TOPK_MAX; at += 2048 - 64) {
        for (uint32_t i = threadIdx.x; i < 2048 - 64; i += blockDim.x)
            keys[64 + i] = at + i < BNET_TOPK_SLICES * BNET_TOPK_MAX ? from[at + i] : 0;
        sort_keys(keys, 2048);
    }
    if (threadIdx.x < a.k) {
        uint64_t key = keys[threadIdx.x];
        a.id[(size_t)blockIdx.x * a.k + threadIdx.x] =
            key ? (int32_t)(0xffffffffu - (uint32_t)key) : -1;
        if (a.value)
            a.value[(size_t)blockIdx.x * a.k + threadIdx.x] = key ? value_of(key) : 0.0f;
    }
}
