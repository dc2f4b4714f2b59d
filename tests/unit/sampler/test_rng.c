/* The generator against its published known answers, and the shape of what it gives. */
#include "test.h"

#include "sampler/rng.h"

/* Philox 4x32-10: the three vectors its authors publish. */
static void known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t out[4];
        bnet_philox(rows[i].counter, rows[i].key, out);
        for (int j = 0; j < 4; j++)
            assert_int_equal(out[j], rows[i].out[j]);
    }
}

/* Seeds and counters use all their 64 bits; the values are part of what a seed means, so they are
 * pinned. */
static void stream_values(void **state)
{
    (void)state;
    assert_true(bnet_random(0, 0) == 0xe169c58d6627e8d5u);
    static const uint64_t pinned[4] = {0x77f5493b9ceaf053u, 0x53ba6cfdfcdb2127u,
                                       0x7dbf5de842e0b8b3u, 0xe123296195c7828eu};
    assert_true(bnet_random(42, 0) == pinned[0]);
    assert_true(bnet_random(42, 1) == pinned[1]);
    assert_true(bnet_random(42, (uint64_t)1 << 32) == pinned[2]);
    assert_true(bnet_random(42 + ((uint64_t)1 << 32), 0) == pinned[3]);
}

static void scaling(void **state)
{
    (void)state;
    assert_true(bnet_random_below(0, 10) == 0);
    assert_true(bnet_random_below(UINT64_MAX, 10) == 9);
    assert_true(bnet_random_below(UINT64_MAX, UINT64_MAX) == UINT64_MAX - 1);
    assert_true(bnet_random_below((uint64_t)1 << 63, (uint64_t)1 << 40) == (uint64_t)1 << 39);
    assert_true(bnet_random_below(0xdeadbeefcafebabe, 1000003) ==
                0xdeadbeefcafebabe / 4294967296u * 1000003 / 4294967296u);
    assert_true(bnet_random_below(12345, 1) == 0);
}

/* 64 bins, 65536 draws: chi-square has 63 degrees of freedom; 103 is its 99.9 % point. */
static void uniform(void **state)
{
    (void)state;
    double expected = 65536.0 / 64, chi = 0;
    unsigned bins[64] = {0};
    for (uint64_t i = 0; i < 65536; i++)
        bins[bnet_random_below(bnet_random(7, i), 64)]++;
    for (int b = 0; b < 64; b++)
        chi += (bins[b] - expected) * (bins[b] - expected) / expected;
    print_message("chi-square %.1f\n", chi);
    assert_true(chi > 25 && chi < 103.4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers),
                                       cmocka_unit_test(stream_values), cmocka_unit_test(scaling),
                                       cmocka_unit_test(uniform)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
