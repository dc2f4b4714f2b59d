/* matmul.c - products: of int8 and unpacked ternary codes, in host memory or on a device, one by
 * one or many at once; and of floats on a device. Ternary products are at most 128, so sums are
 * exact integers below 2^31 for k < 2^24; a sum becomes a float at its end. */
#include <stdlib.h>

#include "ops.h"

enum { K_MAX = 1 << 24, GROUP_CALLS = 64, GROUP_BYTES = 256 << 20 };

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

/* ---- in host memory ---- */

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

/* Of a product without elements m or n may be anything. */
static void compute(const bitnet_matmul *t)
{
    for (size_t i = 0; t->n_c && i < t->m; i++)
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

/* ---- on a device ---- */

static bitnet_single_op product_of(const bitnet_matmul *i)
{
    return (bitnet_single_op){.op = BITNET_SINGLE_MATMUL_I2S,
                              .m = i->m,
                              .n = i->n,
                              .k = i->k,
                              .in = {i->a, i->b},
                              .in_bytes = {i->n_a, i->n_b},
                              .out = {i->c},
                              .out_bytes = {i->n_c * sizeof(float)}};
}

bitnet_status bitnet_ops_matmul_i2s(bitnet_ops *o, const bitnet_matmul *item, bitnet_error *err)
{
    if (!o || !item)
        return missing_ops("matmul", err);
    bitnet_status st = check(item, err);
    bitnet_single_op p = product_of(item);
    return st == BITNET_OK && item->n_c ? bnetx_run(o, &p, 1, err) : st;
}

/* c = a b is bytes[0], bytes[1] and bytes[2] long. */
static bitnet_status float_sizes(size_t m, size_t n, size_t k, size_t bytes[3], bitnet_error *err)
{
    const size_t by[3][2] = {{m, k}, {k, n}, {m, n}};
    bitnet_status st = BITNET_OK;
    for (int i = 0; st == BITNET_OK && i < 3; i++)
        st = size_of("matmul", by[i][0], by[i][1], sizeof(float), &bytes[i], err);
    return st;
}

bitnet_status bitnet_ops_matmul(bitnet_ops *o, const float *a, const float *b, float *c, size_t m,
                                size_t n, size_t k, bitnet_error *err)
{
    size_t bytes[3] = {0};
    bitnet_status st = o ? float_sizes(m, n, k, bytes, err) : missing_ops("matmul", err);
    if (st == BITNET_OK && ((bytes[0] && !a) || (bytes[1] && !b) || (bytes[2] && !c)))
        st = missing_ops("matmul", err);
    if (st != BITNET_OK || !m || !n)
        return st;
    if (!k) {
        memset(c, 0, bytes[2]);
        return BITNET_OK;
    }
    bitnet_single_op p = {.op = BITNET_SINGLE_MATMUL,
                          .m = m,
                          .n = n,
                          .k = k,
                          .in = {a, b},
                          .in_bytes = {bytes[0], bytes[1]},
                          .out = {c},
                          .out_bytes = {bytes[2]}};
    return bnetx_run(o, &p, 1, err);
}

/* ---- many at once ---- */

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
    if (!items)
        return fail(err, BITNET_ARGUMENT, "batch: items must not be NULL");
    for (size_t i = 0; i < n_items; i++) {
        bitnet_error why = {0};
        bitnet_status st = check(&items[i], &why);
        if (st != BITNET_OK)
            return fail(err, st, "item %zu: %.*s", i, BITNET_MESSAGE_MAX - 32, why.message);
    }
    return BITNET_OK;
}

/* As many of the next ones as fit together. */
static size_t group_of(const bitnet_matmul *const *items, size_t n)
{
    size_t count = 0, bytes = 0;
    for (; count < n && count < GROUP_CALLS; count++) {
        const bitnet_matmul *i = items[count];
        bytes += i->n_a + i->n_b + i->n_c * sizeof(float);
        if (count && bytes > GROUP_BYTES)
            break;
    }
    return count;
}

/* Without room for a group its halves are tried. p: room for n. */
static bitnet_status run_group(bitnet_ops *o, bitnet_single_op *p,
                               const bitnet_matmul *const *items, size_t n, bitnet_error *err)
{
    for (size_t i = 0; i < n; i++)
        p[i] = product_of(items[i]);
    bitnet_status st = bnetx_run(o, p, n, err);
    if (st != BITNET_MEMORY || n == 1)
        return st;
    st = run_group(o, p, items, n / 2, err);
    return st == BITNET_OK ? run_group(o, p, items + n / 2, n - n / 2, err) : st;
}

static bitnet_status run_all(bitnet_ops *o, const bitnet_matmul *const *items, size_t n,
                             bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    bitnet_single_op *p = calloc(at_most(n, GROUP_CALLS), sizeof *p);
    if (!p)
        return fail(err, BITNET_MEMORY, "out of memory: batch");
    for (size_t i = 0, count; st == BITNET_OK && i < n; i += count) {
        count = group_of(items + i, n - i);
        st = run_group(o, p, items + i, count, err);
    }
    free(p);
    return st;
}

/* In the order of their shapes; o NULL: in host memory. */
static bitnet_status batch(bitnet_ops *o, const bitnet_matmul *items, size_t n, bitnet_error *err)
{
    if (n == 0)
        return BITNET_OK;
    bitnet_status st = check_all(items, n, err);
    if (st != BITNET_OK)
        return st;
    const bitnet_matmul **order = calloc(n, sizeof *order);
    if (!order)
        return fail(err, BITNET_MEMORY, "out of memory: batch");
    size_t used = 0; /* without those whose results have no elements */
    for (size_t i = 0; i < n; i++)
        if (items[i].n_c)
            order[used++] = &items[i];
    qsort(order, used, sizeof *order, by_shape);
    for (size_t i = 0; !o && i < used; i++)
        compute(order[i]);
    if (o && used)
        st = run_all(o, order, used, err);
    free(order);
    return st;
}

bitnet_status bitnet_batch_matmul_i2s(const bitnet_matmul *items, size_t n_items, bitnet_error *err)
{
    return batch(NULL, items, n_items, err);
}

bitnet_status bitnet_ops_batch_matmul_i2s(bitnet_ops *o, const bitnet_matmul *items, size_t n_items,
                                          bitnet_error *err)
{
    return o ? batch(o, items, n_items, err) : missing_ops("batch", err);
}
