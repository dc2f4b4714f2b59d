/* test_bridge.c - F-1 to F-3: plugins that do right and plugins that fail in every way a plugin
 * can, and the rule that decides on migration. The plugins are built from tests/bridge/plugin.c. */
#include "unit/engine/nano.h"

#include "bitnet_check.h"

#define PLUGIN(name) TEST_BINARY_DIR "/bridge/" name ".so"

static bitnet_runtime *runtime(void)
{
    bitnet_runtime *r = NULL;
    OK(bitnet_runtime_open(NULL, &r, &err));
    return r;
}

static void test_F_1_a_plugin_is_loaded_and_agrees(void **state)
{
    (void)state;
    bitnet_runtime *r = runtime();
    bitnet_bridge *b = NULL;
    bitnet_comparison c;
    OK(bitnet_bridge_open(PLUGIN("good"), &b, &err));
    static const size_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {16, 64, 128}};
    for (size_t i = 0; i < 3; i++) {
        OK(bitnet_bridge_compare_matmul(r, b, shapes[i][0], shapes[i][1], shapes[i][2], &c, &err));
        assert_true(c.accuracy_match);
        assert_true(c.max_error == 0);
    }
    assert_true(c.reference_ns > 0);
    static const size_t sizes[] = {1, 3, 255, 256, 257, 4096};
    for (size_t i = 0; i < 6; i++) {
        OK(bitnet_bridge_compare_quantize(r, b, BITNET_QTYPE_I2S, sizes[i], &c, &err));
        if (!c.accuracy_match)
            fail_msg("%zu weights: max_error %g", sizes[i], c.max_error);
    }
    bitnet_bridge_close(b);
    bitnet_bridge_close(NULL);
    bitnet_runtime_close(r);
}

static void test_F_2_absent_is_said_in_these_words(void **state)
{
    (void)state;
    static const char *const paths[] = {NULL, "", "/nonexistent/libbridge.so", PLUGIN("absent")};
    for (size_t i = 0; i < 4; i++) {
        bitnet_bridge *b = NULL;
        bitnet_error err = {0};
        assert_int_equal(bitnet_bridge_open(paths[i], &b, &err), BITNET_NOT_AVAILABLE);
        assert_string_equal(err.message, "ffi bridge unavailable");
        assert_null(b);
    }
}

static void test_F_1_what_is_wrong_with_a_plugin_is_named(void **state)
{
    (void)state;
    bitnet_bridge *b = NULL;
    FAILS(bitnet_bridge_open(PLUGIN("no_quantize"), &b, &err), BITNET_NOT_AVAILABLE,
          "has no function bitnet_bridge_quantize");
    FAILS(bitnet_bridge_open(PLUGIN("no_init"), &b, &err), BITNET_NOT_AVAILABLE,
          "bitnet_bridge_init returned 3: the coffee is cold");
    FAILS(bitnet_bridge_open(NANO_PATH, &b, &err), BITNET_NOT_AVAILABLE,
          "the bridge cannot be loaded");
    FAILS(bitnet_bridge_open(PLUGIN("good"), NULL, &err), BITNET_ARGUMENT, "out");
    assert_null(b);
}

static void test_F_3_a_wrong_plugin_is_a_mismatch(void **state)
{
    (void)state;
    bitnet_runtime *r = runtime();
    bitnet_bridge *b = NULL;
    bitnet_comparison c;
    OK(bitnet_bridge_open(PLUGIN("wrong_matmul"), &b, &err));
    OK(bitnet_bridge_compare_matmul(r, b, 4, 8, 16, &c, &err));
    assert_false(c.accuracy_match);
    assert_false(c.migration_recommended);
    assert_true(c.max_error == 1);
    OK(bitnet_bridge_compare_quantize(r, b, BITNET_QTYPE_I2S, 512, &c, &err));
    assert_true(c.accuracy_match);
    bitnet_bridge_close(b);
    OK(bitnet_bridge_open(PLUGIN("wrong_quantize"), &b, &err));
    OK(bitnet_bridge_compare_quantize(r, b, BITNET_QTYPE_I2S, 512, &c, &err));
    assert_false(c.accuracy_match);
    assert_true(c.max_error > 0);
    bitnet_bridge_close(b);
    bitnet_runtime_close(r);
}

static void test_F_1_failures_of_a_plugin_come_with_its_words(void **state)
{
    (void)state;
    bitnet_runtime *r = runtime();
    bitnet_bridge *b = NULL;
    bitnet_comparison c;
    OK(bitnet_bridge_open(PLUGIN("fails"), &b, &err));
    FAILS(bitnet_bridge_compare_matmul(r, b, 2, 2, 2, &c, &err), BITNET_ERROR,
          "bitnet_bridge_matmul_i2s returned 5: out of patience");
    FAILS(bitnet_bridge_compare_quantize(r, b, BITNET_QTYPE_TL1, 64, &c, &err), BITNET_ERROR,
          "only I2S is known here");
    FAILS(bitnet_bridge_compare_matmul(r, b, 0, 2, 2, &c, &err), BITNET_ARGUMENT, "m is 0");
    FAILS(bitnet_bridge_compare_matmul(r, b, 2, 2, 1 << 20, &c, &err), BITNET_ARGUMENT, "k is");
    FAILS(bitnet_bridge_compare_quantize(r, b, (bitnet_qtype)9, 64, &c, &err), BITNET_ARGUMENT,
          "type");
    FAILS(bitnet_bridge_compare_quantize(r, b, BITNET_QTYPE_I2S, 0, &c, &err), BITNET_ARGUMENT,
          "n");
    bitnet_bridge_close(b);
    bitnet_runtime_close(r);
}

/* improvement = reference / native - 1; recommended from -0.1 on, and only if the results agree. */
static void test_F_3_the_rule_around_a_tenth(void **state)
{
    (void)state;
    static const struct {
        uint64_t native, reference;
        bool match, recommended, gate;
        double improvement;
    } rows[] = {
        {1000, 900, true, true, false, -0.1},
        {1000, 899, true, false, false, -0.101},
        {1000, 901, true, true, false, -0.099},
        {1000, 949, true, true, false, -0.051},
        {1000, 950, true, true, true, -0.05},
        {1000, 1000, true, true, true, 0},
        {1000, 2000, true, true, true, 1},
        {1000, 2000, false, false, false, 1},
        {1000, 0, true, false, false, -1},
        {0, 5, true, true, true, 4},
        {3000000000, 2700000000, true, true, false, -0.1},
        {3000000001, 2700000000, true, false, false, -0.1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bitnet_comparison c =
            bitnet_compare_times(rows[i].native, rows[i].reference, rows[i].match, 0.25);
        if (c.migration_recommended != rows[i].recommended || c.release_gate != rows[i].gate)
            fail_msg("row %zu: recommended %d, gate %d", i, c.migration_recommended,
                     c.release_gate);
        assert_true(c.improvement - rows[i].improvement < 1e-9 &&
                    rows[i].improvement - c.improvement < 1e-9);
        assert_int_equal(c.native_ns, rows[i].native);
        assert_int_equal(c.reference_ns, rows[i].reference);
        assert_int_equal(c.accuracy_match, rows[i].match);
        assert_true(c.max_error == 0.25);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_F_1_a_plugin_is_loaded_and_agrees),
        cmocka_unit_test(test_F_2_absent_is_said_in_these_words),
        cmocka_unit_test(test_F_1_what_is_wrong_with_a_plugin_is_named),
        cmocka_unit_test(test_F_3_a_wrong_plugin_is_a_mismatch),
        cmocka_unit_test(test_F_1_failures_of_a_plugin_come_with_its_words),
        cmocka_unit_test(test_F_3_the_rule_around_a_tenth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
