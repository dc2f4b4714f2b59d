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
 * through all phases. Weights come when no vector is on its way. Some blocks attend and do nothing
 * else, one per kv head; where the context is long a cluster per kv head. */
#include "decode_attention.cuh"
#include "decode_matrix.cuh"

#if BNET_SM90 || !defined(__CUDA_ARCH__)

/* What this block published in the layer before the last is NONE again. */
static __device__ __forceinline__ void clear(const context &c)
{
    uint32_t i = threadIdx.x;
    bool any = false;
#pragma unroll 1
    for (int m = 0; m < 4; m++)
        if (i < c.b->tasks[m].rows) {
            publish(c.exchange(2) + c.b->tasks[m].out + i, __int_as_float(NONE));
            any = true;
        }
    if (any)
        settle(c);
}

static __device__ __forceinline__ uint32_t tiles_of(const context &c, uint32_t rank, uint32_t m)
{
    return c.b->plans[c.b->near ? 0 : 1][rank * 4 + m];
}

static __device__ __forceinline__ uint32_t tile_bytes(const context &c, uint32_t m)
{
    return (m == DOWN ? c.a.n_ff : c.a.n_embd) / BNET_W2_CHUNK * BNET_W2_UNIT;
}

/* Where a matrix' rows lie in shared memory: q + k + v and o in one place. */
static __device__ __forceinline__ uint32_t weights_at(const context &c, uint32_t m)
{
    uint32_t rank = cluster_rank(), at = 0;
    if (m >= GATE_UP)
        at = max(tiles_of(c, rank, QKV) & 0xffff, tiles_of(c, rank, OUT) & 0xffff) *
             tile_bytes(c, QKV);
    if (m == DOWN)
        at += (tiles_of(c, rank, GATE_UP) & 0xffff) * tile_bytes(c, GATE_UP);
    return at;
}

/* One thread: what this block does with a matrix. */
static __device__ __forceinline__ void plan_task(const context &c, uint32_t m)
{
    block_state *b = c.b;
    task &t = b->tasks[m];
    uint32_t p = tiles_of(c, cluster_rank(), m), first = p >> 16, count = p & 0xffff;
    uint32_t per = m == GATE_UP ? 8 : 16;
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
    t.bytes = count * tile_bytes(c, m);
    t.from = first * tile_bytes(c, m);
    t.weights = weights_at(c, m);
    t.codes = c.a.most + (m & 1 ? c.a.n_embd : 0);
    /* the last warp has the scale to find, if there are others enough */
    t.split =
        count == 0 ? 1 : min((uint32_t)SPLIT, max(1u, (count < 8 ? WARPS - 1 : WARPS) / count));
    t.active = 0;
    for (uint32_t r = 0; r < CLUSTER; r++)
        t.active |= tiles_of(c, r, m) & 0xffff;
}

/* One thread: barriers of a matrix; its first weights on their way; its input may come. */
static __device__ __forceinline__ void arm(const context &c, uint32_t m)
{
    block_state *b = c.b;
    barrier_init(shared_addr(&b->full[m]), 1);
    barrier_init(shared_addr(&b->tops[m]), 1);
    barrier_init(shared_addr(&b->squares[m]), 1);
    barrier_init(shared_addr(&b->in[m]), 1);
    barrier_init(shared_addr(&b->late[m]), 1);
    barrier_init_fence();
    if (m == QKV)
        fetch(cargo_of(c, 0, m, 0, 1));
    if (b->tasks[m].active)
        expect_input(c, m);
    if (m == 0 && b->part.attends)
        expect(shared_addr(&b->in[0]), GIVERS * RECORD * 4);
}

/* A thread: what a warp multiplies of a matrix: a part of the columns of one tile. */
static __device__ __forceinline__ span span_of(const context &c, uint32_t matrix, uint32_t warp)
{
    const task &t = c.b->tasks[matrix];
    span s = {0, t.codes, 0, (t.chunks + t.split - 1) / t.split};
    if (warp >= t.tiles * t.split)
        return s;
    uint32_t tile = warp / t.split, part = warp % t.split;
    uint32_t first = part * t.chunks / t.split, end = (part + 1) * t.chunks / t.split;
    s.units = t.weights + (tile * t.chunks + first) * BNET_W2_UNIT;
    s.codes = t.codes + first * 128;
    s.n = end - first;
    return s;
}

/* What the kernel before does not change: layers and plans into shared memory; this block's part of
 * the first matrix and the first norms into L2. */
static __device__ __forceinline__ void prepare_early(const context &c)
{
    uint32_t words = c.a.n_layers * sizeof(bnet_cu_layer) / 4, i = threadIdx.x;
    uint32_t first = blockIdx.x / CLUSTER * CLUSTER * 4;
#pragma unroll 1
    for (uint32_t k = i; k < words; k += THREADS)
        ((uint32_t *)c.layers())[k] = ((const uint32_t *)c.a.layers)[k];
    if (i < 2 * CLUSTER * 4)
        c.b->plans[i / (CLUSTER * 4)][i % (CLUSTER * 4)] =
            c.a.plan[i / (CLUSTER * 4) * gridDim.x * 4 + first + i % (CLUSTER * 4)];
    __syncthreads();
    uint32_t p = c.b->plans[0][cluster_rank() * 4 + QKV], m = blockIdx.x;
    if (i == 0 && p & 0xffff)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                         c.layers()[0].w[QKV] + (p >> 16) * tile_bytes(c, QKV)),
                     "r"((p & 0xffff) * tile_bytes(c, QKV))
                     : "memory");
    if (m < 4 && c.layers()[0].norm[m] && i * 32 < (m == DOWN ? c.a.n_ff : c.a.n_embd))
        asm volatile("prefetch.global.L2 [%0];" ::"l"(c.layers()[0].norm[m] + i * 32));
}

/* Threads share what there is to be read of the step. */
static __device__ __forceinline__ void read_step(const context &c)
{
    block_state *b = c.b;
    uint32_t i = threadIdx.x;
    int at = c.a.step.pos[0];
    if (i == 0) {
        b->near = (uint32_t)max(at, 0) < min(c.a.near, (uint32_t)ROWS);
        b->part = share_of(c.a, at, b->near);
        b->step = bnet_decode_part_at(&c.a, AT_END);
    } else if (i == 32) {
        const bnet_dev_seq &q = c.a.step.seqs[c.a.step.seq[0]];
        b->layer_bytes = q.layer_bytes;
        b->kv = (uint8_t *)q.kv;
        b->table = c.a.step.tables + q.table;
    } else if (i == 64)
        b->turn = *(volatile const uint32_t *)c.a.epoch;
    if (i < c.a.n_rot)
        b->cs[i] = c.a.angles[(size_t)max(at, 0) * c.a.n_rot + i];
}

static __device__ __forceinline__ void prepare(const context &c)
{
    block_state *b = c.b;
    uint32_t i = threadIdx.x;
    prepare_early(c);
    pdl_wait();
    read_step(c);
    __syncthreads();
    if (i % 32 == 0 && i < 4 * 32) {
        plan_task(c, i / 32);
        arm(c, i / 32);
    }
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

static __device__ __forceinline__ void run_layer(context &c, float &rest)
{
    bool early = c.b->tasks[QKV].rows, asks = threadIdx.x == FETCHER;
#pragma unroll 1
    for (uint32_t matrix = 0; matrix < 4; matrix++) {
        if (matrix == OUT) {
            if (early)
                clear(c);
            if (asks) {
                fetch(cargo_of(c, c.layer, OUT, 0, 1));
                fetch(cargo_of(c, c.layer, GATE_UP, 1, 2));
            }
        }
        if (asks && !c.b->tasks[matrix].rows)
            fetch(cargo_during(c, matrix));
        if (c.b->tasks[matrix].active)
            run_matrix(c, matrix, rest);
    }
    if (!early)
        clear(c);
    warm_norms(c);
}

static __device__ __forceinline__ void run_matrices(context &c)
{
    const task &t = c.b->tasks[OUT];
    float rest = threadIdx.x < t.rows ? __ldcg(c.a.x + t.first + threadIdx.x) : 0;
#pragma unroll 1
    for (; c.layer < c.a.n_layers; c.layer++, c.turn++)
        run_layer(c, rest);
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
#ifdef BNET_DECODE_TRACE
    set_clock(c, BNET_DECODE_TRACE_LD - 4);
#endif
    if (blockIdx.x < a.matrix_blocks[b.near ? 0 : 1])
        run_matrices(c);
    else if (b.part.attends)
        run_attention(c, b.part);
#ifdef BNET_DECODE_TRACE
    set_clock(c, BNET_DECODE_TRACE_LD - 2);
#endif
    cluster_sync(); /* nobody leaves while others write into its memory */
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *(volatile uint32_t *)a.epoch = c.turn & 3;
}

#endif
