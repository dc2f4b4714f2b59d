/* bench.c - kernels of matrices one by one: random rows of a shape, several copies that together
 * are larger than the last cache, and recorded launches that go round them, timed by the device. */
#include "backend/gpu/gpu.h"
#include "backend/gpu/time.h"

enum { LAUNCHES = 100, FEW = 4, COPIES_MAX = 96, PATTERN_ROWS = 64, STAMP = 8 };
static const uint64_t round_bytes = (uint64_t)256 << 20;

struct bnet_bench {
    gpu_backend *be;
    size_t m;
    gpu_weight *first;
    gpu_weight copies[COPIES_MAX];
    int n_copies;
    gpu_at more; /* memory of copies 1.. */
    size_t more_bytes;
    gpu_at x, y; /* floats [m][k], [m][n] */
    gpu_act8 act;
    size_t memory_bytes; /* of x, y and act */
    const bnet_kernel_record *recorded;
    gpu_graph graph;
    int n_launches;
};

/* ---- weights ---- */

static uint32_t next_random(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

static void random_row(bnet_type type, size_t k, uint32_t *seed, float *f, uint8_t *row, size_t n)
{
    for (size_t i = 0; i < k; i++)
        f[i] = (float)(next_random(seed) % 2001) / 1000.0f - 1.0f;
    if (type != BNET_I2_S) {
        bnet_encode_row(type, f, row, k);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned byte = 0;
        for (int b = 0; b < 4; b++)
            byte = byte << 2 | next_random(seed) % 3;
        row[i] = (uint8_t)byte;
    }
}

/* Some random rows, repeated; behind ternary ones their scale. */
static uint8_t *random_tensor(bnet_type type, size_t n, size_t k, uint64_t *n_bytes)
{
    uint64_t row_bytes = k / 4, scale_bytes = 32;
    const float one = 1;
    uint32_t seed = 1;
    if (type != BNET_I2_S) {
        scale_bytes = 0;
        if (!bnet_type_bytes(type, k, 1, &row_bytes))
            return NULL;
    }
    uint8_t *out = bnet_alloc(n * row_bytes + scale_bytes);
    float *f = bnet_alloc(k * sizeof *f);
    for (size_t r = 0; out && f && r < n; r++)
        if (r < PATTERN_ROWS)
            random_row(type, k, &seed, f, out + r * row_bytes, row_bytes);
        else
            memcpy(out + r * row_bytes, out + r % PATTERN_ROWS * row_bytes, row_bytes);
    if (out && scale_bytes)
        memcpy(out + n * row_bytes, &one, sizeof one);
    bnet_free(f);
    *n_bytes = n * row_bytes + scale_bytes;
    return out;
}

static bitnet_status make_weight(bnet_bench *b, const bnet_kernel_query *q, bitnet_error *err)
{
    bool ternary = q->format == BNET_FORMAT_I2S;
    const bnet_type_info *t = bnet_format_type(ternary ? BNET_FORMAT_I2_S : q->format);
    uint8_t probe[1 << 10];
    float zeros[256] = {0};
    if (q->op != BNET_OP_LINEAR || !t || (!ternary && !bnet_encode_row(t->type, zeros, probe, 256)))
        return bnet_fail(err, BITNET_ARGUMENT, "bench: no rows of format '%s' can be made",
                         bnet_format_name(q->format));
    bnet_tensor tensor = {.name = "bench", .n_dims = 2, .ne = {q->k, q->n, 1, 1}, .type = t->type};
    uint8_t *bytes = random_tensor(t->type, q->n, q->k, &tensor.n_bytes);
    if (!bytes)
        return bnet_no_memory(err, "bench");
    tensor.data = bytes;
    tensor.n_span = tensor.n_bytes;
    const bnet_weight_request r = {.source.tensor = &tensor,
                                   .source.file = "bench",
                                   .source.layout = BITNET_I2S_128,
                                   .source.extra_scale = 1};
    bnet_weight *w = NULL;
    bitnet_status st = bnet_gpu_weight_prepare(&b->be->base, &r, &b->be->log, &w, err);
    if (st == BITNET_OK)
        b->first = gpu_w(w);
    bnet_free(bytes);
    return st;
}

/* As many as together are more than any cache holds; fewer where memory is short. */
static void make_copies(bnet_bench *b)
{
    gpu_backend *be = b->be;
    size_t bytes = b->first->n_bytes;
    uint64_t want = b->m > 8 ? 1 : round_bytes / bytes + 1;
    b->copies[0] = *b->first;
    b->n_copies = 1;
    want = BNET_MIN(want, (uint64_t)COPIES_MAX);
    while (want > 1 && gpu_none(b->more)) {
        b->more_bytes = (size_t)(want - 1) * bytes;
        b->more = bnet_gpu_take(be, b->more_bytes, &be->other_bytes);
        want = gpu_none(b->more) ? want / 2 : want;
    }
    for (uint64_t i = 1; !gpu_none(b->more) && i < want; i++) {
        gpu_at at = gpu_plus(b->more, (i - 1) * bytes);
        gpu_weight *w = &b->copies[b->n_copies++];
        *w = *b->first;
        bnet_gpu_ok(be, "copying", be->d->c->copy(be->d, at, b->first->w[0], bytes));
        for (int p = 0; p < 4; p++)
            w->w[p] =
                gpu_none(w->w[p]) ? w->w[p] : gpu_plus(at, w->w[p].offset - b->first->w[0].offset);
    }
}

/* A byte that is a small integer, and of which halves and floats near 1 are made: where these are
 * processed on a CPU, numbers close to 0 would take a hundred times as long. */
enum { INPUT = 0x3f };

static bool make_inputs(bnet_bench *b, const bnet_kernel_query *q)
{
    gpu_backend *be = b->be;
    size_t m = b->m, k = q->k, n = q->n, stride = (k + 127) / 128 * 128;
    size_t at_y = m * k * 4, at_q = at_y + m * n * 4, at_s = (at_q + m * stride + 255) / 256 * 256;
    b->memory_bytes = at_s + 2 * (m * 4 + 256);
    b->x = bnet_gpu_take(be, b->memory_bytes, &be->other_bytes);
    if (gpu_none(b->x))
        return false;
    b->y = gpu_plus(b->x, at_y);
    b->act = (gpu_act8){gpu_plus(b->x, at_q), gpu_plus(b->x, at_s),
                        gpu_plus(b->x, at_s + m * 4 + 256), stride};
    return bnet_gpu_ok(be, "clearing", be->d->c->fill(be->d, b->x, INPUT, b->memory_bytes));
}

bitnet_status bnet_gpu_bench_new(bnet_backend *backend, const bnet_kernel_query *q,
                                 bnet_bench **out, bitnet_error *err)
{
    bnet_bench *b = bnet_calloc(1, sizeof *b);
    if (!b)
        return bnet_no_memory(err, "bench");
    gpu_backend *be = b->be = gpu_of(backend);
    b->m = (size_t)q->m;
    bitnet_status st = make_weight(b, q, err);
    if (st == BITNET_OK) {
        bnet_gpu_enter(be);
        if (!make_inputs(b, q))
            st = bnet_no_memory(err, "bench: memory of the device");
        else
            make_copies(b);
        bnet_gpu_leave(be);
    }
    if (st != BITNET_OK) {
        bnet_gpu_bench_free(b);
        return st;
    }
    *out = b;
    return BITNET_OK;
}

void bnet_gpu_bench_free(bnet_bench *b)
{
    gpu_backend *be = b->be;
    bnet_gpu_enter(be);
    if (b->graph)
        be->d->c->graph_release(be->d, b->graph);
    bnet_gpu_give(be, b->more, b->more_bytes, &be->other_bytes);
    bnet_gpu_give(be, b->x, b->memory_bytes, &be->other_bytes);
    bnet_gpu_leave(be);
    if (b->first)
        bnet_gpu_weight_free(&be->base, (bnet_weight *)(void *)b->first);
    bnet_free(b);
}

/* ---- runs ---- */

static void launch_all(bnet_bench *b, const bnet_kernel_record *k, int n)
{
    gpu_backend *be = b->be;
    for (int i = 0; i < n && gpu_alive(be); i++) {
        const gpu_weight *w = &b->copies[i % b->n_copies];
        if (w->info.ternary)
            ((gpu_fn_ternary *)k->fn)(be, k, w, &b->act, (int)b->m, b->y);
        else
            ((gpu_fn_linear *)k->fn)(be, k, w, b->x, (int)b->m, b->y);
    }
}

/* Launches once, so that all memory is there, then records them. */
static bool record(bnet_bench *b, const bnet_kernel_record *k)
{
    gpu_backend *be = b->be;
    const gpu_calls *c = be->d->c;
    uint32_t counts[BNET_KERNELS_MAX] = {0};
    if (b->recorded == k)
        return gpu_alive(be);
    if (b->graph)
        c->graph_release(be->d, b->graph);
    b->graph = NULL;
    b->n_launches = k->tier == BITNET_TIER_REFERENCE || b->m > 8 ? FEW : LAUNCHES;
    launch_all(b, k, 1);
    if (!c->record_begin || k->program) /* its work may not be the driver's to record */
        return gpu_alive(be);
    if (!gpu_alive(be) || !bnet_gpu_ok(be, "recording", c->record_begin(be->d)))
        return false;
    be->recording = counts;
    launch_all(b, k, b->n_launches);
    be->recording = NULL;
    if (!bnet_gpu_ok(be, "recording", c->record_end(be->d, &b->graph)))
        return false;
    b->recorded = k;
    return bnet_gpu_ok(be, "warming up", c->replay(be->d, b->graph));
}

double bnet_gpu_bench_run(bnet_bench *b, const bnet_kernel_record *k, bitnet_launch *shape)
{
    gpu_backend *be = b->be;
    const gpu_calls *c = be->d->c;
    double ms = 0;
    bnet_gpu_enter(be);
    if (c->stamp && record(b, k) && bnet_gpu_ok(be, "measuring", c->stamp(be->d, STAMP))) {
        if (b->graph)
            bnet_gpu_ok(be, "measuring", c->replay(be->d, b->graph));
        else
            launch_all(b, k, b->n_launches);
        if (bnet_gpu_ok(be, "measuring", c->stamp(be->d, STAMP + 1)))
            bnet_gpu_ok(be, "measuring", c->between(be->d, STAMP, STAMP + 1, &ms));
    }
    bool ok = gpu_alive(be) && be->last.kernel == k; /* another one may have served in its place */
    if (ok && shape && !k->program)
        *shape = bnet_gpu_launch_shape(be, k, be->last.symbol, &be->last.dims);
    bnet_gpu_leave(be);
    return ok ? ms / b->n_launches : 0;
}

/* ---- the memory ---- */

enum { COPY_BYTES = 256 << 20, COPIES = 4, COPIES_AT_ONCE = 4 };

/* The best of a few copies inside the device, each byte read and written; 0: no room for them, or
 * they failed. */
double bnet_gpu_read_limit(bnet_backend *b)
{
    gpu_backend *be = gpu_of(b);
    const gpu_calls *c = be->d->c;
    size_t n = (size_t)BNET_MIN(be->d->gpu.total_memory / 64, (uint64_t)COPY_BYTES);
    double best = 0;
    bnet_gpu_enter(be);
    gpu_at p = bnet_gpu_take(be, 2 * n, &be->other_bytes);
    for (int i = 0; !gpu_none(p) && i < COPIES; i++) {
        bnet_gpu_ok(be, "waiting for the device", c->wait(be->d));
        double start = bnet_now_ms();
        for (int k = 0; k < COPIES_AT_ONCE && gpu_alive(be); k++)
            bnet_gpu_ok(be, "copying", c->copy(be->d, p, gpu_plus(p, n), n));
        bnet_gpu_ok(be, "waiting for the device", c->wait(be->d));
        double ms = bnet_now_ms() - start;
        if (!gpu_alive(be))
            break;
        best = BNET_MAX(best, ms > 0 ? 2.0 * COPIES_AT_ONCE * (double)n / ms / 1e6 : 0);
    }
    bnet_gpu_give(be, p, 2 * n, &be->other_bytes);
    if (!gpu_alive(be) && bnet_gpu_verdict(be, NULL) != BITNET_OK) /* nobody else asks for it */
        best = 0;
    bnet_gpu_leave(be);
    return best;
}
