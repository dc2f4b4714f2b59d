/* test_shares.c - who takes how much of a model: one rank, two, unequal ones; too little memory
 * (P-3). */
#include "test.h"

#include <math.h>

#include "backend/group/exchange.h"
#include "backend/group/shares.h"

enum { MANY = 4 };

static void same(const uint64_t *first, int n, const uint64_t *want)
{
    for (int i = 0; i <= n; i++)
        assert_int_equal(first[i], want[i]);
}

static void test_P_3_one_rank_has_all(void **state)
{
    const gpu_rank_facts one = {1000, 7};
    uint64_t first[2];
    (void)state;
    assert_true(bnet_gpu_shares(&one, 1, 30, first));
    same(first, 1, (const uint64_t[]){0, 30});
    assert_true(bnet_gpu_share_rows(&one, 1, 6912, first));
    same(first, 1, (const uint64_t[]){0, 6912});
    const gpu_layers l = {"m.gguf", 3, 100, 50, 50};
    assert_int_equal(bnet_gpu_share_layers(&one, 1, &l, first, NULL), BITNET_OK);
    same(first, 1, (const uint64_t[]){0, 3});
}

static void test_P_3_shares_follow_speed(void **state)
{
    static const struct {
        double speed[MANY];
        uint64_t n, want[MANY + 1];
        int n_ranks;
    } rows[] = {
        {{1, 1}, 30, {0, 15, 30}, 2},
        {{1, 1}, 5, {0, 3, 5}, 2},
        {{132, 66}, 30, {0, 20, 30}, 2},
        {{1, 1000}, 30, {0, 1, 30}, 2}, /* nobody is left without */
        {{1000, 1}, 30, {0, 29, 30}, 2},
        {{1, 1, 1, 1}, 4, {0, 1, 2, 3, 4}, 4},
        {{1, 1, 1000, 1}, 5, {0, 1, 2, 4, 5}, 4},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        gpu_rank_facts ranks[MANY];
        uint64_t first[MANY + 1];
        for (int r = 0; r < MANY; r++)
            ranks[r] = (gpu_rank_facts){1000, rows[i].speed[r]};
        assert_true(bnet_gpu_shares(ranks, rows[i].n_ranks, rows[i].n, first));
        same(first, rows[i].n_ranks, rows[i].want);
        assert_false(bnet_gpu_shares(ranks, rows[i].n_ranks, (uint64_t)rows[i].n_ranks - 1, first));
    }
}

/* Every row is somebody's, and large matrices are cut where kernels begin. */
static void test_P_3_rows(void **state)
{
    const gpu_rank_facts ranks[] = {{1000, 1}, {1000, 2}, {1000, 1}};
    static const uint64_t sizes[] = {3, 17, 64, 200, 2560, 6912, 128256, 50257};
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(sizes); i++)
        for (int n = 1; n <= 3; n++) {
            uint64_t first[MANY];
            assert_true(bnet_gpu_share_rows(ranks, n, sizes[i], first));
            assert_int_equal(first[0], 0);
            assert_int_equal(first[n], sizes[i]);
            for (int r = 0; r < n; r++)
                assert_true(first[r] < first[r + 1]);
            for (int r = 1; r < n && sizes[i] >= 2560; r++)
                assert_int_equal(first[r] % 64, 0);
        }
}

static void test_P_3_layers_follow_memory(void **state)
{
    static const struct {
        gpu_rank_facts ranks[3];
        int n_ranks;
        gpu_layers l;
        uint64_t want[4];
    } rows[] = {
        {{{10000, 1}, {10000, 1}}, 2, {"m", 30, 100, 100, 100}, {0, 15, 30}},
        {{{1200, 1}, {10000, 1}}, 2, {"m", 30, 100, 100, 100}, {0, 9, 30}}, /* 1080 - 100 */
        {{{10000, 1}, {1200, 1}}, 2, {"m", 30, 100, 100, 500}, {0, 25, 30}},
        {{{1000, 1}, {10000, 1}, {10000, 3}}, 3, {"m", 30, 100, 0, 0}, {0, 6, 12, 30}},
        {{{400, 1}, {10000, 1}, {10000, 3}}, 3, {"m", 30, 100, 0, 0}, {0, 3, 9, 30}},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        uint64_t first[4];
        bitnet_error err;
        assert_int_equal(
            bnet_gpu_share_layers(rows[i].ranks, rows[i].n_ranks, &rows[i].l, first, &err),
            BITNET_OK);
        same(first, rows[i].n_ranks, rows[i].want);
    }
}

static void test_P_3_layers_that_do_not_fit(void **state)
{
    const gpu_rank_facts small[] = {{1000, 1}, {1000, 1}}, none[] = {{100000, 1}, {50, 1}};
    uint64_t first[3];
    bitnet_error err;
    (void)state;
    const gpu_layers l = {"big.gguf", 30, 100, 100, 100}, few = {"few.gguf", 1, 1, 1, 1};
    assert_int_equal(bnet_gpu_share_layers(small, 2, &l, first, &err), BITNET_MEMORY);
    assert_non_null(strstr(err.message, "big.gguf: 30 layers"));
    assert_non_null(strstr(err.message, "room for 16"));
    assert_int_equal(bnet_gpu_share_layers(none, 2, &l, first, &err), BITNET_MEMORY);
    assert_non_null(strstr(err.message, "for 0 of them on rank 1"));
    assert_int_equal(bnet_gpu_share_layers(small, 2, &few, first, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "name at most 1"));
}

/* What one device could read, divided: by layers never more than the fastest, by rows the sum if
 * shares follow speed, else what the slowest allows; two ranks on one device share it. */
static void test_P_3_how_fast_they_read_together(void **state)
{
    static const struct {
        gpu_rank_read ranks[3];
        int n;
        double layers, rows;
    } cases[] = {
        {{{0, 1000, 100}}, 1, 100, 100},
        {{{0, 1000, 100}, {1, 1000, 100}}, 2, 100, 200},
        {{{0, 1000, 100}, {0, 1000, 100}}, 2, 100, 100},
        {{{0, 1000, 100}, {1, 1000, 50}}, 2, 2000.0 / 30, 100},
        {{{0, 2000, 100}, {1, 1000, 50}}, 2, 75, 150},
        {{{0, 1000, 100}, {1, 1000, 100}, {0, 1000, 100}}, 3, 100, 150},
        {{{0, 0, 100}, {1, 0, 40}}, 2, 40, 40}, /* nothing there yet: the least */
        {{{0, 1000, 100}, {1, 1000, 0}}, 2, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(cases); i++) {
        double layers = bnet_gpu_read_rate(cases[i].ranks, cases[i].n, false);
        double rows = bnet_gpu_read_rate(cases[i].ranks, cases[i].n, true);
        if (fabs(layers - cases[i].layers) > 1e-9 || fabs(rows - cases[i].rows) > 1e-9)
            fail_msg("case %zu: %g by layers, %g by rows", i, layers, rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_P_3_one_rank_has_all),
        cmocka_unit_test(test_P_3_shares_follow_speed),
        cmocka_unit_test(test_P_3_rows),
        cmocka_unit_test(test_P_3_layers_follow_memory),
        cmocka_unit_test(test_P_3_layers_that_do_not_fit),
        cmocka_unit_test(test_P_3_how_fast_they_read_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
