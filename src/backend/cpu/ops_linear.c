/* ops_linear.c - matrix times activations, divided among threads by output rows. The epilogue that
 * turns an integer sum into a float stands here once, for every kernel. */
#include "backend/cpu/cpu.h"

enum {
    CHUNK = 32
}; /* rows per kernel call: their bytes stay in the first-level cache while tokens pass */

typedef struct linear_job {
    cpu_fn fn;
    const bnet_weight *w;
    const bnet_act8 *act;
    const float *x;
    float *y;
    size_t n_tokens;
} linear_job;

/* y = integer sum * (scale of the token * scale of the tensor) */
static inline void epilogue(const int32_t *acc, size_t n, float scale, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)acc[i] * scale;
}

static void ternary_chunk(const linear_job *j, size_t row, size_t n)
{
    const bnet_weight *w = j->w;
    const float *scale = j->act->scale->data;
    const int32_t *sum = j->act->sum->data;
    int32_t acc[CHUNK];
    for (size_t t = 0; t < j->n_tokens; t++) {
        const int8_t *x = (const int8_t *)j->act->q->data + t * j->act->stride;
        float *y = j->y + t * w->info.n_out + row;
        ((bnet_fn_ternary *)j->fn)(w->data + row * w->row_bytes, w->row_bytes / 32, x, sum[t], n,
                                   acc);
        epilogue(acc, n, scale[t] * w->info.scale, y);
    }
}

static void scaled_chunk(const linear_job *j, size_t row, size_t n)
{
    const bnet_weight *w = j->w;
    const float *scale = j->act->scale->data;
    for (size_t t = 0; t < j->n_tokens; t++) {
        const int8_t *x = (const int8_t *)j->act->q->data + t * j->act->stride;
        float *y = j->y + t * w->info.n_out + row;
        ((bnet_fn_ternary_scaled *)j->fn)(w->data + row * w->row_bytes, w->row_bytes / 32,
                                          w->block_scales + row * (w->info.n_in / 256), x, n, y);
        for (size_t i = 0; i < n; i++)
            y[i] *= scale[t];
    }
}

static void ternary_rows(void *arg, size_t begin, size_t end)
{
    const linear_job *j = arg;
    for (size_t row = begin; row < end; row += CHUNK) {
        size_t n = BNET_MIN((size_t)CHUNK, end - row);
        if (j->w->block_scales)
            scaled_chunk(j, row, n);
        else
            ternary_chunk(j, row, n);
    }
}

void bnet_cpu_linear_ternary(bnet_backend *b, const bnet_weight *w, const bnet_act8 *q, int n_rows,
                             bnet_buffer *y)
{
    cpu_backend *be = (cpu_backend *)b;
    linear_job j = {
        .fn = cpu_use(be, w->row), .w = w, .act = q, .y = y->data, .n_tokens = (size_t)n_rows};
    bnet_cpu_items(be, w->info.n_out, 4, w->info.n_in * (size_t)n_rows / 16, ternary_rows, &j);
}

static void float_rows(void *arg, size_t begin, size_t end)
{
    const linear_job *j = arg;
    const bnet_weight *w = j->w;
    float out[BNET_LINEAR_TOKENS];
    for (size_t row = begin; row < end; row++)
        for (size_t t = 0; t < j->n_tokens; t += BNET_LINEAR_TOKENS) {
            size_t n = BNET_MIN((size_t)BNET_LINEAR_TOKENS, j->n_tokens - t);
            ((bnet_fn_linear *)j->fn)(w->data + row * w->row_bytes, j->x + t * w->info.n_in,
                                      w->info.n_in, w->info.n_in, n, out);
            for (size_t i = 0; i < n; i++)
                j->y[(t + i) * w->info.n_out + row] = out[i];
        }
}

void bnet_cpu_linear_float(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, int n_rows,
                           bnet_buffer *y)
{
    cpu_backend *be = (cpu_backend *)b;
    linear_job j = {
        .fn = cpu_use(be, w->row), .w = w, .x = x->data, .y = y->data, .n_tokens = (size_t)n_rows};
    bnet_cpu_items(be, w->info.n_out, 4, w->info.n_in * (size_t)n_rows, float_rows, &j);
}
