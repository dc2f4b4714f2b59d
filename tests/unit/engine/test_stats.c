/* ST_*: statistics are exact, and can be reset. */
#include "nano.h"

#include "engine/engine.h"

/* One pass of the nano model (2 layers, ternary, f16 head), by hand: kernel calls and operations.
 */
enum {
    LINEAR = 7 * 2 + 1,
    QUANTIZE = 4 * 2,
    /* int8 comes in one with the norm before it and what stands before that: gate or sum */
    LAUNCHES = LINEAR + QUANTIZE + 1 /* embed */ + 1 /* last norm */ + 4 /* rope */ + 2 /* kv */ +
               2 /* attention */ + 1 /* last add */
};

static nano open_timed(bool statistics)
{
    nano n = {0};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.fake_gpu = "none";
    o.statistics = statistics;
    OK(bitnet_runtime_open(&o, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    return n;
}

static bitnet_stats take(const nano *n)
{
    bitnet_stats s;
    bitnet_stats_init(&s);
    OK(bitnet_engine_stats(n->engine, &s, &err));
    return s;
}

static void pass(const nano *n, bitnet_session *s, int n_passes)
{
    int32_t ids[64];
    nano_ids(n, 3, ids, 64);
    for (int i = 0; i < n_passes; i++) {
        OK(bitnet_session_append(s, ids + i, 1, NULL, NULL, &err));
        assert_non_null(bitnet_session_logits(s)); /* the head runs when they are asked for */
    }
}

static void ST_1_counts_are_exact(void **state)
{
    (void)state;
    nano n = open_timed(true);
    bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
    bitnet_stats none = take(&n);
    assert_int_equal(none.performance.n_launches, 0);
    assert_true(none.performance.exec_ms == 0);
    pass(&n, s, 5);
    bitnet_stats t = take(&n);
    assert_int_equal(t.performance.n_launches, 5 * LAUNCHES);
    assert_true(t.timed && t.performance.exec_ms > 0);
    assert_int_equal(t.performance.n_h2d + t.performance.n_d2h + t.performance.h2d_bytes +
                         t.performance.d2h_bytes + t.performance.cache_hits +
                         t.performance.cache_misses,
                     0); /* the CPU transfers nothing and has no pool */
    bitnet_engine_stats_reset(n.engine);
    t = take(&n);
    assert_int_equal(t.performance.n_launches, 0);
    assert_true(t.performance.exec_ms == 0);
    pass(&n, s, 2);
    assert_int_equal(take(&n).performance.n_launches, 2 * LAUNCHES);
    bitnet_session_close(s);
    nano_close(&n);
}

static void ST_2_precisions(void **state)
{
    (void)state;
    nano n = open_timed(true);
    bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
    pass(&n, s, 3);
    bitnet_stats t = take(&n);
    assert_true(t.precision.n_ops >= t.performance.n_launches);
    assert_true(t.precision.fp16_ms == 0 && t.precision.bf16_ms == 0);
    assert_true(t.precision.fp32_ms == t.performance.exec_ms);
    assert_int_equal(t.precision.memory_allocated + t.precision.memory_peak + t.precision.n_h2d +
                         t.precision.n_d2h + t.precision.h2d_bytes + t.precision.d2h_bytes,
                     0);
    bitnet_session_close(s);
    nano_close(&n);
}

static void ST_3_device(void **state)
{
    (void)state;
    char line[512], small[8];
    nano n = open_timed(true);
    bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
    bitnet_stats t = take(&n);
    assert_true(t.on_device.gpu_efficiency == 0 && t.on_device.avg_matmul_ms == 0 &&
                t.on_device.avg_quantize_ms == 0); /* zero operations divide nothing */
    assert_false(bitnet_stats_gpu_effective(&t));
    pass(&n, s, 4);
    t = take(&n);
    assert_int_equal(t.on_device.n_matmul, 4 * LINEAR);
    assert_int_equal(t.on_device.n_quantize, 4 * QUANTIZE);
    assert_true(t.on_device.avg_matmul_ms > 0 && t.on_device.avg_quantize_ms > 0);
    assert_true(t.on_device.avg_matmul_ms * 4 * LINEAR <= t.performance.exec_ms * 1.001);
    assert_true(t.on_device.memory_used > 0 && t.on_device.memory_used < t.on_device.memory_total);
    assert_string_equal(t.device, "cpu");
    assert_string_equal(t.provider, bitnet_runtime_provider(n.runtime));
    size_t len = bitnet_stats_summary(&t, line, sizeof line);
    assert_int_equal(len, strlen(line));
    assert_non_null(strstr(line, "device cpu"));
    assert_non_null(strstr(line, "fallbacks 0"));
    assert_int_equal(bitnet_stats_summary(&t, small, sizeof small), len);
    t.on_device.gpu_efficiency = 0.8;
    assert_false(bitnet_stats_gpu_effective(&t));
    t.on_device.gpu_efficiency = 0.81;
    assert_true(bitnet_stats_gpu_effective(&t));
    bitnet_session_close(s);
    nano_close(&n);
}

static void ST_1_counts_without_times(void **state)
{
    (void)state;
    nano n = open_timed(false);
    bitnet_session *s = nano_session(&n, 64, 8, BITNET_KV_F16);
    pass(&n, s, 2);
    bitnet_stats t = take(&n);
    assert_false(t.timed);
    assert_int_equal(t.performance.n_launches, 2 * LAUNCHES);
    assert_true(t.performance.exec_ms == 0 && t.on_device.n_matmul == 0);
    bitnet_session_close(s);
    nano_close(&n);
}

static void arguments(void **state)
{
    (void)state;
    nano n = open_timed(false);
    bitnet_stats s;
    bitnet_stats_init(&s);
    FAILS(bitnet_engine_stats(NULL, &s, &err), BITNET_ARGUMENT, "must not be NULL");
    FAILS(bitnet_engine_stats(n.engine, NULL, &err), BITNET_ARGUMENT, "must not be NULL");
    s.struct_size = 1;
    FAILS(bitnet_engine_stats(n.engine, &s, &err), BITNET_ARGUMENT, "struct_size");
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ST_1_counts_are_exact),
        cmocka_unit_test(ST_2_precisions),
        cmocka_unit_test(ST_3_device),
        cmocka_unit_test(ST_1_counts_without_times),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
