/* matmul.c - products of int8 and unpacked ternary codes. Products are at most 128, so sums are
 * exact integers below 2^31 for k < 2^24; a sum becomes a float at its end. */
#include <stdlib.h>

#include "check.h"

enum { K_MAX = 1 << 24 };

static bitnet_status check(const bitnet_matmul *i, bitnet_error *err)
{
    size_t a, b, c;
    if (!multiply(i->m, i->k, &a) || !multiply(i->k, i->n, &b) || !multiply(i->m, i->n, &c) ||
        a != i->n_a || b != i->n_b || c != i->n_c)
        return fail(err, BITNET_ARGUMENT, "Matrix dimension mismatch");
    if (i->k >= K_MAX)
        return fail(err, BITNET_ARGUMENT, "matmul: k is %zu, sums are exact below %d", i->k, K_MAX);
    if ((i->n_a && !i->a) || (i->n_b && !i->b) || (i->n_c && !i->c))
        return fail(err, BITNET_ARGUMENT, "matmul: a, b and c must not be NULL");
    return BITNET_OK;
}

/* 64 columns of one row of the result at a time, so that b is read along its rows. */
static void multiply_row(const bitnet_matmul *t, const int8_t *a, float *c)
{
    enum { COLUMNS = 64 };
    for (size_t j = 0; j < t->n; j += COLUMNS) {
        int32_t sum[COLUMNS] = {0};
        size_t n = at_most(t->n - j, COLUMNS);
        for (size_t l = 0; l < t->k; l++)
            for (size_t x = 0; x < n; x++)
                sum[x] += a[l] * trit_of(t->b[l * t->n + j + x]);
        for (size_t x = 0; x < n; x++)
            c[j + x] = (float)sum[x];
    }
}

static void compute(const bitnet_matmul *t)
{
    for (size_t i = 0; i < t->m; i++)
        multiply_row(t, t->a + i * t->k, t->c + i * t->n);
}

bitnet_status bitnet_matmul_i2s(const int8_t *a, size_t n_a, const uint8_t *b, size_t n_b, float *c,
                                size_t n_c, size_t m, size_t n, size_t k, bitnet_error *err)
{
    const bitnet_matmul item = {a, n_a, b, n_b, c, n_c, m, n, k};
    bitnet_status st = check(&item, err);
    if (st == BITNET_OK)
        compute(&item);
    return st;
}

static int by_shape(const void *x, const void *y)
{
    const bitnet_matmul *a = *(const bitnet_matmul *const *)x,
                        *b = *(const bitnet_matmul *const *)y;
    if (a->m != b->m)
        return a->m < b->m ? -1 : 1;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    if (a->k != b->k)
        return a->k < b->k ? -1 : 1;
    return (a > b) - (a < b);
}

/* Every item is checked; the message of the first bad one names it. */
static bitnet_status check_all(const bitnet_matmul *items, size_t n_items, bitnet_error *err)
{
    for (size_t i = 0; i < n_items; i++) {
        bitnet_error why = {0};
        bitnet_status st = check(&items[i], &why);
        if (st != BITNET_OK)
            return fail(err, st, "item %zu: %.*s", i, BITNET_MESSAGE_MAX - 32, why.message);
    }
    return BITNET_OK;
}

bitnet_status bitnet_batch_matmul_i2s(const bitnet_matmul *items, size_t n_items, bitnet_error *err)
{
    if (n_items == 0)
        return BITNET_OK;
    if (!items)
        return fail(err, BITNET_ARGUMENT, "batch: items must not be NULL");
    bitnet_status st = check_all(items, n_items, err);
    if (st != BITNET_OK)
        return st;
    const bitnet_matmul **order = calloc(n_items, sizeof *order);
    if (!order)
        return fail(err, BITNET_MEMORY, "out of memory: batch");
    for (size_t i = 0; i < n_items; i++)
        order[i] = &items[i];
    qsort(order, n_items, sizeof *order, by_shape);
    for (size_t i = 0; i < n_items; i++)
        compute(order[i]);
    free(order);
    return BITNET_OK;
}
