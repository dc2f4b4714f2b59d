/* decode_collect.cuh - the input of a matrix in the decode kernel, collected by a cluster: a warp
 * asks for some chunks of 128 elements until they are there, weighs them with the norm, tells all
 * blocks of the cluster the largest |x w|, and once it knows those of all chunks, sends its chunks
 * as codes. Part of decode_sm90.cu. */
#ifndef BNET_DECODE_COLLECT_CUH
#define BNET_DECODE_COLLECT_CUH

#include "decode_exchange.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* One thread: the input of a matrix may come. */
static __device__ __forceinline__ void expect_input(const context &c, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    expect(shared_addr(&c.b->tops[matrix]), t.chunks * 4);
    expect(shared_addr(&c.b->in[matrix]), t.n);
    expect(shared_addr(&c.b->late[matrix]), t.chunks * 8);
}

static __device__ __forceinline__ float approximate(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* 127 / top, one step of Newton behind an approximation; 0 where there is nothing. The norm's
 * factor is the same for all elements, so the codes need only the largest |x w|. Normed values that
 * are all below 1e-5 keep their own scale here. */
static __device__ __forceinline__ float inverse(float top)
{
    float r = approximate(top);
    return top >= 1e-30f ? 127.0f * fmaf(r, fmaf(-top, r, 1.0f), r) : 0.0f;
}

/* A warp: the largest |x w| of all chunks, when they are there. */
static __device__ __forceinline__ float top_of(const context &c, uint32_t matrix)
{
    uint32_t lane = threadIdx.x % 32, chunks = c.b->tasks[matrix].chunks;
    const float *top = c.b->top[matrix & 1] + lane;
    float v = 0;
    await(shared_addr(&c.b->tops[matrix]), c.layer & 1);
#pragma unroll
    for (uint32_t i = 0; i < CHUNKS; i += 32)
        v = i + lane < chunks ? fmaxf(v, top[i]) : v;
    return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(v)));
}

/* A warp's chunks of the input for all blocks of the cluster. Lane i has the elements whose codes
 * are word i of a chunk, in the order in which products take them. */
struct collector {
    const float *in;
    uint32_t first, chunks, lane;
    float4 v[SEEN], w[SEEN];

    /* the last one again where there are no more */
    __device__ __forceinline__ uint32_t at(uint32_t j) const
    {
        uint32_t chunk = first + j * WARPS * CLUSTER;
        return (chunk < chunks ? chunk : first) * 128 + (lane % 8 * 4 + lane / 8) * 4;
    }
    __device__ __forceinline__ bool has(uint32_t j) const
    {
        return first + j * WARPS * CLUSTER < chunks;
    }
    __device__ __forceinline__ void ask(bool check)
    {
        uint32_t most, asked = 0;
#pragma unroll 1
        do {
            most = 0;
#pragma unroll
            for (uint32_t j = 0; j < SEEN; j++)
                v[j] = peek4(in + at(j));
#pragma unroll
            for (uint32_t j = 0; j < SEEN; j++)
                most = max(most, most4(v[j]));
            ask_again(&asked);
        } while (check && __any_sync(0xffffffffu, most == 0xffffffffu));
    }
};

/* check: elements may be NONE. */
static __device__ __forceinline__ void collect(const context &c, uint32_t matrix, const float *in,
                                               bool check)
{
    const task &t = c.b->tasks[matrix];
    const float *norm = c.layers()[c.layer].norm[matrix];
    collector k = {in, cluster_rank() + threadIdx.x / 32 * CLUSTER, t.chunks, threadIdx.x % 32, {},
                   {}};
    if (k.first >= k.chunks)
        return;
    uint32_t place = matrix & 1, r = min(k.lane, CLUSTER - 1);
    uint32_t top_at = there(shared_addr(&c.b->top[place][k.first]), r);
    uint32_t tops = there(shared_addr(&c.b->tops[matrix]), r),
             late = there(shared_addr(&c.b->late[matrix]), r);
    uint32_t ss_at = there(shared_addr(&c.b->ss[place][k.first]), r);
    uint32_t sum_at = there(shared_addr(&c.b->sum[place][k.first]), r);
    uint32_t to[CLUSTER], bar[CLUSTER];
#pragma unroll
    for (uint32_t i = 0; i < CLUSTER; i++) {
        to[i] = there(shared_addr(c.weights + t.codes) + k.first * 128 + k.lane * 4, i);
        bar[i] = there(shared_addr(&c.b->in[matrix]), i);
    }
#pragma unroll
    for (uint32_t j = 0; j < SEEN; j++)
        k.w[j] = norm ? __ldg((const float4 *)(norm + k.at(j))) : make_float4(1, 1, 1, 1);
    k.ask(check);
    float ss[SEEN];
#pragma unroll
    for (uint32_t j = 0; j < SEEN; j++) {
        float4 v = k.v[j], w = k.w[j];
        ss[j] = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, v.w * v.w)));
        v = k.v[j] = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
        float top = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
        uint32_t most = __reduce_max_sync(0xffffffffu, __float_as_uint(top));
        if (k.lane < CLUSTER && k.has(j))
            send(top_at + j * WARPS * CLUSTER * 4, most, tops);
    }
    c.mark(matrix, 1);
#pragma unroll
    for (uint32_t j = 0; j < SEEN; j++) {
        ss[j] = warp_sum(ss[j]);
        if (k.lane < CLUSTER && k.has(j))
            send(ss_at + j * WARPS * CLUSTER * 4, __float_as_uint(ss[j]), late);
    }
    float inv = inverse(top_of(c, matrix));
#pragma unroll
    for (uint32_t j = 0; j < SEEN; j++) {
        float4 v = k.v[j];
        uint32_t q0 = __float_as_uint(fmaf(v.x, inv, 12582912.0f));
        uint32_t q1 = __float_as_uint(fmaf(v.y, inv, 12582912.0f));
        uint32_t q2 = __float_as_uint(fmaf(v.z, inv, 12582912.0f));
        uint32_t q3 = __float_as_uint(fmaf(v.w, inv, 12582912.0f));
        uint32_t q = __byte_perm(__byte_perm(q0, q1, 0x0040), __byte_perm(q2, q3, 0x0040), 0x5410);
        if (k.has(j)) {
#pragma unroll
            for (uint32_t i = 0; i < CLUSTER; i++)
                send(to[i] + j * WARPS * CLUSTER * 128, q, bar[i]);
            int sum = __reduce_add_sync(0xffffffffu, __dp4a((int)q, 0x01010101, 0));
            if (k.lane < CLUSTER)
                send(sum_at + j * WARPS * CLUSTER * 4, (uint32_t)sum, late);
        }
    }
}

/* One warp: scale and sum of the input's codes. */
static __device__ __forceinline__ void find_scale(const context &c, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    uint32_t lane = threadIdx.x % 32;
    float s = 1.0f, ss = 0, top = top_of(c, matrix);
    int sum = 0;
    await(shared_addr(&c.b->late[matrix]), c.layer & 1);
#pragma unroll
    for (uint32_t i = 0; i < CHUNKS; i += 32)
        if (i + lane < t.chunks) {
            ss += c.b->ss[matrix & 1][i + lane];
            sum += __float_as_int(c.b->sum[matrix & 1][i + lane]);
        }
    ss = warp_sum(ss);
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (c.layers()[c.layer].norm[matrix]) {
        float v = fmaf(ss, approximate((float)t.n), c.a.eps);
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(v));
        s = fmaf(0.5f * s, fmaf(-v * s, s, 1.0f), s);
    }
    const float r = 1.0f / 127.0f;
    float most = top * s, q = most * r; /* most / 127 rounded as a division */
    if (lane == 0) {
        c.b->x_scale = fmaf(fmaf(-q, 127.0f, most), r, q);
        c.b->x_sum = sum;
    }
}

#endif

#endif
