/* kv.cuh - the paged cache on the device: addresses, storing one position, loading eight elements
 * of one. The layout is the CPU's (kv_block.h), so blocks can be saved and restored as they are. */
#ifndef BNET_KV_CUH
#define BNET_KV_CUH

#include "common.cuh"

enum { KV_F16 = 0, KV_F32 = 1, KV_I8 = 2, KV_POS = 64, KV_GROUP = 32 };

struct kv_view {
    uint8_t *layer; /* of this timeline's store */
    const int32_t *table;
    uint32_t head, n_kv_heads, part_bytes, head_dim;

    __device__ __forceinline__ uint8_t *part(uint32_t block, uint32_t is_v) const
    {
        return layer + (((size_t)table[block] * n_kv_heads + head) * 2 + is_v) * part_bytes;
    }
};

static __device__ __forceinline__ kv_view kv_of(const bnet_cu_attn_args &a, uint32_t token,
                                                uint32_t head)
{
    const bnet_dev_seq &s = a.step.seqs[a.step.seq[token]];
    kv_view v = {(uint8_t *)s.kv + (size_t)a.layer * s.layer_bytes,
                 a.step.tables + s.table,
                 head,
                 a.n_kv_heads,
                 a.part_bytes,
                 a.head_dim};
    return v;
}

static __device__ __forceinline__ uint32_t kv_scales_at(uint32_t head_dim)
{
    return (KV_POS * head_dim + 3) / 4 * 4;
}

/* Stores element d of position p (int8 apart: it needs its group). */
template <int KV>
static __device__ __forceinline__ void kv_put(uint8_t *part, uint32_t hd, uint32_t p, uint32_t d,
                                              float x)
{
    if (KV == KV_F16)
        ((__half *)part)[p * hd + d] = __float2half_rn(x);
    else
        ((float *)part)[p * hd + d] = x;
}

/* A warp stores a whole position. x [hd] in shared or global memory. */
template <int KV>
static __device__ __forceinline__ void kv_put_row(uint8_t *part, uint32_t hd, uint32_t p,
                                                  const float *x)
{
    uint32_t lane = threadIdx.x % 32, n_groups = (hd + KV_GROUP - 1) / KV_GROUP;
    for (uint32_t g = 0; g < n_groups; g++) {
        uint32_t d = g * KV_GROUP + lane;
        float v = d < hd ? x[d] : 0.0f;
        if (KV != KV_I8) {
            if (d < hd)
                kv_put<KV>(part, hd, p, d, v);
            continue;
        }
        float top = warp_max(fabsf(v)), s = top > 0 ? __fdiv_rn(127.0f, top) : 0.0f;
        float r = __fmul_rn(v, s);
        r = r >= -127.0f ? r : -127.0f;
        r = r <= 127.0f ? r : 127.0f;
        if (d < hd)
            ((int8_t *)part)[p * hd + d] = (int8_t)__float2int_rn(r);
        if (lane == 0)
            ((float *)(part + kv_scales_at(hd)))[p * n_groups + g] = __fdiv_rn(top, 127.0f);
    }
}

/* Raw bytes of elements d..d+7 of a position; zeros from head_dim on. */
template <int KV> struct kv_raw;
template <> struct kv_raw<KV_F16> {
    uint4 v;
};
template <> struct kv_raw<KV_F32> {
    float4 a, b;
};
template <> struct kv_raw<KV_I8> {
    uint2 v;
    float scale;
};

static __device__ __forceinline__ void kv_get(kv_raw<KV_F16> &r, const uint8_t *part, uint32_t hd,
                                              uint32_t p, uint32_t d)
{
    const uint16_t *x = (const uint16_t *)part + p * hd + d;
    if ((hd & 7) == 0 && d < hd) {
        r.v = *(const uint4 *)x;
        return;
    }
    uint32_t w[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        if (d + i < hd)
            w[i / 2] |= (uint32_t)x[i] << 16 * (i & 1);
    r.v = make_uint4(w[0], w[1], w[2], w[3]);
}

static __device__ __forceinline__ void kv_get(kv_raw<KV_F32> &r, const uint8_t *part, uint32_t hd,
                                              uint32_t p, uint32_t d)
{
    const float *x = (const float *)part + p * hd + d;
    if ((hd & 7) == 0 && d < hd) {
        r.a = *(const float4 *)x;
        r.b = *(const float4 *)(x + 4);
        return;
    }
    float w[8];
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        w[i] = d + i < hd ? x[i] : 0.0f;
    r.a = make_float4(w[0], w[1], w[2], w[3]);
    r.b = make_float4(w[4], w[5], w[6], w[7]);
}

static __device__ __forceinline__ void kv_get(kv_raw<KV_I8> &r, const uint8_t *part, uint32_t hd,
                                              uint32_t p, uint32_t d)
{
    const uint8_t *x = part + p * hd + d;
    uint32_t n_groups = (hd + KV_GROUP - 1) / KV_GROUP;
    r.scale = d < hd ? ((const float *)(part + kv_scales_at(hd)))[p * n_groups + d / KV_GROUP] : 0;
    if ((hd & 7) == 0 && d < hd) {
        r.v = *(const uint2 *)x;
        return;
    }
    uint32_t w[2] = {0, 0};
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        if (d + i < hd)
            w[i / 4] |= (uint32_t)x[i] << 8 * (i & 3);
    r.v = make_uint2(w[0], w[1]);
}

static __device__ __forceinline__ void kv_floats(const kv_raw<KV_F16> &r, float f[8])
{
    const uint32_t w[4] = {r.v.x, r.v.y, r.v.z, r.v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 p = __half22float2(*(const __half2 *)&w[i]);
        f[2 * i] = p.x;
        f[2 * i + 1] = p.y;
    }
}

static __device__ __forceinline__ void kv_floats(const kv_raw<KV_F32> &r, float f[8])
{
    f[0] = r.a.x, f[1] = r.a.y, f[2] = r.a.z, f[3] = r.a.w;
    f[4] = r.b.x, f[5] = r.b.y, f[6] = r.b.z, f[7] = r.b.w;
}

static __device__ __forceinline__ void kv_floats(const kv_raw<KV_I8> &r, float f[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        f[i] = (float)(int8_t)((i < 4 ? r.v.x : r.v.y) >> 8 * (i & 3)) * r.scale;
}

/* Element d of a head after rotation. cs: (cos, sin) pairs. */
static __device__ __forceinline__ float rotated(const float *x, const float *cs, uint32_t d,
                                                uint32_t n_rot, uint32_t neox)
{
    if (d >= n_rot)
        return x[d];
    uint32_t half = n_rot / 2, j = neox ? (d < half ? d : d - half) : d / 2;
    bool second = neox ? d >= half : d & 1;
    float p = neox ? x[j] : x[2 * j], q = neox ? x[j + half] : x[2 * j + 1];
    float c = cs[2 * j], s = cs[2 * j + 1];
    return second ? __fadd_rn(__fmul_rn(p, s), __fmul_rn(q, c))
                  : __fsub_rn(__fmul_rn(p, c), __fmul_rn(q, s));
}

#endif
