/* decode_sm90.cu - all layers of one token in one kernel: blocks that never leave, weights fetched
 * a layer ahead, results exchanged through vectors whose elements say themselves when they are
 * there.
 *
 * A layer has five phases: q + k + v, attention, o, gate + up, down. In a phase the blocks of a
 * cluster collect the whole input vector together (every element is asked for until it is not
 * NONE), quantise it and pass the codes on through shared memory; a block multiplies its rows from
 * shared memory and publishes them. The vectors of four layers lie side by side. Between q + k + v
 * of layer c and o a block makes what it published in layer c - 2 NONE again: everybody has read
 * it, since all of x of layer c - 1 was there; and nobody asks for layer c + 2 in the same place
 * before all of c + 1 is there, published after a release behind that.
 *
 * What counts here is the number of instructions between input and output, since 16 warps wait for
 * the slowest: everything that can be known is computed once at the beginning, and one loop runs
 * through all phases. Where the context is short, a few blocks attend and do nothing else, one per
 * kv head; where it is long, many blocks do both and the first of a kv head puts their states
 * together. */
#include "decode_attention.cuh"
#include "decode_matrix.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* What this block published in the layer before the last is NONE again. */
static __device__ __forceinline__ void clear(const context &c, const share &s)
{
    const float f = __int_as_float(NONE);
    uint32_t i = threadIdx.x;
    bool any = s.attends;
#pragma unroll 1
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
        settle(c);
}

/* States that the launch before left and nobody of this one would clear: of more splits. */
static __device__ __forceinline__ void clear_states(const context &c, uint32_t n_splits)
{
    uint32_t before = *(volatile const uint32_t *)(c.a.epoch + 1);
#pragma unroll 1
    for (uint32_t p = blockIdx.x; p < c.a.n_kv_heads * BNET_DECODE_SPLITS; p += gridDim.x)
        if (p % BNET_DECODE_SPLITS >= n_splits && p % BNET_DECODE_SPLITS < before)
#pragma unroll 1
            for (uint32_t i = threadIdx.x; i < 4 * STATE; i += THREADS)
                publish(c.a.exchange + i / STATE * c.b->step +
                            bnet_decode_part_at(&c.a, AT_STATES) + p * STATE + i % STATE,
                        __int_as_float(NONE));
}

static __device__ __forceinline__ void plan_task(const context &c, uint32_t m)
{
    block_state *b = c.b;
    task &t = b->tasks[m];
    const uint32_t *plan = b->plan + blockIdx.x * 4;
    uint32_t p = plan[m], first = p >> 16, count = p & 0xffff, per = m == GATE_UP ? 8 : 16;
    t.n = m == DOWN ? c.a.n_ff : c.a.n_embd;
    t.chunks = t.n / BNET_W2_CHUNK;
    t.in = bnet_decode_part_at(&c.a, m == QKV    ? AT_X
                                     : m == OUT  ? AT_ATT
                                     : m == DOWN ? AT_MID
                                                 : AT_MID_X);
    t.part = bnet_decode_part_at(&c.a, m == QKV    ? AT_QKV
                                       : m == OUT  ? AT_MID_X
                                       : m == DOWN ? AT_X
                                                   : AT_MID);
    t.tiles = count;
    t.rows = count * per;
    t.first = first * per;
    t.out = t.part + t.first;
    t.bytes = count * t.chunks * BNET_W2_UNIT;
    t.from = first * t.chunks * BNET_W2_UNIT;
    t.codes = c.a.most + (m & 1 ? c.a.n_embd : 0);
    t.active = 0;
    for (uint32_t r = 0; r < CLUSTER; r++)
        t.active |= b->plan[(blockIdx.x / CLUSTER * CLUSTER + r) * 4 + m] & 0xffff;
    barrier_init(shared_addr(&b->full[m]), 1);
    barrier_init(shared_addr(&b->tops[m]), 1);
    barrier_init(shared_addr(&b->in[m]), 1);
    barrier_init(shared_addr(&b->late[m]), 1);
}

/* One thread: tasks, their places, the first weights on their way, barriers that inputs end. */
static __device__ __forceinline__ void plan_block(const context &c)
{
    task *t = c.b->tasks;
#pragma unroll 1
    for (uint32_t m = 0; m < 4; m++)
        plan_task(c, m);
    t[QKV].weights = t[OUT].weights = 0;
    t[GATE_UP].weights = max(t[QKV].bytes, t[OUT].bytes);
    t[DOWN].weights = t[GATE_UP].weights + t[GATE_UP].bytes;
    barrier_init_fence();
#pragma unroll 1
    for (uint32_t m = 0; m < 4; m++) {
        if (m != OUT || !t[QKV].bytes)
            fetch(c, 0, m);
        if (t[m].active)
            expect_input(c, m);
    }
}

/* A thread: what a warp multiplies of a matrix. */
static __device__ __forceinline__ span span_of(const context &c, uint32_t matrix, uint32_t warp)
{
    const task &t = c.b->tasks[matrix];
    uint32_t whole = t.chunks / WARPS * WARPS, extra = t.chunks - whole,
             step = extra ? WARPS / extra : 1;
    uint32_t chunk = whole + (extra ? warp % extra : 0), tile = extra ? warp / extra : t.tiles;
    tile = tile < step ? tile : t.tiles;
    span s = {t.weights + warp * BNET_W2_UNIT, t.weights + (tile * t.chunks + chunk) * BNET_W2_UNIT,
              t.codes + (extra ? chunk : 0) * 128, tile | step << 16};
    return s;
}

/* Where positions lie is the same in all layers. */
static __device__ __forceinline__ void locate(const context &c, const share &s)
{
    uint32_t i = threadIdx.x;
    if (!s.attends || i > WARPS)
        return;
    kv_view kv = view_of(c, s, 0);
    uint32_t p = i == WARPS ? s.pos : s.begin + 16 * i;
    uint8_t *at =
        p < s.end || i == WARPS ? kv.part(p / KV_POS, 0) + p % KV_POS * (H16_DIM * 2) : nullptr;
    if (i == WARPS)
        c.b->newest = at;
    else
        c.b->keys[i] = at;
}

static __device__ __forceinline__ void prepare(const context &c)
{
    block_state *b = c.b;
    uint32_t words = c.a.n_layers * sizeof(bnet_cu_layer) / 4, i = threadIdx.x;
#pragma unroll 1
    for (uint32_t k = i; k < words; k += THREADS)
        ((uint32_t *)c.layers())[k] = ((const uint32_t *)c.a.layers)[k];
    pdl_wait();
    int at = c.a.step.pos[0], pos = max(at, 0);
    if (i == 0) {
        b->apart = c.a.matrix_blocks && (uint32_t)pos < c.a.near;
        b->plan = c.a.plan + (b->apart ? 0 : gridDim.x * 4);
        b->turn = *(volatile const uint32_t *)c.a.epoch;
        b->step = bnet_decode_part_at(&c.a, 6);
        b->part = share_of(c.a, at, b->apart);
        b->layer_bytes = c.a.step.seqs[c.a.step.seq[0]].layer_bytes;
    }
    if (i < c.a.n_rot)
        b->cs[i] = c.a.angles[(size_t)pos * c.a.n_rot + i];
    __syncthreads();
    if (i == THREADS - 1)
        plan_block(c);
    clear_states(c, b->part.n_splits);
    locate(c, b->part);
    __syncthreads();
    if (i < 4 * WARPS)
        b->spans[i / WARPS][i % WARPS] = span_of(c, i / WARPS, i % WARPS);
    cluster_sync();
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

/* APART: others attend. */
template <bool APART>
static __device__ __forceinline__ void run_layer(context &c, const share &s, float &rest)
{
    bool attends = !APART && s.attends, early = attends || c.b->tasks[QKV].rows;
#pragma unroll 1
    for (uint32_t matrix = 0; matrix < 4; matrix++) {
        if (matrix == OUT) {
            if (attends)
                attend_between(c, s);
            if (early)
                clear(c, s);
        }
        if (!c.b->tasks[matrix].active)
            continue;
        if (APART)
            run_matrix<true>(c, matrix, rest);
        else
            rest = run_matrix_alone(c, matrix, rest);
    }
    if (!early)
        clear(c, s);
    warm_norms(c);
}

/* A block that does nothing else. */
static __device__ __forceinline__ void run_attention(context &c, const share &s)
{
    uint32_t warp = threadIdx.x / 32, base = s.begin + 16 * warp;
    if (base < s.end)
        stage(shared_addr(c.weights + warp * BNET_DECODE_STAGE + threadIdx.x % 32 * 16),
              c.b->keys[warp], c.a.part_bytes, s.end - 1 - base);
#pragma unroll 1
    for (; c.layer < c.a.n_layers; c.layer++, c.turn++) {
        attend<true>(c, s);
        clear(c, s);
    }
}

template <bool APART>
static __device__ __forceinline__ void run_matrices(context &c, const share &s)
{
    const task &t = c.b->tasks[OUT];
    float rest = threadIdx.x < t.rows ? __ldcg(c.a.x + t.first + threadIdx.x) : 0;
#pragma unroll 1
    for (; c.layer < c.a.n_layers; c.layer++, c.turn++)
        run_layer<APART>(c, s, rest);
}

KERNEL __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)
    bnet_decode_step(const __grid_constant__ bnet_cu_decode_args a)
{
    extern __shared__ __align__(128) uint8_t dynamic[];
    __shared__ block_state b;
    context c = {a, &b, dynamic, 0, 0};
    prepare(c);
    pdl_launch();
    c.turn = b.turn;
    if (!b.apart)
        run_matrices<false>(c, b.part);
    else if (blockIdx.x < a.matrix_blocks)
        run_matrices<true>(c, b.part);
    else if (b.part.attends)
        run_attention(c, b.part);
    cluster_sync(); /* nobody leaves while others write into its memory */
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *(volatile uint32_t *)a.epoch = c.turn & 3;
        *(volatile uint32_t *)(a.epoch + 1) = b.part.n_splits;
    }
}

#endif
