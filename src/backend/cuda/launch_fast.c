/* launch_fast.c - the fast kernels other than the ternary matrices': arguments from objects. */
#include "backend/cuda/attn_batch.h"
#include "backend/cuda/batch.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/tiles.h"

#include <math.h>

enum { SPLITS_MAX = 32, HEAD_DIM_MAX = 256, STATIC_SHARED = 1 << 10, TOPK_ROWS = 4 };

void bnet_cuda_run(gpu_backend *be, const bnet_kernel_record *k, int symbol,
                   const bnet_cu_launch *l, unsigned flags, void *args)
{
    gpu_dims d = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                  .block = {l->block, 1, 1},
                  .shared_bytes = l->shared,
                  .flags = be->caps.cc_major >= 9 ? flags : 0};
    bnet_gpu_launch(be, k, symbol, &d, args);
}

/* ---- rows ---- */

void bnet_cuda_norm_act(gpu_backend *be, const bnet_kernel_record *k, gpu_ptr x, gpu_ptr norm,
                        float eps, int n_rows, size_t n, gpu_ptr y, const gpu_act8 *act)
{
    bnet_cu_norm_args a = {.x = x,
                           .norm = norm,
                           .y = y,
                           .act = act ? cuda_act(act) : (bnet_cu_act8){0},
                           .k = (uint32_t)n,
                           .ld = (uint32_t)n,
                           .eps = eps};
    bnet_cu_launch l = bnet_norm_launch((uint32_t)n_rows);
    bnet_cuda_run(be, k, 0, &l, GPU_OVERLAP, &a);
}

void bnet_cuda_norm(gpu_backend *be, const bnet_kernel_record *k, gpu_ptr x, const gpu_weight *w,
                    float eps, int n_rows, gpu_ptr y)
{
    bnet_cuda_norm_act(be, k, x, w->w[0], eps, n_rows, w->info.n_in, y, NULL);
}

void bnet_cuda_quantize(gpu_backend *be, const bnet_kernel_record *k, gpu_ptr x, int n_rows,
                        size_t n_cols, const gpu_act8 *act)
{
    bnet_cuda_norm_act(be, k, x, 0, 0, n_rows, n_cols, 0, act);
}

void bnet_cuda_norm_quantize(gpu_backend *be, const bnet_kernel_record *k, gpu_ptr x, int n_rows,
                             size_t n_cols, const gpu_act8 *act)
{
    bnet_cuda_norm_act(be, k, x, 0, 0, n_rows, n_cols, 0, act);
}

void bnet_cuda_embed(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_ptr x)
{
    bnet_cu_embed_args a = {.m = cuda_matrix(w), .ids = be->step.ids, .y = x};
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

void bnet_cuda_head(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_ptr x,
                    int n_rows, gpu_ptr y)
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
        a.x = x + (size_t)i * a.ldx * sizeof(float);
        a.y = y + (size_t)i * a.ld * sizeof(float);
        l = head_launch(be, &a);
        bnet_cuda_run(be, k, 0, &l, GPU_OVERLAP, &a);
    }
}

/* halves 0: no memory for the rows of x in halves, with a scale each. */
static bnet_cu_batch_args batch_args(gpu_backend *be, const gpu_weight *w, gpu_ptr x, int n_rows,
                                     gpu_ptr y)
{
    bnet_cu_batch_args a = {.m = cuda_matrix(w),
                            .x = x,
                            .y = y,
                            .n_tokens = (uint32_t)n_rows,
                            .ldx = (uint32_t)w->info.n_in,
                            .ld = (uint32_t)w->info.n_out};
    size_t padded = bnet_head_batch_padded(a.n_tokens), halves = 4 * padded * w->stride;
    a.halves = bnet_gpu_scratch(be, halves + padded * sizeof(float));
    a.scale = a.halves + halves;
    return a;
}

void bnet_cuda_head_batch(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                          gpu_ptr x, int n_rows, gpu_ptr y)
{
    bnet_cu_batch_args a = batch_args(be, w, x, n_rows, y);
    if (!a.halves)
        return;
    bnet_cu_launch split = bnet_head_split_launch(&a), product = bnet_head_batch_launch(&a);
    gpu_dims d = {.grid = {split.grid[0], 1, 1},
                  .block = {split.block, 1, 1},
                  .flags = be->caps.cc_major >= 9 ? GPU_OVERLAP : 0};
    bool wgmma = bnet_gpu_has(be, k, 2); /* 9.0 */
    product.shared = wgmma ? product.shared + 1024 : BNET_BATCH_STAGES_MMA * BNET_BATCH_STAGE;
    bnet_gpu_launch_more(be, k, 1, &d, &a);
    bnet_cuda_run(be, k, wgmma ? 2 : 0, &product, GPU_OVERLAP, &a);
}

/* Symbols: the split, then by 16, 32 and 64 tokens; with warpgroup products (9.0). */
void bnet_cuda_head_batch_q(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                            gpu_ptr x, int n_rows, gpu_ptr y)
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
    gpu_dims d = {.grid = {split.grid[0], 1, 1},
                  .block = {split.block, 1, 1},
                  .flags = be->caps.cc_major >= 9 ? GPU_OVERLAP : 0};
    bnet_gpu_launch_more(be, k, 0, &d, &a);
    bnet_cuda_run(be, k, (wgmma ? 4 : 1) + by, &product, GPU_OVERLAP, &a);
}

void bnet_cuda_topk(gpu_backend *be, const bnet_kernel_record *k, gpu_ptr x, int n_rows,
                    size_t n_cols, int n_best, gpu_ptr value, gpu_ptr index)
{
    size_t work = (size_t)n_rows * BNET_TOPK_SLICES * BNET_TOPK_MAX * sizeof(uint64_t);
    bnet_cu_sample_args a = {.logits = x,
                             .id = index,
                             .value = value,
                             .work = bnet_gpu_scratch(be, work),
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
    gpu_dims d = {.grid = {merge.grid[0], merge.grid[1], merge.grid[2]},
                  .block = {merge.block, 1, 1},
                  .shared_bytes = merge.shared,
                  .flags = be->caps.cc_major >= 9 ? GPU_OVERLAP : 0};
    bnet_gpu_launch_more(be, k, many ? 3 : 1, &d, &a);
}

/* ---- attention ---- */

bnet_cu_attn_args bnet_cuda_attn_args(gpu_backend *be, const gpu_kv *kv, int layer, int n_heads)
{
    const bnet_kv_shape *s = &kv->shape;
    return (bnet_cu_attn_args){.step = cuda_step(be, (int)s->type),
                               .tiles = be->step.tiles,
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

/* Enough blocks to fill the device four times, whatever the context; memory for their parts. */
bool bnet_cuda_attn_split(gpu_backend *be, bnet_cu_attn_args *a)
{
    uint32_t blocks = a->n_tokens * a->n_kv_heads;
    uint32_t n = 4 * (uint32_t)be->d->gpu.multiprocessors / BNET_MAX(blocks, 1u);
    a->n_splits = BNET_MAX(BNET_MIN(n, (uint32_t)SPLITS_MAX), 1u);
    a->work = bnet_gpu_scratch(be, (size_t)bnet_attn_work_bytes(a));
    a->counters = bnet_gpu_zeros(be, (size_t)blocks * 4);
    return a->work && a->counters;
}

/* Blocks of a cluster that divide the context, 1: the kernel of batches; 0: the general one. */
static uint32_t cluster_of(const gpu_backend *be, const bnet_cu_attn_args *a)
{
    uint32_t blocks = a->n_tokens * a->n_kv_heads, c = 8;
    if (be->caps.cc_major < 9 || a->kv_type == BITNET_KV_F32 || a->head_dim != 128 ||
        a->n_heads / a->n_kv_heads > 8)
        return 0;
    while (c > 1 && c * blocks > 2 * (uint32_t)be->d->gpu.multiprocessors)
        c /= 2;
    if (a->kv_type == BITNET_KV_INT8) /* no kernel of clusters, and the general one computes long */
        return c <= 4 ? 1 : 0;
    return c;
}

void bnet_cuda_attn_run(gpu_backend *be, const bnet_kernel_record *k, bnet_cu_attn_args *a)
{
    uint32_t c = cluster_of(be, a);
    int symbol = c ? 1 + __builtin_ctz(c) : 0;
    bnet_cu_launch l = {{0, 0, 0}, 0, 0};
    if (c && bnet_gpu_has(be, k, symbol))
        l = c > 1 ? bnet_attn_decode_h128_launch(a, c) : bnet_attn_batch_h128_launch(a);
    else if (bnet_cuda_attn_split(be, a))
        l = bnet_attn_decode_launch(a), symbol = 0;
    else
        return;
    bnet_cuda_run(be, k, symbol, &l, GPU_OVERLAP, a);
}

void bnet_cuda_attn_decode(gpu_backend *be, const bnet_kernel_record *k, const gpu_kv *kv,
                           int layer, int n_heads, gpu_ptr q, gpu_ptr y)
{
    static const char *const plain[] = {"attention_f16_gpu_ref", "attention_f32_gpu_ref",
                                        "attention_i8_gpu_ref"};
    bnet_cu_attn_args a = bnet_cuda_attn_args(be, kv, layer, n_heads);
    if (!bnet_cuda_attn_fits(&kv->shape, n_heads)) {
        const bnet_kernel_record *r = bnet_registry_find(be->registry, plain[kv->shape.type]);
        bnet_cuda_ref_attention(be, r, kv, layer, n_heads, q, y);
        return;
    }
    a.q = q;
    a.y = y;
    bnet_cuda_attn_run(be, k, &a);
}

void bnet_cuda_prefill_run(gpu_backend *be, const bnet_kernel_record *k, bnet_cu_attn_args *a)
{
    bnet_cu_launch l = bnet_attn_prefill_groups(a, bnet_cuda_shared_max(be));
    int symbol = (a->kv_type ? 2 : 0) + (a->head_dim == 64 ? 0 : 1);
    bnet_cuda_run(be, k, symbol, &l, GPU_OVERLAP, a);
}

/* Rows that are only reached through pass.c. */
void bnet_cuda_rope_append(gpu_backend *be, const bnet_kernel_record *k, const gpu_kv *kv,
                           int layer, gpu_ptr key, gpu_ptr value)
{
    (void)be, (void)k, (void)kv, (void)layer, (void)key, (void)value;
}

void bnet_cuda_attn_prefill(gpu_backend *be, const bnet_kernel_record *k, const gpu_kv *kv,
                            int layer, int n_heads, gpu_ptr q, gpu_ptr y)
{
    bnet_cu_attn_args a = bnet_cuda_attn_args(be, kv, layer, n_heads);
    a.q = q;
    a.y = y;
    bnet_cuda_prefill_run(be, k, &a);
}
