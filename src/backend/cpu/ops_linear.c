/* ops_linear.c - matrix times activations, divided among threads by output rows. The epilogue that
 * turns an integer sum into a float stands here once, for every kernel. The kernel is the
 * registry's choice for the weight and the number of tokens, remembered with the weight. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/pack_q6.h"

enum {
    CHUNK = 32
}; /* rows per kernel call: their bytes stay in the first-level cache while tokens pass */

typedef struct linear_job {
    bnet_kernel_fn fn;
    const bnet_weight *w;
    const bnet_act8 *act;
    size_t first; /* token of the pass this job begins with */
    const float *x;
    float *y; /* of the first token */
    size_t n_tokens;
} linear_job;

/* ---- which kernel ---- */

const bnet_kernel_record *bnet_cpu_pick(const cpu_backend *be, const bnet_weight *w, size_t m)
{
    return bnet_registry_pick(be->registry, &be->caps, &w->query, m, w->picks);
}

/* The kernel for a pass of *m tokens; if none takes so many, *m is cut down until one does. */
static const bnet_kernel_record *pick_for(const cpu_backend *be, const bnet_weight *w, size_t *m)
{
    const bnet_kernel_record *k = bnet_cpu_pick(be, w, *m);
    while (!k && *m > 1) {
        *m = (*m + 1) / 2;
        k = bnet_cpu_pick(be, w, *m);
    }
    return k ? k : w->kernel;
}

/* ---- int8 activations ---- */

/* y = integer sum * (scale of the token * scale of the tensor) */
static inline void epilogue(const int32_t *acc, size_t n, float scale, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)acc[i] * scale;
}

static const int8_t *act_row(const linear_job *j, size_t t)
{
    return (const int8_t *)j->act->q->data + (j->first + t) * j->act->stride;
}

static void ternary_piece(const linear_job *j, size_t row, size_t n, size_t t, size_t n_t)
{
    const bnet_weight *w = j->w;
    const float *scale = (const float *)j->act->scale->data + j->first + t;
    const int32_t *sum = (const int32_t *)j->act->sum->data + j->first + t;
    int32_t acc[CHUNK * BNET_TERNARY_TOKENS];
    ((bnet_fn_ternary *)j->fn)(w->data + row * w->row_bytes, w->row_bytes / 32, n, act_row(j, t),
                               j->act->stride, sum, n_t, acc);
    for (size_t i = 0; i < n_t; i++)
        epilogue(acc + i * n, n, scale[i] * w->info.scale, j->y + (t + i) * w->info.n_out + row);
}

static void scaled_piece(const linear_job *j, size_t row, size_t n, size_t t, size_t n_t)
{
    const bnet_weight *w = j->w;
    const float *scale = (const float *)j->act->scale->data + j->first + t;
    float sums[CHUNK * BNET_TERNARY_TOKENS];
    ((bnet_fn_ternary_scaled *)j->fn)(w->data + row * w->row_bytes, w->row_bytes / 32,
                                      w->block_scales + row * (w->info.n_in / 256), n,
                                      act_row(j, t), j->act->stride, n_t, sums);
    for (size_t i = 0; i < n_t; i++)
        for (size_t r = 0; r < n; r++)
            j->y[(t + i) * w->info.n_out + row + r] = sums[i * n + r] * scale[i];
}

static void fallback_i8_piece(const linear_job *j, size_t row, size_t n, size_t t, size_t n_t)
{
    const bnet_weight *w = j->w;
    const float *scale = (const float *)j->act->scale->data + j->first + t;
    float sums[BNET_LINEAR_TOKENS];
    for (size_t r = row; r < row + n; r++) {
        ((bnet_fn_fallback_i8 *)j->fn)(w->info.type, w->data + r * w->row_bytes, act_row(j, t),
                                       j->act->stride, w->info.n_in, n_t, sums);
        for (size_t i = 0; i < n_t; i++)
            j->y[(t + i) * w->info.n_out + r] = sums[i] * (scale[i] * w->fallback_scale);
    }
}

static void ternary_rows(void *arg, size_t begin, size_t end)
{
    const linear_job *j = arg;
    size_t step = j->w->fallback ? BNET_LINEAR_TOKENS : BNET_TERNARY_TOKENS;
    for (size_t row = begin; row < end; row += CHUNK)
        for (size_t t = 0; t < j->n_tokens; t += step) {
            size_t n = BNET_MIN((size_t)CHUNK, end - row), n_t = BNET_MIN(step, j->n_tokens - t);
            if (j->w->fallback)
                fallback_i8_piece(j, row, n, t, n_t);
            else if (j->w->block_scales)
                scaled_piece(j, row, n, t, n_t);
            else
                ternary_piece(j, row, n, t, n_t);
        }
}

/* Chunks of rows of a matrix that only a program's kernel reads. */
static void whole_chunks(void *arg, size_t begin, size_t end)
{
    const linear_job *j = arg;
    const bnet_weight *w = j->w;
    const bitnet_matrix m = {w->data, w->n_bytes, w->info.n_out, w->info.n_in, w->info.scale};
    for (size_t c = begin; c < end; c++)
        for (size_t t = 0; t < j->n_tokens; t += BNET_TERNARY_TOKENS) {
            size_t row = c * CHUNK, n = BNET_MIN((size_t)CHUNK, m.n_out - row);
            size_t n_t = BNET_MIN((size_t)BNET_TERNARY_TOKENS, j->n_tokens - t);
            const float *scale = (const float *)j->act->scale->data + j->first + t;
            ((bitnet_fn_matrix *)j->fn)(&m, row, n, act_row(j, t), j->act->stride, scale, n_t,
                                        j->y + t * m.n_out + row, m.n_out);
        }
}

/* ---- packed groups of 16 rows ---- */

typedef struct packed_job {
    cpu_backend *be;
    bnet_kernel_fn fn;
    const bnet_weight *const *w;
    int n_weights;
    size_t n_groups; /* of all weights together */
    const bnet_act8 *act;
    size_t first, n_tokens;
    int n_parts;     /* of the tokens: threads that share rows */
    float *const *y; /* of the pass's first token, by weight */
} packed_job;

/* What one thread computes: some groups of all weights, one behind the other, for some tokens. */
typedef struct packed_share {
    size_t begin, end; /* groups */
    size_t first, n_tokens;
    uint8_t *temp;
} packed_share;

/* Groups begin .. end of one weight. */
static void packed_groups(const packed_job *j, const packed_share *s, int i, size_t begin,
                          size_t end)
{
    const bnet_weight *w = j->w[i];
    size_t row = begin * BNET_R16_ROWS, n_out = w->info.n_out;
    bnet_r16 a = {.w = w->data + begin * bnet_r16_group_bytes(w->row_bytes * 4),
                  .n_lines = w->row_bytes / 4,
                  .n_rows = BNET_MIN(end * BNET_R16_ROWS, n_out) - row,
                  .x = (const int8_t *)j->act->q->data + s->first * j->act->stride,
                  .x_stride = j->act->stride,
                  .x_sum = (const int32_t *)j->act->sum->data + s->first,
                  .x_scale = (const float *)j->act->scale->data + s->first,
                  .w_scale = w->info.scale,
                  .n_tokens = s->n_tokens,
                  .y = j->y[i] + s->first * n_out + row,
                  .y_stride = n_out,
                  .temp = s->temp};
    ((bnet_fn_r16 *)j->fn)(&a);
}

static void packed_part(void *arg, bnet_share part)
{
    const packed_job *j = arg;
    packed_share s;
    size_t last, at = 0;
    int n_parts = part.count % j->n_parts ? 1 : j->n_parts; /* fewer threads may take part */
    bnet_split(j->n_groups, 1, part.index / n_parts, part.count / n_parts, &s.begin, &s.end);
    bnet_split(j->n_tokens, 32, part.index % n_parts, n_parts, &s.first, &last);
    s.n_tokens = last - s.first;
    s.first += j->first;
    if (s.begin == s.end || s.n_tokens == 0)
        return;
    s.temp = bnet_cpu_scratch_take(j->be, part.thread);
    for (int i = 0; i < j->n_weights; i++) {
        size_t n = bnet_r16_groups(j->w[i]->info.n_out);
        size_t from = BNET_MAX(s.begin, at), to = BNET_MIN(s.end, at + n);
        if (from < to)
            packed_groups(j, &s, i, from - at, to - at);
        at += n;
    }
    bnet_cpu_scratch_give(j->be, part.thread);
}

/* Into how many parts the tokens are cut beside the rows. With p of them, of n threads, each reads
 * p / n of the weights and 1 / p of the activations: twice as many are better while 2 p^2 weights
 * < n activations (in bytes). A part keeps so many tokens that unpacking weights again, which the
 * threads of other parts do too, does not show. */
static int token_parts(const packed_job *j, size_t n_weight_bytes, int n_threads)
{
    enum { LEAST = 128 };
    size_t p = 1, n = (size_t)n_threads, n_act_bytes = j->n_tokens * j->act->stride;
    while (n % (2 * p) == 0 && j->n_tokens / (2 * p) >= LEAST &&
           2 * p * p * n_weight_bytes < n * n_act_bytes)
        p *= 2;
    return (int)p;
}

static void run_packed(packed_job *j)
{
    enum { SMALL = 1 << 18 }; /* products that are too few to wake threads for */
    size_t n_bytes = 0;
    j->n_groups = 0;
    for (int i = 0; i < j->n_weights; i++) {
        j->n_groups += bnet_r16_groups(j->w[i]->info.n_out);
        n_bytes += j->w[i]->info.n_out * j->w[i]->row_bytes;
    }
    j->n_parts = 1;
    if (4 * n_bytes * j->n_tokens < SMALL) {
        packed_part(j, (bnet_share){0, 1, 0});
        return;
    }
    j->n_parts = token_parts(j, n_bytes, bnet_pool_threads(j->be->pool));
    bnet_pool_run(j->be->pool, packed_part, j);
}

/* ---- float activations ---- */

static void float_rows(void *arg, size_t begin, size_t end)
{
    const linear_job *j = arg;
    const bnet_weight *w = j->w;
    size_t k = w->info.n_in;
    float out[BNET_LINEAR_TOKENS];
    for (size_t row = begin; row < end; row++)
        for (size_t t = 0; t < j->n_tokens; t += BNET_LINEAR_TOKENS) {
            const uint8_t *bytes = w->data + row * w->row_bytes;
            const float *x = j->x + (j->first + t) * k;
            size_t n = BNET_MIN((size_t)BNET_LINEAR_TOKENS, j->n_tokens - t);
            if (w->fallback)
                ((bnet_fn_fallback *)j->fn)(w->info.type, bytes, x, k, k, n, out);
            else
                ((bnet_fn_linear *)j->fn)(bytes, x, k, k, n, out);
            for (size_t i = 0; i < n; i++)
                j->y[(t + i) * w->info.n_out + row] = out[i];
        }
}

/* ---- groups of four rows of Q6_K ---- */

static void r4_groups(void *arg, size_t begin, size_t end)
{
    const linear_job *j = arg;
    size_t k = j->w->info.n_in, n_out = j->w->info.n_out, group = bnet_q6r4_group_bytes(k);
    float out[BNET_LINEAR_TOKENS * BNET_Q6R4_ROWS];
    for (size_t g = begin; g < end; g++)
        for (size_t t = 0; t < j->n_tokens; t += BNET_LINEAR_TOKENS) {
            size_t n = BNET_MIN((size_t)BNET_LINEAR_TOKENS, j->n_tokens - t);
            ((bnet_fn_linear_r4 *)j->fn)(j->w->data + g * group, j->x + (j->first + t) * k, k, k, n,
                                         out);
            for (size_t i = 0; i < n; i++)
                for (size_t r = 4 * g; r < 4 * g + 4 && r < n_out; r++)
                    j->y[(t + i) * n_out + r] = out[4 * i + r % 4];
        }
}

void bnet_cpu_embed_r4(const bnet_weight *w, bnet_fn_embed *fn, size_t id, float *y)
{
    size_t n_blocks = w->info.n_in / 256;
    const uint8_t *group = w->data + id / 4 * bnet_q6r4_group_bytes(w->info.n_in);
    const uint8_t *f16 = group + n_blocks * BNET_Q6R4_BLOCK;
    uint8_t block[BNET_Q6_BLOCK];
    for (size_t b = 0; b < n_blocks; b++) {
        bnet_q6r4_unpack_block(group + b * BNET_Q6R4_BLOCK, f16 + 8 * b, id % 4, block);
        fn(BNET_Q6_K, block, 256, y + 256 * b);
    }
}

/* ---- passes ---- */

static void run_job(cpu_backend *be, linear_job *j)
{
    const bnet_weight_info *i = &j->w->info;
    if (j->w->packed) {
        packed_job p = {.be = be,
                        .fn = j->fn,
                        .w = &j->w,
                        .n_weights = 1,
                        .act = j->act,
                        .n_tokens = j->n_tokens,
                        .first = j->first};
        float *y = j->y - j->first * i->n_out;
        p.y = &y;
        run_packed(&p);
        return;
    }
    if (j->w->whole)
        bnet_pool_items(be->pool, (i->n_out + CHUNK - 1) / CHUNK, 1,
                        CHUNK * i->n_in * j->n_tokens / 16, whole_chunks, j);
    else if (j->w->r4)
        bnet_pool_items(be->pool, bnet_q6r4_groups(i->n_out), 1, 4 * i->n_in * j->n_tokens,
                        r4_groups, j);
    else if (j->act)
        bnet_pool_items(be->pool, i->n_out, 4, i->n_in * j->n_tokens / 16, ternary_rows, j);
    else
        bnet_pool_items(be->pool, i->n_out, 4, i->n_in * j->n_tokens, float_rows, j);
}

void bnet_cpu_linear_with(cpu_backend *be, const bnet_weight *w, const bnet_kernel_record *k,
                          const bnet_act8 *q, const float *x, size_t n_tokens, float *y)
{
    linear_job j = {.fn = k->fn, .w = w, .act = q, .x = x, .y = y, .n_tokens = n_tokens};
    run_job(be, &j);
}

/* Where a program asked for refined choices another kernel may take a turn. Rows that could have
 * been packed are left alone: a choice for them would keep later engines from packing. */
static bnet_trial *begin_trial(const cpu_backend *be, const bnet_weight *w, size_t n,
                               const bnet_kernel_record **k)
{
    bnet_kernel_query q = w->query;
    q.m = n;
    if (!bnet_registry_refines(be->registry) || q.format == BNET_FORMAT_I2S || w->fallback)
        return NULL;
    return bnet_trial_begin(be->registry, &be->caps, &q, k);
}

static bool in_trial(const cpu_backend *be, const bnet_weight *w, size_t n)
{
    bnet_kernel_query q = w->query;
    q.m = n;
    return bnet_registry_refines(be->registry) && bnet_trial_open(be->registry, &be->caps, &q);
}

static void end_trial(const cpu_backend *be, const bnet_weight *w, bnet_trial *trial,
                      const bnet_kernel_record *k, size_t n, double ms)
{
    const bnet_kernel_record *best = bnet_trial_end(be->registry, trial, k, n, ms);
    if (best)
        bnet_logf(&be->log, BITNET_LOG_INFO, "tuning",
                  "linear %s, m %zu, n %llu, k %llu: %s was fastest and serves from now on",
                  bnet_format_name(w->query.format), n, (unsigned long long)w->query.n,
                  (unsigned long long)w->query.k, best->id);
}

static void linear(cpu_backend *be, const bnet_weight *w, const bnet_act8 *q, const float *x,
                   size_t n_tokens, float *y)
{
    for (size_t t = 0, n; t < n_tokens; t += n) {
        n = n_tokens - t;
        const bnet_kernel_record *k = pick_for(be, w, &n);
        bnet_trial *trial = begin_trial(be, w, n, &k);
        double begun = trial ? bnet_now_ms() : 0;
        linear_job j = {.fn = cpu_use(be, k),
                        .w = w,
                        .act = q,
                        .first = t,
                        .x = x,
                        .y = y + t * w->info.n_out,
                        .n_tokens = n};
        if (w->fallback)
            atomic_fetch_add_explicit(&be->n_fallbacks, 1, memory_order_relaxed);
        run_job(be, &j);
        if (trial)
            end_trial(be, w, trial, k, n, bnet_now_ms() - begun);
    }
}

void bnet_cpu_linear_ternary(bnet_backend *b, const bnet_weight *w, const bnet_act8 *q, int n_rows,
                             bnet_buffer *y)
{
    linear((cpu_backend *)b, w, q, NULL, (size_t)n_rows, y->data);
}

void bnet_cpu_linear_ternary_n(bnet_backend *b, const bnet_weight *const *w, int n,
                               const bnet_act8 *q, int n_rows, bnet_buffer *const *y)
{
    enum { MOST = 4 };
    cpu_backend *be = (cpu_backend *)b;
    const bnet_kernel_record *k = bnet_cpu_pick(be, w[0], (size_t)n_rows);
    bool together = k != NULL && n <= MOST;
    float *out[MOST];
    for (int i = 0; i < n && together; i++) {
        together = w[i]->packed && bnet_cpu_pick(be, w[i], (size_t)n_rows) == k &&
                   !in_trial(be, w[i], (size_t)n_rows); /* each is timed by itself */
        out[i] = y[i]->data;
    }
    if (!together) {
        for (int i = 0; i < n; i++)
            bnet_cpu_linear_ternary(b, w[i], q, n_rows, y[i]);
        return;
    }
    for (int i = 0; i < n; i++)
        cpu_use(be, k); /* as many matrices, as many calls */
    packed_job j = {.be = be,
                    .fn = k->fn,
                    .w = w,
                    .n_weights = n,
                    .act = q,
                    .n_tokens = (size_t)n_rows,
                    .y = out};
    run_packed(&j);
}

void bnet_cpu_linear_float(bnet_backend *b, const bnet_weight *w, bnet_buffer *x, int n_rows,
                           bnet_buffer *y)
{
    linear((cpu_backend *)b, w, NULL, x->data, (size_t)n_rows, y->data);
}
