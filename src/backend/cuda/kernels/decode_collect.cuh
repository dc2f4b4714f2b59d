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
    expect(shared_addr(&c.b->squares[matrix]), t.chunks * 4);
    expect(shared_addr(&c.b->late[matrix]), t.chunks * 4);
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

/* Pairs of bit planes of a chunk. Lane 8 s + i has the four codes of byte 4 .. of the s-th 32 that
 * are the i-th word of products; afterwards lane 8 p + i has bits 2 p, 2 p + 1 of all four such
 * words, as bits 2 s, 2 s + 1 of their bytes: where a unit has the codes of these elements. */
static __device__ __forceinline__ uint32_t plane_pairs(uint32_t q)
{
    uint32_t x = __shfl_xor_sync(0xffffffffu, q, 16);
    q = threadIdx.x & 16 ? (q & 0xf0f0f0f0u) | (x >> 4 & 0x0f0f0f0fu)
                         : (q & 0x0f0f0f0fu) | (x << 4 & 0xf0f0f0f0u);
    x = __shfl_xor_sync(0xffffffffu, q, 8);
    return threadIdx.x & 8 ? (q & 0xccccccccu) | (x >> 2 & 0x33333333u)
                           : (q & 0x33333333u) | (x << 2 & 0xccccccccu);
}

/* A warp's chunk of the input for all blocks of the cluster: four elements of a lane. */
struct collector {
    const float *in;
    float4 v, w;

    /* Until all is there. */
    __device__ __forceinline__ void ask()
    {
        uint32_t asked = 0;
#pragma unroll 1
        while (true) {
            v = peek4(in);
            if (!__any_sync(0xffffffffu, most4(v) == 0xffffffffu))
                return;
            ask_again(&asked);
        }
    }
    /* Times the norm's weights. */
    __device__ __forceinline__ void weigh()
    {
        v = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
    }
    __device__ __forceinline__ uint32_t top() const
    {
        float m = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
        return __reduce_max_sync(0xffffffffu, __float_as_uint(m));
    }
    __device__ __forceinline__ uint32_t codes(float inv) const
    {
        uint32_t a = __float_as_uint(fmaf(v.x, inv, 12582912.0f));
        uint32_t b = __float_as_uint(fmaf(v.y, inv, 12582912.0f));
        uint32_t c = __float_as_uint(fmaf(v.z, inv, 12582912.0f));
        uint32_t d = __float_as_uint(fmaf(v.w, inv, 12582912.0f));
        return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
    }
};

/* A word of every lane to all blocks of the cluster: a lane sends four words to some of them. to,
 * bar: where they go in block lane / 8, and in every fourth further one. */
static __device__ __forceinline__ void send_chunk(uint32_t word, const uint32_t *to,
                                                  const uint32_t *bar)
{
    uint32_t from = threadIdx.x % 8 * 4;
    uint4 w;
    w.x = __shfl_sync(0xffffffffu, word, from);
    w.y = __shfl_sync(0xffffffffu, word, from + 1);
    w.z = __shfl_sync(0xffffffffu, word, from + 2);
    w.w = __shfl_sync(0xffffffffu, word, from + 3);
#pragma unroll
    for (uint32_t i = 0; i < CLUSTER / 4; i++)
        send4(to[i], w, bar[i]);
}

/* check: elements may be NONE. */
static __device__ __forceinline__ void collect(const context &c, uint32_t matrix, const float *in,
                                               bool check)
{
    static_assert(CHUNKS <= WARPS * CLUSTER && CLUSTER % 4 == 0, "a warp has one chunk at most");
    const task &t = c.b->tasks[matrix];
    uint32_t lane = threadIdx.x % 32, chunk = cluster_rank() + threadIdx.x / 32 * CLUSTER;
    if (chunk >= t.chunks)
        return;
    const float *norm = c.layers()[c.layer].norm[matrix];
    uint32_t place = matrix & 1, r = min(lane, CLUSTER - 1), to[CLUSTER / 4], bar[CLUSTER / 4];
    uint32_t top_at = there(shared_addr(&c.b->top[place][chunk]), r);
    uint32_t tops = there(shared_addr(&c.b->tops[matrix]), r);
    uint32_t ss_at = there(shared_addr(&c.b->ss[place][chunk]), r);
    uint32_t squares = there(shared_addr(&c.b->squares[matrix]), r);
    uint32_t sum_at = there(shared_addr(&c.b->sum[place][chunk]), r);
    uint32_t late = there(shared_addr(&c.b->late[matrix]), r);
#pragma unroll
    for (uint32_t i = 0; i < CLUSTER / 4; i++) {
        to[i] =
            there(shared_addr(c.weights + t.codes) + chunk * 128 + lane % 8 * 16, lane / 8 + 4 * i);
        bar[i] = there(shared_addr(&c.b->in[matrix]), lane / 8 + 4 * i);
    }
    uint32_t at = chunk * 128 + lane / 8 * 32 + lane % 2 * 16 + lane / 2 % 4 * 4;
    collector k = {in + at, {}, make_float4(1, 1, 1, 1)};
    if (norm)
        k.w = __ldg((const float4 *)(norm + at));
    if (check)
        k.ask();
    else
        k.v = peek4(k.in);
    float4 v = k.v;
    k.weigh();
    uint32_t most = k.top();
    if (lane < CLUSTER)
        send(top_at, most, tops);
    c.mark(matrix, 1);
    float ss = warp_sum(fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, v.w * v.w))));
    if (lane < CLUSTER)
        send(ss_at, __float_as_uint(ss), squares);
    uint32_t q = k.codes(inverse(top_of(c, matrix)));
    send_chunk(plane_pairs(q), to, bar);
    int sum = __reduce_add_sync(0xffffffffu, __dp4a((int)q, 0x01010101, 0));
    if (lane < CLUSTER)
        send(sum_at, (uint32_t)sum, late);
}

/* One warp: the scale of the input's codes, known before these are there. */
static __device__ __forceinline__ void find_scale(const context &c, uint32_t matrix)
{
    const task &t = c.b->tasks[matrix];
    uint32_t lane = threadIdx.x % 32;
    float s = 1.0f, ss = 0, top = top_of(c, matrix);
    await(shared_addr(&c.b->squares[matrix]), c.layer & 1);
#pragma unroll
    for (uint32_t i = 0; i < CHUNKS; i += 32)
        if (i + lane < t.chunks)
            ss += c.b->ss[matrix & 1][i + lane];
    ss = warp_sum(ss);
    if (c.layers()[c.layer].norm[matrix]) {
        float v = fmaf(ss, approximate((float)t.n), c.a.eps);
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(v));
        s = fmaf(0.5f * s, fmaf(-v * s, s, 1.0f), s);
    }
    const float r = 1.0f / 127.0f;
    float most = top * s, q = most * r; /* most / 127 rounded as a division */
    if (lane == 0)
        c.b->x_scale = fmaf(fmaf(-q, 127.0f, most), r, q);
}

/* One warp: the sum of the input's codes. */
static __device__ __forceinline__ void find_sum(const context &c, uint32_t matrix)
{
    uint32_t lane = threadIdx.x % 32, chunks = c.b->tasks[matrix].chunks;
    int sum = 0;
    await(shared_addr(&c.b->late[matrix]), c.layer & 1);
#pragma unroll
    for (uint32_t i = 0; i < CHUNKS; i += 32)
        if (i + lane < chunks)
            sum += __float_as_int(c.b->sum[matrix & 1][i + lane]);
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (lane == 0)
        c.b->x_sum = sum;
}

#endif

#endif
