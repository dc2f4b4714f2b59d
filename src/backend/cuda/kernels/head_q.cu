/* head_q.cu - rows of Q6_K and Q8_0 matrices times one to eight float vectors on the tensor cores,
 * at the speed of memory.
 *
 * Codes become halves exactly (a few logic instructions for two of them), vectors are split into a
 * high and a low half after scaling by a power of two, sums are floats: as good as float
 * arithmetic. Lane 4 g + t of a warp holds 32 neighbouring elements of rows g and g + 8, with a
 * scale of their own. A product of 16 x 16 by 16 x 8 takes four elements of every lane; column t of
 * the right side has the vector's high halves only where lane t's elements meet them (column t + 4
 * the low ones), so the four lanes' sums stay apart until they are scaled.
 *
 * Codes pass through a ring in shared memory that belongs to the warp alone: whole lines from
 * memory, several stages on their way, no barrier between warps. */
#include "matrix.cuh"

enum { THREADS = BNET_HEAD_THREADS, WARPS = THREADS / 32, CHUNK = 128, ROWS = 16 };

static __device__ __forceinline__ uint32_t fma2(uint32_t x, uint32_t scale, uint32_t add)
{
    __half2 r = __hfma2(*(__half2 *)&x, *(__half2 *)&scale, *(__half2 *)&add);
    return *(uint32_t *)&r;
}

/* ---- formats ----
 * A stage is 16 rows x COLS columns in STAGE bytes, 16-byte pieces exchanged within a row so that
 * no banks collide. fetch: a warp's copies of stage `part` of the rows from row0 on (those beyond
 * the last repeat it). get: a lane's 32 elements of row r of the stage (`row` of the matrix), chunk
 * h of its columns; scale word for the sub-blocks whose sums it will hold. halves(m, a): the two
 * registers of product m (0..7).  place(e): product * 4 + place of element e. GROUPS scales per 32
 * elements. scales(i, s): those of group i for its two sums. */

struct part_q6k {
    enum { GROUPS = 2, COLS = 256, STAGE = BNET_HEAD_STAGE_Q6K };
    enum { HIGH = ROWS * 128, SCALE = HIGH + ROWS * 64 };
    uint4 low;
    uint2 high;
    uint32_t scale;
    uint16_t d;

    static __device__ __forceinline__ void fetch(const bnet_dev_matrix &m, uint32_t to,
                                                 uint32_t row0, uint32_t part)
    {
        uint32_t lane = threadIdx.x % 32, last = m.n_rows - 1;
        size_t n = m.stride / 32;
#pragma unroll
        for (uint32_t p = lane; p < ROWS * 8; p += 32) {
            uint32_t r = p / 8, u = p % 8;
            size_t sub = min(row0 + r, last) * n + part * 8;
            copy_async16(to + r * 128 + (u ^ (r & 1) * 4) * 16, m.w[0] + sub * 16 + u * 16, true);
        }
#pragma unroll
        for (uint32_t p = lane; p < ROWS * 4; p += 32) {
            uint32_t r = p / 4, u = p % 4;
            size_t sub = min(row0 + r, last) * n + part * 8;
            copy_async16(to + HIGH + r * 64 + (u ^ (r & 2)) * 16, m.w[1] + sub * 8 + u * 16, true);
        }
        if (lane < ROWS) {
            size_t row = min(row0 + lane, last);
            copy_async16(to + SCALE + lane * 16, m.w[2] + (row * n + part * 8) * 2, true);
            if (part == 0)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(m.w[3] + row * (n / 8) * 2));
        }
    }
    __device__ __forceinline__ void get(const bnet_dev_matrix &m, const uint8_t *from, uint32_t r,
                                        size_t row, uint32_t part, uint32_t h)
    {
        uint32_t t = threadIdx.x % 4;
        low = *(const uint4 *)(from + r * 128 + ((h * 4 + t) ^ (r & 1) * 4) * 16);
        high =
            *(const uint2 *)(from + HIGH + r * 64 + ((h * 2 + t / 2) ^ (r & 2)) * 16 + t % 2 * 8);
        scale = *(const uint32_t *)(from + SCALE + r * 16 + h * 8 + t % 2 * 4);
        d = __ldg((const uint16_t *)m.w[3] + row * (m.stride / 256) + part);
    }
    __device__ __forceinline__ void halves(int m, uint32_t *even, uint32_t *odd) const
    {
        const uint32_t l4[4] = {low.x, low.y, low.z, low.w};
        uint32_t l = l4[m % 4], h = m & 1 ? high.y : high.x;
        /* bits of the code: 0..5 of a half for elements 0..15, 4..9 for 16..31 */
        uint32_t hs = m & 2 ? h << 2 : h << 4, ho = m & 2 ? h >> 6 : h >> 4, lo = l >> 8;
        uint32_t lm = m < 4 ? 0x000f000fu : 0x00f000f0u, hm = m < 4 ? 0x00300030u : 0x03000300u;
        uint32_t scale2 = m < 4 ? 0x3c003c00u : 0x2c002c00u; /* 1, 1/16 */
        uint32_t add = m < 4 ? 0xe420e420u : 0xd600d600u;    /* -1056, -96 */
        *even = fma2((l & lm) | 0x64006400u | (hs & hm), scale2, add);
        *odd = fma2((lo & lm) | 0x64006400u | (ho & hm), scale2, add);
    }
    static __device__ __forceinline__ uint32_t place(uint32_t e)
    {
        return (e / 16 * 4 + e % 16 / 4) * 4 + (e & 1) * 2 + (e >> 1 & 1);
    }
    __device__ __forceinline__ void scales(int i, float s[2]) const
    {
        float f = __half2float(__ushort_as_half(d));
        s[0] = f * (float)(int8_t)(scale >> 8 * i);
        s[1] = f * (float)(int8_t)(scale >> (16 + 8 * i));
    }
};

struct part_q8 {
    enum { GROUPS = 1, COLS = 128, STAGE = BNET_HEAD_STAGE_Q8, SCALE = ROWS * 128 };
    uint4 v[2];
    uint32_t scale;

    static __device__ __forceinline__ void fetch(const bnet_dev_matrix &m, uint32_t to,
                                                 uint32_t row0, uint32_t part)
    {
        uint32_t lane = threadIdx.x % 32, last = m.n_rows - 1, n = m.stride / 32; /* n is even */
#pragma unroll
        for (uint32_t p = lane; p < ROWS * 8; p += 32) {
            uint32_t r = p / 8, u = p % 8;
            const uint8_t *row = m.w[0] + (size_t)min(row0 + r, last) * m.stride;
            copy_async16(to + r * 128 + (u ^ (r & 1)) * 16, row + part * COLS + u * 16,
                         part * 4 + u / 2 < n);
        }
        const uint8_t *row = m.w[1] + (size_t)min(row0 + lane / 2, last) * n * 2;
        uint32_t sub = part * 4 + lane % 2 * 2;
        copy_async4(to + SCALE + lane * 4, row + sub * 2, sub < n);
    }
    __device__ __forceinline__ void get(const bnet_dev_matrix &, const uint8_t *from, uint32_t r,
                                        size_t, uint32_t, uint32_t)
    {
        uint32_t t = threadIdx.x % 4;
        v[0] = *(const uint4 *)(from + r * 128 + (2 * t ^ (r & 1)) * 16);
        v[1] = *(const uint4 *)(from + r * 128 + ((2 * t + 1) ^ (r & 1)) * 16);
        scale = *(const uint32_t *)(from + SCALE + r * 8 + t % 2 * 4);
    }
    __device__ __forceinline__ void halves(int m, uint32_t *even, uint32_t *odd) const
    {
        const uint4 &q = v[m / 4];
        const uint32_t w4[4] = {q.x, q.y, q.z, q.w};
        uint32_t w = w4[m % 4] ^ 0x80808080u; /* code + 128, then 1024 above it */
        *even = fma2(__byte_perm(w, 0x64646464u, 0x4140), 0x3c003c00u, 0xe480e480u);
        *odd = fma2(__byte_perm(w, 0x64646464u, 0x4342), 0x3c003c00u, 0xe480e480u);
    }
    static __device__ __forceinline__ uint32_t place(uint32_t e)
    {
        return e;
    }
    __device__ __forceinline__ void scales(int, float s[2]) const
    {
        float2 f = __half22float2(*(const __half2 *)&scale);
        s[0] = f.x, s[1] = f.y;
    }
};

/* ---- vectors ---- */

/* Byte of the high half of element k of a vector in shared memory: [chunk][pair of products][lane
 * t] [high, low][product of the pair][4 halves]. The low half is 16 bytes further. */
template <typename P> static __device__ __forceinline__ uint32_t x_at(uint32_t k)
{
    uint32_t p = P::place(k % 32), m = p / 4;
    return k / CHUNK * (CHUNK * 4) + m / 2 * 128 + k % CHUNK / 32 * 32 + m % 2 * 8 + p % 4 * 2;
}

/* Norms a vector and stores its halves; returns the factor that undoes the scaling. */
template <typename P>
static __device__ float take_vector(const bnet_cu_head_args &a, uint32_t t, uint32_t padded,
                                    uint8_t *xs)
{
    __shared__ float2 scratch[2][WARPS];
    const float *x = a.x + (size_t)t * a.ldx;
    uint32_t k_end = t < a.n_tokens ? a.m.k : 0;
    float ss = 0, top = 0;
    for (uint32_t i = threadIdx.x; i < k_end; i += THREADS) {
        float v = x[i];
        ss = fmaf(v, v, ss);
        top = fmaxf(top, fabsf(a.norm ? v * __ldg(a.norm + i) : v));
    }
    ss = warp_sum(ss);
    top = warp_max(top);
    if (threadIdx.x % 32 == 0)
        scratch[t & 1][threadIdx.x / 32] = make_float2(ss, top);
    __syncthreads();
    float2 r = scratch[t & 1][threadIdx.x % WARPS];
    ss = threadIdx.x % 32 < WARPS ? r.x : 0.0f;
    ss = warp_sum(ss);
    top = warp_max(r.y);
    float inv = a.norm ? 1.0f / sqrtf(ss / (float)a.m.k + a.eps) : 1.0f;
    top *= inv;
    int e = top > 0 && top < 3e38f ? 10 - ilogbf(top) : 0;
    e = max(-120, min(120, e));
    float up = __int_as_float((127 + e) << 23), down = __int_as_float((127 - e) << 23);
    for (uint32_t i = threadIdx.x; i < padded; i += THREADS) {
        float v = i < k_end ? x[i] * inv : 0.0f;
        if (a.norm && i < k_end)
            v *= __ldg(a.norm + i);
        v *= up;
        __half h = __float2half_rn(v);
        uint8_t *to = xs + x_at<P>(i);
        *(__half *)to = h;
        *(__half *)(to + 16) = __float2half_rn(v - __half2float(h));
    }
    return down;
}

/* ---- rows ---- */

/* Adds 16 rows times a chunk: sum[t][0, 1] of rows g and g + 8, not yet over the four lanes. */
template <typename P, int T>
static __device__ __forceinline__ void chunk_multiply(const P *p, const uint8_t *x, uint32_t vector,
                                                      bool active, float sum[T][2])
{
    constexpr int N = 8 / P::GROUPS;
#pragma unroll
    for (int i = 0; i < P::GROUPS; i++) {
        float c[T][4] = {};
#pragma unroll
        for (int m = i * N; m < i * N + N; m += 2) {
            uint32_t w[2][4];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                p[0].halves(m + j, &w[j][0], &w[j][2]);
                p[1].halves(m + j, &w[j][1], &w[j][3]);
            }
#pragma unroll
            for (int t = 0; t < T; t++) {
                uint4 b = make_uint4(0, 0, 0, 0);
                if (active)
                    b = *(const uint4 *)(x + t * vector + m / 2 * 128);
                mma_f16(c[t], w[0], b.x, b.y);
                mma_f16(c[t], w[1], b.z, b.w);
            }
        }
        float s[2][2];
        p[0].scales(i, s[0]);
        p[1].scales(i, s[1]);
#pragma unroll
        for (int t = 0; t < T; t++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                sum[t][r] = fmaf(c[t][2 * r + 1], s[r][1], fmaf(c[t][2 * r], s[r][0], sum[t][r]));
    }
}

/* Where a warp is: 16 rows, a stage of their columns. */
struct cursor {
    uint32_t group, part;
    __device__ __forceinline__ void advance(uint32_t n_warps, uint32_t n_parts)
    {
        if (++part == n_parts) {
            part = 0;
            group += n_warps;
        }
    }
};

template <typename P>
static __device__ __forceinline__ void fetch_stage(const bnet_cu_head_args &a, cursor &at,
                                                   uint32_t slot, uint32_t n_warps,
                                                   uint32_t n_parts)
{
    if (at.group * ROWS < a.m.n_rows)
        P::fetch(a.m, slot, at.group * ROWS, at.part);
    copy_commit();
    at.advance(n_warps, n_parts);
}

/* Adds the products of a stage. x: the lane's part of the vectors. */
template <typename P, int T>
static __device__ __forceinline__ void stage_multiply(const bnet_cu_head_args &a, const cursor &at,
                                                      const uint8_t *slot, const uint8_t *x,
                                                      uint32_t vector, bool active, float sum[T][2])
{
    constexpr uint32_t N = P::COLS / CHUNK;
    uint32_t g = threadIdx.x % 32 / 4, row = at.group * ROWS + g, last = a.m.n_rows - 1;
#pragma unroll
    for (uint32_t h = 0; h < N; h++) {
        P p[2];
        p[0].get(a.m, slot, g, min(row, last), at.part, h);
        p[1].get(a.m, slot, g + 8, min(row + 8, last), at.part, h);
        chunk_multiply<P, T>(p, x + (at.part * N + h) * (CHUNK * 4), vector, active, sum);
    }
}

template <int T>
static __device__ __forceinline__ void put_rows(const bnet_cu_head_args &a, uint32_t group,
                                                const float *down, float sum[T][2])
{
    uint32_t lane = threadIdx.x % 32, row = group * ROWS + lane / 4;
#pragma unroll
    for (int t = 0; t < T; t++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float s = sum[t][r];
            s += __shfl_xor_sync(0xffffffffu, s, 1);
            s += __shfl_xor_sync(0xffffffffu, s, 2);
            if (lane % 4 == 0 && row + 8 * r < a.m.n_rows && t < (int)a.n_tokens)
                a.y[(size_t)t * a.ld + row + 8 * r] = s * down[t];
            sum[t][r] = 0;
        }
}

static __device__ __forceinline__ uint32_t dynamic_bytes()
{
    uint32_t n;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(n));
    return n;
}

/* DEPTH stages of a warp are on their way. Where shared memory is short only some warps have a
 * ring. */
template <typename P, int T, int DEPTH>
static __device__ __forceinline__ void head(const bnet_cu_head_args &a)
{
    extern __shared__ __align__(16) uint8_t xs[];
    uint32_t padded = (a.m.stride + 1023) / 1024 * 1024, vector = padded * 4;
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    uint32_t busy = min((dynamic_bytes() - T * vector) / (DEPTH * P::STAGE), (uint32_t)WARPS);
    uint32_t n_warps = gridDim.x * busy, n_parts = (a.m.stride + P::COLS - 1) / P::COLS;
    const uint8_t *ring = xs + T * vector + warp * (DEPTH * P::STAGE);
    bool active = (g & 3) == lane % 4;
    cursor ahead = {warp < busy ? blockIdx.x * busy + warp : a.m.n_rows, 0}, at = ahead;
#pragma unroll
    for (int j = 0; j < DEPTH; j++) /* weights do not depend on what runs before */
        fetch_stage<P>(a, ahead, shared_addr(ring + j * P::STAGE), n_warps, n_parts);
    pdl_launch();
    pdl_wait();
    float down[T], sum[T][2] = {};
#pragma unroll
    for (int t = 0; t < T; t++)
        down[t] = take_vector<P>(a, t, padded, xs + t * vector);
    __syncthreads();
    const uint8_t *x = xs + lane % 4 * 32 + g / 4 * 16;
    for (uint32_t j = 0; at.group * ROWS < a.m.n_rows; j = j + 1 < DEPTH ? j + 1 : 0) {
        const uint8_t *slot = ring + j * P::STAGE;
        copy_wait<DEPTH - 1>();
        __syncwarp();
        stage_multiply<P, T>(a, at, slot, x, vector, active, sum);
        __syncwarp();
        fetch_stage<P>(a, ahead, shared_addr(slot), n_warps, n_parts);
        if (at.part + 1 == n_parts)
            put_rows<T>(a, at.group, down, sum);
        at.advance(n_warps, n_parts);
    }
}

template <typename P> static __device__ __forceinline__ void heads(const bnet_cu_head_args &a)
{
    constexpr int few = (int)P::COLS == CHUNK ? BNET_HEAD_DEPTH_Q8 : BNET_HEAD_DEPTH_Q6K;
    if (a.n_tokens == 1)
        head<P, 1, few>(a);
    else if (a.n_tokens == 2)
        head<P, 2, few>(a);
    else if (a.n_tokens <= 4)
        head<P, 4, few - 1>(a);
    else
        head<P, 8, few - 1>(a);
}

KERNEL __launch_bounds__(THREADS, 1) bnet_head_q8(const __grid_constant__ bnet_cu_head_args a)
{
    heads<part_q8>(a);
}

KERNEL __launch_bounds__(THREADS, 1) bnet_head_q6k(const __grid_constant__ bnet_cu_head_args a)
{
    heads<part_q6k>(a);
}
