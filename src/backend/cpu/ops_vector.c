/* ops_vector.c - ops that treat each token's row on its own: embedding, norm, quantisation, rope,
 * gates, sums. */
#include "backend/cpu/cpu.h"

#include <math.h>

typedef struct rows_job {
    bnet_kernel_fn fn;
    const bnet_weight *w;
    const bnet_step *step;
    const float *x, *x2;
    float *y, *sum; /* sum: what x2 is added to */
    size_t n;       /* columns */
    float eps;
    bnet_act8 *act;
    const bnet_rope *rope;
    int n_heads;
} rows_job;

static void embed_rows(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    for (size_t t = begin; t < end; t++) {
        size_t id = (size_t)j->step->ids[t];
        if (j->w->r4)
            bnet_cpu_embed_r4(j->w, (bnet_fn_embed *)j->fn, id, j->y + t * j->n);
        else
            ((bnet_fn_embed *)j->fn)(j->w->info.type, j->w->data + id * j->w->row_bytes, j->n,
                                     j->y + t * j->n);
    }
}

void bnet_cpu_embed(bnet_backend *b, const bnet_weight *w, const bnet_step *s, bnet_buffer *x)
{
    cpu_backend *be = (cpu_backend *)b;
    rows_job j = {
        .fn = cpu_use(be, be->use.embed), .w = w, .step = s, .y = x->data, .n = w->info.n_in};
    bnet_pool_items(be->pool, (size_t)s->n_tokens, 1, j.n, embed_rows, &j);
}

static void rmsnorm_rows(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    for (size_t t = begin; t < end; t++)
        ((bnet_fn_rmsnorm *)j->fn)(j->x + t * j->n, (const float *)(const void *)j->w->data, j->n,
                                   j->eps, j->y + t * j->n);
}

void bnet_cpu_rmsnorm(bnet_backend *b, bnet_buffer *x, const bnet_weight *w, float eps, int n_rows,
                      bnet_buffer *y)
{
    cpu_backend *be = (cpu_backend *)b;
    rows_job j = {.fn = cpu_use(be, be->use.rmsnorm),
                  .w = w,
                  .x = x->data,
                  .y = y->data,
                  .n = w->info.n_in,
                  .eps = eps};
    bnet_pool_items(be->pool, (size_t)n_rows, 1, j.n, rmsnorm_rows, &j);
}

static void quantize_rows(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    int8_t *q = j->act->q->data;
    for (size_t t = begin; t < end; t++)
        ((float *)j->act->scale->data)[t] =
            ((bnet_fn_quantize *)j->fn)(j->x + t * j->n, j->n, j->act->stride,
                                        q + t * j->act->stride, (int32_t *)j->act->sum->data + t);
}

void bnet_cpu_quantize_i8(bnet_backend *b, bnet_buffer *x, int n_rows, size_t n_cols, bnet_act8 *q)
{
    cpu_backend *be = (cpu_backend *)b;
    rows_job j = {.fn = cpu_use(be, be->use.quantize), .x = x->data, .n = n_cols, .act = q};
    bnet_pool_items(be->pool, (size_t)n_rows, 1, n_cols, quantize_rows, &j);
}

/* ---- norm and int8 in one call ---- */

static bnet_normed normed(const rows_job *j, size_t t)
{
    return (bnet_normed){.w = (const float *)(const void *)j->w->data,
                         .n = j->n,
                         .eps = j->eps,
                         .y = j->y + t * j->n,
                         .stride = j->act->stride,
                         .q = (int8_t *)j->act->q->data + t * j->act->stride,
                         .sum = (int32_t *)j->act->sum->data + t};
}

static void norm_quantize_rows(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    float *scale = j->act->scale->data;
    for (size_t t = begin; t < end; t++) {
        bnet_normed to = normed(j, t);
        scale[t] = ((bnet_fn_norm_quantize *)j->fn)(j->x + t * j->n, &to);
    }
}

static void add_norm_quantize_rows(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    float *scale = j->act->scale->data;
    for (size_t t = begin; t < end; t++) {
        bnet_normed to = normed(j, t);
        scale[t] = ((bnet_fn_add_norm_quantize *)j->fn)(j->sum + t * j->n, j->x2 + t * j->n, &to);
    }
}

static void glu_norm_quantize_rows(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    float *scale = j->act->scale->data;
    for (size_t t = begin; t < end; t++) {
        bnet_normed to = normed(j, t);
        scale[t] = ((bnet_fn_glu_norm_quantize *)j->fn)(j->x + t * j->n, j->x2 + t * j->n, &to);
    }
}

void bnet_cpu_norm_quantize(bnet_backend *b, bnet_buffer *x, bnet_buffer *plus,
                            const bnet_weight *w, float eps, int n_rows, bnet_buffer *y,
                            bnet_act8 *q)
{
    cpu_backend *be = (cpu_backend *)b;
    size_t n = w->info.n_in;
    if (!be->fuses) {
        if (plus)
            bnet_cpu_add(b, x, plus, (size_t)n_rows * n);
        bnet_cpu_rmsnorm(b, x, w, eps, n_rows, y);
        bnet_cpu_quantize_i8(b, y, n_rows, n, q);
        return;
    }
    rows_job j = {.fn = cpu_use(be, plus ? be->use.add_norm_quantize : be->use.norm_quantize),
                  .w = w,
                  .x = x->data,
                  .x2 = plus ? plus->data : NULL,
                  .sum = x->data,
                  .y = y->data,
                  .n = n,
                  .eps = eps,
                  .act = q};
    bnet_pool_items(be->pool, (size_t)n_rows, 1, 2 * n,
                    plus ? add_norm_quantize_rows : norm_quantize_rows, &j);
}

/* The gate of a single long row is divided among threads, which the norm cannot be: then the two
 * are separate calls. */
void bnet_cpu_glu_norm_quantize(bnet_backend *b, bnet_activation act, bnet_buffer *gate,
                                bnet_buffer *up, const bnet_weight *w, float eps, int n_rows,
                                bnet_buffer *y, bnet_act8 *q)
{
    cpu_backend *be = (cpu_backend *)b;
    size_t n = w->info.n_in;
    if (!be->fuses || (n_rows == 1 && n >= BNET_POOL_SMALL)) {
        bnet_cpu_glu(b, act, gate, up, (size_t)n_rows * n, y);
        bnet_cpu_norm_quantize(b, y, NULL, w, eps, n_rows, y, q);
        return;
    }
    rows_job j = {.fn = cpu_use(be, act == BNET_ACT_RELU2 ? be->use.glu_relu2_norm_quantize
                                                          : be->use.glu_silu_norm_quantize),
                  .w = w,
                  .x = gate->data,
                  .x2 = up->data,
                  .y = y->data,
                  .n = n,
                  .eps = eps,
                  .act = q};
    bnet_pool_items(be->pool, (size_t)n_rows, 1, 3 * n, glu_norm_quantize_rows, &j);
}

/* Angles in double: position times inverse frequency loses nothing that a float cosine could show.
 */
static void rope_table_rows(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    for (size_t t = begin; t < end; t++)
        for (size_t i = 0; i < j->n; i++) {
            double angle = (double)j->step->pos[t] * j->rope->inv_freq[i];
            j->y[2 * (t * j->n + i)] = (float)cos(angle);
            j->y[2 * (t * j->n + i) + 1] = (float)sin(angle);
        }
}

void bnet_cpu_rope_table(bnet_backend *b, const bnet_rope *r, const bnet_step *s, bnet_buffer *cs)
{
    rows_job j = {.step = s, .y = cs->data, .n = (size_t)r->n_rot / 2, .rope = r};
    bnet_pool_items(((cpu_backend *)b)->pool, (size_t)s->n_tokens, 1, 16 * j.n, rope_table_rows,
                    &j);
}

static void rope_rows(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    size_t hd = (size_t)j->rope->head_dim, n_rot = (size_t)j->rope->n_rot;
    for (size_t i = begin; i < end; i++)
        ((bnet_fn_rope *)j->fn)(j->y + i * hd, j->x + i / (size_t)j->n_heads * n_rot, n_rot);
}

void bnet_cpu_rope(bnet_backend *b, const bnet_rope *r, bnet_buffer *cs, int n_rows, int n_heads,
                   bnet_buffer *x)
{
    cpu_backend *be = (cpu_backend *)b;
    rows_job j = {.fn = cpu_use(be, r->neox ? be->use.rope_neox : be->use.rope_norm),
                  .x = cs->data,
                  .y = x->data,
                  .rope = r,
                  .n_heads = n_heads};
    bnet_pool_items(be->pool, (size_t)n_rows * (size_t)n_heads, 1, (size_t)r->head_dim, rope_rows,
                    &j);
}

static void glu_items(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    ((bnet_fn_glu *)j->fn)(j->x + begin, j->x2 + begin, end - begin, j->y + begin);
}

void bnet_cpu_glu(bnet_backend *b, bnet_activation act, bnet_buffer *gate, bnet_buffer *up,
                  size_t n, bnet_buffer *y)
{
    cpu_backend *be = (cpu_backend *)b;
    const bnet_kernel_record *k = act == BNET_ACT_RELU2 ? be->use.glu_relu2 : be->use.glu_silu;
    rows_job j = {.fn = cpu_use(be, k), .x = gate->data, .x2 = up->data, .y = y->data};
    bnet_pool_items(be->pool, n, 64, 1, glu_items, &j);
}

static void add_items(void *arg, size_t begin, size_t end)
{
    const rows_job *j = arg;
    ((bnet_fn_add *)j->fn)(j->y + begin, j->x + begin, end - begin);
}

void bnet_cpu_add(bnet_backend *b, bnet_buffer *x, bnet_buffer *y, size_t n)
{
    cpu_backend *be = (cpu_backend *)b;
    rows_job j = {.fn = cpu_use(be, be->use.add), .x = y->data, .y = x->data};
    bnet_pool_items(be->pool, n, 64, 1, add_items, &j);
}

void bnet_cpu_gather(bnet_backend *b, bnet_buffer *x, const int32_t *rows, int n_rows,
                     size_t n_cols, bnet_buffer *y)
{
    (void)b;
    for (int i = 0; i < n_rows; i++)
        memcpy((float *)y->data + (size_t)i * n_cols, (float *)x->data + (size_t)rows[i] * n_cols,
               n_cols * sizeof(float));
}
