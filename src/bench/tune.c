/* tune.c - measuring kernels of the runtime's device and keeping the fastest. Candidates take
 * turns, repetition by repetition, so that a machine that slows down slows all of them; the median
 * decides.
 */
#include "engine/engine.h"
#include "bitnet_tools.h"

enum { REPEATS = 9, REPEATS_MAX = 1000, CANDIDATES_MAX = 64 };

size_t bitnet_engine_shapes(const bitnet_engine *e, bitnet_kernel_query *out, size_t cap)
{
    if (!e || (cap && !out))
        return 0;
    enum { MOST = 64 };
    bnet_kernel_query q[MOST];
    size_t n = e->backend ? bnet_backend_shapes(e->backend, q, MOST) : 0;
    for (size_t i = 0; i < n && i < cap && i < MOST; i++)
        out[i] = (bitnet_kernel_query){.op = bnet_op_name(q[i].op),
                                       .format = bnet_format_name(q[i].format),
                                       .dtype = bnet_dtype_name(q[i].dtype),
                                       .n = q[i].n,
                                       .k = q[i].k};
    return n;
}

typedef struct contest {
    bitnet_runtime *runtime;
    bnet_backend *backend;
    bnet_capabilities caps; /* of its device */
    int n_repeats;
    bitnet_tune_fn each;
    void *user;
    bitnet_error *err;
    const bnet_kernel_record *who[CANDIDATES_MAX];
    double median[CANDIDATES_MAX];
    size_t n;
} contest;

static void find_candidates(contest *c, const bnet_kernel_query *q)
{
    const bnet_kernel_record *k;
    char reason[160];
    c->n = 0;
    for (size_t i = 0; (k = bnet_registry_at(c->runtime->registry, i)) && c->n < CANDIDATES_MAX;
         i++)
        if (!*bnet_kernel_veto(k, &c->caps, q, reason, sizeof reason))
            c->who[c->n++] = k;
}

/* Leaves out those that cannot be timed: a device may have been loaded without one, or another one
 * serves in its place. */
static void warm(contest *c, bnet_bench *bench)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (bnet_bench_run(c->backend, bench, c->who[i], NULL) > 0)
            c->who[n++] = c->who[i];
    c->n = n;
}

static bitnet_status measure(contest *c, const bnet_kernel_query *q)
{
    bnet_bench *bench;
    size_t n_r = (size_t)c->n_repeats;
    bitnet_status st = bnet_bench_new(c->backend, q, &bench, c->err);
    if (st != BITNET_OK)
        return st;
    double *ms = bnet_calloc(c->n * n_r, sizeof *ms);
    warm(c, bench);
    for (size_t rep = 0; ms && rep < n_r; rep++)
        for (size_t i = 0; i < c->n; i++)
            ms[i * n_r + rep] = bnet_bench_run(c->backend, bench, c->who[i], NULL);
    for (size_t i = 0; ms && i < c->n; i++)
        c->median[i] = bitnet_summarize(ms + i * n_r, n_r).median;
    bnet_bench_free(c->backend, bench);
    bnet_free(ms);
    return ms ? BITNET_OK : bnet_no_memory(c->err, "tuning");
}

static bitnet_status contest_shape(contest *c, const bitnet_kernel_query *shape)
{
    bnet_kernel_query q;
    const bnet_kernel_record *any;
    bitnet_status st = bnet_query_read(shape, c->caps.device, &q, c->err);
    if (st != BITNET_OK)
        return st;
    find_candidates(c, &q);
    if (c->n == 0)
        return bnet_registry_select(c->runtime->registry, &c->caps, &q, &any, c->err);
    st = measure(c, &q);
    if (st == BITNET_OK && c->n == 0)
        st = bnet_fail(c->err, BITNET_NOT_AVAILABLE,
                       "tune: no kernel of %s %s, n %llu, k %llu could be timed on %s", shape->op,
                       shape->format, (unsigned long long)q.n, (unsigned long long)q.k,
                       bnet_device_name(c->caps.device));
    if (st != BITNET_OK)
        return st;
    size_t best = 0;
    for (size_t i = 1; i < c->n; i++)
        if (c->median[i] < c->median[best])
            best = i;
    for (size_t i = 0; c->each && i < c->n; i++)
        c->each(c->user, &(bitnet_tune_result){*shape, c->who[i]->id, c->median[i], i == best});
    return bnet_registry_tune(c->runtime->registry, &q, c->who[best]->id, c->err);
}

static bitnet_status save(const bitnet_runtime *r, const char *path, bitnet_error *err)
{
    bnet_str key = {0};
    bitnet_status st = bnet_runtime_tuning_key(r, &key, err);
    if (st == BITNET_OK)
        st = bnet_registry_save_tuning(r->registry, key.data, path, err);
    bnet_str_free(&key);
    return st;
}

/* The device that models of this runtime would use, by itself. */
static bitnet_status open_device(contest *c, bitnet_error *err)
{
    const bitnet_runtime *r = c->runtime;
    const bnet_backend_want want = {.device = r->selection.kind,
                                    .index = r->selection.index,
                                    .pool = r->pool,
                                    .registry = r->registry,
                                    .isa = r->isa,
                                    .log = &r->log};
    if (r->selection.ranks.n > 1)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "tune: kernels are measured on one device, and the runtime has several; "
                         "open one for each");
    bitnet_status st = bnet_backend_open(&want, &c->backend, err);
    if (st != BITNET_OK)
        return st;
    const bnet_capabilities *caps = bnet_backend_capabilities(c->backend);
    c->caps = caps ? *caps : r->caps;
    if (!bnet_bench_possible(c->backend))
        return bnet_fail(err, BITNET_NOT_AVAILABLE, "tune: kernels of %s are not measured",
                         bnet_device_name(want.device));
    return BITNET_OK;
}

/* A shape is measured on the runtime's device, and on no other. */
static bitnet_status check_device(const contest *c, const bitnet_kernel_query *shape)
{
    const bnet_selection *s = &c->runtime->selection;
    bnet_request request;
    if (!shape->device)
        return BITNET_OK;
    bitnet_status st = bnet_request_parse(shape->device, "device", &request, c->err);
    if (st != BITNET_OK || request.is_auto || (request.any_gpu && s->kind < BNET_DEV_CPU) ||
        (!request.any_gpu && request.kind == s->kind &&
         (request.index < 0 || request.index == BNET_MAX(s->index, 0))))
        return st;
    return bnet_fail(c->err, BITNET_ARGUMENT,
                     "tune: device '%s' is not the runtime's (%s); open a runtime for it",
                     request.text, bnet_device_name(s->kind));
}

bitnet_status bitnet_runtime_tune(bitnet_runtime *r, const bitnet_kernel_query *shapes,
                                  size_t n_shapes, int n_repeats, const char *path,
                                  bitnet_tune_fn each, void *user, bitnet_error *err)
{
    if (!r || (n_shapes && !shapes))
        return bnet_fail(err, BITNET_ARGUMENT, "tune: runtime and shapes must not be NULL");
    bitnet_status st = bnet_check_int("tune", "n_repeats", n_repeats, 0, REPEATS_MAX, err);
    contest c = {.runtime = r,
                 .n_repeats = n_repeats ? n_repeats : REPEATS,
                 .each = each,
                 .user = user,
                 .err = err};
    if (st == BITNET_OK)
        st = open_device(&c, err);
    for (size_t i = 0; st == BITNET_OK && i < n_shapes; i++)
        st = check_device(&c, &shapes[i]);
    for (size_t i = 0; st == BITNET_OK && i < n_shapes; i++)
        st = contest_shape(&c, &shapes[i]);
    bnet_backend_close(c.backend);
    if (st == BITNET_OK && !r->tuning && !(r->tuning = bnet_strdup("measured by this process")))
        st = bnet_no_memory(err, "tune");
    return st == BITNET_OK && path ? save(r, path, err) : st;
}
