/* launch_ref.c - the reference kernels' arguments: lists in the order of ref/ref_args.h, one thread
 * per result, in one dimension. */
#include "backend/gpu/launch_ref.h"
#include "backend/gpu/ref/ref_args.h"
#include "backend/gpu/time.h"

#include <math.h>

/* Members of the structs that kernels take. */
#define AT(place) gpu_arg_at(place)
#define I32(n)    gpu_arg_i32((int64_t)(n))
#define PARTS(w)  AT((w)->w[0]), AT((w)->w[1]), AT((w)->w[2]), AT((w)->w[3])
#define MATRIX(w) PARTS(w), I32((w)->info.n_out), I32((w)->info.n_in), I32((w)->stride), I32(0)
#define ACT8(act) AT((act)->q), AT((act)->scale), AT((act)->sum), I32((act)->stride), I32(0)
#define LIST(...) (const gpu_arg[]){__VA_ARGS__}, (int)BNET_COUNT(((gpu_arg[]){__VA_ARGS__}))

static void run(gpu_backend *be, const bnet_kernel_record *k, uint64_t n_threads,
                const gpu_arg *args, int n_args)
{
    unsigned block = bnet_gpu_block(be, k);
    const gpu_launch launch = {.kernel = k,
                               .dims = {.grid = {(unsigned)((n_threads + block - 1) / block), 1, 1},
                                        .block = {block, 1, 1}}};
    bnet_gpu_launch(be, &launch, args, n_args);
}

/* ---- matrices ---- */

static void linear(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_at x,
                   const gpu_act8 *act, int n_rows, gpu_at y)
{
    run(be, k, (uint64_t)n_rows * w->info.n_out,
        LIST(MATRIX(w), AT(x), ACT8(act), AT(y), gpu_arg_f32(w->scale), I32(w->layout),
             I32(n_rows)));
}

void bnet_gpu_ref_ternary(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                          const gpu_act8 *act, int n_rows, gpu_at y)
{
    if (w->layout == GPU_W2)
        run(be, k, (uint64_t)n_rows * w->info.n_out,
            LIST(AT(w->w[0]), AT(w->block_scales), ACT8(act), AT(y), gpu_arg_f32(w->scale),
                 I32(n_rows), I32(w->info.n_out), I32(w->stride / BNET_W2_CHUNK), I32(w->first),
                 I32(w->paired)));
    else
        linear(be, k, w, (gpu_at){0}, act, n_rows, y);
}

void bnet_gpu_ref_linear(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                         gpu_at x, int n_rows, gpu_at y)
{
    linear(be, k, w, x, &(const gpu_act8){.stride = 0}, n_rows, y);
}

void bnet_gpu_ref_embed(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_at x)
{
    run(be, k, (uint64_t)be->step.n_tokens * w->info.n_in,
        LIST(MATRIX(w), AT(be->step.ids), AT(x), I32(w->layout), I32(be->step.n_tokens)));
}

/* ---- rows ---- */

void bnet_gpu_ref_norm(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, const gpu_weight *w,
                       float eps, int n_rows, gpu_at y)
{
    run(be, k, (uint64_t)n_rows,
        LIST(AT(x), AT(w->w[0]), AT(y), I32(n_rows), I32(w->info.n_in), gpu_arg_f32(eps)));
}

void bnet_gpu_ref_quantize(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                           size_t n_cols, const gpu_act8 *act)
{
    run(be, k, (uint64_t)n_rows, LIST(AT(x), ACT8(act), I32(n_rows), I32(n_cols)));
}

/* By type of cache: positions of the others are -1. Without a cache there is one list. */
void bnet_gpu_ref_table(gpu_backend *be, const bnet_kernel_record *k, const bnet_rope *r, gpu_at cs)
{
    const gpu_step_view *v = &be->step;
    bool any = v->used[0] || v->used[1] || v->used[2];
    for (int type = 0; type < 3; type++)
        if (any ? v->used[type] : type == 0)
            run(be, k, (uint64_t)v->n_tokens * (uint64_t)r->n_rot / 2,
                LIST(AT(v->pos[type]), AT(be->angles), AT(cs), I32(v->n_tokens), I32(r->n_rot)));
}

void bnet_gpu_ref_rope(gpu_backend *be, const bnet_kernel_record *k, const bnet_rope *r, gpu_at cs,
                       int n_rows, int n_heads, gpu_at x)
{
    run(be, k, (uint64_t)n_rows * (uint64_t)n_heads * (uint64_t)r->n_rot / 2,
        LIST(AT(x), AT(cs), I32(n_rows), I32(n_heads), I32(r->head_dim), I32(r->n_rot),
             I32(r->neox)));
}

void bnet_gpu_ref_glu(gpu_backend *be, const bnet_kernel_record *k, gpu_at gate, gpu_at up,
                      size_t n, gpu_at y)
{
    run(be, k, n,
        LIST(AT(gate), AT(up), AT(y), gpu_arg_u64(n), I32(k->format == BNET_FORMAT_SILU)));
}

void bnet_gpu_ref_add(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at y, size_t n)
{
    run(be, k, n, LIST(AT(x), AT(y), gpu_arg_u64(n)));
}

void bnet_gpu_ref_gather(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at rows,
                         int n_rows, size_t n_cols, gpu_at y)
{
    run(be, k, (uint64_t)n_rows * n_cols, LIST(AT(x), AT(rows), AT(y), I32(n_rows), I32(n_cols)));
}

void bnet_gpu_ref_topk(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                       size_t n_cols, int n_best, gpu_at value, gpu_at index)
{
    run(be, k, (uint64_t)n_rows,
        LIST(AT(x), AT(value), AT(index), I32(n_rows), I32(n_cols), I32(n_best)));
}

/* ---- the cache ---- */

typedef struct kv_call {
    const gpu_kv *kv;
    int layer, n_heads;
    gpu_at k, v, q, y;
} kv_call;

static void run_kv(gpu_backend *be, const bnet_kernel_record *k, uint64_t n_threads,
                   const kv_call *c)
{
    const bnet_kv_shape *s = &c->kv->shape;
    const gpu_step_view *v = &be->step;
    run(be, k, n_threads,
        LIST(AT(v->ids), AT(v->pos[s->type]), AT(v->seq), AT(v->seqs), AT(v->tables), AT(c->k),
             AT(c->v), AT(c->q), AT(c->y), gpu_arg_f32(1.0f / sqrtf((float)s->head_dim)),
             I32(v->n_tokens), I32(c->layer), I32(c->n_heads), I32(s->n_kv_heads), I32(s->head_dim),
             I32(s->type), I32(c->kv->part_bytes)));
}

void bnet_gpu_ref_kv_store(gpu_backend *be, const bnet_kernel_record *rec, const gpu_kv *kv,
                           int layer, gpu_at k, gpu_at v)
{
    const kv_call c = {.kv = kv, .layer = layer, .k = k, .v = v};
    run_kv(be, rec, 2 * (uint64_t)be->step.n_tokens * (uint64_t)kv->shape.n_kv_heads, &c);
}

void bnet_gpu_ref_attention(gpu_backend *be, const bnet_kernel_record *k, const gpu_kv *kv,
                            int layer, int n_heads, gpu_at q, gpu_at y)
{
    const kv_call c = {.kv = kv, .layer = layer, .n_heads = n_heads, .q = q, .y = y};
    run_kv(be, k, (uint64_t)be->step.n_tokens * (uint64_t)n_heads, &c);
}

/* ---- packing ---- */

void bnet_gpu_ref_pack(gpu_backend *be, const bnet_kernel_record *k, const gpu_pack *p,
                       const gpu_weight *w)
{
    static const struct {
        int from, unit, elem;
    } how[] = {[GPU_W2] = {REF_FROM_I2S, 4, 0},    [GPU_F32] = {REF_FROM_PLAIN, 4, 4},
               [GPU_F16] = {REF_FROM_PLAIN, 2, 2}, [GPU_BF16] = {REF_FROM_PLAIN, 2, 2},
               [GPU_Q8] = {REF_FROM_Q8_0, 34, 0},  [GPU_Q6K] = {REF_FROM_Q6_K, 210, 0}};
    bool four = p->layout == GPU_Q8 && p->type == BNET_Q4_0;
    uint64_t unit = four ? 18 : (uint64_t)how[p->layout].unit;
    run(be, k, p->n_rows * (p->row_bytes / unit),
        LIST(AT(p->src), PARTS(w), gpu_arg_u64(p->row_bytes), gpu_arg_u64(p->first_row),
             gpu_arg_u64(p->n_rows), I32(four ? REF_FROM_Q4_0 : how[p->layout].from),
             I32(w->stride), I32(how[p->layout].elem), I32(w->stride / BNET_W2_CHUNK)));
}
