/* Codecs: bytes known by hand, round trips, error bounds, the three packings of I2_S, flavours,
 * absmean, sizes. */
#include "test.h"

#include "format/codec.h"

#include <math.h>

static uint64_t seed = 20260101;

static float uniform(float lo, float hi)
{
    return lo + (hi - lo) * (float)(test_rand(&seed) >> 40) * 0x1p-24f;
}

/* sum of twelve: near enough to a Gaussian for error bounds */
static float gaussian(void)
{
    float s = -6;
    for (int i = 0; i < 12; i++)
        s += uniform(0, 1);
    return s;
}

static uint64_t bytes_of(bnet_type t, uint64_t n_cols, uint64_t n_rows)
{
    uint64_t n = 0;
    return bnet_type_bytes(t, n_cols, n_rows, &n) ? n : 0;
}

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(bytes_of(BNET_F32, 5, 3), 60);
    assert_int_equal(bytes_of(BNET_Q4_0, 64, 3), 108);
    assert_int_equal(bytes_of(BNET_Q8_0, 64, 3), 204);
    assert_int_equal(bytes_of(BNET_Q6_K, 2560, 128256), 269337600);
    assert_int_equal(bytes_of(BNET_TQ1_0, 256, 2), 108);
    assert_int_equal(bytes_of(BNET_TQ2_0, 256, 2), 132);
    assert_int_equal(bytes_of(BNET_I2_S, 2560, 6912), 4423712);
    assert_int_equal(bytes_of(BNET_I2_S, 2560, 2560), 1638432);
    assert_int_equal(bytes_of(BNET_TL1, 8640, 3200), 8640 * 3200 / 4 + 32);
    assert_int_equal(bytes_of(BNET_IQ1_BN, 128, 3), 3 * (2 + 26));
    assert_int_equal(bytes_of(BNET_IQ2_BN, 128, 3), 3 * (4 + 32));
    assert_int_equal(bytes_of(BNET_Q8_0, 33, 1), 0);
    assert_int_equal(bytes_of(BNET_I2_S, 64, 2), 0);
    assert_int_equal(bytes_of(BNET_IQ2_BN_R4, 64, 3), 0);
    assert_int_equal(bytes_of(BNET_TL2, 192, 32), 0);
    assert_int_equal(bytes_of(BNET_F32, UINT64_C(1) << 62, 1), 0);
    assert_int_equal(bytes_of(BNET_F32, UINT64_C(1) << 40, UINT64_C(1) << 40), 0);
    assert_int_equal(bytes_of((bnet_type)5, 1, 1), 0);
}

static void names(void **state)
{
    (void)state;
    assert_int_equal(bnet_type_by_name("i2_s")->type, BNET_I2_S);
    assert_int_equal(bnet_type_by_name("Q6_K")->type, BNET_Q6_K);
    assert_null(bnet_type_by_name("q6"));
    assert_null(bnet_type_find(31));
    assert_string_equal(bnet_type_find(35)->name, "TQ2_0");
    assert_true(bnet_type_is_ternary(BNET_TQ1_0) && !bnet_type_is_ternary(BNET_Q4_0));
#define TYPE(id, NAME, block, bytes, kind)                                                         \
    assert_int_equal(bnet_type_is_ternary(BNET_##NAME), BNET_KIND_##kind == BNET_KIND_TERNARY);
#include "format/tensor_types.inc"
#undef TYPE
    assert_false(bnet_type_is_ternary((bnet_type)5));
}

static void no_codec(void **state)
{
    (void)state;
    float x[256] = {0};
    uint8_t raw[256] = {0};
    assert_false(bnet_decode_row(BNET_Q5_K, raw, x, 256));
    assert_false(bnet_encode_row(BNET_Q4_K, x, raw, 256));
    assert_false(bnet_decode_row(BNET_I2_S, raw, x, 256));
    assert_false(bnet_encode_row(BNET_MXFP4, x, raw, 256));
}

/* ---- bytes by hand ---- */

static void known_q8_0(void **state)
{
    (void)state;
    float x[32] = {127, -127, 1, 0.5f, -0.5f, 0.49f, 2.5f}, y[32];
    uint8_t raw[34];
    assert_true(bnet_encode_row(BNET_Q8_0, x, raw, 32));
    const uint8_t want[9] = {0x00, 0x3c, 127, 0x81, 1,
                             1,    0xff, 0,   3}; /* d = 1; halves away from zero */
    assert_memory_equal(raw, want, 9);
    assert_true(bnet_decode_row(BNET_Q8_0, raw, y, 32));
    assert_true(y[0] == 127 && y[1] == -127 && y[4] == -1);
}

static void known_q4_0(void **state)
{
    (void)state;
    float x[32] = {0}, y[32];
    uint8_t raw[18];
    x[0] = 8;   /* the largest: code 0, d = -1 */
    x[16] = -7; /* code 15 in the high nibble of the same byte */
    x[1] = -8;  /* would be 16: cut to 15, comes back as -7 */
    assert_true(bnet_encode_row(BNET_Q4_0, x, raw, 32));
    const uint8_t want[5] = {0x00, 0xbc, 0xf0, 0x8f, 0x88};
    assert_memory_equal(raw, want, 5);
    assert_true(bnet_decode_row(BNET_Q4_0, raw, y, 32));
    assert_true(y[0] == 8 && y[16] == -7 && y[1] == -7 && y[2] == 0);
}

static void known_q6_k(void **state)
{
    (void)state;
    uint8_t raw[210] = {0};
    float y[256];
    raw[209] = 0x3c;          /* d = 1 */
    memset(raw + 192, 1, 16); /* scales 1 */
    raw[192 + 130 / 16] = (uint8_t)-2;
    raw[64 + 2] = 0x07;       /* element 128 + 2: low nibble of group 0 in the second half */
    raw[128 + 32 + 2] = 0x03; /* its high bits: 3 -> code 0x37, value 23, times -2 */
    assert_true(bnet_decode_row(BNET_Q6_K, raw, y, 256));
    assert_true(y[130] == -46);
    assert_true(y[0] == -32 && y[255] == -32);
}

static void known_tq(void **state)
{
    (void)state;
    float x[256];
    uint8_t raw[66];
    for (int i = 0; i < 256; i++)
        x[i] = 0;
    x[0] = 2, x[32] = -2, x[64] = 2, x[96] = 2, x[128] = -2; /* one byte of each half */
    assert_true(bnet_encode_row(BNET_TQ2_0, x, raw, 256));
    assert_int_equal(raw[0], 2 | 0 << 2 | 2 << 4 | 2 << 6);
    assert_int_equal(raw[32], 0 | 1 << 2 | 1 << 4 | 1 << 6);
    assert_int_equal(raw[1], 0x55);
    assert_int_equal(raw[64] | raw[65] << 8, 0x4000);
    assert_true(bnet_encode_row(BNET_TQ1_0, x, raw, 256));
    /* trits 2,0,2,2,0: 2*81 + 0*27 + 2*9 + 2*3 + 0 = 186; (256*186 + 242) / 243 = 196 */
    assert_int_equal(raw[0], 196);
    assert_int_equal(raw[1], (256 * 121 + 242) / 243);  /* five zeros: 11111 in base three */
    assert_int_equal(raw[48], (256 * 120 + 242) / 243); /* four, the fifth trit 0 */
    assert_int_equal(raw[52] | raw[53] << 8, 0x4000);
}

/* ---- round trips ---- */

static void ternary_round_trip(void **state)
{
    (void)state;
    const bnet_type types[] = {BNET_TQ1_0, BNET_TQ2_0};
    enum { N = 256 * 8 };
    static float x[N], y[N];
    static int8_t t[N], back[N];
    static uint8_t raw[N];
    float scales[N / 256];
    for (size_t k = 0; k < 2; k++) {
        for (int i = 0; i < N; i++) {
            t[i] = (int8_t)((int)(test_rand(&seed) % 3) - 1);
            x[i] = (float)t[i] * 0.375f;
        }
        assert_true(bnet_encode_row(types[k], x, raw, N));
        assert_true(bnet_decode_row(types[k], raw, y, N));
        bnet_tq_decode_row(types[k], raw, back, scales, N);
        assert_memory_equal(x, y, sizeof x);
        assert_memory_equal(t, back, sizeof t);
        for (int i = 0; i < N / 256; i++)
            assert_true(scales[i] == 0.375f);
    }
}

/* every byte value of five trits survives */
static void tq1_all_bytes(void **state)
{
    (void)state;
    float x[256], y[256];
    uint8_t raw[54];
    for (int q = 0; q < 243; q++) {
        for (int i = 0; i < 256; i++)
            x[i] = 1;
        for (int n = 0, div = 81; n < 5; n++, div /= 3)
            x[32 * n + 7] = (float)(q / div % 3 - 1);
        assert_true(bnet_encode_row(BNET_TQ1_0, x, raw, 256));
        assert_true(bnet_decode_row(BNET_TQ1_0, raw, y, 256));
        assert_memory_equal(x, y, sizeof x);
    }
}

static double relative_error(bnet_type t, const float *x, size_t n)
{
    static uint8_t raw[1 << 18];
    static float y[1 << 15];
    double e = 0, s = 0;
    assert_true(bnet_encode_row(t, x, raw, n));
    assert_true(bnet_decode_row(t, raw, y, n));
    for (size_t i = 0; i < n; i++) {
        e += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        s += (double)x[i] * x[i];
    }
    return sqrt(e / s);
}

static void error_bounds(void **state)
{
    (void)state;
    enum { N = 1 << 15 };
    static float x[N];
    for (int i = 0; i < N; i++)
        x[i] = gaussian() * 0.02f;
    const struct {
        bnet_type t;
        double limit;
    } rows[] = {{BNET_F32, 0},     {BNET_F16, 3e-4},    {BNET_BF16, 2.5e-3},
                {BNET_Q8_0, 6e-3}, {BNET_Q6_K, 0.0175}, {BNET_Q4_0, 0.1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double e = relative_error(rows[i].t, x, N);
        print_message("%s: relative error %.5f\n", bnet_type_find((uint32_t)rows[i].t)->name, e);
        assert_true(e <= rows[i].limit);
        assert_true(rows[i].t == BNET_F32 || e > 0);
    }
}

/* An encoder must beat the obvious one: step = largest / 32. */
static void q6_k_beats_naive(void **state)
{
    (void)state;
    enum { N = 1 << 15 };
    static float x[N];
    double e = 0, s = 0;
    for (int i = 0; i < N; i++)
        x[i] = gaussian() * expf(gaussian());
    for (int i = 0; i < N; i += 16) {
        float top = 0;
        for (int j = 0; j < 16; j++)
            top = fabsf(x[i + j]) > fabsf(top) ? x[i + j] : top;
        for (int j = 0; j < 16; j++) {
            float step = top / -32, q = fminf(fmaxf(rintf(x[i + j] / step), -32), 31);
            e += pow(x[i + j] - step * q, 2);
            s += pow(x[i + j], 2);
        }
    }
    double ours = relative_error(BNET_Q6_K, x, N);
    print_message("Q6_K %.5f, unrounded naive scales %.5f\n", ours, sqrt(e / s));
    assert_true(ours < sqrt(e / s));
}

static void q6_k_edges(void **state)
{
    (void)state;
    float x[256] = {0}, y[256];
    uint8_t raw[210];
    assert_true(bnet_encode_row(BNET_Q6_K, x, raw, 256));
    assert_true(bnet_decode_row(BNET_Q6_K, raw, y, 256));
    assert_memory_equal(x, y, sizeof x); /* zeros stay zeros */
    x[17] = -3.25f;
    x[255] = 1e-4f;
    assert_true(bnet_encode_row(BNET_Q6_K, x, raw, 256));
    assert_true(bnet_decode_row(BNET_Q6_K, raw, y, 256));
    assert_true(fabsf(y[17] + 3.25f) < 3.25f / 500);
    assert_true(y[0] == 0);
}

/* Nonsense in: something out, and nothing undefined on the way (the sanitiser watches). */
static void not_finite(void **state)
{
    (void)state;
    const bnet_type types[] = {BNET_Q6_K, BNET_Q8_0, BNET_Q4_0, BNET_TQ1_0, BNET_TQ2_0};
    const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, 1e-45f};
    uint8_t raw[512];
    float x[256], y[256];
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 5; k++) {
            for (int j = 0; j < 256; j++)
                x[j] = j % 19 ? 0.5f : bad[k];
            assert_true(bnet_encode_row(types[i], x, raw, 256));
            assert_true(bnet_decode_row(types[i], raw, y, 256));
        }
}

/* ---- I2_S ---- */

static void i2s_known(void **state)
{
    (void)state;
    int8_t trits[128] = {0}, back[128];
    uint8_t data[64] = {0};
    trits[0] = 1, trits[32] = -1, trits[64] = 1, trits[96] = -1;
    bnet_i2s_encode_row(BITNET_I2S_128, data, 128, 0, trits);
    assert_int_equal(data[0], 2 << 6 | 0 << 4 | 2 << 2 | 0);
    assert_int_equal(data[1], 0x55);
    memset(data, 0, sizeof data);
    bnet_i2s_encode_row(BITNET_I2S_64, data, 128, 0, trits);
    assert_int_equal(data[0], 2 << 6 | 1 << 4 | 0 << 2 | 1); /* elements 0, 16, 32, 48 */
    assert_int_equal(data[16], 2 << 6 | 1 << 4 | 0 << 2 | 1);
    data[1] = 0xff;
    assert_int_equal(bnet_i2s_decode_row(BITNET_I2S_128, data, 128, 0, back), 4); /* four codes 3 */
    assert_int_equal(back[1], 0);
    bnet_put_f32(data + 32, 1.5f);
    assert_true(bnet_i2s_scale(data, 128) == 1.5f);
}

static void i2s_layouts(void **state)
{
    (void)state;
    enum { COLS = 384, ROWS = 8 };
    static int8_t t[ROWS][COLS], back[COLS];
    static uint8_t data[3][COLS * ROWS / 4];
    memset(data, 0, sizeof data);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            t[r][c] = (int8_t)((int)(test_rand(&seed) % 3) - 1);
    for (int l = 0; l < 3; l++)
        for (uint64_t r = 0; r < ROWS; r++)
            bnet_i2s_encode_row((bitnet_i2s_layout)l, data[l], COLS, r, t[r]);
    for (int l = 0; l < 3; l++)
        for (uint64_t r = 0; r < ROWS; r++) {
            assert_int_equal(bnet_i2s_decode_row((bitnet_i2s_layout)l, data[l], COLS, r, back), 0);
            assert_memory_equal(back, t[r], COLS);
        }
    assert_memory_not_equal(data[0], data[1], sizeof data[0]);
    assert_memory_not_equal(data[0], data[2], sizeof data[0]);
    uint64_t byte;
    unsigned shift;
    bnet_i2s_locate(BITNET_I2S_4ROW, COLS, 6, 5, &byte, &shift);
    assert_int_equal(byte, COLS + 5);
    assert_int_equal(shift, 2);
    bnet_i2s_locate(BITNET_I2S_128, COLS, 1, 33, &byte, &shift); /* element 417 = 3 * 128 + 33 */
    assert_int_equal(byte, 96 + 1);
    assert_int_equal(shift, 4);
    bnet_i2s_locate(BITNET_I2S_64, COLS, 1, 33, &byte, &shift); /* 6 * 64 + 33 */
    assert_int_equal(byte, 96 + 1);
    assert_int_equal(shift, 2);
}

static bnet_i2s_flavour flavour(uint64_t cols, uint64_t rows, uint64_t span, uint64_t alignment,
                                const uint8_t *data)
{
    bnet_tensor t = {.n_dims = 2, .ne = {cols, rows, 1, 1}, .type = BNET_I2_S};
    t.data = data;
    t.n_span = span;
    return bnet_i2s_detect(&t, alignment);
}

static void i2s_flavours(void **state)
{
    (void)state;
    static uint8_t data[4096];
    memset(data, 0x55, sizeof data);
    assert_int_equal(flavour(256, 8, 512 + 32, 32, data), BNET_I2S_MICROSOFT);
    assert_int_equal(flavour(256, 8, 512 + 64, 64, data), BNET_I2S_MICROSOFT); /* padded */
    assert_int_equal(flavour(256, 8, 512, 32, data), BNET_I2S_QK256);
    assert_int_equal(flavour(256, 8, 640, 32, data), BNET_I2S_BITNET32);
    assert_int_equal(flavour(256, 8, 511, 32, data), BNET_I2S_UNKNOWN);
    assert_int_equal(flavour(256, 8, 512 + 33, 32, data), BNET_I2S_UNKNOWN);
    assert_int_equal(flavour(256, 8, 2048, 32, data), BNET_I2S_UNKNOWN);
    assert_int_equal(flavour(384, 8, 8 * 128, 32, data), BNET_I2S_QK256); /* rows padded to 512 */
    /* 512 weights: n/4 + 32 = 160 = 10 per 32. The bytes decide: 0x55555555 is a scale, no code is
     * 3 */
    assert_int_equal(flavour(256, 2, 160, 32, data), BNET_I2S_MICROSOFT);
    data[77] = 0xc0;
    assert_int_equal(flavour(256, 2, 160, 32, data), BNET_I2S_BITNET32);
    data[77] = 0x55;
    bnet_put_f32(data + 128, -1);
    assert_int_equal(flavour(256, 2, 160, 32, data), BNET_I2S_BITNET32);
    /* one row of 128: 64 bytes fit every format; without a scale the other two remain */
    assert_int_equal(flavour(128, 1, 64, 32, data), BNET_I2S_MICROSOFT);
    bnet_put_f32(data + 32, 0);
    assert_int_equal(flavour(128, 1, 64, 32, data), BNET_I2S_UNKNOWN);
}

/* ---- absmean ---- */

static void absmean(void **state)
{
    (void)state;
    const float w[] = {0.5f, -0.5f, 1.5f, -1.5f, 0.51f, -0.49f, 0, 100, -100};
    const int8_t want[] = {0, 0, 1, -1, 1,
                           0, 0, 1, -1}; /* halves to even: 0.5 -> 0, 1.5 -> 2 -> 1 */
    int8_t t[9];
    bnet_absmean_row(w, 1, t, 9);
    assert_memory_equal(t, want, 9);
    assert_true(bnet_absmean_finish(6, 4) == 1.5f);
    assert_true(bnet_absmean_finish(0, 4) == 1e-5f);
    assert_true(bnet_absmean_finish(0, 0) == 1e-5f);
}

int main(void)
{
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(names),
        cmocka_unit_test(no_codec),
        cmocka_unit_test(known_q8_0),
        cmocka_unit_test(known_q4_0),
        cmocka_unit_test(known_q6_k),
        cmocka_unit_test(known_tq),
        cmocka_unit_test(ternary_round_trip),
        cmocka_unit_test(tq1_all_bytes),
        cmocka_unit_test(error_bounds),
        cmocka_unit_test(q6_k_beats_naive),
        cmocka_unit_test(q6_k_edges),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(i2s_known),
        cmocka_unit_test(i2s_layouts),
        cmocka_unit_test(i2s_flavours),
        cmocka_unit_test(absmean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
