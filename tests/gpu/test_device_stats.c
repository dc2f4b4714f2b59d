/* ST_1, ST_3, ST_4, K_27: what a GPU says of itself, held against what the driver was asked for. */
#include "device.h"

typedef struct opened {
    bitnet_runtime *runtime;
    bitnet_engine *engine;
} opened;

static opened open_engine(void)
{
    opened o = {0};
    bitnet_runtime_options r;
    bitnet_runtime_options_init(&r);
    r.device = "cuda";
    r.n_threads = 2;
    r.statistics = true;
    OK(bitnet_runtime_open(&r, &o.runtime, &err));
    OK(bitnet_engine_open(o.runtime, test_model(), NULL, &o.engine, &err));
    return o;
}

static void close_engine(opened *o)
{
    bitnet_engine_close(o->engine);
    bitnet_runtime_close(o->runtime);
}

/* A prompt of 20 tokens, then n more one by one. */
static void generate(const opened *o, int n)
{
    bitnet_session_options so;
    bitnet_session *s = NULL;
    bitnet_sampler *chooser = NULL;
    bitnet_sampler_options greedy;
    int32_t ids[20];
    bitnet_session_options_init(&so);
    so.n_ctx = 256;
    bitnet_sampler_options_init(&greedy);
    greedy.temperature = 0;
    for (int i = 0; i < 20; i++)
        ids[i] = 10 + i;
    OK(bitnet_session_open(o->engine, &so, &s, &err));
    OK(bitnet_sampler_open(&greedy, bitnet_engine_model(o->engine)->n_vocab, &chooser, &err));
    bitnet_generate_options go;
    bitnet_generate_result g;
    bitnet_generate_options_init(&go);
    go.max_tokens = (size_t)n;
    go.ignore_eos = true;
    OK(bitnet_generate(s, chooser, ids, 20, &go, &g, &err));
    assert_int_equal(g.n_generated, n);
    bitnet_sampler_close(chooser);
    bitnet_session_close(s);
}

static bitnet_stats stats_of(const opened *o)
{
    bitnet_stats s;
    bitnet_stats_init(&s);
    OK(bitnet_engine_stats(o->engine, &s, &err));
    return s;
}

static void ST_1_every_field_is_exact(void **state)
{
    (void)state;
    emulated_counts none = {0}, before = emulated ? *emulated : none;
    opened o = open_engine();
    generate(&o, 30);
    generate(&o, 30); /* its buffers come from the pool */
    bitnet_stats s = stats_of(&o);
    const bitnet_performance_stats *p = &s.performance;
    assert_string_equal(s.device, "cuda");
    assert_true(s.timed);
    assert_true(p->n_launches && p->exec_ms > 0 && p->n_h2d && p->n_d2h && p->h2d_bytes &&
                p->d2h_bytes && p->cache_hits && p->cache_misses);
    if (emulated) {
        assert_int_equal(p->n_launches, emulated->n_launches - before.n_launches);
        assert_int_equal(p->n_h2d, emulated->n_h2d - before.n_h2d);
        assert_int_equal(p->n_d2h, emulated->n_d2h - before.n_d2h);
        assert_int_equal(p->h2d_bytes, emulated->h2d_bytes - before.h2d_bytes);
        assert_int_equal(p->d2h_bytes, emulated->d2h_bytes - before.d2h_bytes);
    }
    bitnet_engine_stats_reset(o.engine);
    s = stats_of(&o);
    assert_true(!p->n_launches && !(p->exec_ms > 0) && !p->n_h2d && !p->n_d2h && !p->h2d_bytes &&
                !p->d2h_bytes && !p->cache_hits && !p->cache_misses);
    close_engine(&o);
}

/* Time is the device's: less than what passed, more than nothing, and counted in recorded steps. */
static void ST_3_device_stats(void **state)
{
    (void)state;
    opened o = open_engine();
    generate(&o, 5); /* what is measured below has everything recorded */
    bitnet_engine_stats_reset(o.engine);
    double begun = bnet_now_ms();
    generate(&o, 40);
    bitnet_stats s = stats_of(&o);
    double passed = bnet_now_ms() - begun;
    const bitnet_device_stats *d = &s.on_device;
    assert_true(s.performance.exec_ms > 0 && s.performance.exec_ms < passed);
    assert_true(d->gpu_efficiency == 1 && bitnet_stats_gpu_effective(&s));
    assert_true(d->fallback_count == 0 && d->dequantised_calls == 0);
    assert_true(d->memory_used && d->memory_used <= d->memory_total);
    assert_true(d->n_replays >= 30 && d->n_replays <= 40);
    assert_true(s.precision.memory_allocated &&
                s.precision.memory_peak >= s.precision.memory_allocated);
    assert_true(s.precision.n_ops >= d->n_replays);
    char line[512];
    bitnet_stats_summary(&s, line, sizeof line);
    assert_non_null(strstr(line, "gpu 100%"));
    close_engine(&o);
    o = open_engine(); /* the first passes are timed launch by launch */
    generate(&o, 5);
    s = stats_of(&o);
    assert_true(d->n_matmul && d->n_quantize && d->avg_matmul_ms > 0 && d->avg_quantize_ms > 0);
    assert_true(d->avg_matmul_ms * (double)d->n_matmul <= s.performance.exec_ms);
    close_engine(&o);
}

/* What a token costs on the bus does not grow with the weights. */
static void K_27_transfers_of_a_token(void **state)
{
    (void)state;
    opened o = open_engine();
    generate(&o, 10);
    bitnet_engine_stats_reset(o.engine);
    generate(&o, 10);
    bitnet_performance_stats few = stats_of(&o).performance;
    bitnet_engine_stats_reset(o.engine);
    generate(&o, 50);
    bitnet_performance_stats many = stats_of(&o).performance;
    uint64_t vocab_bytes = 4 * (uint64_t)bitnet_engine_model(o.engine)->n_vocab;
    uint64_t up = (many.h2d_bytes - few.h2d_bytes) / 40,
             down = (many.d2h_bytes - few.d2h_bytes) / 40;
    print_message("per token: %llu bytes to the device, %llu back\n", (unsigned long long)up,
                  (unsigned long long)down);
    assert_true(up > 0 && up <= 2 * vocab_bytes && down > 0 && down <= 2 * vocab_bytes);
    assert_true(many.n_h2d - few.n_h2d == 40 && many.n_d2h - few.n_d2h == 40);
    close_engine(&o);
}

/* Every kernel of a step by itself: as many launches as the dispatcher counts, each with its shape.
 */
static void ST_4_profile_of_single_kernels(void **state)
{
    (void)state;
    opened o = open_engine();
    bnet_backend *be = o.engine->backend;
    bitnet_kernel_time t[128];
    assert_true(be->inspect->profile(be, true));
    bitnet_engine_stats_reset(o.engine);
    double begun = bnet_now_ms();
    generate(&o, 10);
    size_t n = be->inspect->profile_read(be, t, BNET_COUNT(t));
    double sum = 0, passed = bnet_now_ms() - begun;
    uint64_t launches = 0;
    assert_true(n > 4 && n <= BNET_COUNT(t));
    for (size_t i = 0; i < n; i++) {
        const bitnet_launch *l = &t[i].launch;
        assert_true(t[i].n_launches && t[i].ms >= 0 && l->grid[0] && l->block && l->registers);
        assert_true(l->blocks_per_sm >= 1 && l->occupancy > 0 && l->occupancy <= 1);
        sum += t[i].ms;
        launches += t[i].n_launches;
    }
    assert_true(sum > 0 && sum < passed);
    assert_int_equal(launches, stats_of(&o).performance.n_launches);
    assert_int_equal(stats_of(&o).on_device.n_replays, 0);
    assert_false(be->inspect->profile(be, false));
    generate(&o, 10);
    assert_true(stats_of(&o).on_device.n_replays > 0);
    close_engine(&o);
}

int main(void)
{
    find_device("90");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ST_1_every_field_is_exact),
        cmocka_unit_test(ST_3_device_stats),
        cmocka_unit_test(K_27_transfers_of_a_token),
        cmocka_unit_test(ST_4_profile_of_single_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
