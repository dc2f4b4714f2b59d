/* decode_sm90.cu - all layers of one token in one kernel: blocks that never leave, weights fetched a
 * layer ahead, results exchanged through vectors whose elements say themselves when they are there.
 *
 * A layer has five phases: q + k + v, attention, o, gate + up, down. In a phase a block takes the
 * whole input vector (every thread asks for its elements until none of them is NONE), norms and
 * quantises it, multiplies its rows from shared memory and publishes them. The vectors of four layers
 * lie side by side. Between q + k + v of layer c and o a block makes what it published in layer c - 2
 * NONE again: everybody has read it, since all of x of layer c - 1 was there; and nobody asks for
 * layer c + 2 in the same place before all of c + 1 is there, published after a fence behind that.
 *
 * What counts here is the number of instructions between input and output, since 16 warps wait for
 * the slowest: everything that can be known is computed once at the beginning, and one loop runs
 * through all phases. Attention is done by one block per kv head, by several where the context is
 * long; the first of them puts the states together. */
#include "decode_attention.cuh"
#include "decode_matrix.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* What this block published in the layer before the last is NONE again. */
static __device__ __forceinline__ void clear(const context &c, const share &s)
{
    const float f = __int_as_float(NONE);
    uint32_t i = threadIdx.x;
    bool any = s.attends;
#pragma unroll
    for (int m = 0; m < 4; m++)
        if (i < c.b->tasks[m].rows) {
            publish(c.exchange(2) + c.b->tasks[m].out + i, f);
            any = true;
        }
    if (s.attends && s.split == 0 && i < c.a.n_heads / c.a.n_kv_heads * H16_DIM)
        publish(c.exchange(2) + s.att + i, f);
    if (s.attends && s.split != 0) {
        publish(c.exchange(2) + s.states + s.split * STATE + i, f);
        if (i < STATE - THREADS)
            publish(c.exchange(2) + s.states + s.split * STATE + THREADS + i, f);
    }
    if (any)
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

static __device__ __forceinline__ void plan_task(const context &c, uint32_t m, uint32_t *at)
{
    task &t = c.b->tasks[m];
    uint32_t p = c.a.plan[blockIdx.x * 4 + m], first = p >> 16, count = p & 0xffff;
    uint32_t per = m == GATE_UP ? 8 : 16;
    t.n = m == DOWN ? c.a.n_ff : c.a.n_embd;
    t.chunks = t.n / BNET_W2_CHUNK;
    t.in = bnet_decode_part_at(&c.a, m == QKV ? AT_X : m == OUT ? AT_ATT : m == DOWN ? AT_MID : AT_MID_X);
    uint32_t part =
        bnet_decode_part_at(&c.a, m == QKV ? AT_QKV : m == OUT ? AT_MID_X : m == DOWN ? AT_X : AT_MID);
    t.rows = count * per;
    t.first = first * per;
    t.out = part + t.first;
    t.pad[0] = part;
    t.bytes = count * t.chunks * BNET_W2_UNIT;
    t.from = first * t.chunks * BNET_W2_UNIT;
    t.weights = *at;
    *at += t.bytes;
    barrier_init(shared_addr(&c.b->full[m]), 1);
}

static __device__ __forceinline__ void prepare(const context &c)
{
    block_state *b = c.b;
    uint32_t words = c.a.n_layers * sizeof(bnet_cu_layer) / 4, i = threadIdx.x;
#pragma unroll 1
    for (uint32_t k = i; k < words; k += THREADS)
        ((uint32_t *)c.layers())[k] = ((const uint32_t *)c.a.layers)[k];
    __syncthreads();
    if (i == THREADS - 1) {
        uint32_t at = 0;
#pragma unroll 1
        for (uint32_t m = 0; m < 4; m++)
            plan_task(c, m, &at);
        barrier_init_fence();
#pragma unroll 1
        for (uint32_t m = 0; m < 4; m++)
            fetch(c, 0, m);
    }
    __syncthreads();
    if (i < 4 * WARPS) {
        const task &t = b->tasks[i / WARPS];
        uint32_t warp = i % WARPS, n = t.bytes / BNET_W2_UNIT, u = n * warp / WARPS;
        span s = {t.weights + u * BNET_W2_UNIT, n * (warp + 1) / WARPS - u, u % t.chunks,
                  u / t.chunks * 16};
        b->spans[i / WARPS][warp] = s;
    }
    pdl_wait();
    if (i == 0) {
        b->turn = *(volatile const uint32_t *)c.a.epoch;
        b->step = bnet_decode_part_at(&c.a, 6);
        b->part = share_of(c.a, c.a.step.pos[0]);
        b->layer_bytes = c.a.step.seqs[c.a.step.seq[0]].layer_bytes;
    }
    int pos = max(c.a.step.pos[0], 0);
    if (i < c.a.n_rot)
        b->cs[i] = c.a.angles[(size_t)pos * c.a.n_rot + i];
    __syncthreads();
    const share &s = b->part;
    if (s.attends && i <= WARPS) { /* where positions lie is the same in all layers */
        kv_view kv = view_of(c, s, 0);
        uint32_t p = i == WARPS ? s.pos : s.begin + 16 * i;
        uint8_t *at = p < s.end || i == WARPS ? kv.part(p / KV_POS, 0) + p % KV_POS * (H16_DIM * 2) : nullptr;
        if (i == WARPS)
            b->newest = at;
        else
            b->keys[i] = at;
    }
    __syncthreads();
}

/* The norms of the next layer into L2, by one block. */
static __device__ __forceinline__ void warm_norms(const context &c)
{
    if (blockIdx.x != c.layer % gridDim.x || c.layer + 1 >= c.a.n_layers)
        return;
#pragma unroll 1
    for (uint32_t m = 0; m < 4; m++) {
        const float *norm = c.layers()[c.layer + 1].norm[m];
        if (norm && threadIdx.x * 32 < c.b->tasks[m].n)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(norm + threadIdx.x * 32));
    }
}

static __device__ __forceinline__ void run_layer(context &c, const share &s, float &rest)
{
    bool early = s.attends || c.b->tasks[QKV].rows;
#pragma unroll 1
    for (uint32_t matrix = 0; matrix < 4; matrix++) {
        if (matrix == OUT) {
            if (s.attends)
                attend(c, s);
            if (early)
                clear(c, s);
        }
        const task &t = c.b->tasks[matrix];
        if (t.rows == 0)
            continue;
        bool first = matrix == QKV && c.layer == 0;
        c.mark(matrix, 0);
        float most =
            take(c, matrix, first ? c.a.x : (matrix == QKV ? c.exchange(3) : c.exchange(0)) + t.in, !first);
        multiply(c, matrix);
        give(c, matrix, most, rest);
        c.parity ^= 1;
    }
    if (!early)
        clear(c, s);
    warm_norms(c);
}

KERNEL __launch_bounds__(THREADS, 1)
    bnet_decode_step(const __grid_constant__ bnet_cu_decode_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ block_state b;
    context c = {a, &b, dynamic, 0, 0, 0};
    prepare(c);
    float rest = threadIdx.x < b.tasks[OUT].rows ? __ldcg(a.x + b.tasks[OUT].first + threadIdx.x) : 0;
#pragma unroll 1
    for (c.turn = b.turn; c.layer < a.n_layers; c.layer++, c.turn++) {
        if (c.layer + 1 == a.n_layers)
            pdl_launch();
        run_layer(c, b.part, rest);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *(volatile uint32_t *)a.epoch = c.turn & 3;
}

#endif
