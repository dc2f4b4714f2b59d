/* head_fixture.h - what the tests of the two-stage head share: random values, inputs for the copy
 * of a matrix, a head on a CPU backend, and what has to hold of a list of the best. */
#ifndef BNET_TEST_HEAD_FIXTURE_H
#define BNET_TEST_HEAD_FIXTURE_H

#include "test.h"

#include <math.h>

#include "backend/cpu/head_work.h"
#include "base/mathf.h"

static uint64_t seed;

/* Seeds random values from KCHECK_SEED, and says with what. */
static inline void head_seed(void)
{
    const char *given = getenv("KCHECK_SEED");
    seed = given ? strtoull(given, NULL, 0) : 20260401;
    print_message("seed %llu\n", (unsigned long long)seed);
}

static inline float random_float(void)
{
    return (float)((double)(int64_t)test_rand(&seed) / 9.3e18);
}

/* ---- the copy ---- */

static inline void eights_new(bnet_head_eight e[BNET_COPY_EIGHTS], size_t n_cols)
{
    for (size_t i = 0; i < BNET_COPY_EIGHTS; i++)
        e[i] = (bnet_head_eight){.low = malloc(8 * n_cols),
                                 .high = malloc(8 * n_cols),
                                 .lines = malloc(n_cols / 8 * sizeof(uint32_t))};
}

static inline void eights_free(bnet_head_eight e[BNET_COPY_EIGHTS])
{
    for (size_t i = 0; i < BNET_COPY_EIGHTS; i++)
        free(e[i].low), free(e[i].high), free(e[i].lines);
}

static inline bnet_copy_loss place(bnet_head_eight *e, const float *x, size_t n_cols)
{
    float most = 0;
    double sum = 0;
    for (size_t i = 0; i < n_cols; i++) {
        most = BNET_MAX(most, fabsf(x[i]));
        sum += (double)x[i] * (double)x[i];
    }
    return bnet_copy_input(e, x, n_cols, most, sqrt(sum));
}

/* ---- a head ---- */

typedef struct fixture {
    bnet_pool *pool;
    bnet_registry *registry;
    bnet_backend *be;
    bnet_weight *w;
    uint8_t *bytes;
    bnet_buffer *x, *y, *room, *scratch; /* x, y and room: of BNET_TOP_ROWS rows */
    size_t n_in, n_out;
} fixture;

static inline fixture fixture_new(int n_threads, bnet_type type, const float *rows, size_t n_out,
                                  size_t n_in)
{
    fixture f = {.n_in = n_in, .n_out = n_out};
    uint64_t n_bytes = 0;
    assert_true(bnet_type_bytes(type, n_in, n_out, &n_bytes));
    f.bytes = malloc((size_t)n_bytes);
    for (size_t r = 0; r < n_out; r++)
        assert_true(
            bnet_encode_row(type, rows + r * n_in, f.bytes + r * (size_t)(n_bytes / n_out), n_in));
    bnet_tensor t = {.name = "output.weight",
                     .n_dims = 2,
                     .ne = {n_in, n_out, 1, 1},
                     .type = type,
                     .data = f.bytes,
                     .n_bytes = n_bytes};
    bnet_weight_request r = {
        .source.tensor = &t, .source.file = "test", .source.extra_scale = 1, .head = true};
    assert_int_equal(bnet_pool_open(n_threads, &f.pool, NULL), BITNET_OK);
    assert_int_equal(bnet_registry_open(&f.registry, NULL), BITNET_OK);
    assert_int_equal(bnet_backend_open_cpu(f.pool, f.registry, NULL, false, NULL, &f.be, NULL),
                     BITNET_OK);
    assert_int_equal(f.be->v->weight_prepare(f.be, &r, NULL, &f.w, NULL), BITNET_OK);
    f.x = f.be->v->buffer_new(f.be, BNET_TOP_ROWS * n_in * sizeof(float));
    f.y = f.be->v->buffer_new(f.be, BNET_TOP_ROWS * n_out * sizeof(float));
    f.room = f.be->v->buffer_new(f.be, BNET_TOP_ROWS * n_out * sizeof(float));
    f.scratch = f.be->v->buffer_new(f.be, f.be->pass->top_bytes(f.be, f.w) + 1);
    return f;
}

static inline void fixture_free(fixture *f)
{
    bnet_buffer *all[] = {f->x, f->y, f->room, f->scratch};
    for (size_t i = 0; i < BNET_COUNT(all); i++)
        f->be->v->buffer_free(f->be, all[i]);
    f->be->v->weight_free(f->be, f->w);
    bnet_backend_close(f->be);
    bnet_registry_close(f->registry);
    bnet_pool_close(f->pool);
    free(f->bytes);
}

static inline int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static inline bool holds(const bnet_top *t, int32_t id)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->ids[i] == id)
            return true;
    return false;
}

/* What is listed is exact and in order; nothing wanted is missing. Returns how many were listed, 0
 * if it was refused. y: all logits. */
static inline size_t check_listed(const fixture *f, const float *y, const bnet_top_want *want,
                                  const bnet_top *top)
{
    if (!top->ids)
        return 0;
    for (size_t i = 0; i < top->n; i++) {
        assert_true(i == 0 || top->ids[i] > top->ids[i - 1]);
        assert_memory_equal(&top->logits[i], &y[top->ids[i]], sizeof *y);
    }
    float *sorted = malloc(f->n_out * sizeof *sorted);
    memcpy(sorted, y, f->n_out * sizeof *sorted);
    qsort(sorted, f->n_out, sizeof *sorted, descending);
    float least = sorted[want->k + want->n_ids - 1] - want->range;
    assert_true(want->k > 0 || top->n == want->n_ids);
    for (size_t r = 0; r < f->n_out && want->k > 0; r++)
        if (y[r] >= least && !holds(top, (int32_t)r))
            fail_msg("row %zu is missing: %.9g, the least wanted is %.9g", r, (double)y[r],
                     (double)least);
    for (size_t i = 0; i < want->n_ids; i++)
        assert_true(holds(top, want->ids[i]));
    free(sorted);
    return top->n;
}

static inline bool served_here(const fixture *f)
{
    if (f->be->pass->top_bytes(f->be, f->w) > 0)
        return true;
    print_message("no scan on this CPU: every row is computed\n");
    return false;
}

static inline float *random_rows(size_t n_out, size_t n_in)
{
    float *rows = malloc(n_out * n_in * sizeof *rows);
    for (size_t i = 0; i < n_out * n_in; i++)
        rows[i] = random_float();
    return rows;
}

static const bnet_type types[] = {BNET_Q6_K, BNET_Q8_0, BNET_F16, BNET_BF16};

/* How often a kernel was called. */
static inline uint64_t calls_of(const fixture *f, const bnet_kernel_record *k)
{
    return k ? atomic_load(&((cpu_backend *)f->be)->calls[k->slot]) : 0;
}

/* The kernel that scans the copy; NULL: there is none yet, or none any more. */
static inline const bnet_kernel_record *copy_scan(const fixture *f)
{
    return f->w->head && f->w->head->copy ? f->w->head->copy->scan : NULL;
}

#endif
