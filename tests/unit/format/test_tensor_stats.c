/* test_tensor_stats.c - counts, extremes, mean and root mean square of tensors written by hand, and
 * what is said of damaged ones. */
#include "test.h"

#include <math.h>

#include "format/codec.h"
#include "format/tensor_stats.h"

static bitnet_tensor_stats stats_of(const char *name, bnet_type type, uint64_t n, const void *data)
{
    bitnet_tensor_stats s;
    bnet_tensor t = {.name = name, .n_dims = 1, .ne = {n, 1, 1, 1}, .type = type, .data = data};
    assert_true(bnet_type_bytes(type, n, 1, &t.n_bytes));
    t.n_span = t.n_bytes;
    assert_true(bnet_tensor_stats(&t, NULL, &s));
    return s;
}

static void test_floats(void **state)
{
    (void)state;
    static const float values[8] = {3, -4, 0, NAN, INFINITY, -INFINITY, 0, 5};
    bitnet_tensor_stats s = stats_of("a.weight", BNET_F32, 8, values);
    assert_true(s.min == -4 && s.max == 5);
    assert_true(s.mean == 4 / 5.0);
    assert_true(s.rms == sqrt(50 / 5.0));
    assert_int_equal(s.n_nan, 1);
    assert_int_equal(s.n_inf, 2);
    assert_int_equal(s.n_zero, 2);
    assert_false(s.ternary);
    assert_true(s.scale == 0);
    assert_string_equal(s.suspicious, "1 value is nan");
    s = stats_of("a.weight", BNET_F32, 3, values);
    assert_string_equal(s.suspicious, "");
    s = stats_of("a.weight", BNET_F32, 2, values + 4);
    assert_string_equal(s.suspicious, "2 values are infinite");
    assert_true(s.min == 0 && s.max == 0 && s.mean == 0 && s.rms == 0);
    s = stats_of("a.weight", BNET_F32, 1, values + 2);
    assert_string_equal(s.suspicious, "all zero");
}

/* More than one step of the reader, the last one not full. */
static void test_long_rows(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float values[N];
    for (int i = 0; i < N; i++)
        values[i] = i % 2 ? 2.0f : 1.0f;
    values[N - 1] = -7;
    bitnet_tensor_stats s = stats_of("a.weight", BNET_F32, N, values);
    assert_true(s.min == -7 && s.max == 2);
    assert_true(s.mean == (1.5 * N - 2 - 7) / N);
    assert_true(s.rms == sqrt((2.5 * N - 4 + 49) / N));
}

static void test_trits(void **state)
{
    (void)state;
    enum { N = 256 };
    uint8_t data[N / 4 + 32] = {0};
    int8_t trits[N];
    for (int i = 0; i < N; i++)
        trits[i] = (int8_t)(i < 100 ? 1 : i < 130 ? -1 : 0);
    bnet_i2s_encode_row(BITNET_I2S_128, data, N, 0, trits);
    bnet_put_f32(data + N / 4, 0.5f);
    bitnet_tensor_stats s = stats_of("a.weight", BNET_I2_S, N, data);
    assert_true(s.ternary && s.scale == 0.5f);
    assert_int_equal(s.n_plus, 100);
    assert_int_equal(s.n_minus, 30);
    assert_int_equal(s.n_zero, 126);
    assert_int_equal(s.n_invalid, 0);
    assert_true(s.mean == 35.0 / N && s.rms == sqrt(130 * 0.25 / N));
    assert_string_equal(s.suspicious, "");
    data[0] |= 3;
    s = stats_of("a.weight", BNET_I2_S, N, data);
    assert_int_equal(s.n_invalid, 1);
    assert_string_equal(s.suspicious, "1 code is 3");
    bnet_put_f32(data + N / 4, -0.5f);
    s = stats_of("a.weight", BNET_I2_S, N, data);
    assert_string_equal(s.suspicious, "scale is -0.5");
}

static void test_scales_and_norms(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
        float value;
    } rows[] = {
        {"a.scale", "", 2},
        {"a.scale", "scale is 0", 0},
        {"a.scale", "scale is -1", -1},
        {"a.scales", "", -1},
        {"a_norm.weight", "", 1e-4f * 1.001f},
        {"a_norm.weight", "rms 9.9e-05 is out of range for a norm (0.0001..10000)", 9.9e-5f},
        {"a_norm.weight", "", 9999},
        {"a_norm.weight", "rms 1.01e+04 is out of range for a norm (0.0001..10000)", 10100},
        {"a.weight", "", 10100},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bitnet_tensor_stats s = stats_of(rows[i].name, BNET_F32, 1, &rows[i].value);
        assert_string_equal(s.suspicious, rows[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_trits),
        cmocka_unit_test(test_scales_and_norms),
    };
    return cmocka_run_group_tests_name("tensor_stats", tests, NULL, NULL);
}
