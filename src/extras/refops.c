/* refops.c - the reference operations as programs see them: sizes are checked here. */
#include "engine/engine.h"
#include "extras/refops.h"
#include "ops/reference.h"

#include <stdlib.h>

_Static_assert((int)BITNET_QTYPE_TL2 == (int)BNET_QTYPE_TL2, "one list of types");
_Static_assert((int)BITNET_SCALE_ABSMAX == (int)BNET_SCALE_ABSMAX, "one list of rules");
_Static_assert((int)BITNET_CODES_NOZERO == (int)BNET_CODES_NOZERO, "one list of code maps");

bitnet_status bnet_matmul_check(const bitnet_matmul *i, bitnet_error *err)
{
    bitnet_status st = bnet_ref_check(i->n_a, i->n_b, i->n_c, i->m, i->n, i->k, err);
    if (st == BITNET_OK && ((i->n_a && !i->a) || (i->n_b && !i->b) || (i->n_c && !i->c)))
        st = bnet_fail(err, BITNET_ARGUMENT, "matmul: a, b and c must not be NULL");
    return st;
}

bitnet_status bitnet_matmul_i2s(const int8_t *a, size_t n_a, const uint8_t *b, size_t n_b, float *c,
                                size_t n_c, size_t m, size_t n, size_t k, bitnet_error *err)
{
    const bitnet_matmul item = {a, n_a, b, n_b, c, n_c, m, n, k};
    bitnet_status st = bnet_matmul_check(&item, err);
    if (st == BITNET_OK)
        bnet_ref_matmul_scalar(a, b, c, m, n, k);
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

bitnet_status bnet_matmul_order(const bitnet_matmul *items, size_t n_items,
                                const bitnet_matmul ***out, bitnet_error *err)
{
    *out = NULL;
    if (n_items == 0)
        return BITNET_OK;
    if (!items)
        return bnet_fail(err, BITNET_ARGUMENT, "batch: items must not be NULL");
    const bitnet_matmul **order = bnet_calloc(n_items, sizeof *order);
    if (!order)
        return bnet_no_memory(err, "batch");
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < n_items; i++) {
        order[i] = &items[i];
        st = bnet_matmul_check(&items[i], err);
        if (st != BITNET_OK)
            bnet_wrap(err, st, "item %zu", i);
    }
    if (st == BITNET_OK)
        qsort(order, n_items, sizeof *order, by_shape);
    *out = order;
    return st;
}

bitnet_status bitnet_batch_matmul_i2s(const bitnet_matmul *items, size_t n_items, bitnet_error *err)
{
    const bitnet_matmul **order = NULL;
    bitnet_status st = bnet_matmul_order(items, n_items, &order, err);
    for (size_t i = 0; st == BITNET_OK && i < n_items; i++) {
        const bitnet_matmul *t = order[i];
        bnet_ref_matmul_scalar(t->a, t->b, t->c, t->m, t->n, t->k);
    }
    bnet_free(order);
    return st;
}

size_t bitnet_quantized_bytes(bitnet_qtype type, size_t n)
{
    return bnet_ref_quantized_bytes((bnet_qtype)type, n);
}

bitnet_status bitnet_quantize(bitnet_qtype type, bitnet_scale_rule rule, const float *in, size_t n,
                              uint8_t *out, size_t n_out, float *scales, size_t n_scales,
                              bitnet_error *err)
{
    if (!in || !out || !scales)
        return bnet_fail(err, BITNET_ARGUMENT, "quantize: in, out and scales must not be NULL");
    bitnet_status st = bnet_check_int("quantize", "rule", (int)rule, BITNET_SCALE_ABSMEAN,
                                      BITNET_SCALE_ABSMAX, err);
    return st == BITNET_OK ? bnet_ref_quantize((bnet_qtype)type, (bnet_scale_rule)rule, in, n, out,
                                               n_out, scales, n_scales, err)
                           : st;
}

bitnet_status bitnet_dequantize(bitnet_qtype type, const uint8_t *in, size_t n_in, size_t n,
                                const float *scales, size_t n_scales, float *out, bitnet_error *err)
{
    if (!in || !out || !scales)
        return bnet_fail(err, BITNET_ARGUMENT, "dequantize: in, out and scales must not be NULL");
    return bnet_ref_dequantize((bnet_qtype)type, in, n_in, n, scales, n_scales, out, err);
}

void bitnet_i2s_unpack(const uint8_t *packed, size_t n, uint8_t *codes)
{
    if (!packed || !codes)
        return;
    for (size_t i = 0; i < n; i++)
        codes[i] = packed[i / 4] >> 2 * (i % 4) & 3;
}

int bitnet_i2s_trit(uint8_t code)
{
    return bnet_ref_trit(code);
}

/* n_have must be `units` times `bytes`. */
static bitnet_status check_bytes(const char *what, const char *field, size_t n_have, uint64_t units,
                                 uint64_t bytes, bitnet_error *err)
{
    uint64_t want = 0;
    if (bnet_mul(units, bytes, &want) && want == n_have)
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT, "%s: %s is %zu, must be %llu", what, field, n_have,
                     (unsigned long long)want);
}

static bitnet_status check_map(const char *what, bitnet_code_map map, bitnet_error *err)
{
    return bnet_check_int(what, "map", (int)map, BITNET_CODES_TERNARY, BITNET_CODES_NOZERO, err);
}

bitnet_status bnet_qk256_check(size_t n_w, const float *scales, size_t n_scales, size_t rows,
                               size_t cols, bitnet_code_map map, bitnet_error *err)
{
    uint64_t n_blocks = 0;
    bitnet_status st = check_map("qk256_gemv", map, err);
    if (st == BITNET_OK && !bnet_mul(rows, cols / 256 + (cols % 256 != 0), &n_blocks))
        st = bnet_fail(err, BITNET_ARGUMENT, "qk256_gemv: rows times cols is too large");
    if (st == BITNET_OK)
        st = check_bytes("qk256_gemv", "n_w", n_w, n_blocks, 64, err);
    if (st == BITNET_OK && scales)
        st = check_bytes("qk256_gemv", "n_scales", n_scales, n_blocks, 1, err);
    return st;
}

bitnet_status bitnet_qk256_gemv(const uint8_t *w, size_t n_w, const float *scales, size_t n_scales,
                                size_t rows, size_t cols, const float *x, bitnet_code_map map,
                                float *y, bitnet_error *err)
{
    if (!w || !x || !y)
        return bnet_fail(err, BITNET_ARGUMENT, "qk256_gemv: w, x and y must not be NULL");
    bitnet_status st = bnet_qk256_check(n_w, scales, n_scales, rows, cols, map, err);
    if (st == BITNET_OK)
        bnet_ref_qk256_gemv(w, scales, rows, cols, x, (bnet_code_map)map, y);
    return st;
}

bitnet_status bitnet_bitnet32_decode(const uint8_t *data, size_t n_data, size_t n,
                                     bitnet_code_map map, float *out, bitnet_error *err)
{
    if (!data || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "bitnet32: data and out must not be NULL");
    bitnet_status st = check_map("bitnet32", map, err);
    if (st == BITNET_OK)
        st = check_bytes("bitnet32", "n_data", n_data, n / 32 + (n % 32 != 0), 10, err);
    if (st == BITNET_OK)
        bnet_ref_bitnet32_decode(data, n, (bnet_code_map)map, out);
    return st;
}

bitnet_status bitnet_bitnet32_gemv(const uint8_t *data, size_t n_data, size_t rows, size_t cols,
                                   const float *x, bitnet_code_map map, float *y, bitnet_error *err)
{
    uint64_t n_blocks = 0;
    if (!data || !x || !y)
        return bnet_fail(err, BITNET_ARGUMENT, "bitnet32_gemv: data, x and y must not be NULL");
    bitnet_status st = check_map("bitnet32_gemv", map, err);
    if (st == BITNET_OK && cols % 32 != 0)
        st = bnet_fail(err, BITNET_ARGUMENT,
                       "bitnet32_gemv: cols is %zu, must be a multiple of 32: blocks may not cross "
                       "rows",
                       cols);
    if (st == BITNET_OK && !bnet_mul(rows, cols / 32, &n_blocks))
        st = bnet_fail(err, BITNET_ARGUMENT, "bitnet32_gemv: rows times cols is too large");
    if (st == BITNET_OK)
        st = check_bytes("bitnet32_gemv", "n_data", n_data, n_blocks, 10, err);
    if (st == BITNET_OK)
        bnet_ref_bitnet32_gemv(data, rows, cols, x, (bnet_code_map)map, y);
    return st;
}
