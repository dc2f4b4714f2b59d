/* launch_ref.c - the reference kernels' arguments: lists in the order of ref/ref_args.h, one thread
 * per result, in one dimension. */
#include "backend/gpu/launch_ref.h"
#include "backend/gpu/ref/ref_args.h"
#include "backend/gpu/time.h"

#include <math.h>

enum { ARGS_MAX = 24 };

/* Arguments of one launch. */
typedef struct list {
    gpu_arg a[ARGS_MAX];
    int n;
} list;

static void at(list *l, gpu_at place)
{
    l->a[l->n++] = gpu_arg_at(place);
}

static void i32(list *l, int64_t i)
{
    l->a[l->n++] = gpu_arg_i32(i);
}

static void f32(list *l, float f)
{
    l->a[l->n++] = gpu_arg_f32(f);
}

static void u64(list *l, uint64_t n)
{
    l->a[l->n++] = gpu_arg_u64(n);
}

static void parts(list *l, const gpu_weight *w)
{
    for (int i = 0; i < 4; i++)
        at(l, w->w[i]);
}

/* bnet_dev_matrix */
static void matrix(list *l, const gpu_weight *w)
{
    parts(l, w);
    i32(l, (int64_t)w->info.n_out);
    i32(l, (int64_t)w->info.n_in);
    i32(l, w->stride);
    i32(l, 0);
}

/* bnet_dev_act8; NULL: none */
static void act8(list *l, const gpu_act8 *act)
{
    static const gpu_act8 none = {.stride = 0};
    act = act ? act : &none;
    at(l, act->q);
    at(l, act->scale);
    at(l, act->sum);
    i32(l, (int64_t)act->stride);
    i32(l, 0);
}

static void run(gpu_backend *be, const bnet_kernel_record *k, uint64_t n_threads, const list *l)
{
    unsigned block = bnet_gpu_block(be, k);
    const gpu_launch launch = {.kernel = k,
                               .dims = {.grid = {(unsigned)((n_threads + block - 1) / block), 1, 1},
                                        .block = {block, 1, 1}}};
    bnet_gpu_launch(be, &launch, l->a, l->n);
}

/* ---- matrices ---- */

static void linear(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_at x,
                   const gpu_act8 *act, int n_rows, gpu_at y)
{
    list l = {.n = 0};
    matrix(&l, w);
    at(&l, x);
    act8(&l, act);
    at(&l, y);
    f32(&l, w->scale);
    i32(&l, w->layout);
    i32(&l, n_rows);
    run(be, k, (uint64_t)n_rows * w->info.n_out, &l);
}

void bnet_gpu_ref_ternary(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                          const gpu_act8 *act, int n_rows, gpu_at y)
{
    list l = {.n = 0};
    if (w->layout != GPU_W2) {
        linear(be, k, w, (gpu_at){0}, act, n_rows, y);
        return;
    }
    at(&l, w->w[0]);
    at(&l, w->block_scales);
    act8(&l, act);
    at(&l, y);
    f32(&l, w->scale);
    i32(&l, n_rows);
    i32(&l, (int64_t)w->info.n_out);
    i32(&l, w->stride / BNET_W2_CHUNK);
    i32(&l, w->first);
    i32(&l, w->paired);
    run(be, k, (uint64_t)n_rows * w->info.n_out, &l);
}

void bnet_gpu_ref_linear(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w,
                         gpu_at x, int n_rows, gpu_at y)
{
    linear(be, k, w, x, NULL, n_rows, y);
}

void bnet_gpu_ref_embed(gpu_backend *be, const bnet_kernel_record *k, const gpu_weight *w, gpu_at x)
{
    list l = {.n = 0};
    matrix(&l, w);
    at(&l, be->step.ids);
    at(&l, x);
    i32(&l, w->layout);
    i32(&l, be->step.n_tokens);
    run(be, k, (uint64_t)be->step.n_tokens * w->info.n_in, &l);
}

/* ---- rows ---- */

void bnet_gpu_ref_norm(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, const gpu_weight *w,
                       float eps, int n_rows, gpu_at y)
{
    list l = {.n = 0};
    at(&l, x);
    at(&l, w->w[0]);
    at(&l, y);
    i32(&l, n_rows);
    i32(&l, (int64_t)w->info.n_in);
    f32(&l, eps);
    run(be, k, (uint64_t)n_rows, &l);
}

void bnet_gpu_ref_quantize(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                           size_t n_cols, const gpu_act8 *act)
{
    list l = {.n = 0};
    at(&l, x);
    act8(&l, act);
    i32(&l, n_rows);
    i32(&l, (int64_t)n_cols);
    run(be, k, (uint64_t)n_rows, &l);
}

static void table(gpu_backend *be, const bnet_kernel_record *k, const bnet_rope *r, gpu_at pos,
                  gpu_at cs)
{
    list l = {.n = 0};
    at(&l, pos);
    at(&l, be->angles);
    at(&l, cs);
    i32(&l, be->step.n_tokens);
    i32(&l, r->n_rot);
    run(be, k, (uint64_t)be->step.n_tokens * (uint64_t)r->n_rot / 2, &l);
}

/* By type of cache: positions of the others are -1. Without a cache there is one list. */
void bnet_gpu_ref_table(gpu_backend *be, const bnet_kernel_record *k, const bnet_rope *r, gpu_at cs)
{
    const gpu_step_view *v = &be->step;
    bool any = v->used[0] || v->used[1] || v->used[2];
    for (int type = 0; type < 3; type++)
        if (any ? v->used[type] : type == 0)
            table(be, k, r, v->pos[type], cs);
}

void bnet_gpu_ref_rope(gpu_backend *be, const bnet_kernel_record *k, const bnet_rope *r, gpu_at cs,
                       int n_rows, int n_heads, gpu_at x)
{
    list l = {.n = 0};
    at(&l, x);
    at(&l, cs);
    i32(&l, n_rows);
    i32(&l, n_heads);
    i32(&l, r->head_dim);
    i32(&l, r->n_rot);
    i32(&l, r->neox);
    run(be, k, (uint64_t)n_rows * (uint64_t)n_heads * (uint64_t)r->n_rot / 2, &l);
}

void bnet_gpu_ref_glu(gpu_backend *be, const bnet_kernel_record *k, gpu_at gate, gpu_at up,
                      size_t n, gpu_at y)
{
    list l = {.n = 0};
    at(&l, gate);
    at(&l, up);
    at(&l, y);
    u64(&l, n);
    i32(&l, k->format == BNET_FORMAT_SILU);
    run(be, k, n, &l);
}

void bnet_gpu_ref_add(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at y, size_t n)
{
    list l = {.n = 0};
    at(&l, x);
    at(&l, y);
    u64(&l, n);
    run(be, k, n, &l);
}

void bnet_gpu_ref_gather(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, gpu_at rows,
                         int n_rows, size_t n_cols, gpu_at y)
{
    list l = {.n = 0};
    at(&l, x);
    at(&l, rows);
    at(&l, y);
    i32(&l, n_rows);
    i32(&l, (int64_t)n_cols);
    run(be, k, (uint64_t)n_rows * n_cols, &l);
}

void bnet_gpu_ref_topk(gpu_backend *be, const bnet_kernel_record *k, gpu_at x, int n_rows,
                       size_t n_cols, int n_best, gpu_at value, gpu_at index)
{
    list l = {.n = 0};
    at(&l, x);
    at(&l, value);
    at(&l, index);
    i32(&l, n_rows);
    i32(&l, (int64_t)n_cols);
    i32(&l, n_best);
    run(be, k, (uint64_t)n_rows, &l);
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
    const gpu_at places[] = {v->ids, v->pos[s->type], v->seq, v->seqs, v->tables, c->k, c->v, c->q,
                             c->y};
    list l = {.n = 0};
    for (size_t i = 0; i < BNET_COUNT(places); i++)
        at(&l, places[i]);
    f32(&l, 1.0f / sqrtf((float)s->head_dim));
    i32(&l, v->n_tokens);
    i32(&l, c->layer);
    i32(&l, c->n_heads);
    i32(&l, s->n_kv_heads);
    i32(&l, s->head_dim);
    i32(&l, s->type);
    i32(&l, (int64_t)c->kv->part_bytes);
    run(be, k, n_threads, &l);
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
    list l = {.n = 0};
    at(&l, p->src);
    parts(&l, w);
    u64(&l, p->row_bytes);
    u64(&l, p->first_row);
    u64(&l, p->n_rows);
    i32(&l, four ? REF_FROM_Q4_0 : how[p->layout].from);
    i32(&l, w->stride);
    i32(&l, how[p->layout].elem);
    i32(&l, w->stride / BNET_W2_CHUNK);
    run(be, k, p->n_rows * (p->row_bytes / unit), &l);
}
