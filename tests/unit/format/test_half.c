/* 16-bit floats: every value both ways, ties, subnormals, overflow, NaN. */
#include "test.h"

#include "format/codec.h"

#include <math.h>

/* The value of an f16 by its definition, in double. */
static double f16_value(uint16_t h)
{
    int exp = h >> 10 & 31, man = h & 0x3ff;
    double v = exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24);
    return h & 0x8000 ? -v : v;
}

static void every_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = bnet_f16_to_f32((uint16_t)h);
        bool special = (h >> 10 & 31) == 31;
        if (special && (h & 0x3ff)) {
            assert_true(isnan(f));
            uint16_t back = bnet_f32_to_f16(f);
            assert_int_equal(back & 0x7c00, 0x7c00);
            assert_int_not_equal(back & 0x3ff, 0);
            assert_int_equal(back & 0x8000, h & 0x8000);
            continue;
        }
        if (special)
            assert_true(isinf(f));
        else
            assert_true((double)f == f16_value((uint16_t)h));
        assert_int_equal(signbit(f) != 0, h >> 15);
        assert_int_equal(bnet_f32_to_f16(f), h);
    }
}

/* Between any two neighbours: just below the middle, the middle (to even), just above. */
static void rounding_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        double mid = (f16_value((uint16_t)h) + f16_value((uint16_t)(h + 1))) / 2;
        float m = (float)mid; /* exact: one more bit than f16 */
        assert_int_equal(bnet_f32_to_f16(nextafterf(m, 0)), h);
        assert_int_equal(bnet_f32_to_f16(m), h & 1 ? h + 1 : h);
        assert_int_equal(bnet_f32_to_f16(nextafterf(m, INFINITY)), h + 1);
        assert_int_equal(bnet_f32_to_f16(-m), 0x8000 | (h & 1 ? h + 1 : h));
    }
    assert_int_equal(bnet_f32_to_f16(nextafterf(65520, 0)), 0x7bff);
    assert_int_equal(bnet_f32_to_f16(65520), 0x7c00);
    assert_int_equal(bnet_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(bnet_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(bnet_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(bnet_f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(bnet_f32_to_f16(1e-40f), 0);
    assert_int_equal(bnet_f32_to_f16(-0.0f), 0x8000);
}

static void every_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = bnet_bf16_to_f32((uint16_t)h);
        uint16_t back = bnet_f32_to_bf16(f);
        if (isnan(f))
            assert_int_equal(back, h | 0x40);
        else
            assert_int_equal(back, h);
    }
}

static float bits(uint32_t b)
{
    float f;
    memcpy(&f, &b, sizeof f);
    return f;
}

static void rounding_bf16(void **state)
{
    (void)state;
    assert_int_equal(bnet_f32_to_bf16(bits(0x3f808000)), 0x3f80); /* tie, even below */
    assert_int_equal(bnet_f32_to_bf16(bits(0x3f818000)), 0x3f82); /* tie, even above */
    assert_int_equal(bnet_f32_to_bf16(bits(0x3f808001)), 0x3f81);
    assert_int_equal(bnet_f32_to_bf16(bits(0x3f807fff)), 0x3f80);
    assert_int_equal(bnet_f32_to_bf16(bits(0x7f7fffff)),
                     0x7f80); /* largest float rounds to infinity */
    assert_int_equal(bnet_f32_to_bf16(bits(0x7f800001)), 0x7fc0); /* a NaN never becomes infinity */
    assert_int_equal(bnet_f32_to_bf16(bits(0x00008000)), 0);      /* subnormal tie */
    assert_int_equal(bnet_f32_to_bf16(bits(0x80018000)), 0x8002);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_f16), cmocka_unit_test(rounding_f16),
                                       cmocka_unit_test(every_bf16),
                                       cmocka_unit_test(rounding_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
