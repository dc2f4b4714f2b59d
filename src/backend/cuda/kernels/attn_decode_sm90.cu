/* attn_decode_sm90.cu - decode attention over an f16 cache of head_dim 128, a cluster of blocks per
 * token and kv head.
 *
 * A warp takes 16 positions at a time (attn16.cuh). Everything but the newest position was written
 * by earlier steps, so the first positions are fetched before the kernel in front has ended; the
 * next ones while a warp computes. Blocks of the cluster divide the context; their states meet
 * through distributed shared memory. */
#include "attn16.cuh"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

enum { THREADS = BNET_ATTN_H128_THREADS, WARPS = THREADS / 32, STATES = WARPS + 1 };

struct block_state {
    float o[STATES][H16_HEADS][H16_OLD]; /* of the newest position, then of the warps */
    float m[STATES][H16_HEADS], l[STATES][H16_HEADS];
    float q[H16_HEADS * H16_QLD], k[H16_DIM], v[H16_DIM];
    float all_m[H16_HEADS], all_l[H16_HEADS];
    float all_o[H16_HEADS][H16_DIM];
};

/* Queries of the heads h0 .. h0 + n - 1 rotated and scaled; key and value rounded as stored. */
static __device__ void take_token(const bnet_cu_attn_args &a, const kv_view &kv, uint32_t h0,
                                  uint32_t n, bool newest, block_state *b)
{
    uint32_t token = blockIdx.z, group = a.n_heads / a.n_kv_heads;
    const float *q = a.q + (size_t)token * a.ldq + (kv.head * group + h0) * H16_DIM;
    const float *cs = a.cs ? a.cs + (size_t)token * a.n_rot : nullptr;
    float scale = a.scale * 1.44269504f;
    for (uint32_t i = threadIdx.x; i < n * H16_DIM; i += THREADS) {
        uint32_t h = i / H16_DIM, d = i % H16_DIM;
        float x = cs ? rotated(q + h * H16_DIM, cs, d, a.n_rot, a.neox) : q[i];
        b->q[h * H16_QLD + d] = x * scale;
    }
    if (newest && threadIdx.x < H16_DIM) {
        const float *k = a.k + (size_t)token * a.ldk + kv.head * H16_DIM;
        const float *v = a.v + (size_t)token * a.ldk + kv.head * H16_DIM;
        b->k[threadIdx.x] = through_half(rotated(k, cs, threadIdx.x, a.n_rot, a.neox));
        b->v[threadIdx.x] = through_half(v[threadIdx.x]);
    }
}

static __device__ void store_newest(const kv_view &kv, uint32_t pos, const block_state *b)
{
    __half *k = (__half *)kv.part(pos / KV_POS, 0) + pos % KV_POS * H16_DIM;
    __half *v = (__half *)kv.part(pos / KV_POS, 1) + pos % KV_POS * H16_DIM;
    if (threadIdx.x < H16_DIM) {
        k[threadIdx.x] = __float2half_rn(b->k[threadIdx.x]);
        v[threadIdx.x] = __float2half_rn(b->v[threadIdx.x]);
    }
}

template <int CLUSTER> static __device__ __forceinline__ void attend(const bnet_cu_attn_args &a)
{
    extern __shared__ __align__(16) uint8_t dynamic[];
    block_state *b = (block_state *)dynamic;
    cg::cluster_group cluster = cg::this_cluster();
    uint32_t token = blockIdx.z, rank = CLUSTER > 1 ? cluster.block_rank() : 0;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    uint32_t group = a.n_heads / a.n_kv_heads;
    pdl_launch();
    if (!a.cs)
        pdl_wait();
    int pos = a.step.pos[token];
    if (pos < 0) {
        if (a.cs)
            pdl_wait(); /* what comes after this kernel waits for it alone */
        return;
    }
    kv_view kv = kv_of(a, token, blockIdx.y);
    uint32_t n = a.cs ? (uint32_t)pos : (uint32_t)pos + 1; /* in the cache */
    uint32_t per = ((n + CLUSTER - 1) / CLUSTER + 15) / 16 * 16;
    uint32_t begin = min(rank * per, n), end = min(begin + per, n), base = begin + 16 * warp;
    uint32_t n_states = 1 + min((end - begin + 15) / 16, (uint32_t)WARPS);
    bool newest = a.cs && rank == CLUSTER - 1;
    kv16 r;
    if (base < end)
        kv16_load(r, kv, base, end);
    if (a.cs)
        pdl_wait();
    for (uint32_t h0 = 0; h0 < group; h0 += H16_HEADS) {
        uint32_t nh = min((uint32_t)H16_HEADS, group - h0);
        take_token(a, kv, h0, nh, newest, b);
        __syncthreads();
        if (newest && h0 == 0)
            store_newest(kv, (uint32_t)pos, b);
        state16 st;
        clear16(st);
        if (h0 != 0 && base < end)
            kv16_load(r, kv, base, end);
        for (uint32_t p = base; p < end; p += 16 * WARPS)
            fold16(r, kv, b->q, nh, p, p + 16 * WARPS, end, st);
        if (base < end)
            store16(st, nh, &b->o[1 + warp][0][0]);
        if (lane % 4 == 0) {
            b->m[1 + warp][g] = st.m;
            b->l[1 + warp][g] = st.l;
        }
        for (uint32_t h = WARPS - 1 - warp; h < H16_HEADS; h += WARPS) {
            float m = -INFINITY;
            if (newest && h < nh)
                m = newest16(b->q + h * H16_QLD, b->k, b->v, b->o[0][h]);
            if (lane == 0) {
                b->m[0][h] = m;
                b->l[0][h] = 1;
            }
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < nh * H16_DIM; i += THREADS) {
            uint32_t h = i / H16_DIM, d = i % H16_DIM;
            float m, l, o = merge16(&b->m[0][h], &b->l[0][h], b->o[0][h], n_states, H16_HEADS,
                                    H16_HEADS * H16_OLD, at16(d), &m, &l);
            if (CLUSTER == 1) {
                a.y[((size_t)token * a.n_heads + kv.head * group + h0 + h) * H16_DIM + d] = o / l;
                continue;
            }
            b->all_o[h][d] = o;
            if (d == 0) {
                b->all_m[h] = m;
                b->all_l[h] = l;
            }
        }
        if (CLUSTER > 1) {
            cluster.sync();
            for (uint32_t i = rank * THREADS + threadIdx.x; i < nh * H16_DIM;
                 i += CLUSTER * THREADS) {
                uint32_t h = i / H16_DIM, d = i % H16_DIM;
                float m[CLUSTER], top = -INFINITY, sum = 0, o = 0;
#pragma unroll
                for (int c = 0; c < CLUSTER; c++) {
                    m[c] = *cluster.map_shared_rank(&b->all_m[h], c);
                    top = fmaxf(top, m[c]);
                }
#pragma unroll
                for (int c = 0; c < CLUSTER; c++)
                    if (m[c] != -INFINITY) {
                        float w = exp2f(m[c] - top);
                        sum += w * *cluster.map_shared_rank(&b->all_l[h], c);
                        o += w * *cluster.map_shared_rank(&b->all_o[h][d], c);
                    }
                a.y[((size_t)token * a.n_heads + kv.head * group + h0 + h) * H16_DIM + d] = o / sum;
            }
            cluster.sync();
        } else {
            __syncthreads();
        }
    }
}

#define VARIANT(n)                                                                                 \
    KERNEL __launch_bounds__(THREADS, 2) __cluster_dims__(n, 1, 1)                                    \
        bnet_attn_decode_h128_c##n(const __grid_constant__ bnet_cu_attn_args a)                    \
    {                                                                                              \
        attend<n>(a);                                                                              \
    }
VARIANT(1)
VARIANT(2)
VARIANT(4)
VARIANT(8)
