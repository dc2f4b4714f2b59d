/* head_rows.c - the head for the rows of a step: the partial head for all rows in one call, the
 * same row by row, and all logits exactly; milliseconds of CPU and of the clock, medians.
 *
 * bench/head_rows THREADS ROWS TYPE K     built by: cmake --build BUILD --target head_rows
 * ROWS: of the head, of 2560 columns; TYPE: f16, bf16, q6_k, q8_0; K: so many of the best */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/cpu/cpu.h"

enum { COLUMNS = 2560, REPEATS = 7, BEFORE = 40, WAYS = 3 }; /* BEFORE: a copy is made meanwhile */

typedef struct head {
    size_t k;
    bnet_backend *be;
    bnet_weight *w;
    bnet_buffer *x, *y, *scratch;
} head;

static uint64_t seed = 1;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(seed >> 40) / 16777216.0f - 0.5f;
}

static double ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint8_t *make_rows(bnet_type type, size_t n_rows, size_t row_bytes)
{
    uint8_t *bytes = malloc(n_rows * row_bytes);
    float row[COLUMNS];
    for (size_t r = 0; bytes && r < n_rows; r++) {
        for (size_t c = 0; c < COLUMNS; c++)
            row[c] = 0.1f * (uniform() + uniform() + uniform() + uniform());
        if (!bnet_encode_row(type, row, bytes + r * row_bytes, COLUMNS))
            return NULL;
    }
    return bytes;
}

static bool open_head(head *h, int n_threads, bnet_type type, size_t n_rows)
{
    uint64_t n_bytes = 0;
    bnet_pool *pool;
    bnet_registry *registry;
    if (!bnet_type_bytes(type, COLUMNS, n_rows, &n_bytes))
        return false;
    bnet_tensor t = {.name = "output.weight",
                     .n_dims = 2,
                     .ne = {COLUMNS, n_rows, 1, 1},
                     .type = type,
                     .data = make_rows(type, n_rows, (size_t)n_bytes / n_rows),
                     .n_bytes = n_bytes};
    bnet_weight_request r = {
        .source.tensor = &t, .source.file = "head_rows", .source.extra_scale = 1, .head = true};
    if (!t.data || bnet_pool_open(n_threads, &pool, NULL) || bnet_registry_open(&registry, NULL) ||
        bnet_backend_open_cpu(pool, registry, NULL, false, NULL, &h->be, NULL) ||
        h->be->v->weight_prepare(h->be, &r, NULL, &h->w, NULL))
        return false;
    h->x = h->be->v->buffer_new(h->be, BNET_TOP_ROWS * COLUMNS * sizeof(float));
    h->y = h->be->v->buffer_new(h->be, BNET_TOP_ROWS * n_rows * sizeof(float));
    h->scratch = h->be->v->buffer_new(h->be, h->be->pass->top_bytes(h->be, h->w) + 1);
    for (size_t i = 0; h->x && i < BNET_TOP_ROWS * COLUMNS; i++)
        ((float *)h->x->data)[i] = uniform();
    return h->x && h->y && h->scratch;
}

static void compute(head *h, int way, int n)
{
    bnet_top_want wants[BNET_TOP_ROWS];
    bnet_top tops[BNET_TOP_ROWS];
    for (int i = 0; i < n; i++)
        wants[i] = (bnet_top_want){.k = h->k};
    if (way == 0)
        h->be->pass->top(h->be, h->w, h->x, n, wants, h->y, h->scratch, tops);
    for (int i = 0; way == 1 && i < n; i++)
        h->be->pass->top(h->be, h->w, h->x, 1, wants, h->y, h->scratch, tops);
    if (way == 2)
        h->be->v->linear_float(h->be, h->w, h->x, n, h->y);
}

static void measure(head *h, int n)
{
    double cpu[WAYS][REPEATS], wall[WAYS][REPEATS];
    for (int i = 0; i < REPEATS; i++)
        for (int way = 0; way < WAYS; way++) {
            double c = ms(CLOCK_PROCESS_CPUTIME_ID), w = ms(CLOCK_MONOTONIC);
            compute(h, way, n);
            cpu[way][i] = ms(CLOCK_PROCESS_CPUTIME_ID) - c;
            wall[way][i] = ms(CLOCK_MONOTONIC) - w;
        }
    printf("%4d", n);
    for (int way = 0; way < WAYS; way++) {
        qsort(cpu[way], REPEATS, sizeof(double), ascending);
        qsort(wall[way], REPEATS, sizeof(double), ascending);
        printf("  %10.2f %10.2f", cpu[way][REPEATS / 2], wall[way][REPEATS / 2]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        bnet_type type;
    } types[] = {{"f16", BNET_F16}, {"bf16", BNET_BF16}, {"q6_k", BNET_Q6_K}, {"q8_0", BNET_Q8_0}};
    head h = {0};
    for (size_t i = 0; argc == 5 && i < BNET_COUNT(types); i++) {
        if (strcmp(argv[3], types[i].name) != 0)
            continue;
        if (!open_head(&h, atoi(argv[1]), types[i].type, (size_t)atol(argv[2])))
            return 1;
        h.k = (size_t)atol(argv[4]);
        for (int n = 0; n < BEFORE; n++)
            compute(&h, 0, 2);
        printf(
            "rows    all in one: cpu, clock     one by one: cpu, clock   all logits: cpu, clock\n");
        for (int n = 1; n <= BNET_TOP_ROWS; n *= 2)
            measure(&h, n);
        return 0;
    }
    fprintf(stderr, "usage: head_rows THREADS ROWS f16|bf16|q6_k|q8_0 K\n");
    return 2;
}
