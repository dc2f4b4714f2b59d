/* How lists of indices walk through memory: in order, in strides, in tiles, or anyhow. */
#include "test.h"

#include "base/base.h"
#include "bitnet_extras.h"

static void test_M_6_P_7_D_12_memory_access_patterns(void **state)
{
    enum {
        SEQ = BITNET_ACCESS_SEQUENTIAL,
        STR = BITNET_ACCESS_STRIDED,
        TIL = BITNET_ACCESS_TILED,
        RND = BITNET_ACCESS_RANDOM
    };
    static const struct {
        size_t n;
        uint64_t index[12];
        int kind;
        int64_t stride, pitch, columns;
    } rows[] = {
        {0, {0}, SEQ, 0, 0, 0},
        {1, {42}, SEQ, 0, 0, 0},
        {2, {0, 1}, STR, 1, 0, 0}, /* exactly two are strided (D-12) */
        {2, {7, 3}, STR, -4, 0, 0},
        {2, {5, 5}, STR, 0, 0, 0},
        {3, {0, 1, 2}, SEQ, 0, 0, 0},
        {4, {100, 101, 102, 103}, SEQ, 0, 0, 0},
        {3, {0, 2, 4}, STR, 2, 0, 0},
        {4, {10, 7, 4, 1}, STR, -3, 0, 0},
        {3, {3, 2, 1}, STR, -1, 0, 0},
        {3, {9, 9, 9}, STR, 0, 0, 0},
        {4, {0, 5, 1, 9}, RND, 0, 0, 0},
        {3, {0, 1, 3}, RND, 0, 0, 0},
        {3, {0, 2, 3}, RND, 0, 0, 0},
        {6, {0, 1, 2, 100, 101, 102}, TIL, 0, 100, 3},
        {8, {0, 1, 64, 65, 128, 129, 192, 193}, TIL, 0, 64, 2},
        {6, {64, 65, 32, 33, 0, 1}, TIL, 0, -32, 2},
        {6, {0, 1, 2, 1, 2, 3}, RND, 0, 0, 0},  /* rows overlap: no tile */
        {5, {0, 1, 2, 100, 101}, RND, 0, 0, 0}, /* last row cut */
        {6, {0, 1, 64, 65, 130, 131}, RND, 0, 0, 0},
        {6, {0, 1, 64, 66, 128, 129}, RND, 0, 0, 0},
        /* no overflow at either end */
        {3, {UINT64_MAX - 2, UINT64_MAX - 1, UINT64_MAX}, SEQ, 0, 0, 0},
        {3, {UINT64_MAX - 1, UINT64_MAX, 0}, RND, 0, 0, 0},
        {2, {0, UINT64_MAX}, RND, 0, 0, 0},
        {2, {UINT64_MAX, 0}, RND, 0, 0, 0},
        {2, {0, INT64_MAX}, STR, INT64_MAX, 0, 0},
        {2, {INT64_MAX, 0}, STR, -INT64_MAX, 0, 0},
        {3, {0, (uint64_t)1 << 63, 0}, RND, 0, 0, 0},
        {4, {UINT64_MAX - 1, UINT64_MAX, 0, 1}, RND, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bitnet_access a = bitnet_access_pattern(rows[i].index, rows[i].n);
        print_message("row %zu: kind %d stride %lld\n", i, a.kind, (long long)a.stride);
        assert_int_equal(a.kind, rows[i].kind);
        assert_true(a.stride == rows[i].stride);
        assert_true(a.row_pitch == rows[i].pitch);
        assert_true(a.n_columns == rows[i].columns);
    }
    assert_int_equal(bitnet_access_pattern(NULL, 0).kind, BITNET_ACCESS_SEQUENTIAL);
}

static void test_M_6_access_pattern(void **state)
{
    (void)state;
    uint64_t fall[] = {10, 7, 4, 1}, two[] = {0, 2, 4};
    assert_int_equal(bitnet_access_pattern(fall, 4).stride, -3);
    assert_int_equal(bitnet_access_pattern(two, 3).stride, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M_6_P_7_D_12_memory_access_patterns),
        cmocka_unit_test(test_M_6_access_pattern),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
