/* attn_prefill.cu - causal attention of runs of tokens of one timeline on the tensor cores.
 *
 * A block takes up to 64 tokens and one query head, a warp 16 of the tokens. Blocks of 64 positions
 * of the cache pass through shared memory in two stages, 16-byte pieces of a row exchanged by
 * (row & 7) so that ldmatrix meets no bank twice; softmax runs online in powers of two. */
#include "kv.cuh"

#if BNET_SM80 || !defined(__CUDA_ARCH__)

enum { THREADS = 128, ROWS = 16 };

template <int HD> static __device__ __forceinline__ uint32_t piece_at(uint32_t row, uint32_t piece)
{
    return row * HD * 2 + ((piece ^ (row & 7)) << 4);
}

/* 64 positions of keys or values as halves; those from n on are zero. */
template <int KV, int HD>
static __device__ __forceinline__ void load_part(const uint8_t *part, uint32_t n, uint32_t to)
{
#pragma unroll
    for (int i = 0; i < KV_POS * HD / 8 / THREADS; i++) {
        uint32_t at = threadIdx.x + i * THREADS, row = at / (HD / 8), piece = at % (HD / 8);
        bool in = row < n;
        if (KV == KV_F16) {
            copy_async16(to + piece_at<HD>(row, piece), part + (in ? at : 0) * 16, in);
            continue;
        }
        kv_raw<KV_I8> r = {make_uint2(0, 0), 0.0f};
        float f[8];
        if (in)
            kv_get(r, part, HD, row, piece * 8);
        kv_floats(r, f);
        uint4 v;
        __half2 h[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            h[j] = __floats2half2_rn(f[2 * j], f[2 * j + 1]);
        memcpy(&v, h, 16);
        store_shared16(to + piece_at<HD>(row, piece), v);
    }
}

template <int KV, int HD>
static __device__ __forceinline__ void load_block(const kv_view &kv, uint32_t block, uint32_t n_pos,
                                                  uint32_t stage)
{
    const uint8_t *part = kv.part(block, 0);
    uint32_t n = min(n_pos - block * KV_POS, (uint32_t)KV_POS);
    load_part<KV, HD>(part, n, stage);
    load_part<KV, HD>(part + kv.part_bytes, n, stage + KV_POS * HD * 2);
    copy_commit();
}

/* Query rows of a warp as A operands, scaled. */
template <int HD>
static __device__ __forceinline__ void load_queries(const float *q, uint32_t ld, uint32_t row0,
                                                    uint32_t n, float scale, uint32_t a[HD / 16][4])
{
    uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < HD / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t row = row0 + g + 8 * (i & 1), d = 16 * k + 2 * t + 8 * (i >> 1);
            float2 v = make_float2(0, 0);
            if (row < n)
                v = *(const float2 *)(q + (size_t)row * ld + d);
            __half2 h = __floats2half2_rn(v.x * scale, v.y * scale);
            memcpy(&a[k][i], &h, 4);
        }
}

template <int HD>
static __device__ __forceinline__ void scores(const uint32_t a[HD / 16][4], uint32_t keys,
                                              float s[8][4])
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 8; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < HD / 16; k++)
#pragma unroll
        for (int n = 0; n < 4; n++) { /* 16 positions */
            uint32_t b[4], row = 16 * n + (lane & 7) + (lane >> 4) * 8;
            load_matrix4(b, keys + piece_at<HD>(row, 2 * k + (lane >> 3 & 1)));
            mma_f16(s[2 * n], a[k], b[0], b[1]);
            mma_f16(s[2 * n + 1], a[k], b[2], b[3]);
        }
}

/* Rows g and g + 8: weights from scores, running maximum and sum, what to keep of the sums so far. */
static __device__ __forceinline__ void soften(float s[8][4], float m[2], float l[2], float keep[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = m[r], sum = 0;
#pragma unroll
        for (int n = 0; n < 8; n++)
            top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float from = top == -INFINITY ? 0.0f : top;
        keep[r] = exp2f(m[r] - from);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                s[n][2 * r + i] = exp2f(s[n][2 * r + i] - from);
                sum += s[n][2 * r + i];
            }
        l[r] = l[r] * keep[r] + sum;
        m[r] = top;
    }
}

template <int HD>
static __device__ __forceinline__ void add_values(const float s[8][4], uint32_t values,
                                                  float o[HD / 8][4])
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 4; k++) { /* 16 positions */
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *c = s[2 * k + (i >> 1)] + 2 * (i & 1);
            __half2 h = __floats2half2_rn(c[0], c[1]);
            memcpy(&a[i], &h, 4);
        }
#pragma unroll
        for (int n = 0; n < HD / 16; n++) {
            uint32_t b[4], row = 16 * k + (lane & 15);
            load_matrix4_t(b, values + piece_at<HD>(row, 2 * n + (lane >> 4)));
            mma_f16(o[2 * n], a, b[0], b[1]);
            mma_f16(o[2 * n + 1], a, b[2], b[3]);
        }
    }
}

template <int KV, int HD> static __device__ __forceinline__ void prefill(const bnet_cu_attn_args &a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    bnet_cu_tile tile = a.tiles[blockIdx.y];
    uint32_t head = blockIdx.x, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t row0 = threadIdx.x / 32 * ROWS, stage = shared_addr(dynamic), n = (uint32_t)tile.n;
    if (tile.n <= 0 || a.step.pos[tile.first] < 0)
        return;
    uint32_t p0 = (uint32_t)a.step.pos[tile.first], n_pos = p0 + n;
    kv_view kv = kv_of(a, (uint32_t)tile.first, head / (a.n_heads / a.n_kv_heads));
    uint32_t n_blocks = (n_pos + KV_POS - 1) / KV_POS, bytes = KV_POS * HD * 4;
    load_block<KV, HD>(kv, 0, n_pos, stage);
    uint32_t q[HD / 16][4];
    load_queries<HD>(a.q + (size_t)tile.first * a.ldq + head * HD, a.ldq, row0, n,
                     a.scale * 1.44269504f, q);
    float o[HD / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
    for (uint32_t b = 0; b < n_blocks; b++) {
        if (b + 1 < n_blocks)
            load_block<KV, HD>(kv, b + 1, n_pos, stage + (b + 1 & 1) * bytes);
        else
            copy_commit();
        copy_wait<1>();
        __syncthreads();
        uint32_t keys = stage + (b & 1) * bytes;
        float s[8][4], keep[2];
        scores<HD>(q, keys, s);
        if (b * KV_POS + KV_POS > p0 + row0) /* some position is after some row's */
#pragma unroll
            for (int c = 0; c < 8; c++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint32_t pos = b * KV_POS + 8 * c + 2 * t + (i & 1);
                    s[c][i] = pos <= p0 + row0 + g + 8 * (i >> 1) && pos < n_pos ? s[c][i]
                                                                                 : -INFINITY;
                }
        soften(s, m, l, keep);
#pragma unroll
        for (int c = 0; c < HD / 8; c++) {
            o[c][0] *= keep[0], o[c][1] *= keep[0];
            o[c][2] *= keep[1], o[c][3] *= keep[1];
        }
        add_values<HD>(s, keys + KV_POS * HD * 2, o);
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
        uint32_t row = row0 + g + 8 * r;
        float inv = 1.0f / l[r];
        float *y = a.y + ((size_t)(tile.first + row) * a.n_heads + head) * HD + 2 * t;
#pragma unroll
        for (int c = 0; c < HD / 8; c++)
            if (row < n)
                *(float2 *)(y + 8 * c) = make_float2(o[c][2 * r] * inv, o[c][2 * r + 1] * inv);
    }
}

#define VARIANT(name, kv, hd)                                                                      \
    KERNEL __launch_bounds__(THREADS) name(const __grid_constant__ bnet_cu_attn_args a)            \
    {                                                                                              \
        prefill<kv, hd>(a);                                                                        \
    }
VARIANT(bnet_attn_prefill_f16_64, KV_F16, 64)
VARIANT(bnet_attn_prefill_f16_128, KV_F16, 128)
VARIANT(bnet_attn_prefill_i8_64, KV_I8, 64)
VARIANT(bnet_attn_prefill_i8_128, KV_I8, 128)

#endif
