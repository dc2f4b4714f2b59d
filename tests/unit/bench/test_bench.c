/* test_bench.c - synthetic models (their bytes, their soundness, what they compute), the statistics
 * of runs, names of tests, limits, and what a timed run does to its session. */
#include "unit/engine/nano.h"

#include <math.h>

#include "bitnet_tools.h"
#include "format/codec.h"
#include "format/gguf.h"

/* ---- statistics ---- */

static void test_summaries(void **state)
{
    (void)state;
    double odd[] = {5, 1, 3}, even[] = {4, 1, 2, 3}, one[] = {7}, five[] = {9, 1, 5, 2, 30};
    bitnet_summary s = bitnet_summarize(odd, 3);
    assert_true(s.median == 3 && s.min == 1 && s.max == 5 && s.n == 3);
    assert_true(fabs(s.spread - 2.0 / 3) < 1e-12);
    s = bitnet_summarize(even, 4);
    assert_true(s.median == 2.5 && s.min == 1 && s.max == 4);
    s = bitnet_summarize(five, 5);
    assert_true(s.median == 5 && s.max == 30);
    s = bitnet_summarize(one, 1);
    assert_true(s.median == 7 && s.spread == 0);
    s = bitnet_summarize(NULL, 0);
    assert_true(s.median == 0 && s.n == 0);
}

static void test_names_of_tests(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok, prompt;
        int n;
    } rows[] = {{"pp512", true, true, 512},
                {"tg1", true, false, 1},
                {"bt64", true, false, 32},
                {"bt1025", false, 0, 0},
                {"tg1048576", true, false, 1 << 20},
                {"tg1048577", false, 0, 0},
                {"pp0", false, 0, 0},
                {"pp", false, 0, 0},
                {"", false, 0, 0},
                {"xx4", false, 0, 0},
                {"pp4x", false, 0, 0},
                {"pp-4", false, 0, 0},
                {"pp 4", false, 0, 0},
                {"tg04", false, 0, 0},
                {NULL, false, 0, 0},
                {"pp99999999999999999999", false, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bitnet_bench_test t = {0};
        if (bitnet_bench_parse(rows[i].text, &t) != rows[i].ok)
            fail_msg("row %zu", i);
        assert_true(!rows[i].ok ||
                    (t.prompt == rows[i].prompt && t.n_tokens == rows[i].n && t.depth == 0));
    }
}

/* ---- synthetic models ---- */

#define FILE_A TEST_BINARY_DIR "/synthetic-a.gguf"
#define FILE_B TEST_BINARY_DIR "/synthetic-b.gguf"

static const char *saved(const char *head, const char *path)
{
    bitnet_synthetic *s = NULL;
    OK(bitnet_synthetic_open("nano", head, &s, &err));
    OK(bitnet_synthetic_save(s, path, &err));
    bitnet_synthetic_close(s);
    return path;
}

static int remove_files(void **state)
{
    (void)state;
    remove(FILE_A);
    remove(FILE_B);
    return 0;
}

static void test_synthetic_bytes_are_always_the_same(void **state)
{
    (void)state;
    char a[65], b[65], c[65];
    OK(bitnet_file_sha256(saved("q8_0", FILE_A), a, &err));
    OK(bitnet_file_sha256(saved(NULL, FILE_B), b, &err));
    assert_string_equal(a, b); /* q8_0 is the shape's own */
    OK(bitnet_file_sha256(saved("f16", FILE_B), c, &err));
    assert_string_not_equal(a, c);
}

/* Every code is valid, every value finite: strict mode accepts all heads. */
static void test_synthetic_passes_strict_mode(void **state)
{
    (void)state;
    static const char *const heads[] = {"q6_k", "q8_0", "q4_0", "f16", "bf16", "f32"};
    bitnet_runtime_options o;
    bitnet_runtime *r = NULL;
    bitnet_runtime_options_init(&o);
    o.n_threads = 1;
    o.strict = true;
    OK(bitnet_runtime_open(&o, &r, &err));
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        bitnet_synthetic *s = NULL;
        bitnet_engine *e = NULL;
        OK(bitnet_synthetic_open("nano", heads[i], &s, &err));
        OK(bitnet_synthetic_engine(s, r, NULL, &e, &err));
        bitnet_synthetic_close(s); /* the engine goes on */
        const bitnet_model_info *m = bitnet_engine_model(e);
        assert_string_equal(m->weight_type, "I2_S");
        assert_true(m->n_vocab == 512 && m->n_layers == 2 && m->tied_head);
        assert_non_null(strstr(m->path, heads[i]));
        bitnet_engine_close(e);
    }
    bitnet_runtime_close(r);
}

/* Half of the weights are 0, the others as often -1 as +1, within four standard deviations. */
static void test_synthetic_weights(void **state)
{
    (void)state;
    bitnet_inspect *in = NULL;
    bitnet_inspect_tensor t;
    bitnet_tensor_stats s;
    OK(bitnet_inspect_open(saved(NULL, FILE_A), &in, &err));
    for (size_t i = 0; bitnet_inspect_tensor_at(in, i, &t); i++) {
        OK(bitnet_inspect_stats(in, i, &s, &err));
        double n = (double)t.n_elems;
        if (s.suspicious[0])
            fail_msg("%s: %s", t.name, s.suspicious);
        if (s.ternary) {
            assert_true(fabs((double)s.n_zero - n / 2) < 2 * sqrt(n));
            assert_true(fabs((double)s.n_plus - n / 4) < 2 * sqrt(n));
            assert_true(fabs((double)s.scale - sqrt(2.0 / (double)t.dims[0])) < 1e-6);
        }
    }
    bitnet_inspect_close(in);
}

static void test_synthetic_computes(void **state)
{
    (void)state;
    bitnet_synthetic *s = NULL;
    bitnet_runtime *r = NULL;
    bitnet_engine *e = NULL;
    bitnet_session *session = NULL;
    const int32_t ids[] = {510, 1, 2, 300};
    OK(bitnet_runtime_open(NULL, &r, &err));
    OK(bitnet_synthetic_open("nano", NULL, &s, &err));
    OK(bitnet_synthetic_engine(s, r, NULL, &e, &err));
    OK(bitnet_session_open(e, NULL, &session, &err));
    OK(bitnet_session_append(session, ids, 4, NULL, NULL, &err));
    const float *logits = bitnet_session_logits(session);
    double sum = 0;
    for (int i = 0; i < 512; i++) {
        assert_true(isfinite(logits[i]));
        sum += (double)logits[i] * (double)logits[i];
    }
    double rms = sqrt(sum / 512); /* of order one: neither dead nor exploding */
    assert_true(rms > 0.3 && rms < 30);
    int32_t out[16];
    size_t n = 0;
    OK(bitnet_tokenize(e, "A\xff", 2, BITNET_TEXT_BOS, out, 16, &n, &err));
    assert_true(n == 3 && out[0] == 510);
    bitnet_session_close(session);
    bitnet_engine_close(e);
    bitnet_synthetic_close(s);
    bitnet_runtime_close(r);
}

static void test_synthetic_refuses(void **state)
{
    (void)state;
    bitnet_synthetic *s = NULL;
    FAILS(bitnet_synthetic_open("7t", NULL, &s, &err), BITNET_ARGUMENT, "known: 2b-4t");
    FAILS(bitnet_synthetic_open("nano", "i2_s", &s, &err), BITNET_ARGUMENT, "no format of a head");
    FAILS(bitnet_synthetic_open("nano", "", &s, &err), BITNET_ARGUMENT, "no format of a head");
    FAILS(bitnet_synthetic_open("3b", "q6_k", &s, &err), BITNET_ARGUMENT, "cannot be");
    FAILS(bitnet_synthetic_open(NULL, NULL, &s, &err), BITNET_ARGUMENT, "must not be NULL");
    assert_null(s);
    bitnet_synthetic_close(NULL);
    assert_false(bitnet_synthetic_at(-1, &(bitnet_synthetic_info){0}));
    assert_false(bitnet_synthetic_at(1000, &(bitnet_synthetic_info){0}));
}

/* ---- timed runs ---- */

typedef struct rig {
    nano nano;
    bitnet_bench *bench;
} rig;

static rig rig_open(int n_ctx)
{
    rig r = {.nano = nano_open(1)};
    bitnet_bench_options o;
    bitnet_bench_options_init(&o);
    o.n_ctx = n_ctx;
    OK(bitnet_bench_open(r.nano.engine, &o, &r.bench, &err));
    return r;
}

static void rig_close(rig *r)
{
    bitnet_bench_close(r->bench);
    nano_close(&r->nano);
}

static uint64_t calls_of(const bitnet_bench *b, const char *begins)
{
    bitnet_kernel_use uses[128];
    size_t n = bitnet_bench_kernels(b, uses, 128);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (strncmp(uses[i].id, begins, strlen(begins)) == 0)
            sum += uses[i].n_calls;
    return sum;
}

static void test_runs_count_what_they_time(void **state)
{
    (void)state;
    rig r = rig_open(64);
    bitnet_bench_run run;
    OK(bitnet_bench_once(r.bench, &(bitnet_bench_test){false, 8, 16, 0}, &run, &err));
    assert_true(run.n_tokens == 8 && run.ms > 0 && run.total_ms >= run.ms);
    assert_true(fabs(run.tok_s - 8e3 / run.ms) < 1e-6 * run.tok_s);
    bitnet_bench_forget(r.bench);
    assert_int_equal(calls_of(r.bench, ""), 0);
    /* the depth is there already: its last token and eight more, in two layers */
    OK(bitnet_bench_once(r.bench, &(bitnet_bench_test){false, 8, 16, 0}, &run, &err));
    assert_int_equal(calls_of(r.bench, "glu"), 2 * 9);
    bitnet_bench_forget(r.bench);
    OK(bitnet_bench_once(r.bench, &(bitnet_bench_test){true, 20, 16, 0}, &run, &err));
    assert_int_equal(run.n_tokens, 20);
    assert_int_equal(calls_of(r.bench, "glu"), 2);
    OK(bitnet_bench_once(r.bench, &(bitnet_bench_test){false, 4, 10, 3}, &run, &err));
    assert_true(run.n_tokens == 3 * 4 && run.ms > 0);
    OK(bitnet_bench_once(r.bench, &(bitnet_bench_test){false, 4, 12, 3}, &run, &err));
    rig_close(&r);
}

static void test_runs_refuse(void **state)
{
    (void)state;
    rig r = rig_open(32);
    bitnet_bench_run run;
    bitnet_profile_entry e[4];
    size_t n;
    double ms;
    FAILS(bitnet_bench_once(r.bench, &(bitnet_bench_test){false, 32, 0, 0}, &run, &err),
          BITNET_CONTEXT, "need a context of 33");
    FAILS(bitnet_bench_once(r.bench, &(bitnet_bench_test){true, 0, 0, 0}, &run, &err),
          BITNET_ARGUMENT, "cannot be measured");
    FAILS(bitnet_bench_once(r.bench, NULL, &run, &err), BITNET_ARGUMENT, "must not be NULL");
    FAILS(bitnet_bench_profile(r.bench, &(bitnet_bench_test){true, 0, 0, 0}, e, 4, &n, &ms, &err),
          BITNET_ARGUMENT, "cannot be measured");
    FAILS(bitnet_bench_each_kernel(r.nano.engine, 0, 1, NULL, NULL, &err), BITNET_ARGUMENT,
          "callback");
    rig_close(&r);
}

/* The entries add up to the whole, are sorted, and the meter is off again afterwards. */
static void test_profile_adds_up(void **state)
{
    (void)state;
    rig r = rig_open(64);
    bitnet_profile_entry e[32];
    size_t n = 0;
    double total = 0, sum = 0;
    bitnet_stats stats;
    OK(bitnet_bench_profile(r.bench, &(bitnet_bench_test){false, 8, 16, 0}, e, 32, &n, &total,
                            &err));
    for (size_t i = 0; i < n; i++) {
        sum += e[i].ms;
        assert_true(i == 0 || e[i].ms <= e[i - 1].ms);
        if (strcmp(e[i].name, "attention") == 0)
            assert_int_equal(e[i].n_calls, 2 * 8);
        if (strcmp(e[i].name, "sampling") == 0 || strcmp(e[i].name, "head") == 0)
            assert_int_equal(e[i].n_calls, 8);
    }
    assert_true(n > 8 && fabs(sum - total) < 0.01 * total);
    OK(bitnet_bench_profile(r.bench, &(bitnet_bench_test){true, 24, 0, 0}, e, 32, &n, &total,
                            &err));
    for (size_t i = 0; i < n; i++) /* one pass; nothing is chosen */
        if (strcmp(e[i].name, "attention") == 0 || strcmp(e[i].name, "sampling") == 0)
            assert_int_equal(e[i].n_calls, e[i].name[0] == 'a' ? 2 : 0);
    OK(bitnet_bench_profile(r.bench, &(bitnet_bench_test){false, 4, 16, 3}, e, 32, &n, &total,
                            &err));
    for (size_t i = 0; i < n; i++) /* steps of three; how they came to their depth is not in it */
        if (strcmp(e[i].name, "head") == 0 || strcmp(e[i].name, "sampling") == 0)
            assert_int_equal(e[i].n_calls, e[i].name[0] == 'h' ? 4 : 12);
    bitnet_stats_init(&stats);
    bitnet_engine_stats_reset(r.nano.engine);
    bitnet_bench_run run;
    OK(bitnet_bench_once(r.bench, &(bitnet_bench_test){false, 8, 16, 0}, &run, &err));
    OK(bitnet_engine_stats(r.nano.engine, &stats, &err));
    assert_true(stats.performance.exec_ms == 0 && stats.performance.n_launches > 0);
    rig_close(&r);
}

static void test_limits(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_limits l;
    bitnet_limits_init(&l);
    OK(bitnet_limits_measure(n.runtime, &l, &err));
    assert_true(l.n_threads == 1 && l.read_gb_s > 0.01 && l.read_gb_s < 4000 && l.n_peaks >= 1);
    assert_string_equal(l.peaks[l.n_peaks - 1].isa, "scalar");
    for (size_t i = 0; i < l.n_peaks; i++)
        assert_true(l.peaks[i].gop_s > 0.001);
    l.struct_size = 0;
    FAILS(bitnet_limits_measure(n.runtime, &l, &err), BITNET_ARGUMENT, "bitnet_limits_init");
    assert_true(bitnet_engine_token_bytes(n.engine) > 0);
    /* two layers of 256 x 512: q, k, v, o, gate, up, down */
    assert_int_equal(bitnet_engine_token_ops(n.engine),
                     2 * 2 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512));
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summaries),
        cmocka_unit_test(test_names_of_tests),
        cmocka_unit_test(test_synthetic_bytes_are_always_the_same),
        cmocka_unit_test(test_synthetic_passes_strict_mode),
        cmocka_unit_test(test_synthetic_weights),
        cmocka_unit_test(test_synthetic_computes),
        cmocka_unit_test(test_synthetic_refuses),
        cmocka_unit_test(test_runs_count_what_they_time),
        cmocka_unit_test(test_runs_refuse),
        cmocka_unit_test(test_profile_adds_up),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, remove_files);
}
