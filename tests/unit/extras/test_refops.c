/* test_refops.c - the reference operations, requirement by requirement: K-1 .. K-8, K-21, with the
 * decisions D-1 .. D-7. */
#include "unit/engine/nano.h"

#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "bitnet_extras.h"
#include "bitnet_tools.h"
#include "format/codec.h"
#include "format/gguf.h"

static uint64_t seed = 11;

static float random_float(void)
{
    return (float)((int)(test_rand(&seed) % 20001) - 10000) / 10000.0f;
}

static void fill_codes(uint8_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)(test_rand(&seed) % 4);
}

/* ---- K-1, K-3: matmul_i2s ---- */

static void check_matmul(size_t m, size_t n, size_t k, int fill)
{
    int8_t *a = malloc(m * k);
    uint8_t *b = malloc(k * n);
    float *c = malloc(m * n * sizeof *c);
    for (size_t i = 0; i < m * k; i++)
        a[i] = fill == 0 ? -128 : fill == 1 ? 127 : (int8_t)test_rand(&seed);
    fill_codes(b, k * n);
    if (fill < 2)
        memset(b, fill == 0 ? 0 : 2, k * n);
    memset(c, 0x7f, m * n * sizeof *c);
    OK(bitnet_matmul_i2s(a, m * k, b, k * n, c, m * n, m, n, k, &err));
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            int64_t want = 0;
            for (size_t l = 0; l < k; l++) {
                static const int trit[4] = {-1, 0, 1, 0};
                want += a[i * k + l] * trit[b[l * n + j]];
            }
            if (c[i * n + j] != (float)want)
                fail_msg("m %zu n %zu k %zu: element (%zu, %zu) is %g, want %lld", m, n, k, i, j,
                         (double)c[i * n + j], (long long)want);
        }
    free(a);
    free(b);
    free(c);
}

static void test_K_1_matmul_equals_integers(void **state)
{
    (void)state;
    for (int i = 0; i < 150; i++)
        check_matmul(1 + test_rand(&seed) % 100, 1 + test_rand(&seed) % 100,
                     1 + test_rand(&seed) % 100, i % 5);
    static const size_t edges[] = {1, 2, 3, 4, 5, 63, 64, 65, 99, 100};
    for (size_t i = 0; i < BNET_COUNT(edges); i++)
        for (size_t j = 0; j < BNET_COUNT(edges); j++)
            check_matmul(edges[i], edges[j], edges[(i + j) % BNET_COUNT(edges)], 2);
    check_matmul(1, 1, 100000, 0); /* 12,800,000: still exact */
}

static void test_K_1_dimension_mismatch(void **state)
{
    (void)state;
    int8_t a[6] = {0};
    uint8_t b[6] = {0};
    float c[4];
    static const size_t bad[][6] = {
        /* n_a, n_b, n_c, m, n, k */
        {5, 6, 4, 2, 2, 3},        {6, 5, 4, 2, 2, 3},
        {6, 6, 3, 2, 2, 3},        {6, 6, 4, 3, 2, 2},
        {6, 6, 4, SIZE_MAX, 2, 3}, {6, 6, 4, SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1, 2},
        {0, 0, 0, 1, 1, 1},
    };
    for (size_t i = 0; i < BNET_COUNT(bad); i++) {
        bitnet_error err = {0};
        assert_int_equal(bitnet_matmul_i2s(a, bad[i][0], b, bad[i][1], c, bad[i][2], bad[i][3],
                                           bad[i][4], bad[i][5], &err),
                         BITNET_ARGUMENT);
        assert_string_equal(err.message, "Matrix dimension mismatch");
    }
    OK(bitnet_matmul_i2s(NULL, 0, NULL, 0, NULL, 0, 0, 0, 0, &err));        /* nothing to do */
    OK(bitnet_matmul_i2s(NULL, 0, NULL, 0, NULL, 0, SIZE_MAX, 0, 0, &err)); /* at once */
    OK(bitnet_matmul_i2s(NULL, 0, NULL, 0, NULL, 0, 0, SIZE_MAX, 0, &err));
    OK(bitnet_matmul_i2s(NULL, 0, b, 6, NULL, 0, 0, 2, 3, &err));
    const bitnet_matmul none = {.m = SIZE_MAX};
    OK(bitnet_batch_matmul_i2s(&none, 1, &err));
    OK(bitnet_matmul_i2s(NULL, 0, NULL, 0, c, 4, 2, 2, 0, &err)); /* sums of nothing */
    assert_true(c[0] == 0 && c[3] == 0);
    FAILS(bitnet_matmul_i2s(NULL, 6, b, 6, c, 4, 2, 2, 3, &err), BITNET_ARGUMENT, "NULL");
}

static void test_K_2_all_256_bytes(void **state)
{
    (void)state;
    static const int want[4] = {-1, 0, 1, 0}; /* 0b00, 0b01, 0b10, 0b11 */
    for (int byte = 0; byte < 256; byte++) {
        uint8_t packed = (uint8_t)byte, codes[4];
        float scale = 1, out[4];
        bitnet_i2s_unpack(&packed, 4, codes);
        OK(bitnet_dequantize(BITNET_QTYPE_I2S, &packed, 1, 4, &scale, 1, out, &err));
        for (int i = 0; i < 4; i++) {
            assert_int_equal(codes[i], byte >> 2 * i & 3);
            assert_int_equal(bitnet_i2s_trit(codes[i]), want[byte >> 2 * i & 3]);
            assert_true(out[i] == (float)want[byte >> 2 * i & 3]);
        }
        assert_int_equal(bitnet_i2s_trit(packed), byte < 3 ? byte - 1 : 0); /* unpacked form */
    }
}

static void test_K_3_known_vectors(void **state)
{
    (void)state;
    static const int8_t a[6] = {-1, 0, 1, -1, 0, 1};
    static const uint8_t b[6] = {0, 1, 2, 0, 1, 2};
    float c[4];
    OK(bitnet_matmul_i2s(a, 6, b, 6, c, 4, 2, 2, 3, &err));
    for (int i = 0; i < 4; i++)
        assert_true(c[i] == 1);
    /* rows that do not sum to zero tell decoded from raw codes: raw would give 10, 10, -2, -1 */
    static const int8_t a2[6] = {2, 3, 4, -1, -1, 0};
    static const float want[4] = {1, 1, 0, 1};
    OK(bitnet_matmul_i2s(a2, 6, b, 6, c, 4, 2, 2, 3, &err));
    for (int i = 0; i < 4; i++)
        assert_true(c[i] == want[i]);
}

/* The packed layout of models and the plain form give the same product (D-2). */
static void test_K_1_packed_equals_unpacked(void **state)
{
    (void)state;
    enum { K = 256, N = 5 };
    int8_t x[K], trits[K];
    uint8_t packed[K * N / 4] = {0}, codes[K * N];
    float c[N];
    for (int i = 0; i < K; i++)
        x[i] = (int8_t)test_rand(&seed);
    for (size_t r = 0; r < N; r++) {
        for (int i = 0; i < K; i++) {
            trits[i] = (int8_t)(test_rand(&seed) % 3) - 1;
            codes[(size_t)i * N + r] = (uint8_t)(trits[i] + 1);
        }
        bnet_i2s_encode_row(BITNET_I2S_128, packed, K, r, trits);
    }
    OK(bitnet_matmul_i2s(x, K, codes, K * N, c, N, 1, N, K, &err));
    for (size_t r = 0; r < N; r++) {
        int want = 0;
        assert_int_equal(bnet_i2s_decode_row(BITNET_I2S_128, packed, K, r, trits), 0);
        for (int i = 0; i < K; i++)
            want += trits[i] * x[i];
        assert_true(c[r] == (float)want);
    }
}

/* ---- K-5, K-6: quantize ---- */

static void test_K_5_round_trip(void **state)
{
    (void)state;
    static const float in[4] = {0.5f, -0.3f, 0.8f, -0.1f};
    uint8_t out[1];
    float scale, back[4], most = 0;
    OK(bitnet_quantize(BITNET_QTYPE_I2S, BITNET_SCALE_ABSMAX, in, 4, out, 1, &scale, 1, &err));
    OK(bitnet_dequantize(BITNET_QTYPE_I2S, out, 1, 4, &scale, 1, back, &err));
    for (int i = 0; i < 4; i++)
        most = fmaxf(most, fabsf(in[i] - back[i]));
    assert_true(most <= 0.8f / 3 * 1.000001f);
    assert_int_equal(out[0], 2 | 0 << 2 | 2 << 4 | 1 << 6);
    OK(bitnet_quantize(BITNET_QTYPE_I2S, BITNET_SCALE_ABSMEAN, in, 4, out, 1, &scale, 1, &err));
    assert_true(fabsf(scale - 0.425f) < 1e-6f); /* mean of the magnitudes */
    assert_int_equal(out[0], 2 | 0 << 2 | 2 << 4 | 1 << 6);
}

static void test_K_5_error_bound_of_absmax(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        float in[64], back[64], scales[4];
        uint8_t out[16];
        float size = powf(10, (float)(round % 9) - 4);
        for (int i = 0; i < 64; i++)
            in[i] = random_float() * size;
        OK(bitnet_quantize(BITNET_QTYPE_I2S, BITNET_SCALE_ABSMAX, in, 64, out, 16, scales, 4,
                           &err));
        OK(bitnet_dequantize(BITNET_QTYPE_I2S, out, 16, 64, scales, 4, back, &err));
        for (int i = 0; i < 64; i++)
            if (fabsf(in[i] - back[i]) > scales[i / 16] * 0.500001f)
                fail_msg("round %d: %g became %g, scale %g", round, (double)in[i], (double)back[i],
                         (double)scales[i / 16]);
    }
}

/* 1024 values, 8 scales: blocks of 128 (D-4); other counts divide with the last block short. */
static void test_K_5_blocks_by_number_of_scales(void **state)
{
    (void)state;
    static const struct {
        size_t n, n_scales, block;
    } cases[] = {{1024, 8, 128}, {4, 1, 4}, {10, 3, 4}, {10, 4, 3}, {7, 7, 1}, {5, 8, 1}};
    for (size_t c = 0; c < BNET_COUNT(cases); c++) {
        size_t n = cases[c].n;
        float in[1024], scales[8], back[1024];
        uint8_t out[256];
        for (size_t i = 0; i < n; i++)
            in[i] = (float)(i / cases[c].block + 1); /* constant in a block */
        OK(bitnet_quantize(BITNET_QTYPE_I2S, BITNET_SCALE_ABSMEAN, in, n, out, 256, scales,
                           cases[c].n_scales, &err));
        OK(bitnet_dequantize(BITNET_QTYPE_I2S, out, 256, n, scales, cases[c].n_scales, back, &err));
        for (size_t i = 0; i < n; i++)
            assert_true(back[i] == in[i]);
    }
}

static void test_K_6_tl1_tl2_lose_nothing(void **state)
{
    (void)state;
    assert_int_equal(BITNET_QTYPE_I2S, 0);
    assert_int_equal(BITNET_QTYPE_TL1, 1);
    assert_int_equal(BITNET_QTYPE_TL2, 2);
    for (size_t n = 1; n <= 200; n++)
        for (int rule = 0; rule < 2; rule++) {
            float in[200], back[3][200], scales[3][5];
            size_t n_scales = 1 + n % 5;
            for (size_t i = 0; i < n; i++)
                in[i] = random_float();
            for (int q = 0; q < 3; q++) {
                uint8_t out[80];
                size_t n_out = bitnet_quantized_bytes((bitnet_qtype)q, n);
                memset(out, 0xee, sizeof out);
                OK(bitnet_quantize((bitnet_qtype)q, rule, in, n, out, n_out, scales[q], n_scales,
                                   &err));
                assert_int_equal(out[n_out], 0xee); /* not one byte more */
                OK(bitnet_dequantize((bitnet_qtype)q, out, n_out, n, scales[q], n_scales, back[q],
                                     &err));
            }
            for (int q = 1; q < 3; q++) {
                assert_memory_equal(scales[q], scales[0], n_scales * sizeof(float));
                assert_memory_equal(back[q], back[0], n * sizeof(float));
            }
        }
}

/* Every pair and every triple by its documented number. */
static void test_K_6_codes(void **state)
{
    (void)state;
    for (int v = 0; v < 27; v++) {
        float in[3] = {(float)(v / 9 - 1), (float)(v / 3 % 3 - 1), (float)(v % 3 - 1)}, scale;
        uint8_t out[2];
        in[0] = v == 13 ? 0 : in[0];
        OK(bitnet_quantize(BITNET_QTYPE_TL2, BITNET_SCALE_ABSMAX, in, 3, out, 2, &scale, 1, &err));
        assert_int_equal(out[0], abs(v - 13) << 4);
        assert_int_equal(out[1], v < 13);
        OK(bitnet_quantize(BITNET_QTYPE_TL1, BITNET_SCALE_ABSMAX, in, 2, out, 1, &scale, 1, &err));
        int pair = 3 * (int)in[0] + (int)in[1] + 4;
        assert_int_equal(out[0], pair << 4 | 4);
    }
}

static void test_K_6_errors(void **state)
{
    (void)state;
    float in[8] = {0}, scale, out_f[8];
    uint8_t out[8] = {0};
    FAILS(bitnet_quantize((bitnet_qtype)3, 0, in, 8, out, 8, &scale, 1, &err), BITNET_ARGUMENT,
          "type 3");
    FAILS(bitnet_quantize(0, (bitnet_scale_rule)2, in, 8, out, 8, &scale, 1, &err), BITNET_ARGUMENT,
          "rule");
    FAILS(bitnet_quantize(0, 0, in, 8, out, 1, &scale, 1, &err), BITNET_ARGUMENT, "2 bytes");
    FAILS(bitnet_quantize(0, 0, in, 0, out, 8, &scale, 1, &err), BITNET_ARGUMENT, "0 values");
    FAILS(bitnet_quantize(0, 0, in, 8, out, 8, &scale, 0, &err), BITNET_ARGUMENT, "0 scales");
    FAILS(bitnet_quantize(0, 0, NULL, 8, out, 8, &scale, 1, &err), BITNET_ARGUMENT, "NULL");
    FAILS(bitnet_dequantize(0, out, 1, 8, &scale, 1, out_f, &err), BITNET_ARGUMENT, "2 bytes");
    in[5] = NAN;
    FAILS(bitnet_quantize(0, 0, in, 8, out, 8, &scale, 1, &err), BITNET_ARGUMENT, "value 5");
    in[5] = INFINITY;
    FAILS(bitnet_quantize(1, 1, in, 8, out, 8, &scale, 1, &err), BITNET_ARGUMENT, "value 5");
    /* bytes that no encoder writes mean 0, not a read past a table */
    memset(out, 0xff, sizeof out);
    scale = 1;
    for (int q = 0; q < 3; q++) {
        OK(bitnet_dequantize((bitnet_qtype)q, out, 8, 8, &scale, 1, out_f, &err));
        for (int i = 0; i < 8; i++)
            assert_true(out_f[i] == 0);
    }
}

/* ---- K-7 ---- */

static const int maps[3][4] = {{-1, 0, 1, 0}, {-2, -1, 0, 1}, {-2, -1, 1, 2}};

static void check_qk256(size_t rows, size_t cols, int map, bool with_scales)
{
    size_t n_blocks = (cols + 255) / 256;
    uint8_t *w = malloc(rows * n_blocks * 64);
    float *x = malloc(cols * sizeof *x), *y = malloc(rows * sizeof *y),
          *s = malloc(rows * n_blocks * sizeof *s);
    for (size_t i = 0; i < rows * n_blocks * 64; i++)
        w[i] = (uint8_t)test_rand(&seed);
    for (size_t i = 0; i < cols; i++)
        x[i] = random_float();
    for (size_t i = 0; i < rows * n_blocks; i++)
        s[i] = random_float() * 0.1f;
    OK(bitnet_qk256_gemv(w, rows * n_blocks * 64, with_scales ? s : NULL, rows * n_blocks, rows,
                         cols, x, map, y, &err));
    for (size_t r = 0; r < rows; r++) {
        double want = 0;
        for (size_t i = 0; i < cols; i++) {
            size_t block = r * n_blocks + i / 256;
            int code = w[block * 64 + i % 256 / 4] >> 2 * (i % 4) & 3;
            want += (double)maps[map][code] * x[i] * (with_scales ? (double)s[block] : 1.0);
        }
        if (fabs(y[r] - want) > 1e-5)
            fail_msg("rows %zu cols %zu map %d: row %zu is %.9g, want %.9g", rows, cols, map, r,
                     (double)y[r], want);
    }
    free(w), free(x), free(y), free(s);
}

static void test_K_7_qk256_gemv(void **state)
{
    (void)state;
    static const size_t cols[] = {1, 3, 255, 256, 257, 512, 700, 2560};
    for (size_t c = 0; c < BNET_COUNT(cols); c++)
        for (int map = 0; map < 3; map++)
            for (int scales = 0; scales < 2; scales++)
                check_qk256(1 + c % 4, cols[c], map, scales);
    uint8_t w[64] = {0};
    float x[256] = {0}, y[2];
    FAILS(bitnet_qk256_gemv(w, 63, NULL, 0, 1, 256, x, 0, y, &err), BITNET_ARGUMENT, "n_w is 63");
    FAILS(bitnet_qk256_gemv(w, 64, NULL, 0, 1, 257, x, 0, y, &err), BITNET_ARGUMENT, "must be 128");
    FAILS(bitnet_qk256_gemv(w, 64, x, 2, 1, 256, x, 0, y, &err), BITNET_ARGUMENT, "n_scales");
    FAILS(bitnet_qk256_gemv(w, 64, NULL, 0, 1, 256, x, (bitnet_code_map)3, y, &err),
          BITNET_ARGUMENT, "map");
    FAILS(bitnet_qk256_gemv(w, 64, NULL, 0, SIZE_MAX, SIZE_MAX, x, 0, y, &err), BITNET_ARGUMENT,
          "too large");
}

/* ---- K-8 ---- */

static void fill_bitnet32(uint8_t *b, size_t n_blocks)
{
    for (size_t i = 0; i < n_blocks; i++) {
        for (int j = 0; j < 8; j++)
            b[10 * i + (size_t)j] = (uint8_t)test_rand(&seed);
        uint16_t h = bnet_f32_to_f16(random_float() * 0.1f);
        memcpy(b + 10 * i + 8, &h, 2);
    }
}

static double bitnet32_value(const uint8_t *data, size_t i, int map)
{
    const uint8_t *b = data + i / 32 * 10;
    double s = (double)bnet_f16_to_f32((uint16_t)(b[8] | b[9] << 8));
    if (map == 2)
        s = fmin(fmax(fabs(s), 1e-3), 1e3);
    return maps[map][b[i % 32 / 4] >> 2 * (i % 4) & 3] * s;
}

static void test_K_8_bitnet32(void **state)
{
    (void)state;
    enum { ROWS = 6, COLS = 96, N = ROWS * COLS };
    uint8_t data[N / 32 * 10];
    float x[COLS], out[N], y[ROWS];
    fill_bitnet32(data, N / 32);
    memset(data + 8, 0, 2); /* a scale of zero: 1e-3 in the map without zero */
    for (int i = 0; i < COLS; i++)
        x[i] = random_float();
    for (int map = 0; map < 3; map++) {
        for (size_t n = 1; n <= N; n += 37) {
            OK(bitnet_bitnet32_decode(data, (n + 31) / 32 * 10, n, map, out, &err));
            for (size_t i = 0; i < n; i++)
                assert_true(fabs(out[i] - bitnet32_value(data, i, map)) < 1e-8);
        }
        OK(bitnet_bitnet32_gemv(data, sizeof data, ROWS, COLS, x, map, y, &err));
        for (size_t r = 0; r < ROWS; r++) {
            double want = 0;
            for (size_t i = 0; i < COLS; i++)
                want += bitnet32_value(data, r * COLS + i, map) * x[i];
            assert_true(fabs(y[r] - want) < 1e-5);
        }
    }
    FAILS(bitnet_bitnet32_decode(data, 10, 33, 1, out, &err), BITNET_ARGUMENT, "n_data is 10");
    FAILS(bitnet_bitnet32_gemv(data, 10, 1, 31, x, 1, y, &err), BITNET_ARGUMENT, "multiple of 32");
    FAILS(bitnet_bitnet32_gemv(data, 10, 2, 32, x, 1, y, &err), BITNET_ARGUMENT, "must be 20");
    FAILS(bitnet_bitnet32_gemv(data, 10, 1, 32, x, (bitnet_code_map)7, y, &err), BITNET_ARGUMENT,
          "map");
}

static void put(FILE *f, const void *p, size_t n)
{
    assert_int_equal(fwrite(p, 1, n, f), n);
}

static void put_u32(FILE *f, uint32_t v)
{
    put(f, &v, 4);
}

static void put_u64(FILE *f, uint64_t v)
{
    put(f, &v, 8);
}

/* A GGUF with one tensor of type 36 in blocks of 32: the reader names the flavour and refuses to
 * guess its codes; the bytes at the offset it names decode by either map. */
static void test_K_8_generated_file(void **state)
{
    (void)state;
    enum { ROWS = 8, COLS = 128, N_DATA = ROWS * COLS / 32 * 10, AT = 96 };
    char path[256];
    uint8_t data[N_DATA];
    fill_bitnet32(data, N_DATA / 10);
    snprintf(path, sizeof path, "%s/bitnet32-%d.gguf", TEST_BINARY_DIR, (int)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    put(f, "GGUF", 4), put_u32(f, 3), put_u64(f, 1), put_u64(f, 0);
    put_u64(f, 8), put(f, "w.weight", 8), put_u32(f, 2), put_u64(f, COLS), put_u64(f, ROWS);
    put_u32(f, 36), put_u64(f, 0);
    while (ftell(f) < AT)
        put(f, "", 1);
    put(f, data, N_DATA);
    assert_int_equal(fclose(f), 0);
    bitnet_inspect *inspect = NULL;
    FAILS(bitnet_inspect_open(path, &inspect, &err), BITNET_MODEL, "BitNet32-F16");
    size_t n;
    char *file;
    OK(bnet_read_file(path, 1 << 20, &file, &n, &err));
    assert_int_equal(n, AT + N_DATA);
    float x[COLS], y[ROWS];
    for (int i = 0; i < COLS; i++)
        x[i] = random_float();
    for (int map = 1; map < 3; map++) {
        OK(bitnet_bitnet32_gemv((uint8_t *)file + AT, N_DATA, ROWS, COLS, x, map, y, &err));
        for (size_t r = 0; r < ROWS; r++) {
            double want = 0;
            for (size_t i = 0; i < COLS; i++)
                want += bitnet32_value(data, r * COLS + i, map) * x[i];
            assert_true(fabs(y[r] - want) < 1e-5);
        }
    }
    bnet_free(file);
    unlink(path);
}

/* ---- K-21 ---- */

static void test_K_21_batch(void **state)
{
    (void)state;
    enum { ITEMS = 40, SIZE = 24 };
    static int8_t a[ITEMS][SIZE * SIZE];
    static uint8_t b[ITEMS][SIZE * SIZE];
    static float c[ITEMS][SIZE * SIZE], want[SIZE * SIZE];
    bitnet_matmul items[ITEMS];
    OK(bitnet_batch_matmul_i2s(NULL, 0, &err)); /* an empty list is fine */
    for (size_t i = 0; i < ITEMS; i++) {
        size_t m = 1 + test_rand(&seed) % SIZE, n = 1 + test_rand(&seed) % SIZE,
               k = 1 + test_rand(&seed) % SIZE;
        for (size_t j = 0; j < sizeof a[i]; j++)
            a[i][j] = (int8_t)test_rand(&seed);
        fill_codes(b[i], sizeof b[i]);
        items[i] = (bitnet_matmul){a[i], m * k, b[i], k * n, c[i], m * n, m, n, k};
    }
    OK(bitnet_batch_matmul_i2s(items, ITEMS, &err));
    for (size_t i = 0; i < ITEMS; i++) { /* each result where its caller looks for it */
        const bitnet_matmul *t = &items[i];
        OK(bitnet_matmul_i2s(t->a, t->n_a, t->b, t->n_b, want, t->n_c, t->m, t->n, t->k, &err));
        assert_memory_equal(c[i], want, t->n_c * sizeof *want);
    }
    /* in the order of their shapes: of two that share a result the larger has the last word */
    for (int larger = 0; larger < 2; larger++) {
        static const int8_t ones[2] = {1, 1};
        static const uint8_t plus[2] = {2, 2};
        const bitnet_matmul k1 = {ones, 1, plus, 1, c[0], 1, 1, 1, 1},
                            k2 = {ones, 2, plus, 2, c[0], 1, 1, 1, 2};
        const bitnet_matmul pair[2] = {larger ? k2 : k1, larger ? k1 : k2};
        OK(bitnet_batch_matmul_i2s(pair, 2, &err));
        assert_true(c[0][0] == 2.0f);
    }
    memset(c, 0x55, sizeof c);
    items[ITEMS - 1].n_b++;
    FAILS(bitnet_batch_matmul_i2s(items, ITEMS, &err), BITNET_ARGUMENT,
          "item 39: Matrix dimension mismatch");
    for (size_t i = 0; i < sizeof c; i++) /* checked before anything was computed */
        assert_int_equal(((uint8_t *)c)[i], 0x55);
    FAILS(bitnet_batch_matmul_i2s(NULL, 3, &err), BITNET_ARGUMENT, "NULL");
}

/* ---- operations of bitnet_kernel.h by themselves ---- */

static void test_single_operations_are_checked(void **state)
{
    (void)state;
    float in[25], scales[2] = {0}, out[25];
    uint8_t packed[7];
    for (int i = 0; i < 25; i++)
        in[i] = i < 24 ? 1 : 3;
    bitnet_single_op q = {.op = BITNET_SINGLE_QUANTIZE,
                          .rule = BITNET_SCALE_ABSMEAN,
                          .m = 24,
                          .n = 25,
                          .k = 2,
                          .in = {in},
                          .out = {packed, scales}};
    bitnet_single_op ops[2] = {
        q, {.op = BITNET_SINGLE_DEQUANTIZE, .n = 25, .in = {packed, scales}, .out = {out}}};
    OK(bitnet_single_run(NULL, &q, 1, &err));
    assert_true(scales[0] == 1 && scales[1] == 3); /* blocks of 24 values, not of half of them */
    FAILS(bitnet_single_run(NULL, ops, 2, &err), BITNET_ARGUMENT, "no scale");
    ops[0].type = 3;
    FAILS(bitnet_single_run(NULL, ops, 1, &err), BITNET_ARGUMENT, "type");
    ops[0] = q, ops[0].m = 12;
    FAILS(bitnet_single_run(NULL, ops, 1, &err), BITNET_ARGUMENT, "not enough");
    ops[0] = q, in[3] = NAN;
    FAILS(bitnet_single_run(NULL, ops, 1, &err), BITNET_ARGUMENT, "value 3");
    ops[0].op = (bitnet_single_kind)99;
    FAILS(bitnet_single_run(NULL, ops, 1, &err), BITNET_ARGUMENT, "op");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_K_1_matmul_equals_integers),
        cmocka_unit_test(test_K_1_dimension_mismatch),
        cmocka_unit_test(test_K_1_packed_equals_unpacked),
        cmocka_unit_test(test_K_2_all_256_bytes),
        cmocka_unit_test(test_K_3_known_vectors),
        cmocka_unit_test(test_K_5_round_trip),
        cmocka_unit_test(test_K_5_error_bound_of_absmax),
        cmocka_unit_test(test_K_5_blocks_by_number_of_scales),
        cmocka_unit_test(test_K_6_tl1_tl2_lose_nothing),
        cmocka_unit_test(test_K_6_codes),
        cmocka_unit_test(test_K_6_errors),
        cmocka_unit_test(test_K_7_qk256_gemv),
        cmocka_unit_test(test_K_8_bitnet32),
        cmocka_unit_test(test_K_8_generated_file),
        cmocka_unit_test(test_K_21_batch),
        cmocka_unit_test(test_single_operations_are_checked),
    };
    return cmocka_run_group_tests_name("reference operations", tests, NULL, NULL);
}
