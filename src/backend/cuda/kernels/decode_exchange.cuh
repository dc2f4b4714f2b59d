/* decode_exchange.cuh - what a block of the decode kernel knows (its rows of each matrix, its part in
 * attention, where things lie in shared memory), and the vectors by which blocks exchange results:
 * elements that say themselves whether they are there. Part of decode_sm90.cu. */
#ifndef BNET_DECODE_EXCHANGE_CUH
#define BNET_DECODE_EXCHANGE_CUH

#include "attn16.cuh"
#include "backend/cuda/decode.h"
#include "w2_units.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

enum { THREADS = BNET_DECODE_THREADS, WARPS = THREADS / 32, GROUP = 4, STATES = WARPS + 1 };
enum { QKV, OUT, GATE_UP, DOWN };                           /* matrices */
enum { AT_X, AT_MID_X, AT_QKV, AT_ATT, AT_MID, AT_STATES }; /* parts of the exchange */
enum { ROUNDS = 4, STATE = BNET_DECODE_STATE, NONE = -1 };
enum { QH = 132 }; /* words of a head's split queries, no bank twice */

/* What a block does with a matrix. */
struct task {
    uint32_t n, chunks, in, out; /* columns; units of a tile; floats of the exchange */
    uint32_t rows, first, bytes, from; /* published rows; of all; of weights; where they begin */
    uint32_t weights, pad[3]; /* in shared memory */
};

/* What a warp multiplies: offset of its units, how many, chunk of the first, its row of sums. */
struct span {
    uint32_t at, n, chunk, row;
};

/* A block's part in attention. */
struct share {
    uint32_t head, split, n_splits, begin, end, pos;
    uint32_t att, states; /* where this thread's results go; floats of the exchange */
    bool attends, real;   /* real: not padding, the cache may be written */
};

struct block_state {
    alignas(16) float ss[WARPS];
    alignas(16) uint32_t top[WARPS];
    alignas(16) int sums[2][BNET_DECODE_TILES * 16];
    alignas(16) float q[GROUP * H16_QLD];
    alignas(16) uint32_t qh[GROUP * QH]; /* [head][j][t]: A operands of two products */
    alignas(16) task tasks[4];
    alignas(16) span spans[4][WARPS];
    unsigned long long full[4];
    int sum[2];
    float cs[H16_DIM], k[H16_DIM], v[H16_DIM];
    float m[STATES][GROUP], l[STATES][GROUP];
    share part;
    const uint8_t *keys[WARPS]; /* of a warp's first positions in layer 0 */
    uint8_t *newest; /* the key of the newest position in layer 0; its value lies part_bytes further */
    uint64_t layer_bytes;
    uint32_t turn, step; /* step: floats of a layer's exchange */
};

struct context {
    const bnet_cu_decode_args &a;
    block_state *b;
    uint8_t *weights;
    uint32_t layer, turn, parity; /* turn: of the exchange; parity: of the phases of this block */

    /* shared memory behind the weights: outputs of attention's states [STATES][GROUP][H16_OLD], a
     * copy of the layers, the codes */
    __device__ __forceinline__ float *o() const
    {
        return (float *)(weights + a.most);
    }
    __device__ __forceinline__ const bnet_cu_layer *layers() const
    {
        return (const bnet_cu_layer *)(weights + a.most + BNET_DECODE_STATES_BYTES);
    }
    __device__ __forceinline__ uint8_t *xs() const
    {
        return (uint8_t *)(layers() + a.n_layers);
    }
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

/* ---- exchange ---- */

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

/* A launch whose blocks are not all resident would wait for ever: better a trap. */
static __device__ __forceinline__ void ask_again(uint32_t *rounds)
{
    if (++*rounds > 8000000)
        __trap();
}

static __device__ __forceinline__ void publish(float *p, float v)
{
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory");
}

#endif

#endif
