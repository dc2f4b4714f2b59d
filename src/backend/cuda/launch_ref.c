/* launch_ref.c - the reference kernels' arguments: one thread per result, in one dimension. */
#include "backend/cuda/launch.h"
#include "backend/gpu/time.h"

#include <math.h>

static gpu_dims threads(uint64_t n, unsigned block)
{
    return (gpu_dims){.grid = {(unsigned)((n + block - 1) / block), 1, 1}, .block = {block, 1, 1}};
}

static void run(gpu_backend *be, const bnet_kernel_record *k, uint64_t n_threads, void *args)
{
    const gpu_launch l = {.kernel = k, .dims = threads(n_threads, bnet_gpu_block(be, k))};
    cuda_launch(be, &l, args);
}

/* ---- matrices ---- */

static void linear(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_at x,
                   const gpu_act8 *act, int n_rows, gpu_at y)
{
    ref_linear_args a = {.w = cuda_matrix(w),
                         .x = cuda_at(x),
                         .act = act ? cuda_act(act) : (bnet_cu_act8){0},
                         .y = cuda_at(y),
                         .scale = w->scale,
                         .type = (int32_t)w->layout,
                         .m = n_rows};
    run(be, k, (uint64_t)n_rows * w->info.n_out, &a);
}

void bnet_cuda_ref_ternary(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                           const gpu_act8 *act, int n_rows, gpu_at y)
{
    if (w->layout != GPU_W2) {
        linear(be, k, w, (gpu_at){0}, act, n_rows, y);
        return;
    }
    ref_ternary_args a = {.w = cuda_at(w->w[0]),
                          .scales = cuda_at(w->block_scales),
                          .act = cuda_act(act),
                          .y = cuda_at(y),
                          .scale = w->scale,
                          .m = n_rows,
                          .n = (int32_t)w->info.n_out,
                          .n_chunks = (int32_t)(w->stride / BNET_W2_CHUNK),
                          .first_tile = (int32_t)w->first,
                          .paired = (int32_t)w->paired};
    run(be, k, (uint64_t)n_rows * w->info.n_out, &a);
}

void bnet_cuda_ref_linear(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                          gpu_at x, int n_rows, gpu_at y)
{
    linear(be, k, w, x, NULL, n_rows, y);
}

void bnet_cuda_ref_embed(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                         gpu_at x)
{
    ref_embed_args a = {.m = cuda_matrix(w),
                        .ids = cuda_at(be->step.ids),
                        .x = cuda_at(x),
                        .type = (int32_t)w->layout,
                        .n_tokens = be->step.n_tokens};
    run(be, k, (uint64_t)be->step.n_tokens * w->info.n_in, &a);
}

/* ---- rows ---- */

void bnet_cuda_ref_norm(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, const gpu_weight *w,
                        float eps, int n_rows, gpu_at y)
{
    ref_norm_args a = {cuda_at(x), cuda_at(w->w[0]),      cuda_at(y),
                       n_rows,     (int32_t)w->info.n_in, eps};
    run(be, k, (uint64_t)n_rows, &a);
}

void bnet_cuda_ref_quantize(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                            size_t n_cols, const gpu_act8 *act)
{
    ref_quantize_args a = {cuda_at(x), cuda_act(act), n_rows, (int32_t)n_cols};
    run(be, k, (uint64_t)n_rows, &a);
}

void bnet_cuda_ref_table(gpu_backend *be, const bnet_kernel_record *k, const bnet_rope *r,
                         gpu_at cs)
{
    for (int type = 0; type < 3; type++) {
        ref_rope_table_args a = {cuda_at(be->step.pos[type]), cuda_at(be->angles), cuda_at(cs),
                                 be->step.n_tokens, r->n_rot};
        bool any = be->step.used[0] || be->step.used[1] || be->step.used[2];
        if (any ? be->step.used[type] : type == 0)
            run(be, k, (uint64_t)be->step.n_tokens * (uint64_t)r->n_rot / 2, &a);
    }
}

void bnet_cuda_ref_rope(gpu_backend *be, const bnet_kernel_record *k, const bnet_rope *r, gpu_at cs,
                        int n_rows, int n_heads, gpu_at x)
{
    ref_rope_args a = {cuda_at(x), cuda_at(cs), n_rows, n_heads, r->head_dim, r->n_rot, r->neox};
    run(be, k, (uint64_t)n_rows * (uint64_t)n_heads * (uint64_t)r->n_rot / 2, &a);
}

void bnet_cuda_ref_glu(gpu_backend *be, const bnet_kernel_record *k, gpu_at gate, gpu_at up,
                       size_t n, gpu_at y)
{
    ref_glu_args a = {cuda_at(gate), cuda_at(up), cuda_at(y), n, strcmp(k->format, "silu") == 0};
    run(be, k, n, &a);
}

void bnet_cuda_ref_add(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at y, size_t n)
{
    ref_add_args a = {cuda_at(x), cuda_at(y), n};
    run(be, k, n, &a);
}

void bnet_cuda_ref_gather(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at rows,
                          int n_rows, size_t n_cols, gpu_at y)
{
    ref_gather_args a = {cuda_at(x), cuda_at(rows), cuda_at(y), n_rows, (int32_t)n_cols};
    run(be, k, (uint64_t)n_rows * n_cols, &a);
}

void bnet_cuda_ref_topk(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                        size_t n_cols, int n_best, gpu_at value, gpu_at index)
{
    ref_topk_args a = {cuda_at(x), cuda_at(value), cuda_at(index), n_rows, (int32_t)n_cols, n_best};
    run(be, k, (uint64_t)n_rows, &a);
}

/* Kernels see pinned memory at the host's address. */
void bnet_cuda_ref_fetch(gpu_backend *be, const bnet_kernel_record *k, size_t n_bytes)
{
    ref_fetch_args a = {cuda_at(cuda_pinned(be->step_host)), cuda_at(be->step_at), n_bytes / 4};
    run(be, k, a.n, &a);
}

/* ---- the cache ---- */

static ref_kv_args kv_args(const gpu_backend *be, const gpu_kv *kv, int layer)
{
    const bnet_kv_shape *s = &kv->shape;
    return (ref_kv_args){.step = cuda_step(be, (int)s->type),
                         .scale = 1.0f / sqrtf((float)s->head_dim),
                         .n_tokens = be->step.n_tokens,
                         .layer = layer,
                         .n_kv_heads = s->n_kv_heads,
                         .head_dim = s->head_dim,
                         .type = (int32_t)s->type,
                         .part_bytes = (int32_t)kv->part_bytes};
}

void bnet_cuda_ref_kv_store(gpu_backend *be, const bnet_kernel_record *rec, const gpu_kv *kv,
                            int layer, gpu_at k, gpu_at v)
{
    ref_kv_args a = kv_args(be, kv, layer);
    a.k = cuda_at(k);
    a.v = cuda_at(v);
    run(be, rec, 2 * (uint64_t)a.n_tokens * (uint64_t)a.n_kv_heads, &a);
}

void bnet_cuda_ref_attention(gpu_backend *be, const bnet_kernel_record *k, const gpu_kv *kv,
                             int layer, int n_heads, gpu_at q, gpu_at y)
{
    ref_kv_args a = kv_args(be, kv, layer);
    a.n_heads = n_heads;
    a.q = cuda_at(q);
    a.y = cuda_at(y);
    run(be, k, (uint64_t)a.n_tokens * (uint64_t)n_heads, &a);
}

/* ---- packing ---- */

void bnet_cuda_ref_pack(gpu_backend *be, const bnet_kernel_record *k, const gpu_pack *p,
                        const gpu_weight *w)
{
    static const struct {
        int from, unit, elem;
    } how[] = {[GPU_W2] = {REF_FROM_I2S, 4, 0},    [GPU_F32] = {REF_FROM_PLAIN, 4, 4},
               [GPU_F16] = {REF_FROM_PLAIN, 2, 2}, [GPU_BF16] = {REF_FROM_PLAIN, 2, 2},
               [GPU_Q8] = {REF_FROM_Q8_0, 34, 0},  [GPU_Q6K] = {REF_FROM_Q6_K, 210, 0}};
    bool four = p->layout == GPU_Q8 && p->type == BNET_Q4_0;
    ref_pack_args a = {
        .src = cuda_at(p->src),
        .w = {cuda_at(w->w[0]), cuda_at(w->w[1]), cuda_at(w->w[2]), cuda_at(w->w[3])},
        .row_bytes = p->row_bytes,
        .first_row = p->first_row,
        .n_rows = p->n_rows,
        .from = four ? REF_FROM_Q4_0 : how[p->layout].from,
        .stride = (int32_t)w->stride,
        .elem = how[p->layout].elem,
        .n_chunks = (int32_t)(w->stride / BNET_W2_CHUNK)};
    run(be, k, p->n_rows * (p->row_bytes / (uint64_t)(four ? 18 : how[p->layout].unit)), &a);
}
