/* quantize.c - floats to packed ternary weights and back, in host memory or on a device. */
#include <stdlib.h>

#include "ops.h"

enum { GROUP = 24 }; /* weights that fill whole bytes in every form */

size_t bitnet_quantized_bytes(bitnet_qtype q, size_t n)
{
    size_t triples = divide_up(n, 3);
    return q == BITNET_QTYPE_TL2 ? divide_up(triples, 2) + divide_up(triples, 8) : divide_up(n, 4);
}

static bitnet_status check_sizes(const char *what, bitnet_qtype q, size_t n, size_t n_packed,
                                 size_t n_scales, bitnet_error *err)
{
    if ((unsigned)q > BITNET_QTYPE_TL2)
        return fail(err, BITNET_ARGUMENT,
                    "%s: quantization type %d is unknown; I2S is 0, TL1 1, TL2 2", what, (int)q);
    if (n == 0 || n_scales == 0)
        return fail(err, BITNET_ARGUMENT, "%s: %zu values and %zu scales: both must be above 0",
                    what, n, n_scales);
    if (n_packed < bitnet_quantized_bytes(q, n))
        return fail(err, BITNET_ARGUMENT, "%s: %zu values need %zu bytes, %zu are given", what, n,
                    bitnet_quantized_bytes(q, n), n_packed);
    return BITNET_OK;
}

/* ---- floats to weights ---- */

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
    size_t mine = divide_up(n, 3), my_codes = divide_up(mine, 2);
    size_t codes = divide_up(divide_up(j->n, 3), 2);
    memcpy(j->out + first / 6, piece, my_codes);
    memcpy(j->out + codes + first / GROUP, piece + my_codes, divide_up(mine, 8));
}

/* Scales [first, first + count) and their values. */
static bitnet_status quantize_piece(const quantize_job *j, size_t first, size_t count,
                                    bitnet_error *err)
{
    size_t begin = first * j->block, n = at_most(count * j->block, j->n - begin);
    size_t bytes = bitnet_quantized_bytes(j->type, n);
    bool apart = j->type == BITNET_QTYPE_TL2 && n < j->n;
    uint8_t *out = apart ? malloc(bytes) : j->out + begin / (j->type == BITNET_QTYPE_TL2 ? 6 : 4);
    if (!out)
        return fail(err, BITNET_MEMORY, "out of memory: quantize");
    bitnet_single_op p = {.op = BITNET_SINGLE_QUANTIZE,
                          .type = (int)j->type,
                          .rule = (int)j->rule,
                          .m = j->block,
                          .n = n,
                          .k = count,
                          .in = {j->in + begin},
                          .in_bytes = {n * sizeof(float)},
                          .out = {out, j->scales + first},
                          .out_bytes = {bytes, count * sizeof(float)}};
    bitnet_status st = bnetx_run(j->ops, &p, 1, err);
    if (st == BITNET_OK && apart)
        place_tl2(j, begin, n, out);
    if (apart)
        free(out);
    return st;
}

/* The least number of scales whose values fill whole bytes of every type. */
static size_t scales_of_whole_bytes(size_t block)
{
    size_t n = 1;
    while (n * block % GROUP)
        n++;
    return n;
}

/* All at once, or in pieces that become smaller as long as the device has no room for them. A value
 * that is not finite is found in the first attempt, before the device is asked for anything. */
static bitnet_status quantize_on_device(const quantize_job *j, bitnet_error *err)
{
    size_t used = divide_up(j->n, j->block), unit = scales_of_whole_bytes(j->block);
    size_t count = used, at = 0;
    bitnet_status st = BITNET_OK;
    while (at < used && st == BITNET_OK) {
        count = at_most(count, used - at);
        st = quantize_piece(j, at, count, err);
        if (st == BITNET_OK) {
            at += count;
        } else if (st == BITNET_MEMORY && count > unit) {
            count = count / 2 / unit * unit;
            count = count ? count : unit;
            st = BITNET_OK;
        }
    }
    for (size_t i = used; st == BITNET_OK && i < j->n_scales; i++)
        j->scales[i] = 0.0f;
    return st;
}

static bitnet_status quantize(const quantize_job *j, size_t n_out, bitnet_error *err)
{
    bitnet_status st =
        check_int("quantize", "rule", (int)j->rule, BITNET_SCALE_ABSMEAN, BITNET_SCALE_ABSMAX, err);
    if (st == BITNET_OK)
        st = check_sizes("quantize", j->type, j->n, n_out, j->n_scales, err);
    if (st != BITNET_OK)
        return st;
    quantize_job job = *j;
    job.block = divide_up(j->n, j->n_scales);
    if (bnetx_on_device(j->ops))
        return quantize_on_device(&job, err);
    bitnet_single_op p = {.op = BITNET_SINGLE_QUANTIZE,
                          .type = (int)j->type,
                          .rule = (int)j->rule,
                          .m = job.block,
                          .n = j->n,
                          .k = j->n_scales,
                          .in = {j->in},
                          .out = {j->out, j->scales}};
    return bnetx_run(j->ops, &p, 1, err);
}

bitnet_status bitnet_quantize(bitnet_qtype q, bitnet_scale_rule rule, const float *in, size_t n,
                              uint8_t *out, size_t n_out, float *scales, size_t n_scales,
                              bitnet_error *err)
{
    if (n && n_scales && (!in || !out || !scales))
        return fail(err, BITNET_ARGUMENT, "quantize: in, out and scales must not be NULL");
    const quantize_job j = {NULL, q, rule, in, out, scales, n, n_scales, 0};
    return quantize(&j, n_out, err);
}

bitnet_status bitnet_ops_quantize(bitnet_ops *o, bitnet_qtype type, bitnet_scale_rule rule,
                                  const float *in, size_t n, uint8_t *out, size_t n_out,
                                  float *scales, size_t n_scales, bitnet_error *err)
{
    if (!o || (n && n_scales && (!in || !out || !scales)))
        return missing_ops("quantize", err);
    const quantize_job j = {o, type, rule, in, out, scales, n, n_scales, 0};
    return quantize(&j, n_out, err);
}

/* ---- weights to floats, codes ---- */

bitnet_status bitnet_dequantize(bitnet_qtype q, const uint8_t *in, size_t n_in, size_t n,
                                const float *scales, size_t n_scales, float *out, bitnet_error *err)
{
    if (n && n_scales && (!in || !out || !scales))
        return fail(err, BITNET_ARGUMENT, "dequantize: in, out and scales must not be NULL");
    bitnet_status st = check_sizes("dequantize", q, n, n_in, n_scales, err);
    bitnet_single_op p = {.op = BITNET_SINGLE_DEQUANTIZE,
                          .type = (int)q,
                          .n = n,
                          .k = n_scales,
                          .in = {in, scales},
                          .out = {out}};
    return st == BITNET_OK ? bnetx_run(NULL, &p, 1, err) : st;
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
    return trit_of(code);
}
