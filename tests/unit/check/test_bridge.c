/* test_bridge.c - F-1 to F-4: plugins that do right and plugins that fail in every way a plugin
 * can, one that serves, and the rule that decides on migration. The plugins are built from
 * tests/bridge/plugin.c. */
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

/* The kernels of models: those that a session of this runtime would use, packing included. */
static void test_V_5_the_packed_kernel_is_compared(void **state)
{
    (void)state;
    bitnet_runtime *r = runtime();
    bitnet_comparison c;
    const char *kernel = NULL;
    static const size_t shapes[][3] = {{1, 16, 128}, {1, 5, 256}, {3, 64, 384}, {33, 48, 128}};
    static const char *const plugins[] = {PLUGIN("good"), PLUGIN("no_linear")};
    for (size_t p = 0; p < 2; p++) {
        bitnet_bridge *b = NULL;
        OK(bitnet_bridge_open(plugins[p], &b, &err));
        for (size_t i = 0; i < 4; i++) {
            const size_t *s = shapes[i];
            OK(bitnet_bridge_compare_linear(r, b, s[0], s[1], s[2], &kernel, &c, &err));
            if (!c.accuracy_match || c.max_error != 0)
                fail_msg("plugin %zu, shape %zu, %s: off by %g", p, i, kernel, c.max_error);
            assert_non_null(strstr(kernel, "i2s"));
        }
        FAILS(bitnet_bridge_compare_linear(r, b, 1, 16, 100, &kernel, &c, &err), BITNET_ARGUMENT,
              "k is 100, must be a multiple of 128");
        FAILS(bitnet_bridge_compare_linear(r, b, 1, 0, 128, NULL, &c, &err), BITNET_ARGUMENT,
              "n is 0");
        bitnet_bridge_close(b);
    }
    static const char *const wrong[] = {PLUGIN("wrong_linear"), PLUGIN("wrong_matmul")};
    for (size_t p = 0; p < 2; p++) { /* the second has a linear of its own, which is right */
        bitnet_bridge *b = NULL;
        OK(bitnet_bridge_open(wrong[p], &b, &err));
        OK(bitnet_bridge_compare_linear(r, b, 2, 16, 128, NULL, &c, &err));
        assert_int_equal(c.accuracy_match, p == 1);
        bitnet_bridge_close(b);
    }
    bitnet_runtime_close(r);
}

static bitnet_runtime *with_isa(const char *isa)
{
    bitnet_runtime *r = NULL;
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.isa = isa;
    o.device = "cpu";
    OK(bitnet_runtime_open(&o, &r, &err));
    return r;
}

/* The logits after a few tokens, and which kernel multiplied the ternary matrices. */
static void compute(bitnet_runtime *r, float *out, size_t n, bool *by_bridge)
{
    static const int32_t ids[] = {1, 20, 30, 40};
    bitnet_engine *e = NULL;
    bitnet_session *s = NULL;
    bitnet_kernel_use uses[64];
    OK(bitnet_engine_open(r, NANO_PATH, NULL, &e, &err));
    OK(bitnet_session_open(e, NULL, &s, &err));
    OK(bitnet_session_append(s, ids, 4, NULL, NULL, &err));
    memcpy(out, bitnet_session_logits(s), n * sizeof *out);
    size_t n_uses = bitnet_engine_kernels(e, uses, 64);
    *by_bridge = false;
    for (size_t i = 0; i < n_uses && i < 64; i++)
        *by_bridge = *by_bridge || strcmp(uses[i].id, "linear_i2s.ffi") == 0;
    bitnet_session_close(s);
    bitnet_engine_close(e);
}

static bool ffi_available(const bitnet_runtime *r)
{
    bitnet_provider_info p;
    for (int i = 0; bitnet_provider_at(r, i, &p); i++)
        if (strcmp(p.name, "ffi") == 0) {
            assert_int_equal(p.priority, 7);
            return p.available;
        }
    return false;
}

/* Rank 7: before plain C, behind every other native kernel. */
static void test_F_4_a_bridge_serves_where_nothing_better_is(void **state)
{
    (void)state;
    static float want[512], got[512];
    bitnet_bridge *b = NULL;
    bool by_bridge;
    OK(bitnet_bridge_open(PLUGIN("good"), &b, &err));
    bitnet_runtime *scalar = with_isa("scalar"), *best = with_isa(NULL);
    assert_string_equal(bitnet_runtime_provider(scalar), "fallback");
    assert_false(ffi_available(scalar));
    char native[32];
    snprintf(native, sizeof native, "%s", bitnet_runtime_provider(best));
    compute(scalar, want, 512, &by_bridge);
    assert_false(by_bridge);
    OK(bitnet_bridge_serve(scalar, b, &err));
    assert_string_equal(bitnet_runtime_provider(scalar), "ffi");
    assert_true(ffi_available(scalar));
    compute(scalar, got, 512, &by_bridge);
    assert_true(by_bridge);
    assert_memory_equal(got, want, sizeof want);
    FAILS(bitnet_bridge_serve(scalar, b, &err), BITNET_ARGUMENT, "linear_i2s.ffi");
    OK(bitnet_bridge_serve(best, b, &err));
    assert_true(ffi_available(best));
    compute(best, got, 512, &by_bridge);
    assert_memory_equal(got, want, sizeof want);
    bool nothing_else = strcmp(native, "fallback") == 0;
    assert_int_equal(by_bridge, nothing_else);
    assert_string_equal(bitnet_runtime_provider(best), nothing_else ? "ffi" : native);
    bitnet_runtime_close(scalar);
    bitnet_runtime_close(best);
    bitnet_bridge_close(b);
}

static void test_F_4_a_bridge_without_the_function_does_not_serve(void **state)
{
    (void)state;
    bitnet_runtime *r = runtime();
    bitnet_bridge *b = NULL;
    OK(bitnet_bridge_open(PLUGIN("no_linear"), &b, &err));
    FAILS(bitnet_bridge_serve(r, b, &err), BITNET_NOT_AVAILABLE,
          "no_linear.so: the bridge has no function bitnet_bridge_linear_i2s");
    assert_false(ffi_available(r));
    bitnet_runtime_close(r);
    bitnet_bridge_close(b);
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
        cmocka_unit_test(test_V_5_the_packed_kernel_is_compared),
        cmocka_unit_test(test_F_4_a_bridge_serves_where_nothing_better_is),
        cmocka_unit_test(test_F_4_a_bridge_without_the_function_does_not_serve),
        cmocka_unit_test(test_F_2_absent_is_said_in_these_words),
        cmocka_unit_test(test_F_1_what_is_wrong_with_a_plugin_is_named),
        cmocka_unit_test(test_F_3_a_wrong_plugin_is_a_mismatch),
        cmocka_unit_test(test_F_1_failures_of_a_plugin_come_with_its_words),
        cmocka_unit_test(test_F_3_the_rule_around_a_tenth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
