/* launch_ops.c - launches of embedding, norms, heads, sampling and attention: the kernels'
 * arguments from the objects of backend/gpu. */
#include "backend/cuda/attn_batch.h"
#include "backend/cuda/batch.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/tiles.h"

#include <math.h>

static const gpu_at nowhere = {0};
enum {
    SPLITS_MAX = 32,
    SPLITS_FIXED = 8,
    HEAD_DIM_MAX = 256,
    STATIC_SHARED = 1 << 10,
    TOPK_ROWS = 16
};

static gpu_dims dims_of(const gpu_backend *be, const bnet_cu_launch *l, unsigned flags)
{
    return (gpu_dims){.grid = {l->grid[0], l->grid[1], l->grid[2]},
                      .block = {l->block, 1, 1},
                      .shared_bytes = l->shared,
                      .flags = be->caps.has & BNET_CUDA_NEED(90) ? flags : 0};
}

void bnet_cuda_run(gpu_backend *be, const bnet_kernel_record *k, int symbol,
                   const bnet_cu_launch *l, unsigned flags, const void *args)
{
    const gpu_launch launch = {.kernel = k, .symbol = symbol, .dims = dims_of(be, l, flags)};
    cuda_launch(be, &launch, args);
}

void bnet_cuda_run_more(gpu_backend *be, const bnet_kernel_record *k, int symbol,
                        const bnet_cu_launch *l, unsigned flags, const void *args)
{
    const gpu_launch launch = {
        .kernel = k, .symbol = symbol, .more = true, .dims = dims_of(be, l, flags)};
    cuda_launch(be, &launch, args);
}

/* ---- rows ---- */

void bnet_cuda_norm_act(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at norm,
                        float eps, int n_rows, size_t n, gpu_at y, const gpu_act8 *act)
{
    bnet_cu_norm_args a = {.x = cuda_at(x),
                           .norm = cuda_at(norm),
                           .y = cuda_at(y),
                           .act = act ? cuda_act(act) : (bnet_dev_act8){0},
                           .k = (uint32_t)n,
                           .ld = (uint32_t)n,
                           .eps = eps};
    bnet_cu_launch l = bnet_norm_launch((uint32_t)n_rows);
    bnet_cuda_run(be, k, 0, &l, GPU_OVERLAP, &a);
}

void bnet_cuda_norm(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, const gpu_weight *w,
                    float eps, int n_rows, gpu_at y)
{
    bnet_cuda_norm_act(be, k, x, w->w[0], eps, n_rows, w->info.n_in, y, NULL);
}

void bnet_cuda_quantize(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                        size_t n_cols, const gpu_act8 *act)
{
    bnet_cuda_norm_act(be, k, x, nowhere, 0, n_rows, n_cols, nowhere, act);
}

void bnet_cuda_embed(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_at x)
{
    bnet_cu_embed_args a = {.m = cuda_matrix(w), .ids = cuda_at(be->step.ids), .y = cuda_at(x)};
    bnet_cu_launch l = bnet_embed_launch((uint32_t)be->step.n_tokens);
    bnet_cuda_run(be, k, 0, &l, GPU_OVERLAP, &a);
}

uint32_t bnet_cuda_shared_max(const gpu_backend *be)
{
    const bnet_gpu *g = &be->d->gpu;
    uint64_t n = BNET_MAX(g->max_shared_memory_optin, g->max_shared_memory_per_block);
    return (uint32_t)(BNET_MAX(n, (uint64_t)BNET_CU_PLAIN_SHARED + STATIC_SHARED) - STATIC_SHARED);
}

static bnet_cu_launch head_launch(const gpu_backend *be, const bnet_cu_head_args *a)
{
    return bnet_head_launch(a, (uint32_t)be->d->gpu.multiprocessors, bnet_cuda_shared_max(be));
}

void bnet_cuda_head(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_at x,
                    int n_rows, gpu_at y)
{
    bnet_cu_head_args a = {.m = cuda_matrix(w),
                           .n_tokens = (uint32_t)n_rows,
                           .ldx = (uint32_t)w->info.n_in,
                           .ld = (uint32_t)w->info.n_out};
    bnet_cu_launch l = head_launch(be, &a);
    while (a.n_tokens > 1 &&
           l.shared > bnet_cuda_shared_max(be)) { /* vectors lie in shared memory */
        a.n_tokens = (a.n_tokens + 1) / 2;
        l = head_launch(be, &a);
    }
    for (uint32_t i = 0, n = a.n_tokens; i < (uint32_t)n_rows; i += n) {
        a.n_tokens = BNET_MIN(n, (uint32_t)n_rows - i);
        a.x = cuda_at(x) + (size_t)i * a.ldx * sizeof(float);
        a.y = cuda_at(y) + (size_t)i * a.ld * sizeof(float);
        l = head_launch(be, &a);
        bnet_cuda_run(be, k, 0, &l, GPU_OVERLAP, &a);
    }
}

/* halves 0: no memory for the rows of x in halves, with a scale each. */
static bnet_cu_batch_args batch_args(gpu_backend *be, const gpu_weight *w, gpu_at x, int n_rows,
                                     gpu_at y)
{
    bnet_cu_batch_args a = {.m = cuda_matrix(w),
                            .x = cuda_at(x),
                            .y = cuda_at(y),
                            .n_tokens = (uint32_t)n_rows,
                            .ldx = (uint32_t)w->info.n_in,
                            .ld = (uint32_t)w->info.n_out};
    size_t padded = bnet_head_batch_padded(a.n_tokens), halves = 4 * padded * w->stride;
    a.halves = cuda_at(bnet_gpu_scratch(be, halves + padded * sizeof(float)));
    a.scale = a.halves + halves;
    return a;
}

void bnet_cuda_head_batch(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                          gpu_at x, int n_rows, gpu_at y)
{
    bnet_cu_batch_args a = batch_args(be, w, x, n_rows, y);
    if (!a.halves)
        return;
    bnet_cu_launch split = bnet_head_split_launch(&a), product = bnet_head_batch_launch(&a);
    bool wgmma = bnet_gpu_has(be, k, 2); /* 9.0 */
    product.shared = wgmma ? product.shared + 1024 : BNET_BATCH_STAGES_MMA * BNET_BATCH_STAGE;
    bnet_cuda_run_more(be, k, 1, &split, GPU_OVERLAP, &a);
    bnet_cuda_run(be, k, wgmma ? 2 : 0, &product, GPU_OVERLAP, &a);
}

/* Symbols: the split, then by 16, 32 and 64 tokens; with warpgroup products (9.0). */
void bnet_cuda_head_batch_q(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                            gpu_at x, int n_rows, gpu_at y)
{
    bnet_cu_batch_args a = batch_args(be, w, x, n_rows, y);
    a.places = 1;
    if (!a.halves)
        return;
    bnet_cu_launch split = bnet_head_split_launch(&a);
    int by = (int)bnet_head_qbatch_tokens(a.n_tokens) / 32; /* 0, 1, 2 */
    bool wgmma = bnet_gpu_has(be, k, 4 + by);
    bnet_cu_launch product =
        wgmma ? bnet_head_qwgmma_launch(&a) : bnet_head_qbatch_launch(&a, bnet_cuda_shared_max(be));
    bnet_cuda_run_more(be, k, 0, &split, GPU_OVERLAP, &a);
    bnet_cuda_run(be, k, (wgmma ? 4 : 1) + by, &product, GPU_OVERLAP, &a);
}

void bnet_cuda_topk(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                    size_t n_cols, int n_best, gpu_at value, gpu_at index)
{
    size_t work = (size_t)n_rows * BNET_TOPK_SLICES * BNET_TOPK_MAX * sizeof(uint64_t);
    bnet_cu_sample_args a = {.logits = cuda_at(x),
                             .id = cuda_at(index),
                             .value = cuda_at(value),
                             .work = cuda_at(bnet_gpu_scratch(be, work)),
                             .n = (uint32_t)n_cols,
                             .ld = (uint32_t)n_cols,
                             .k = (uint32_t)n_best,
                             .rows = (uint32_t)n_rows};
    bool many = n_rows >= TOPK_ROWS && n_cols <= BNET_TOPK_ROW;
    bnet_cu_launch part = many ? bnet_topk_rows_launch(&a) : bnet_topk_part_launch(a.rows);
    bnet_cu_launch merge = many ? bnet_topk_join_launch(&a) : bnet_topk_merge_launch(a.rows);
    if (!a.work)
        return;
    bnet_cuda_run(be, k, many ? 2 : 0, &part, GPU_OVERLAP, &a);
    bnet_cuda_run_more(be, k, many ? 3 : 1, &merge, GPU_OVERLAP, &a);
}

/* ---- attention ---- */

bnet_cu_attn_args bnet_cuda_attn_args(gpu_backend *be, const gpu_kv *kv, int layer, int n_heads)
{
    const bnet_kv_shape *s = &kv->shape;
    return (bnet_cu_attn_args){.step = cuda_step(be, (int)s->type),
                               .tiles = cuda_at(be->step.tiles),
                               .ldq = (uint32_t)(n_heads * s->head_dim),
                               .ldk = (uint32_t)(s->n_kv_heads * s->head_dim),
                               .layer = (uint32_t)layer,
                               .n_heads = (uint32_t)n_heads,
                               .n_kv_heads = (uint32_t)s->n_kv_heads,
                               .head_dim = (uint32_t)s->head_dim,
                               .kv_type = (uint32_t)s->type,
                               .part_bytes = (uint32_t)kv->part_bytes,
                               .n_tokens = (uint32_t)be->step.n_tokens,
                               .n_tiles = (uint32_t)be->step.n_tiles,
                               .scale = 1.0f / sqrtf((float)s->head_dim)};
}

bool bnet_cuda_attn_fits(const bnet_kv_shape *s, int n_heads)
{
    return s->head_dim <= HEAD_DIM_MAX && s->head_dim % 8 == 0 && n_heads % s->n_kv_heads == 0 &&
           n_heads / s->n_kv_heads * s->head_dim <= BNET_ATTN_MAX_QUERY;
}

/* Enough blocks to fill the device four times, whatever the context, or a number that does not
 * depend on the tokens; memory for their parts. */
bool bnet_cuda_attn_split(gpu_backend *be, bnet_cu_attn_args *a)
{
    uint32_t blocks = a->n_tokens * a->n_kv_heads;
    uint32_t n = 4 * (uint32_t)be->d->gpu.multiprocessors / BNET_MAX(blocks, 1u);
    a->n_splits = BNET_MAX(BNET_MIN(n, (uint32_t)SPLITS_MAX), 1u);
    if (be->batch_invariant)
        a->n_splits = SPLITS_FIXED;
    a->work = cuda_at(bnet_gpu_scratch(be, (size_t)bnet_attn_work_bytes(a)));
    a->counters = cuda_at(bnet_gpu_zeros(be, (size_t)blocks * 4));
    return a->work && a->counters;
}

enum { GENERAL, H128_ALONE, H128_SHARED }; /* symbols */

uint32_t bnet_cuda_attn_blocks(const gpu_backend *be, uint32_t who)
{
    uint32_t n = 3 * (uint32_t)be->d->gpu.multiprocessors / BNET_MAX(who, 1u);
    uint32_t most = bnet_attn_batch_stretches((uint32_t)be->step.max_pos + 1);
    return n < 5 ? 1 : BNET_MIN(n, most); /* few do not pay */
}

/* Which symbol serves: those of heads of 128 (9.0), with as many blocks for a token as are on the
 * device together, or the general one. Memory for their parts; -1: there is none. */
static int attn_symbol(gpu_backend *be, const bnet_kernel_record *k, bnet_cu_attn_args *a)
{
    uint32_t who = a->n_tokens * a->n_kv_heads * bnet_attn_batch_octets(a);
    if (!(be->caps.has & BNET_CUDA_NEED(90)) || a->kv_type == BITNET_KV_F32 || a->head_dim != 128 ||
        a->n_heads / a->n_kv_heads > 8 || !bnet_gpu_has(be, k, H128_SHARED))
        return bnet_cuda_attn_split(be, a) ? GENERAL : -1;
    a->n_splits = bnet_cuda_attn_blocks(be, who);
    a->work = cuda_at(bnet_gpu_scratch(be, (size_t)bnet_attn_batch_work_bytes(a)));
    if (a->n_splits > 1)
        a->counters = cuda_at(bnet_gpu_zeros(be, (size_t)who * 4));
    if (!a->work || (a->n_splits > 1 && !a->counters))
        return -1;
    return a->n_splits > 1 ? H128_SHARED : H128_ALONE;
}

void bnet_cuda_attn_run(gpu_backend *be, const bnet_kernel_record *k, bnet_cu_attn_args *a)
{
    int symbol = attn_symbol(be, k, a);
    if (symbol < 0)
        return;
    bnet_cu_launch l =
        symbol == GENERAL ? bnet_attn_decode_launch(a) : bnet_attn_batch_h128_launch(a);
    bnet_cuda_run(be, k, symbol, &l, GPU_OVERLAP, a);
}

void bnet_cuda_attn_decode(gpu_backend *be, const bnet_kernel_record *k, const gpu_kv *kv,
                           int layer, int n_heads, gpu_at q, gpu_at y)
{
    static const char *const plain[] = {"attention_f16_gpu_ref", "attention_f32_gpu_ref",
                                        "attention_i8_gpu_ref"};
    bnet_cu_attn_args a = bnet_cuda_attn_args(be, kv, layer, n_heads);
    if (!bnet_cuda_attn_fits(&kv->shape, n_heads)) {
        const bnet_kernel_record *r = bnet_registry_find(be->registry, plain[kv->shape.type]);
        bnet_gpu_ref_attention(be, r, kv, layer, n_heads, q, y);
        return;
    }
    a.q = cuda_at(q);
    a.y = cuda_at(y);
    bnet_cuda_attn_run(be, k, &a);
}

void bnet_cuda_prefill_run(gpu_backend *be, const bnet_kernel_record *k, bnet_cu_attn_args *a)
{
    bnet_cu_launch l = bnet_attn_prefill_groups(a, bnet_cuda_shared_max(be));
    int symbol = (a->kv_type ? 2 : 0) + (a->head_dim == 64 ? 0 : 1);
    bnet_cuda_run(be, k, symbol, &l, GPU_OVERLAP, a);
}

void bnet_cuda_in_passes(void) {}
