/* vectors.c - operations on vectors of floats, on a device or with the vectors of the CPU. */
#include "ops.h"

bitnet_status bitnet_ops_convert(bitnet_ops *o, bitnet_conversion conversion, const void *in,
                                 size_t n, void *out, bitnet_error *err)
{
    bool narrow = conversion == BITNET_F32_TO_F16 || conversion == BITNET_F32_TO_BF16;
    bitnet_single_op p = {
        .op = BITNET_SINGLE_CONVERT, .type = (int)conversion, .n = n, .in = {in}, .out = {out}};
    if (!o || (n && (!in || !out)))
        return missing_ops("convert", err);
    bitnet_status st = check_int("convert", "conversion", (int)conversion, BITNET_F32_TO_F16,
                                 BITNET_BF16_TO_F32, err);
    if (st == BITNET_OK)
        st = size_of("convert", n, 1, narrow ? 4 : 2, &p.in_bytes[0], err);
    if (st == BITNET_OK)
        st = size_of("convert", n, 1, narrow ? 2 : 4, &p.out_bytes[0], err);
    return st == BITNET_OK && n ? bnetx_run(o, &p, 1, err) : st;
}

bitnet_status bitnet_ops_vector(bitnet_ops *o, bitnet_vector function, const float *x,
                                const float *z, size_t n, float *y, bitnet_error *err)
{
    bool two = function != BITNET_VECTOR_RELU2 && function != BITNET_VECTOR_SILU;
    bitnet_single_op p = {.op = BITNET_SINGLE_VECTOR,
                          .type = (int)function,
                          .n = n,
                          .in = {x, two ? z : NULL},
                          .out = {y}};
    if (!o || (n && (!x || !y || (two && !z))))
        return missing_ops("vector", err);
    bitnet_status st = check_int("vector", "function", (int)function, BITNET_VECTOR_ADD,
                                 BITNET_VECTOR_GLU_SILU, err);
    if (st == BITNET_OK)
        st = size_of("vector", n, 1, sizeof(float), &p.in_bytes[0], err);
    p.in_bytes[1] = two ? p.in_bytes[0] : 0;
    p.out_bytes[0] = p.in_bytes[0];
    return st == BITNET_OK && n ? bnetx_run(o, &p, 1, err) : st;
}

bitnet_status bitnet_ops_softmax(bitnet_ops *o, const float *x, size_t rows, size_t n, float *y,
                                 bitnet_error *err)
{
    bitnet_single_op p = {.op = BITNET_SINGLE_SOFTMAX, .m = rows, .n = n, .in = {x}, .out = {y}};
    if (!o || (rows && n && (!x || !y)))
        return missing_ops("softmax", err);
    bitnet_status st = size_of("softmax", rows, n, sizeof(float), &p.in_bytes[0], err);
    p.out_bytes[0] = p.in_bytes[0];
    return st == BITNET_OK && p.in_bytes[0] ? bnetx_run(o, &p, 1, err) : st;
}

bitnet_status bitnet_ops_argmax(bitnet_ops *o, const float *x, size_t rows, size_t n,
                                int32_t *index, bitnet_error *err)
{
    bitnet_single_op p = {.op = BITNET_SINGLE_ARGMAX,
                          .m = rows,
                          .n = n,
                          .in = {x},
                          .out = {index},
                          .out_bytes = {rows * sizeof *index}};
    if (!o || (rows && ((n && !x) || !index)))
        return missing_ops("argmax", err);
    bitnet_status st = size_of("argmax", rows, n, sizeof(float), &p.in_bytes[0], err);
    if (st == BITNET_OK && n > INT32_MAX)
        st = fail(err, BITNET_ARGUMENT, "argmax: rows of %zu values are too long", n);
    for (size_t i = 0; st == BITNET_OK && n == 0 && i < rows; i++)
        index[i] = -1;
    return st == BITNET_OK && p.in_bytes[0] ? bnetx_run(o, &p, 1, err) : st;
}
