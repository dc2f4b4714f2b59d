/* kernel_calls.c - kernels that serve inside whole passes, called by themselves as passes call
 * them, so that validation can hold each against the CPU. What only exists in tiles comes and goes
 * in rows.
 */
#include "backend/cuda/net.h"
#include "backend/cuda/head_copy.h"
#include "backend/cuda/tiles.h"

static gpu_act8 act_of(const bnet_act8 *q)
{
    return (gpu_act8){gpu_buf(q->q)->p, gpu_buf(q->scale)->p, gpu_buf(q->sum)->p, q->stride};
}

/* ---- tiles (tiles.h) from rows and back ---- */

typedef struct tiled {
    gpu_at p;
    size_t n_bytes;
    int8_t *tiles, *rows; /* on the host */
} tiled;

static bool tiled_open(gpu_backend *be, const bnet_kernel_call *a, tiled *t)
{
    size_t stride = a->act->stride, tokens = ((size_t)a->m + 127) / 128 * 128; /* whole tiles */
    *t = (tiled){.n_bytes = tokens * stride,
                 .tiles = bnet_calloc(tokens, stride),
                 .rows = bnet_calloc(tokens, stride)};
    t->p = t->tiles && t->rows ? bnet_gpu_take(be, t->n_bytes, &be->other_bytes) : (gpu_at){0};
    return !gpu_none(t->p) || bnet_gpu_ok(be, "memory of a check", GPU_NO_MEMORY);
}

static void tiled_close(gpu_backend *be, tiled *t)
{
    bnet_gpu_give(be, t->p, t->n_bytes, &be->other_bytes);
    bnet_free(t->tiles);
    bnet_free(t->rows);
}

static size_t place(const bnet_kernel_call *a, size_t token, size_t col)
{
    return bnet_tile_place((uint32_t)a->m, (uint32_t)a->act->stride, (uint32_t)token,
                           (uint32_t)col);
}

static void norm_tiles(gpu_backend *be, const bnet_kernel_call *a)
{
    tiled t;
    gpu_act8 act = act_of(a->act);
    bnet_cu_norm_args n = {.x = cuda_at(gpu_buf(a->x)->p),
                           .norm = cuda_at(gpu_w(a->w)->w[0]),
                           .act = cuda_act(&act),
                           .k = (uint32_t)a->n,
                           .ld = (uint32_t)a->n,
                           .eps = a->eps};
    bnet_cu_launch l = bnet_norm_tiles_launch((uint32_t)a->m);
    if (tiled_open(be, a, &t)) {
        n.act.q = cuda_at(t.p);
        bnet_cuda_run(be, a->kernel, 0, &l, 0, &n);
        bnet_gpu_download(be, t.tiles, t.p, t.n_bytes);
        for (size_t i = 0; i < (size_t)a->m; i++)
            for (size_t c = 0; c < act.stride; c++)
                t.rows[i * act.stride + c] = t.tiles[place(a, i, c)];
        bnet_gpu_upload(be, act.q, t.rows, (size_t)a->m * act.stride);
    }
    tiled_close(be, &t);
}

/* One of the row's kernels, with the columns divided where they can be. */
static void one_way(gpu_backend *be, const bnet_kernel_call *a, const cuda_w2_call *c)
{
    int symbol = a->way - 1;
    bnet_cu_gemm_args g = {.m = c->m,
                           .act = c->act,
                           .n_tokens = c->n_tokens,
                           .epilogue = c->epilogue,
                           .splits = c->m.n_chunks > 1 ? 2 : 1};
    g.splits = symbol == 4 || symbol == 7 ? 1 : g.splits;
    bnet_cu_launch l = symbol < 2    ? bnet_w2_tiles_launch(&g, symbol == 1 ? 256 : 128, 64)
                       : symbol == 4 ? bnet_w2_rows_launch(&g, 32)
                       : symbol == 7 ? bnet_w2_rows_launch(&g, 16)
                       : symbol > 4  ? bnet_w2_tiles_launch(&g, 128, symbol == 5 ? 16 : 32)
                                     : bnet_w2_prompt_launch(&g, symbol == 3 ? 96 : 128);
    const gpu_launch launch = {.kernel = a->kernel,
                               .symbol = symbol,
                               .dims = {.grid = {l.grid[0], l.grid[1], l.grid[2]},
                                        .block = {l.block, 1, 1},
                                        .shared_bytes = l.shared,
                                        .cluster = g.splits}};
    cuda_launch(be, &launch, &g);
}

static void linear_tiles(gpu_backend *be, const bnet_kernel_call *a)
{
    tiled t;
    gpu_act8 act = act_of(a->act);
    struct gpu_net *n = bnet_calloc(1, sizeof *n);
    cuda_w2_call c = {.m = bnet_cuda_w2_of(gpu_w(a->w), gpu_buf(a->y)->p),
                      .act = cuda_act(&act),
                      .k = (uint32_t)gpu_w(a->w)->info.n_in,
                      .n_tokens = (uint32_t)a->m,
                      .epilogue = BNET_CU_STORE};
    if (!n) {
        bnet_gpu_ok(be, "memory of a check", GPU_NO_MEMORY);
        return;
    }
    n->tiles = n->norm_tiles = a->kernel;
    if (tiled_open(be, a, &t)) {
        bnet_gpu_download(be, t.rows, act.q, (size_t)a->m * act.stride);
        for (size_t i = 0; i < (size_t)a->m; i++)
            for (size_t k = 0; k < act.stride; k++)
                t.tiles[place(a, i, k)] = t.rows[i * act.stride + k];
        bnet_gpu_upload(be, t.p, t.tiles, t.n_bytes);
        c.act.q = cuda_at(t.p);
        if (a->way)
            one_way(be, a, &c);
        else if (!bnet_cuda_tiles(be, n, &c))
            bnet_gpu_ok(be, a->kernel->id, GPU_NO_KERNEL);
    }
    tiled_close(be, &t);
    bnet_free(n);
}

/* ---- rows, cache, step ---- */

static void norm_quantize(gpu_backend *be, const bnet_kernel_call *a)
{
    gpu_act8 act = act_of(a->act);
    bnet_cuda_norm_act(be, a->kernel, gpu_buf(a->x)->p, gpu_w(a->w)->w[0], a->eps, a->m, a->n,
                       (gpu_at){0}, &act);
}

static const gpu_kv *cache_of(const bnet_kernel_call *a)
{
    return (const gpu_kv *)(const void *)a->step->seqs[a->step->seq[0]].store;
}

static cu_ptr address(bnet_buffer *b)
{
    return b ? cuda_at(gpu_buf(b)->p) : 0;
}

static bnet_cu_attn_args attention(gpu_backend *be, const bnet_kernel_call *a)
{
    bnet_cu_attn_args c = bnet_cuda_attn_args(be, cache_of(a), 0, a->n_heads);
    c.q = address(a->x);
    c.k = address(a->k);
    c.v = address(a->v);
    c.cs = address(a->cs);
    c.y = address(a->y);
    c.n_rot = (uint32_t)a->rope->n_rot;
    c.neox = a->rope->neox;
    return c;
}

static void rope_append(gpu_backend *be, const bnet_kernel_call *a)
{
    if (!bnet_gpu_step(be, a->step, NULL, 0))
        return;
    bnet_cu_attn_args c = attention(be, a);
    bnet_cu_launch l = bnet_rope_append_launch(&c);
    bnet_cuda_run(be, a->kernel, 0, &l, 0, &c);
}

static void prefill(gpu_backend *be, const bnet_kernel_call *a)
{
    if (!bnet_gpu_step(be, a->step, NULL, 0))
        return;
    bnet_cu_attn_args c = attention(be, a);
    bnet_cuda_prefill_run(be, a->kernel, &c);
}

static void topk(gpu_backend *be, const bnet_kernel_call *a)
{
    ((gpu_fn_topk *)a->kernel->fn)(be, a->kernel, gpu_buf(a->x)->p, a->m, a->n, BNET_BEST,
                                   gpu_buf(a->y)->p, gpu_buf(a->ids)->p);
}

/* Whatever the head's size. */
static void best(gpu_backend *be, const bnet_kernel_call *a)
{
    size_t n = (size_t)a->m * (size_t)bnet_screen_most(a->n) * sizeof(float);
    gpu_at most = bnet_gpu_take(be, n, &be->other_bytes);
    if (!bnet_cuda_head_copy_make(be, gpu_w(a->w)) || gpu_none(most))
        bnet_gpu_ok(be, a->kernel->id, GPU_NO_MEMORY);
    else
        ((cuda_fn_best *)a->kernel->fn)(be, a->kernel, gpu_w(a->w), gpu_buf(a->x)->p, a->m, most,
                                        gpu_buf(a->y)->p, gpu_buf(a->ids)->p);
    bnet_gpu_give(be, most, n, &be->other_bytes);
}

/* The step as recorded work gets it, and what kernels then find. */
static void step(gpu_backend *be, const bnet_kernel_call *a)
{
    size_t n_bytes, n = (size_t)a->step->n_tokens * 4;
    if (!bnet_gpu_step_make(be, a->step, NULL, 0) || !bnet_gpu_step_leave(be, &n_bytes))
        return;
    bnet_gpu_ok(be, "clearing", be->d->c->fill(be->d, be->step_at, 0xff, n_bytes));
    ((cuda_fn_fetch *)a->kernel->fn)(be, a->kernel, n_bytes);
    int type = (int)cache_of(a)->shape.type;
    const gpu_at from[] = {be->step.ids, be->step.pos[type], be->step.seq};
    for (size_t i = 0; i < BNET_COUNT(from) && gpu_alive(be); i++)
        bnet_gpu_ok(be, "copying the step",
                    be->d->c->copy(be->d, gpu_plus(gpu_buf(a->ids)->p, i * n), from[i], n));
    if (gpu_alive(be)) /* the pinned memory is free again */
        bnet_gpu_ok(be, "waiting for the device", be->d->c->wait(be->d));
}

bool bnet_cuda_kernel_call(bnet_backend *b, const bnet_kernel_call *a)
{
    static const struct {
        bnet_op op;
        void (*run)(gpu_backend *be, const bnet_kernel_call *a);
    } ops[] = {{BNET_OP_NORM_QUANTIZE, norm_quantize},
               {BNET_OP_NORM_TILES, norm_tiles},
               {BNET_OP_LINEAR_TILES, linear_tiles},
               {BNET_OP_ROPE_APPEND, rope_append},
               {BNET_OP_PREFILL, prefill},
               {BNET_OP_TOPK, topk},
               {BNET_OP_BEST, best},
               {BNET_OP_STEP, step}};
    gpu_backend *be = gpu_of(b);
    for (size_t i = 0; i < BNET_COUNT(ops); i++)
        if (ops[i].op == a->kernel->op) {
            bnet_gpu_enter(be);
            if (gpu_alive(be))
                ops[i].run(be, a);
            bnet_gpu_leave(be);
            return true;
        }
    return false;
}
