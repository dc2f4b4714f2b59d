/* decode_exchange.cuh - what a block of the decode kernel knows (its rows of each matrix, its part
 * in attention, where things lie in shared memory), and how results travel: between clusters as
 * vectors in global memory whose elements say themselves whether they are there, inside a cluster
 * from shared memory to shared memory. Part of decode_sm90.cu. */
#ifndef BNET_DECODE_EXCHANGE_CUH
#define BNET_DECODE_EXCHANGE_CUH

#include "attn16.cuh"
#include "backend/cuda/decode.h"
#include "w2_units.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

enum { THREADS = BNET_DECODE_THREADS, WARPS = THREADS / 32, GROUP = 4 };
enum { CLUSTER = BNET_DECODE_CLUSTER, CHUNKS = BNET_DECODE_CHUNKS };
enum { QKV, OUT, GATE_UP, DOWN };                        /* matrices */
enum { AT_X, AT_MID_X, AT_QKV, AT_ATT, AT_MID, AT_END }; /* parts of the exchange */
enum { NONE = -1 };
enum { HELD = 10, SPLIT = 8 }; /* units of a warp in registers; parts of a tile's columns at most */
enum { FETCHER = THREADS - 64 }; /* the thread that asks for weights */
enum {
    QH = 80,
    PS = BNET_DECODE_ROWS / 2 + 16
}; /* words of a column of queries, of weights: no bank twice */

/* What a block does with a matrix. */
struct task {
    uint32_t n, chunks, in, out;          /* columns; units of a tile; floats of the exchange */
    uint32_t rows, first, bytes, from;    /* published rows; of all; of weights; where they begin */
    uint32_t weights, codes, tiles, part; /* in shared memory: both; part: of the exchange */
    uint32_t active, split, pad[2];       /* some block of the cluster has rows; warps of a tile */
};

/* What a warp multiplies: offsets of its units and of their codes, how many, at most by any warp.
 */
struct span {
    uint32_t units, codes, n, most;
};

/* A block's part in attention: which positions, the newest among them. */
struct share {
    uint32_t head, split, splits, begin, rows, newest, pos;
    uint32_t att;       /* where the head's results go; floats of the exchange */
    bool attends, real; /* real: not padding, the cache may be written */
};

struct block_state {
    /* of the input's chunks, in the places of matrices in turn: largest |x w|, sums of squares and
     * of codes */
    alignas(16) float top[2][CHUNKS], ss[2][CHUNKS], sum[2][CHUNKS];
    alignas(16) uint32_t qh[2 * GROUP * QH]; /* queries: high halves of heads, then low ones */
    alignas(16) task tasks[4];
    alignas(16) span spans[4][WARPS];
    /* weights, largest values, squares, codes, sums are there */
    unsigned long long full[4], tops[4], squares[4], in[4], late[4];
    float x_scale; /* of the input's codes */
    int x_sum;
    alignas(16) float cs[H16_DIM];
    alignas(16) __half newest_row[2][H16_DIM]; /* the newest key and value */
    share part;
    uint8_t *kv, *newest; /* the cache; the newest position's key in layer 0 */
    const int32_t *table;
    uint64_t layer_bytes;
    uint32_t turn, step;            /* step: floats of a layer's exchange */
    uint32_t plans[2][CLUSTER * 4]; /* both, of the blocks of the cluster */
    bool near;                      /* which plan */
};

static_assert(sizeof(block_state) <= BNET_DECODE_STATIC_BYTES, "bnet_decode_fits");

struct context {
    const bnet_cu_decode_args &a;
    block_state *b;
    uint8_t *weights;
    uint32_t layer, turn; /* turn: of the exchange */

    /* shared memory behind the weights of blocks that multiply: codes of the input of q + k + v or
     * gate + up, of o or down, some that are read and not used; a copy of the layers; sums of the
     * warps [WARPS][16] */
    __device__ __forceinline__ const bnet_cu_layer *layers() const
    {
        return (const bnet_cu_layer *)(weights + a.most + a.n_embd + max(a.n_ff, a.n_embd) +
                                       BNET_DECODE_UNUSED);
    }
    __device__ __forceinline__ int *parts() const { return (int *)(layers() + a.n_layers); }
    /* the exchange of this layer (0) or of some later one */
    __device__ __forceinline__ float *exchange(uint32_t later) const
    {
        return a.exchange + ((turn + later) & 3) * b->step;
    }
    __device__ __forceinline__ void mark(int phase, int i) const
    {
#ifdef BNET_DECODE_TRACE
        if (a.trace && threadIdx.x == 0 && layer == a.n_layers / 2)
            a.trace[blockIdx.x * BNET_DECODE_TRACE_LD + phase * 8 + i] = clock64();
#endif
    }
};

#ifdef BNET_DECODE_TRACE
/* This multiprocessor's clock beside the time of all of them, at one of its steps. */
static __device__ __forceinline__ void set_clock(const context &c, uint32_t at)
{
    if (!c.a.trace || threadIdx.x)
        return;
    unsigned long long t, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now == t);
    c.a.trace[blockIdx.x * BNET_DECODE_TRACE_LD + at] = clock64();
    c.a.trace[blockIdx.x * BNET_DECODE_TRACE_LD + at + 1] = (long long)now;
}
#endif

/* ---- between clusters ---- */

static __device__ __forceinline__ float4 peek4(const float *p)
{
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

static __device__ __forceinline__ float peek(const float *p)
{
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}

static __device__ __forceinline__ bool none(float v)
{
    return __float_as_int(v) == NONE;
}

/* Some element is not there: NONE is the largest of all bit patterns. */
static __device__ __forceinline__ uint32_t most4(float4 v)
{
    return max(max(__float_as_uint(v.x), __float_as_uint(v.y)),
               max(__float_as_uint(v.z), __float_as_uint(v.w)));
}

/* Waits are short: 4096 requests are many times the longest. Where a tool makes them long, seldom
 * asking leaves the others time; a launch whose blocks are not all resident would wait for ever:
 * better a trap. */
static __device__ __forceinline__ void ask_again(uint32_t *rounds)
{
    if (++*rounds <= 4096)
        return;
    __nanosleep(20000);
    if (*rounds > 4000000)
        __trap();
}

static __device__ __forceinline__ void publish(float *p, float v)
{
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory");
}

static __device__ __forceinline__ void publish2(float *p, float2 v)
{
    asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1,%2};" ::"l"(p), "f"(v.x), "f"(v.y)
                 : "memory");
}

/* What was written before is performed before what is written after: the release of a word nobody
 * reads. A fence would invalidate the first-level cache. */
static __device__ __forceinline__ void settle(const context &c)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(c.a.epoch + 2 + blockIdx.x), "r"(0)
                 : "memory");
}

/* ---- inside a cluster ---- */

static __device__ __forceinline__ uint32_t cluster_rank()
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

static __device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

/* Where `at` lies in another block of the cluster. */
static __device__ __forceinline__ uint32_t there(uint32_t at, uint32_t rank)
{
    uint32_t r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}

/* A word into the shared memory of a block of the cluster; its barrier counts the bytes. */
static __device__ __forceinline__ void send(uint32_t to, uint32_t v, uint32_t bar)
{
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to),
        "r"(v), "r"(bar)
        : "memory");
}

/* Four words. */
static __device__ __forceinline__ void send4(uint32_t to, uint4 v, uint32_t bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], "
                 "{%1,%2,%3,%4}, [%5];" ::"r"(to),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(bar)
                 : "memory");
}

/* As barrier_wait, with an end. */
static __device__ __forceinline__ void await(uint32_t bar, uint32_t parity)
{
    uint32_t there, asked = 0;
    while (true) {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(there)
                     : "r"(bar), "r"(parity)
                     : "memory");
        if (there)
            return;
        ask_again(&asked);
    }
}

#endif

#endif
