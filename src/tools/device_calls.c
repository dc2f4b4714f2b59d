/* device_calls.c - the single operations one by one: their sizes, and how large work is divided. */
#include "tools/device_ops.h"

#include <math.h>
#include <stdlib.h>

/* ---- checks ---- */

static bitnet_status matmul_check(const bitnet_matmul *i, bitnet_error *err)
{
    bitnet_status st = bnet_ref_check(i->n_a, i->n_b, i->n_c, i->m, i->n, i->k, err);
    if (st == BITNET_OK && ((i->n_a && !i->a) || (i->n_b && !i->b) || (i->n_c && !i->c)))
        st = bnet_fail(err, BITNET_ARGUMENT, "matmul: a, b and c must not be NULL");
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

/* All items checked, and sorted by shape into *out, which the caller frees. */
static bitnet_status matmul_order(const bitnet_matmul *items, size_t n_items,
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
        st = matmul_check(&items[i], err);
        if (st != BITNET_OK)
            bnet_wrap(err, st, "item %zu", i);
    }
    if (st == BITNET_OK)
        qsort(order, n_items, sizeof *order, by_shape);
    *out = order;
    return st;
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

static bitnet_status qk256_check(size_t n_w, const float *scales, size_t n_scales, size_t rows,
                                 size_t cols, bitnet_code_map map, bitnet_error *err)
{
    uint64_t n_blocks = 0;
    bitnet_status st = bnet_check_int("qk256_gemv", "map", (int)map, BITNET_CODES_TERNARY,
                                      BITNET_CODES_NOZERO, err);
    if (st == BITNET_OK && !bnet_mul(rows, cols / 256 + (cols % 256 != 0), &n_blocks))
        st = bnet_fail(err, BITNET_ARGUMENT, "qk256_gemv: rows times cols is too large");
    if (st == BITNET_OK)
        st = check_bytes("qk256_gemv", "n_w", n_w, n_blocks, 64, err);
    if (st == BITNET_OK && scales)
        st = check_bytes("qk256_gemv", "n_scales", n_scales, n_blocks, 1, err);
    return st;
}

enum { GROUP_CALLS = 64, GROUP_BYTES = 256 << 20, WEIGHTS = 24 /* fill whole bytes always */ };

static bitnet_status null_argument(const char *what, bitnet_error *err)
{
    return bnet_fail(err, BITNET_ARGUMENT, "%s: ops and buffers must not be NULL", what);
}

/* units * bytes without overflow. */
static bitnet_status size_of(const char *what, size_t a, size_t b, size_t bytes, size_t *out,
                             bitnet_error *err)
{
    uint64_t n = 0, total = 0;
    if (!bnet_mul(a, b, &n) || !bnet_mul(n, bytes, &total) || total > SIZE_MAX)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: %zu times %zu values is too large", what, a, b);
    *out = (size_t)total;
    return BITNET_OK;
}

/* ---- ternary products ---- */

static bnet_plain product_of(const bitnet_matmul *i)
{
    return (bnet_plain){.op = BNET_PLAIN_MATMUL_I2S,
                        .m = i->m,
                        .n = i->n,
                        .k = i->k,
                        .in = {i->a, i->b},
                        .in_bytes = {i->n_a, i->n_b},
                        .out = {i->c},
                        .out_bytes = {i->n_c * sizeof(float)}};
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

/* Without room for a group its halves are tried. */
static bitnet_status run_group(bitnet_ops *o, const bitnet_matmul *const *items, size_t n,
                               bitnet_error *err)
{
    bnet_plain p[GROUP_CALLS];
    for (size_t i = 0; i < n; i++)
        p[i] = product_of(items[i]);
    bitnet_status st = bnet_ops_run(o, p, n, err);
    if (st != BITNET_MEMORY || n == 1)
        return st;
    st = run_group(o, items, n / 2, err);
    return st == BITNET_OK ? run_group(o, items + n / 2, n - n / 2, err) : st;
}

bitnet_status bitnet_ops_batch_matmul_i2s(bitnet_ops *o, const bitnet_matmul *items, size_t n,
                                          bitnet_error *err)
{
    const bitnet_matmul **order = NULL;
    if (!o || (n && !items))
        return null_argument("batch", err);
    bitnet_status st = matmul_order(items, n, &order, err);
    for (size_t i = 0, count; st == BITNET_OK && i < n; i += count) {
        count = group_of(order + i, n - i);
        st = run_group(o, order + i, count, err);
    }
    bnet_free(order);
    return st;
}

bitnet_status bitnet_ops_matmul_i2s(bitnet_ops *o, const bitnet_matmul *item, bitnet_error *err)
{
    if (!o || !item)
        return null_argument("matmul", err);
    bitnet_status st = matmul_check(item, err);
    bnet_plain p = product_of(item);
    if (st != BITNET_OK || !item->n_c)
        return st;
    return bnet_ops_run(o, &p, 1, err);
}

/* ---- quantising ---- */

typedef struct quantize_job {
    bitnet_ops *ops;
    bitnet_qtype type;
    bitnet_scale_rule rule;
    const float *in;
    uint8_t *out;
    float *scales;
    size_t n, n_scales, block; /* values per scale */
} quantize_job;

/* Pieces of TL2 keep their signs behind their own codes: both go to their places in the whole. */
static void place_tl2(const quantize_job *j, size_t first, size_t n, const uint8_t *piece)
{
    size_t triples = j->n / 3 + (j->n % 3 != 0), mine = n / 3 + (n % 3 != 0);
    size_t codes = triples / 2 + triples % 2, my_codes = mine / 2 + mine % 2;
    memcpy(j->out + first / 6, piece, my_codes);
    memcpy(j->out + codes + first / WEIGHTS, piece + my_codes, mine / 8 + (mine % 8 != 0));
}

/* Scales [first, first + count) and their values. */
static bitnet_status quantize_piece(const quantize_job *j, size_t first, size_t count,
                                    bitnet_error *err)
{
    size_t begin = first * j->block, n = BNET_MIN(count * j->block, j->n - begin);
    size_t bytes = bnet_ref_quantized_bytes((bitnet_qtype)j->type, n);
    bool apart = j->type == BITNET_QTYPE_TL2 && n < j->n;
    uint8_t *out =
        apart ? bnet_alloc(bytes) : j->out + begin / (j->type == BITNET_QTYPE_TL2 ? 6 : 4);
    if (!out)
        return bnet_no_memory(err, "quantize");
    bnet_plain p = {.op = BNET_PLAIN_QUANTIZE,
                    .type = (int)j->type,
                    .rule = (int)j->rule,
                    .m = j->block,
                    .n = n,
                    .k = count,
                    .in = {j->in + begin},
                    .in_bytes = {n * sizeof(float)},
                    .out = {out, j->scales + first},
                    .out_bytes = {bytes, count * sizeof(float)}};
    bitnet_status st = bnet_ops_run(j->ops, &p, 1, err);
    if (st == BITNET_OK && apart)
        place_tl2(j, begin, n, out);
    if (apart)
        bnet_free(out);
    return st;
}

/* The least number of scales whose values fill whole bytes of every type. */
static size_t scales_of_whole_bytes(size_t block)
{
    size_t n = 1;
    while (n * block % WEIGHTS)
        n++;
    return n;
}

/* All at once, or in pieces that become smaller as long as the device has no room for them. */
static bitnet_status quantize_on_device(const quantize_job *j, bitnet_error *err)
{
    size_t used = (j->n + j->block - 1) / j->block, unit = scales_of_whole_bytes(j->block);
    size_t count = used, at = 0;
    bitnet_status st = BITNET_OK;
    while (at < used && st == BITNET_OK) {
        count = BNET_MIN(count, used - at);
        st = quantize_piece(j, at, count, err);
        if (st == BITNET_OK) {
            at += count;
        } else if (st == BITNET_MEMORY && count > unit) {
            count = BNET_MAX(count / 2 / unit * unit, unit);
            st = BITNET_OK;
        }
    }
    for (size_t i = used; st == BITNET_OK && i < j->n_scales; i++)
        j->scales[i] = 0.0f;
    return st;
}

static bitnet_status all_finite(const float *in, size_t n, bitnet_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(in[i]))
            return bnet_fail(err, BITNET_ARGUMENT, "quantize: value %zu is %g, not a finite number",
                             i, (double)in[i]);
    return BITNET_OK;
}

bitnet_status bitnet_ops_quantize(bitnet_ops *o, bitnet_qtype type, bitnet_scale_rule rule,
                                  const float *in, size_t n, uint8_t *out, size_t n_out,
                                  float *scales, size_t n_scales, bitnet_error *err)
{
    if (!o || !in || !out || !scales)
        return null_argument("quantize", err);
    bitnet_status st = bnet_check_int("quantize", "rule", (int)rule, BITNET_SCALE_ABSMEAN,
                                      BITNET_SCALE_ABSMAX, err);
    if (st == BITNET_OK)
        st = bnet_ref_quantize_check(type, n, n_out, n_scales, err);
    if (st == BITNET_OK)
        st = all_finite(in, n, err);
    if (st != BITNET_OK)
        return st;
    const quantize_job j = {
        o, type, rule, in, out, scales, n, n_scales, n / n_scales + (n % n_scales != 0)};
    bnet_plain whole = {.op = BNET_PLAIN_QUANTIZE,
                        .type = (int)type,
                        .rule = (int)rule,
                        .m = j.block,
                        .n = n,
                        .k = n_scales,
                        .in = {in},
                        .out = {out, scales},
                        .out_bytes = {n_out}};
    if (bnet_ops_on_device(o))
        st = quantize_on_device(&j, err);
    else
        st = bnet_ops_run(o, &whole, 1, err);
    return st;
}

/* ---- floats ---- */

bitnet_status bitnet_ops_qk256_gemv(bitnet_ops *o, const uint8_t *w, size_t n_w,
                                    const float *scales, size_t n_scales, size_t rows, size_t cols,
                                    const float *x, bitnet_code_map map, float *y,
                                    bitnet_error *err)
{
    if (!o || !w || !x || !y)
        return null_argument("qk256_gemv", err);
    bitnet_status st = qk256_check(n_w, scales, n_scales, rows, cols, map, err);
    if (st != BITNET_OK || !rows)
        return st;
    bnet_plain p = {.op = BNET_PLAIN_QK256,
                    .type = (int)map,
                    .m = rows,
                    .k = cols,
                    .in = {w, scales, x},
                    .in_bytes = {n_w, scales ? n_scales * sizeof(float) : 0, cols * sizeof(float)},
                    .out = {y},
                    .out_bytes = {rows * sizeof(float)}};
    return bnet_ops_run(o, &p, 1, err);
}

bitnet_status bitnet_ops_matmul(bitnet_ops *o, const float *a, const float *b, float *c, size_t m,
                                size_t n, size_t k, bitnet_error *err)
{
    bnet_plain p = {.op = BNET_PLAIN_MATMUL, .m = m, .n = n, .k = k, .in = {a, b}, .out = {c}};
    if (!o || !a || !b || !c)
        return null_argument("matmul", err);
    bitnet_status st = size_of("matmul", m, k, sizeof(float), &p.in_bytes[0], err);
    if (st == BITNET_OK)
        st = size_of("matmul", k, n, sizeof(float), &p.in_bytes[1], err);
    if (st == BITNET_OK)
        st = size_of("matmul", m, n, sizeof(float), &p.out_bytes[0], err);
    if (st == BITNET_OK && k == 0)
        memset(c, 0, p.out_bytes[0]);
    return st == BITNET_OK && m && n && k ? bnet_ops_run(o, &p, 1, err) : st;
}

bitnet_status bitnet_ops_convert(bitnet_ops *o, bitnet_conversion conversion, const void *in,
                                 size_t n, void *out, bitnet_error *err)
{
    bool narrow = conversion == BITNET_F32_TO_F16 || conversion == BITNET_F32_TO_BF16;
    bnet_plain p = {
        .op = BNET_PLAIN_CONVERT, .type = (int)conversion, .n = n, .in = {in}, .out = {out}};
    if (!o || !in || !out)
        return null_argument("convert", err);
    bitnet_status st = bnet_check_int("convert", "conversion", (int)conversion, BITNET_F32_TO_F16,
                                      BITNET_BF16_TO_F32, err);
    if (st == BITNET_OK)
        st = size_of("convert", n, 1, narrow ? 4 : 2, &p.in_bytes[0], err);
    if (st == BITNET_OK)
        st = size_of("convert", n, 1, narrow ? 2 : 4, &p.out_bytes[0], err);
    return st == BITNET_OK && n ? bnet_ops_run(o, &p, 1, err) : st;
}

bitnet_status bitnet_ops_vector(bitnet_ops *o, bitnet_vector function, const float *x,
                                const float *z, size_t n, float *y, bitnet_error *err)
{
    bool two = function != BITNET_VECTOR_RELU2 && function != BITNET_VECTOR_SILU;
    bnet_plain p = {.op = BNET_PLAIN_VECTOR,
                    .type = (int)function,
                    .n = n,
                    .in = {x, two ? z : NULL},
                    .out = {y}};
    if (!o || !x || !y || (two && !z))
        return null_argument("vector", err);
    bitnet_status st = bnet_check_int("vector", "function", (int)function, BITNET_VECTOR_ADD,
                                      BITNET_VECTOR_GLU_SILU, err);
    if (st == BITNET_OK)
        st = size_of("vector", n, 1, sizeof(float), &p.in_bytes[0], err);
    p.in_bytes[1] = two ? p.in_bytes[0] : 0;
    p.out_bytes[0] = p.in_bytes[0];
    return st == BITNET_OK && n ? bnet_ops_run(o, &p, 1, err) : st;
}

bitnet_status bitnet_ops_softmax(bitnet_ops *o, const float *x, size_t rows, size_t n, float *y,
                                 bitnet_error *err)
{
    bnet_plain p = {.op = BNET_PLAIN_SOFTMAX, .m = rows, .n = n, .in = {x}, .out = {y}};
    if (!o || !x || !y)
        return null_argument("softmax", err);
    bitnet_status st = size_of("softmax", rows, n, sizeof(float), &p.in_bytes[0], err);
    p.out_bytes[0] = p.in_bytes[0];
    return st == BITNET_OK && p.in_bytes[0] ? bnet_ops_run(o, &p, 1, err) : st;
}

bitnet_status bitnet_ops_argmax(bitnet_ops *o, const float *x, size_t rows, size_t n,
                                int32_t *index, bitnet_error *err)
{
    bnet_plain p = {.op = BNET_PLAIN_ARGMAX,
                    .m = rows,
                    .n = n,
                    .in = {x},
                    .out = {index},
                    .out_bytes = {rows * sizeof *index}};
    if (!o || !x || !index)
        return null_argument("argmax", err);
    bitnet_status st = size_of("argmax", rows, n, sizeof(float), &p.in_bytes[0], err);
    if (st == BITNET_OK && n > INT32_MAX)
        st = bnet_fail(err, BITNET_ARGUMENT, "argmax: rows of %zu values are too long", n);
    for (size_t i = 0; st == BITNET_OK && n == 0 && i < rows; i++)
        index[i] = -1;
    return st == BITNET_OK && p.in_bytes[0] ? bnet_ops_run(o, &p, 1, err) : st;
}
