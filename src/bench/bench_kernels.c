/* bench_kernels.c - kernels one by one, on the shapes of a model. With one token the weights are
 * read from memory, as in decoding: several copies take turns, together larger than the last cache.
 */
#include "bench/bench.h"

enum { COPIES_MAX = 64, SHAPES_MAX = 64, REFERENCE_TOKENS = 8 };
static const uint64_t turn_bytes = (uint64_t)96 << 20;
static const double most_ops = 2.5e10;
static const double longest_ms = 1000; /* a pass slower than this is not repeated */

typedef struct measuring {
    bitnet_engine *engine;
    bnet_backend *backend;
    const bnet_capabilities *caps;
    int n_repeats;
    bitnet_kernel_rate_fn each;
    void *user;
    bnet_bench *copies[COPIES_MAX];
    size_t n_copies;
} measuring;

/* Bytes of the weights of a shape as a file holds them; ternary ones take 2 bits. */
static uint64_t weight_bytes(const bnet_kernel_query *q)
{
    uint64_t n = 0;
    bool r4 = q->format == BNET_FORMAT_Q6_K_R4; /* the same bytes in another order */
    const bnet_type_info *t = bnet_format_type(r4 ? BNET_FORMAT_Q6_K : q->format);
    if (bnet_format_ternary(q->format))
        return q->n * q->k / 4;
    return t && bnet_type_bytes(t->type, q->k, q->n, &n) ? n : 0;
}

static void free_copies(measuring *m)
{
    for (size_t i = 0; i < m->n_copies; i++)
        bnet_bench_free(m->backend, m->copies[i]);
    m->n_copies = 0;
}

static bitnet_status make_copies(measuring *m, const bnet_kernel_query *q, bitnet_error *err)
{
    uint64_t bytes = weight_bytes(q), cache = 2 * m->engine->runtime->devices->cpu.l3_bytes;
    uint64_t want = BNET_MAX(turn_bytes, cache);
    bool one = q->m > 1 || bytes == 0 ||
               bnet_backend_capabilities(m->backend); /* a device makes its own */
    size_t n = one ? 1 : (size_t)(want / bytes + 1);
    bitnet_status st = BITNET_OK;
    n = BNET_MIN(n, (size_t)COPIES_MAX);
    while (st == BITNET_OK && m->n_copies < n) {
        st = bnet_bench_new(m->backend, q, &m->copies[m->n_copies], err);
        m->n_copies += st == BITNET_OK;
    }
    return st;
}

/* Milliseconds of one pass; each repetition goes through all copies. */
static double median_ms(const measuring *m, const bnet_kernel_record *k, bitnet_launch *shape)
{
    double ms[64], first = bnet_bench_run(m->backend, m->copies[0], k, shape);
    int n = BNET_MIN(m->n_repeats, (int)BNET_COUNT(ms));
    if (first > longest_ms)
        return first;
    for (int r = 0; r < n; r++) {
        ms[r] = 0;
        for (size_t i = 0; i < m->n_copies; i++)
            ms[r] += bnet_bench_run(m->backend, m->copies[i], k, NULL) / (double)m->n_copies;
    }
    return bitnet_summarize(ms, (size_t)n).median;
}

static void tell(const measuring *m, const bitnet_kernel_query *shape, const bnet_kernel_query *q,
                 const bnet_kernel_record *k, const bnet_kernel_record *chosen)
{
    bitnet_kernel_rate r = {.shape = *shape, .kernel = k->id, .chosen = k == chosen};
    double ops = 2.0 * (double)q->m * (double)q->n * (double)q->k;
    r.shape.m = q->m;
    r.ms = median_ms(m, k, &r.launch);
    if (r.ms <= 0) /* it cannot run here after all */
        return;
    r.gb_s = (double)weight_bytes(q) / r.ms / 1e6;
    r.gop_s = ops / r.ms / 1e6;
    m->each(m->user, &r);
}

/* As many tokens as a pass of bearable length takes; a kernel's rate hardly depends on it. The
 * reference kernels get the fewest. */
static uint64_t tokens_for(const bnet_kernel_query *q, bool reference)
{
    uint64_t m = reference ? BNET_MIN(q->m, (uint64_t)REFERENCE_TOKENS) : q->m;
    while (m > REFERENCE_TOKENS && 2.0 * (double)m * (double)q->n * (double)q->k > most_ops)
        m /= 2;
    return m;
}

static bitnet_status one_shape(measuring *m, const bitnet_kernel_query *shape, bool reference,
                               bitnet_error *err)
{
    const bitnet_runtime *rt = m->engine->runtime;
    bnet_kernel_query q;
    const bnet_kernel_record *k, *chosen = NULL;
    char reason[160];
    bitnet_status st = bnet_query_read(shape, m->caps->device, &q, err);
    if (bnet_registry_select(rt->registry, m->caps, &q, &chosen, NULL) != BITNET_OK)
        chosen = NULL;
    q.m = tokens_for(&q, reference);
    for (size_t i = 0; st == BITNET_OK && (k = bnet_registry_at(rt->registry, i)); i++) {
        if ((k->tier == BITNET_TIER_REFERENCE) != reference ||
            *bnet_kernel_veto(k, m->caps, &q, reason, sizeof reason))
            continue;
        if (m->n_copies == 0)
            st = make_copies(m, &q, err);
        if (st == BITNET_OK)
            tell(m, shape, &q, k, chosen);
    }
    free_copies(m);
    return st;
}

bitnet_status bitnet_bench_each_kernel(bitnet_engine *e, uint64_t m, int n_repeats,
                                       bitnet_kernel_rate_fn each, void *user, bitnet_error *err)
{
    bitnet_kernel_query shapes[SHAPES_MAX];
    measuring run = {.engine = e, .n_repeats = n_repeats, .each = each, .user = user};
    if (!e || !each || m < 1 || n_repeats < 1)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "bench: engine and callback must not be NULL, m and n_repeats above 0");
    const bitnet_runtime *rt = e->runtime;
    size_t n = BNET_MIN(bitnet_engine_shapes(e, shapes, SHAPES_MAX), (size_t)SHAPES_MAX);
    if (n == 0 || !bnet_bench_possible(e->backend))
        return bnet_fail(err, BITNET_NOT_AVAILABLE,
                         "bench: kernels of this device are not measured one by one");
    bitnet_status st = BITNET_OK;
    const bnet_capabilities *device = bnet_backend_capabilities(e->backend);
    run.caps = device ? device : &rt->caps;
    if (device)
        run.backend = e->backend;
    else
        st = bnet_backend_open_cpu(rt->pool, rt->registry, rt->isa, false, &rt->log, &run.backend,
                                   err);
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        shapes[i].m = m;
        st = one_shape(&run, &shapes[i], false, err);
        if (st == BITNET_OK)
            st = one_shape(&run, &shapes[i], true, err);
    }
    if (!device)
        bnet_backend_close(run.backend);
    return st;
}
