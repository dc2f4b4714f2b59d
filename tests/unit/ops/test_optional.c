/* test_optional.c - what callers get of a backend that lacks an optional table or entry, and single
 * operations by providers. */
#include "test.h"

#include "ops/inspect.h"
#include "ops/ops.h"
#include "ops/provider.h"
#include "ops/single_op.h"

static bool any_pass(bnet_backend *be, const bnet_pass *p)
{
    (void)be;
    (void)p;
    return true;
}

static double seven(bnet_backend *be)
{
    (void)be;
    return 7;
}

/* Features count only where there are whole passes to leave them out. */
static void test_unknown_features(void **state)
{
    (void)state;
    struct bnet_pass_ops pass = {.features = 4};
    bnet_backend be = {0};
    bnet_net net = {.features = 5};
    assert_int_equal(bnet_op_unknown(&be, &net), 0);
    be.pass = &pass;
    assert_int_equal(bnet_op_unknown(&be, &net), 0);
    pass.pass = any_pass;
    assert_int_equal(bnet_op_unknown(&be, &net), 1);
    pass.pass = NULL;
    pass.repeat = any_pass;
    assert_int_equal(bnet_op_unknown(&be, &net), 1);
    net.features = 4;
    assert_int_equal(bnet_op_unknown(&be, &net), 0);
}

static void test_read_limit(void **state)
{
    (void)state;
    struct bnet_inspect_ops inspect = {0};
    bnet_backend be = {0};
    double gb_s = -1;
    assert_false(bnet_backend_read_limit(NULL, &gb_s));
    assert_false(bnet_backend_read_limit(&be, &gb_s));
    be.inspect = &inspect;
    assert_false(bnet_backend_read_limit(&be, &gb_s));
    assert_true(gb_s == -1);
    inspect.read_limit = seven;
    assert_true(bnet_backend_read_limit(&be, &gb_s));
    assert_true(gb_s == 7);
}

/* TL2 keeps three weights in five bits: four of a byte's half, one of a byte's eighth. */
static void test_bytes_of_quantised_weights(void **state)
{
    (void)state;
    static const size_t tl2[][2] = {{0, 0}, {1, 2}, {3, 2}, {4, 2}, {24, 5}, {25, 7}, {48, 10}};
    for (size_t i = 0; i < BNET_COUNT(tl2); i++)
        assert_int_equal(bnet_ref_quantized_bytes(BITNET_QTYPE_TL2, tl2[i][0]), tl2[i][1]);
    assert_int_equal(bnet_ref_quantized_bytes(BITNET_QTYPE_I2S, 24), 6);
    assert_int_equal(bnet_ref_quantized_bytes(BITNET_QTYPE_I2S, 25), 7);
}

/* The fallback computes what the reference does, from the inputs in their places, and says how long
 * it took. */
static void test_single_operation_by_the_fallback(void **state)
{
    (void)state;
    enum { M = 2, K = 512 };
    uint8_t codes[M * K / 4];
    float x[K], scales[M * K / 256] = {1, 2, 0.5f, -3}, y[M] = {0}, want[M];
    bitnet_error err = {0};
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)(i * 37 + 11);
    for (int i = 0; i < K; i++)
        x[i] = (float)(i % 7) - 2;
    bnet_ref_qk256_gemv(codes, scales, M, K, x, BITNET_CODES_OFFSET, want);
    bitnet_single_op op = {.op = BITNET_SINGLE_QK256,
                           .type = BITNET_CODES_OFFSET,
                           .m = M,
                           .k = K,
                           .in = {codes, scales, x},
                           .out = {y}};
    double start = bnet_now_ms();
    assert_int_equal(bnet_provider_run(bnet_provider_find("fallback"), NULL, &op, &err), BITNET_OK);
    assert_memory_equal(y, want, sizeof y);
    assert_true(op.ms[BITNET_STEP_EXECUTE] >= 0);
    assert_true(op.ms[BITNET_STEP_EXECUTE] <= bnet_now_ms() - start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_features),
        cmocka_unit_test(test_read_limit),
        cmocka_unit_test(test_bytes_of_quantised_weights),
        cmocka_unit_test(test_single_operation_by_the_fallback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
