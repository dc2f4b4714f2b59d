/* blocks.c - matrices in blocks of 256 codes with separate scales, and of 32 with a half inside. */
#include <math.h>

#include "ops.h"

static const int8_t code_values[3][4] = {{-1, 0, 1, 0}, {-2, -1, 0, 1}, {-2, -1, 1, 2}};

static bitnet_status check_map(const char *what, bitnet_code_map map, bitnet_error *err)
{
    if ((unsigned)map <= BITNET_CODES_NOZERO)
        return BITNET_OK;
    return fail(err, BITNET_ARGUMENT, "%s: map is %d, must be 0..2", what, (int)map);
}

/* n_have must be rows * blocks * bytes. */
static bitnet_status check_size(const char *field, size_t n_have, size_t rows, size_t blocks,
                                size_t bytes, bitnet_error *err)
{
    size_t n_blocks, want;
    if (!multiply(rows, blocks, &n_blocks) || !multiply(n_blocks, bytes, &want))
        return fail(err, BITNET_ARGUMENT, "%s: rows times cols is too large", field);
    if (want == n_have)
        return BITNET_OK;
    return fail(err, BITNET_ARGUMENT, "%s is %zu, must be %zu", field, n_have, want);
}

static bitnet_status qk256(bitnet_ops *o, const uint8_t *w, size_t n_w, const float *scales,
                           size_t n_scales, size_t rows, size_t cols, const float *x,
                           bitnet_code_map map, float *y, bitnet_error *err)
{
    size_t blocks = divide_up(cols, 256);
    bitnet_status st = check_map("qk256_gemv", map, err);
    if (st == BITNET_OK)
        st = check_size("qk256_gemv: n_w", n_w, rows, blocks, 64, err);
    if (st == BITNET_OK && scales)
        st = check_size("qk256_gemv: n_scales", n_scales, rows, blocks, 1, err);
    if (st != BITNET_OK || !rows)
        return st;
    bitnet_single_op p = {
        .op = BITNET_SINGLE_QK256,
        .type = (int)map,
        .m = rows,
        .k = cols,
        .in = {w, scales, x},
        .in_bytes = {n_w, scales ? n_scales * sizeof *scales : 0, cols * sizeof *x},
        .out = {y},
        .out_bytes = {rows * sizeof *y}};
    return bnetx_run(o, &p, 1, err);
}

bitnet_status bitnet_qk256_gemv(const uint8_t *w, size_t n_w, const float *scales, size_t n_scales,
                                size_t rows, size_t cols, const float *x, bitnet_code_map map,
                                float *y, bitnet_error *err)
{
    if ((n_w && !w) || (cols && !x) || (rows && !y))
        return fail(err, BITNET_ARGUMENT, "qk256_gemv: w, x and y must not be NULL");
    return qk256(NULL, w, n_w, scales, n_scales, rows, cols, x, map, y, err);
}

bitnet_status bitnet_ops_qk256_gemv(bitnet_ops *o, const uint8_t *w, size_t n_w,
                                    const float *scales, size_t n_scales, size_t rows, size_t cols,
                                    const float *x, bitnet_code_map map, float *y,
                                    bitnet_error *err)
{
    if (!o || (n_w && !w) || (cols && !x) || (rows && !y))
        return missing_ops("qk256_gemv", err);
    return qk256(o, w, n_w, scales, n_scales, rows, cols, x, map, y, err);
}

/* ---- blocks of 32: 8 bytes of codes, then an f16 scale ---- */

static float half_to_float(unsigned h)
{
    int exponent = h >> 10 & 31;
    float fraction = (float)(h & 1023), value;
    if (exponent == 31)
        value = fraction > 0 ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexpf(fraction, -24);
    else
        value = ldexpf(fraction + 1024, exponent - 25);
    return h & 0x8000 ? -value : value;
}

static float scale_of(const uint8_t *block, bitnet_code_map map)
{
    float s = half_to_float(block[8] | (unsigned)block[9] << 8);
    return map == BITNET_CODES_NOZERO ? fminf(fmaxf(fabsf(s), 1e-3f), 1e3f) : s;
}

bitnet_status bitnet_bitnet32_decode(const uint8_t *data, size_t n_data, size_t n,
                                     bitnet_code_map map, float *out, bitnet_error *err)
{
    if ((n_data && !data) || (n && !out))
        return fail(err, BITNET_ARGUMENT, "bitnet32: data and out must not be NULL");
    bitnet_status st = check_map("bitnet32", map, err);
    if (st == BITNET_OK)
        st = check_size("bitnet32: n_data", n_data, 1, divide_up(n, 32), 10, err);
    for (size_t i = 0; st == BITNET_OK && i < n; i++) {
        const uint8_t *block = data + i / 32 * 10;
        int value = code_values[map][block[i % 32 / 4] >> 2 * (i % 4) & 3];
        out[i] = (float)value * scale_of(block, map);
    }
    return st;
}

/* Sum of value(code) * x over n codes, lowest bits first, in double. */
static double dot_codes(const uint8_t *codes, const float *x, size_t n, const int8_t value[4])
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)value[codes[i / 4] >> 2 * (i % 4) & 3] * x[i];
    return sum;
}

static float bitnet32_row(const uint8_t *row, size_t cols, const float *x, bitnet_code_map map)
{
    double sum = 0;
    for (size_t b = 0; b < cols / 32; b++, row += 10)
        sum += (double)scale_of(row, map) * dot_codes(row, x + 32 * b, 32, code_values[map]);
    return (float)sum;
}

bitnet_status bitnet_bitnet32_gemv(const uint8_t *data, size_t n_data, size_t rows, size_t cols,
                                   const float *x, bitnet_code_map map, float *y, bitnet_error *err)
{
    if ((n_data && !data) || (cols && !x) || (rows && !y))
        return fail(err, BITNET_ARGUMENT, "bitnet32_gemv: data, x and y must not be NULL");
    bitnet_status st = check_map("bitnet32_gemv", map, err);
    if (st == BITNET_OK && cols % 32 != 0)
        st = fail(err, BITNET_ARGUMENT,
                  "bitnet32_gemv: cols is %zu, must be a multiple of 32: blocks may not cross rows",
                  cols);
    if (st == BITNET_OK)
        st = check_size("bitnet32_gemv: n_data", n_data, rows, cols / 32, 10, err);
    for (size_t r = 0; st == BITNET_OK && r < rows; r++)
        y[r] = bitnet32_row(data + r * (cols / 32) * 10, cols, x, map);
    return st;
}
