/* norm.cu - norm and int8 quantisation of rows, rotation and storing of keys and
 * values: what stands between the products when several tokens are computed. One block per row. */
#include "kv.cuh"
#include "w2_units.cuh"

enum { THREADS = 512, WARPS = THREADS / 32, HELD = 4 };

/* Elements i .. i + 3 of the row, zeros from k on. */
static __device__ __forceinline__ float4 four(const float *x, uint32_t i, uint32_t k, bool aligned)
{
    if (aligned && i + 4 <= k)
        return *(const float4 *)(x + i);
    return make_float4(i < k ? x[i] : 0.0f, i + 1 < k ? x[i + 1] : 0.0f,
                       i + 2 < k ? x[i + 2] : 0.0f, i + 3 < k ? x[i + 3] : 0.0f);
}

struct row_of {
    const bnet_cu_norm_args &a;
    const float *x;
    bool aligned;

    __device__ __forceinline__ row_of(const bnet_cu_norm_args &args, uint32_t row)
        : a(args), x(args.x + (size_t)row * args.ld), aligned((args.ld & 3) == 0)
    {
    }
    __device__ __forceinline__ float4 get(uint32_t i) const { return four(x, i, a.k, aligned); }
    __device__ __forceinline__ float4 weights(uint32_t i) const
    {
        return a.norm ? four(a.norm, i, a.k, true) : make_float4(1, 1, 1, 1);
    }
};

static __device__ __forceinline__ void gather(float4 v, float4 w, double *ss, double *top)
{
    double x = v.x, y = v.y, z = v.z, t = v.w;
    *ss += x * x + y * y + z * z + t * t;
    *top = fmax(*top, fmax(fmax(fabs(x * w.x), fabs(y * w.y)), fmax(fabs(z * w.z), fabs(t * w.w))));
}

/* Normed values and codes of four elements; returns the sum of the codes. */
static __device__ __forceinline__ int put(const bnet_cu_norm_args &a, float4 v, float4 w,
                                          uint32_t i, double inv, double scale)
{
    const float h[4] = {
        (float)((double)v.x * inv * (double)w.x), (float)((double)v.y * inv * (double)w.y),
        (float)((double)v.z * inv * (double)w.z), (float)((double)v.w * inv * (double)w.w)};
    if (a.y)
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (i + j < a.k)
                a.y[(size_t)blockIdx.x * a.k + i + j] = h[j];
    if (!a.act.q)
        return 0;
    int c[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        c[j] = code_of((double)h[j] * scale);
    *(uint32_t *)(a.act.q + (size_t)blockIdx.x * a.act.stride + i) =
        (uint32_t)(c[0] & 255) | (uint32_t)(c[1] & 255) << 8 | (uint32_t)(c[2] & 255) << 16 |
        (uint32_t)c[3] << 24;
    return c[0] + c[1] + c[2] + c[3];
}

/* One reduction serves norm and quantisation: the largest normed value is the largest |x w| times
 * the norm's factor. A thread holds HELD groups of four, further ones are read again. */
KERNEL __launch_bounds__(THREADS) bnet_norm_quantize(const __grid_constant__ bnet_cu_norm_args a)
{
    __shared__ double2 scratch[WARPS];
    __shared__ int total;
    row_of row(a, blockIdx.x);
    uint32_t step = 4 * THREADS, end = a.act.q ? a.act.stride : a.k;
    if (threadIdx.x == 0)
        total = 0;
    pdl_launch();
    pdl_wait();
    float4 v[HELD];
    double ss = 0, top = 0;
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        v[j] = make_float4(0, 0, 0, 0);
        if (4 * threadIdx.x + j * step < a.k)
            v[j] = row.get(4 * threadIdx.x + j * step);
    }
#pragma unroll
    for (int j = 0; j < HELD; j++)
        if (4 * threadIdx.x + j * step < a.k)
            gather(v[j], row.weights(4 * threadIdx.x + j * step), &ss, &top);
    for (uint32_t i = 4 * threadIdx.x + HELD * step; i < a.k; i += step)
        gather(row.get(i), row.weights(i), &ss, &top);
    double2 both = block_sum_max<WARPS>(ss, top, scratch);
    double inv = a.norm ? 1.0 / sqrt(both.x / (double)a.k + (double)a.eps) : 1.0;
    float most = fmaxf(1e-5f, (float)(both.y * inv));
    double scale = 127.0 / (double)most;
    int sum = 0;
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        uint32_t i = 4 * threadIdx.x + j * step;
        if (i < end)
            sum += put(a, v[j], row.weights(i), i, inv, scale);
    }
    for (uint32_t i = 4 * threadIdx.x + HELD * step; i < end; i += step)
        sum += put(a, row.get(i), row.weights(i), i, inv, scale);
    if (!a.act.q)
        return;
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&total, sum);
    __syncthreads();
    if (threadIdx.x == 0) {
        a.act.scale[blockIdx.x] = __fdiv_rn(most, 127.0f);
        a.act.sum[blockIdx.x] = total;
    }
}

/* ---- rotation and cache ---- */

/* Of a warp at a time: rows and elements of a lane; of a thread: pairs. */
enum { ROPE_WARPS = 8, ROPE_ITEMS = 2, ROPE_EACH = 8, ROPE_PAIRS = 4 };

/* In place; a thread asks for ROPE_PAIRS pairs before it stores the first. */
static __device__ __forceinline__ void rotate_queries(const bnet_cu_attn_args &a, const float *cs)
{
    uint32_t half = a.n_rot / 2, n = a.n_heads * half, step = blockDim.x;
    float *q = a.q + (size_t)blockIdx.x * a.ldq;
    for (uint32_t first = threadIdx.x; first < n; first += ROPE_PAIRS * step) {
        float *x[ROPE_PAIRS], p[ROPE_PAIRS], r[ROPE_PAIRS];
        float2 c[ROPE_PAIRS];
#pragma unroll
        for (int e = 0; e < ROPE_PAIRS; e++) {
            uint32_t i = first + e * step, j = i % half;
            x[e] = q + i / half * a.head_dim + (a.neox ? j : 2 * j);
            if (i < n)
                p[e] = x[e][0], r[e] = x[e][a.neox ? half : 1],
                c[e] = *(const float2 *)(cs + 2 * j);
        }
#pragma unroll
        for (int e = 0; e < ROPE_PAIRS; e++)
            if (first + e * step < n) {
                x[e][0] = __fsub_rn(__fmul_rn(p[e], c[e].x), __fmul_rn(r[e], c[e].y));
                x[e][a.neox ? half : 1] =
                    __fadd_rn(__fmul_rn(p[e], c[e].y), __fmul_rn(r[e], c[e].x));
            }
    }
}

/* Keys (even) and values (odd) of all heads, a warp two of them at a time. */
template <int KV> static __device__ __forceinline__ void rope_append(const bnet_cu_attn_args &a)
{
    __shared__ float rows[ROPE_WARPS][32 * ROPE_EACH];
    uint32_t token = blockIdx.x, lane = threadIdx.x % 32, hd = a.head_dim, n = 2 * a.n_kv_heads;
    float *mine = rows[threadIdx.x / 32];
    pdl_launch();
    /* the step was brought before the pass began: it may be read before the wait */
    int pos = a.step.pos[token];
    uint8_t *place = pos < 0 ? nullptr : kv_of(a, token, 0).part((uint32_t)pos / KV_POS, 0);
    const float *cs = a.cs + (size_t)token * a.n_rot;
    pdl_wait();
    for (uint32_t first = threadIdx.x / 32; first < n; first += ROPE_ITEMS * ROPE_WARPS) {
        float x[ROPE_ITEMS][ROPE_EACH];
#pragma unroll
        for (uint32_t k = 0; k < ROPE_ITEMS; k++)
#pragma unroll
            for (uint32_t e = 0; e < ROPE_EACH; e++) {
                uint32_t i = first + k * ROPE_WARPS, d = lane + 32 * e;
                const float *from = (i & 1 ? a.v : a.k) + (size_t)token * a.ldk + i / 2 * hd;
                if (i < n && d < hd)
                    x[k][e] = i & 1 ? from[d] : rotated(from, cs, d, a.n_rot, a.neox);
            }
        if (pos < 0)
            break;
#pragma unroll
        for (uint32_t k = 0; k < ROPE_ITEMS; k++) {
            uint32_t i = first + k * ROPE_WARPS;
            if (i >= n)
                break;
#pragma unroll
            for (uint32_t e = 0; e < ROPE_EACH; e++)
                mine[lane + 32 * e] = x[k][e];
            __syncwarp();
            kv_put_row<KV>(place + (size_t)i * a.part_bytes, hd, (uint32_t)pos % KV_POS, mine);
            __syncwarp();
        }
    }
    if (a.q)
        rotate_queries(a, cs);
}

KERNEL __launch_bounds__(256, 4) bnet_rope_append(const __grid_constant__ bnet_cu_attn_args a)
{
    if (a.kv_type == KV_F16)
        rope_append<KV_F16>(a);
    else if (a.kv_type == KV_F32)
        rope_append<KV_F32>(a);
    else
        rope_append<KV_I8>(a);
}
