/* test_mathf.c - base/mathf.h: the fused multiply-add in software against the C library's, on
 * numbers of every size and on those that go wrong first: ties, subnormal results, cancellation,
 * zeros of both signs, infinities, NaN. MATHF_SEED repeats a run. */
#include "test.h"

#include <math.h>

#include "base/mathf.h"

static uint64_t seed = 20262;

static float of_bits(uint32_t b)
{
    float f;
    memcpy(&f, &b, 4);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t b;
    memcpy(&b, &f, 4);
    return b;
}

static void check(float a, float b, float c)
{
    float want = fmaf(a, b, c), soft = bnet_fmaf_soft(a, b, c), own = bnet_fmaf(a, b, c);
    if (isnan(want) ? isnan(soft) && isnan(own)
                    : bits_of(soft) == bits_of(want) && bits_of(own) == bits_of(want))
        return;
    fail_msg("%a * %a + %a: %a and %a, want %a", (double)a, (double)b, (double)c, (double)soft,
             (double)own, (double)want);
}

/* Any bits: all exponents, NaN and infinities among them. */
static void test_fmaf_any_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 1000000; i++) {
        uint64_t r = test_rand(&seed), s = test_rand(&seed);
        check(of_bits((uint32_t)r), of_bits((uint32_t)(r >> 32)), of_bits((uint32_t)s));
    }
}

/* A float with few bits set and an exponent near `e`: products and sums of such are often ties. */
static float sparse(int e)
{
    uint64_t r = test_rand(&seed);
    uint32_t m = (uint32_t)(1u << (r % 24)) | (uint32_t)((r >> 8 & 1u) << (r >> 16) % 24);
    return ldexpf((float)(m & 0xffffffu), e + (int)(r >> 40) % 7) * (r >> 63 ? -1.0f : 1.0f);
}

static void test_fmaf_ties_and_edges(void **state)
{
    (void)state;
    static const int at[] = {-149, -126, -80, -30, 0, 40, 100};
    for (size_t k = 0; k < BNET_COUNT(at); k++)
        for (int i = 0; i < 300000; i++) {
            float a = sparse(at[k] / 2 - 12), b = sparse(at[k] - at[k] / 2 - 12);
            float c = sparse(at[k] - 24 + (int)(test_rand(&seed) % 49));
            check(a, b, c);
            check(a, b, -a * b); /* all but the rounding cancels */
            check(a, b, nextafterf(-a * b, 1e30f));
        }
}

static void test_fmaf_special(void **state)
{
    (void)state;
    static const float x[] = {0.0f,
                              -0.0f,
                              1.0f,
                              -1.0f,
                              0x1p-149f,
                              -0x1p-149f,
                              0x1p-126f,
                              0x1.fffffep127f,
                              -0x1.fffffep127f,
                              0x1p-75f,
                              0x1p64f,
                              INFINITY,
                              -INFINITY,
                              NAN};
    for (size_t a = 0; a < BNET_COUNT(x); a++)
        for (size_t b = 0; b < BNET_COUNT(x); b++)
            for (size_t c = 0; c < BNET_COUNT(x); c++)
                check(x[a], x[b], x[c]);
}

int main(void)
{
    const char *s = getenv("MATHF_SEED");
    seed = s ? strtoull(s, NULL, 0) : seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fmaf_any_bits),
        cmocka_unit_test(test_fmaf_ties_and_edges),
        cmocka_unit_test(test_fmaf_special),
    };
    return cmocka_run_group_tests_name("base/mathf", tests, NULL, NULL);
}
