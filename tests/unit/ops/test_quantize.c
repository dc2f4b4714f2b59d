/* test_quantize.c - quantising with vectors against the reference, bit for bit: every provider that
 * this machine can run, every form and rule, odd sizes, ties, ends of the range. */
#include <float.h>
#include <math.h>

#include "device/cpu_features.h"
#include "ops/provider.h"
#include "test.h"

enum { MOST = 5000 };

typedef struct result {
    uint8_t *packed;
    float *scales;
} result;

/* Exactly as large as promised, so that a sanitizer sees a byte too many. */
static result result_new(bitnet_qtype q, size_t n, size_t n_scales)
{
    result r = {malloc(bnet_ref_quantized_bytes(q, n)), malloc(n_scales * sizeof(float))};
    assert_true(r.packed && r.scales);
    memset(r.packed, 0xee, bnet_ref_quantized_bytes(q, n));
    return r;
}

static void result_free(result *r)
{
    free(r->packed);
    free(r->scales);
}

typedef struct family {
    const char *name;
    uint32_t needs;
    bnet_quantize_fn *quantize;
} family;

enum { AVX512 = BNET_CPU_AVX512F | BNET_CPU_AVX512BW | BNET_CPU_AVX512VL | BNET_CPU_AVX512DQ };

static const family families[] = {
#if defined(__aarch64__)
    {"neon", BNET_CPU_NEON, bnet_quantize_neon},
#elif defined(__x86_64__)
    {"avx2", BNET_CPU_AVX2, bnet_quantize_avx2},
    {"avx512", AVX512, bnet_quantize_avx512},
#endif
    {"reference", 0, bnet_ref_quantize},
};

static void compare(const family *f, bitnet_qtype q, bitnet_scale_rule rule, const float *x,
                    size_t n, size_t n_scales, size_t block, const char *what)
{
    result want = result_new(q, n, n_scales), got = result_new(q, n, n_scales);
    bnet_ref_quantize(q, rule, x, n, want.packed, want.scales, n_scales, block);
    f->quantize(q, rule, x, n, got.packed, got.scales, n_scales, block);
    if (memcmp(want.scales, got.scales, n_scales * sizeof(float)) != 0)
        fail_msg("%s, %s: type %d rule %d, %zu values, %zu scales: other scales", f->name, what, q,
                 rule, n, n_scales);
    for (size_t i = 0; i < bnet_ref_quantized_bytes(q, n); i++)
        if (want.packed[i] != got.packed[i])
            fail_msg("%s, %s: type %d rule %d, %zu values, %zu scales: byte %zu is %02x, want %02x",
                     f->name, what, q, rule, n, n_scales, i, got.packed[i], want.packed[i]);
    result_free(&want);
    result_free(&got);
}

/* All families, forms and rules; as many scales as the values need, and two more. */
static void compare_all(const float *x, size_t n, size_t block, const char *what)
{
    size_t n_scales = n / block + (n % block != 0);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (int q = 0; q <= BITNET_QTYPE_TL2; q++)
            for (int rule = 0; rule <= BITNET_SCALE_ABSMAX; rule++)
                if ((bnet_cpu_features() & families[i].needs) == families[i].needs)
                    compare(&families[i], (bitnet_qtype)q, (bitnet_scale_rule)rule, x, n,
                            n_scales + 2 * (n % 2), block, what);
}

static void test_odd_sizes(void **state)
{
    (void)state;
    static const size_t blocks[] = {1, 2, 3, 7, 23, 24, 64, 100, 256, 769, MOST};
    float *x = malloc(MOST * sizeof *x);
    uint64_t seed = 3;
    for (size_t i = 0; i < MOST; i++)
        x[i] = (float)(test_rand(&seed) % 2001) / 1000.0f - 1.0f;
    for (size_t n = 1; n <= MOST; n += n < 130 ? 1 : n < 760 ? 89 : n < 776 ? 1 : 1 + n / 4)
        for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
            float *here = malloc(n * sizeof *here); /* ends with its last value */
            memcpy(here, x + n % 5, (n < MOST - 5 ? n : n - 5) * sizeof *here);
            compare_all(here, n < MOST - 5 ? n : n - 5, blocks[b], "sizes");
            free(here);
        }
    free(x);
}

/* Values on half of the scale, and their neighbours: with 0.5 and 1.5 in turn the mean is 1, with a
 * 1.5 in each block absmax has the scale 1. */
static void test_ties(void **state)
{
    (void)state;
    enum { N = 1000 };
    float x[N], near[] = {0.5f,  nextafterf(0.5f, 0),  nextafterf(0.5f, 1),
                          -0.5f, nextafterf(-0.5f, 0), nextafterf(-0.5f, -1)};
    uint64_t seed = 5;
    for (int power = -12; power <= 120; power += 6)
        for (int round = 0; round < 4; round++) {
            for (size_t i = 0; i < N; i++)
                x[i] = ldexpf(i % 2 ? 1.5f : near[test_rand(&seed) % (round ? 6 : 1)], power);
            compare_all(x, N, 2, "ties");
            compare_all(x, N, 250, "ties");
            compare_all(x, N, N, "ties");
        }
}

static void test_ends_of_the_range(void **state)
{
    (void)state;
    static const float ends[] = {0.0f,  -0.0f,    FLT_MIN, FLT_TRUE_MIN, -FLT_TRUE_MIN, 1e-8f,
                                 1e-5f, -FLT_MAX, FLT_MAX, 1e-7f,        2e-5f,         1.0f};
    float x[513];
    uint64_t seed = 7;
    for (int round = 0; round < 40; round++) {
        size_t kinds = round % 2 ? 12 : 7;
        for (size_t i = 0; i < 513; i++)
            x[i] = ends[test_rand(&seed) % kinds];
        compare_all(x, 513, 1 + (size_t)round * 13, "ends");
    }
    memset(x, 0, sizeof x);
    compare_all(x, 513, 64, "zeros");
}

/* In order, each 1 is lost beside 2^53, and the mean is a tie between two floats; added elsewhere
 * first they are not lost, and it is above the tie. */
static void test_the_mean_is_that_of_the_sum_in_order(void **state)
{
    (void)state;
    float x[256];
    for (size_t i = 0; i < 256; i++)
        x[i] = 1;
    x[0] = 0x1p53f;
    x[1] = 0x1p29f;
    compare_all(x, 256, 256, "order");
    for (size_t i = 0; i < 256; i++)
        x[i] = i % 2 ? 1 : 1 + FLT_EPSILON;
    compare_all(x, 256, 256, "between two floats");
}

static void test_first_not_finite(void **state)
{
    (void)state;
    enum { N = 1600 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[N];
    for (size_t i = 0; i < N; i++)
        x[i] = i % 2 ? FLT_MAX : -1;
    assert_int_equal(bnet_first_not_finite(x, N), N);
    assert_int_equal(bnet_first_not_finite(x, 0), 0);
    for (size_t i = 0; i < N; i += 1 + i % 7) {
        float kept = x[i];
        x[i] = bad[i % 3];
        x[N - 1] = NAN;
        assert_int_equal(bnet_first_not_finite(x, N), i);
        assert_int_equal(bnet_first_not_finite(x, i), i);
        x[N - 1] = 1;
        x[i] = kept;
    }
}

/* A provider with vectors quantises with them. */
static void test_providers(void **state)
{
    (void)state;
    const bnet_provider *p;
    for (size_t i = 0; (p = bnet_provider_at(i)) != NULL; i++)
        if (p->quantize && p->matmul_i2s != bnet_ref_matmul_scalar)
            assert_true(p->quantize != bnet_ref_quantize);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_sizes),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_ends_of_the_range),
        cmocka_unit_test(test_the_mean_is_that_of_the_sum_in_order),
        cmocka_unit_test(test_first_not_finite),
        cmocka_unit_test(test_providers),
    };
    return cmocka_run_group_tests_name("quantize", tests, NULL, NULL);
}
