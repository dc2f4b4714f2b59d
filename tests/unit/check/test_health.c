/* test_health.c - V-6: a healthy engine is found healthy in a fraction of 100 ms, also while a
 * session works; an engine that computes wrongly is found out and says with what. */
#include "unit/engine/nano.h"

#include <pthread.h>
#include <stdatomic.h>

#include "bitnet_check.h"
#include "bitnet_tools.h"
#include "engine/engine.h"
#include "format/codec.h"
#include "format/gguf.h"

static void test_V_6_a_sound_engine_is_healthy(void **state)
{
    (void)state;
    nano n = nano_open(2);
    bitnet_health h;
    char json[600];
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        bitnet_health_init(&h);
        OK(bitnet_health_check(n.engine, &h, &err));
        assert_string_equal(h.detail, "");
        assert_true(h.healthy && h.memory_ok && h.compute_ok && h.cache_ok);
        best = h.elapsed_ms < best ? h.elapsed_ms : best;
    }
    print_message("%.3f ms\n", best);
    assert_true(best < 100);
    assert_true(h.memory_available > 0 && h.process_bytes > 0);
    size_t len = bitnet_health_json(&h, json, sizeof json);
    assert_int_equal(strlen(json), len);
    assert_non_null(strstr(json, "{\"healthy\": true, \"memory_ok\": true, \"compute_ok\": true, "
                                 "\"cache_ok\": true, "));
    assert_int_equal(bitnet_health_json(&h, json, 5), len);
    assert_string_equal(json, "{\"he");
    nano_close(&n);
}

static int n_calls;

static void wrong_linear(const uint8_t *w, size_t n_blocks, size_t n_rows, const int8_t *x,
                         size_t x_stride, const int32_t *x_sum, size_t n_tokens, int32_t *acc)
{
    (void)w;
    (void)n_blocks;
    (void)x;
    (void)x_stride;
    (void)x_sum;
    __atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < n_rows * n_tokens; i++)
        acc[i] = 1;
}

/* A kernel registered from outside spoils the engine: the check calls it and is not deceived. */
static void test_V_6_wrong_arithmetic_is_unhealthy(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kernel k;
    bitnet_kernel_init(&k);
    k.id = "linear_i2s.ones";
    k.op = "linear";
    k.format = "i2s";
    k.dtype = "i8";
    k.tier = BITNET_TIER_EXTREMELY;
    k.fn = (void (*)(void))wrong_linear;
    k.m = (bitnet_dim_rule){1, 1, 1}; /* so that no other kernel of its tier is better */
    OK(bitnet_kernel_register(n.runtime, &k, &err));
    bitnet_engine_close(n.engine); /* weights take the form of the kernel known when they load */
    OK(bitnet_engine_open(n.runtime, NANO_PATH, NULL, &n.engine, &err));
    bitnet_health h;
    bitnet_health_init(&h);
    OK(bitnet_health_check(n.engine, &h, &err));
    assert_true(n_calls > 0);
    assert_false(h.healthy);
    assert_false(h.compute_ok);
    assert_true(h.cache_ok);
    assert_non_null(strstr(h.detail, "blk.0.attn_q.weight: row 0 times a vector is"));
    nano_close(&n);
}

/* ---- a first matrix in blocks with scales, and a scale of its own besides ---- */

#define SCALED_NAME "blk.0.attn_q.scale"
static const float separate = 0.5f;

static void put_info(bnet_str *s, const char *name, const bnet_tensor *t, bnet_type type,
                     uint64_t at)
{
    uint64_t len = strlen(name);
    uint32_t n_dims = t ? t->n_dims : 1, id = (uint32_t)type;
    uint64_t one = 1;
    bnet_str_add(s, (const char *)&len, 8);
    bnet_str_puts(s, name);
    bnet_str_add(s, (const char *)&n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++)
        bnet_str_add(s, (const char *)(t ? &t->ne[i] : &one), 8);
    bnet_str_add(s, (const char *)&id, 4);
    bnet_str_add(s, (const char *)&at, 8);
}

static void pad(bnet_str *s)
{
    while (s->n % 32)
        bnet_str_putc(s, 0);
}

/* Rows of ternary weights, block b with the scale first or second. */
static void put_blocks(bnet_str *s, const bnet_tensor *t, float first, float second)
{
    float x[256];
    char bytes[66];
    for (uint64_t b = 0; b < t->ne[0] * t->ne[1] / 256; b++) {
        for (int i = 0; i < 256; i++)
            x[i] = (float)((int)(b * 7 + (uint64_t)i * 5) % 3 - 1) * 0.5f;
        assert_true(bnet_encode_row(BNET_TQ2_0, x, (uint8_t *)bytes, 256));
        bnet_put_u16((uint8_t *)bytes + 64, bnet_f32_to_f16(b % 2 ? second : first));
        bnet_str_add(s, bytes, sizeof bytes);
    }
}

/* The nano model with blk.0.attn_q as TQ2_0 and a separate scale. */
static bnet_str scaled_nano(float first, float second)
{
    bnet_gguf *g = NULL;
    bnet_str head = {0}, data = {0};
    OK(bnet_gguf_open(NANO_PATH, NULL, &g, &err));
    const uint8_t *file = bnet_gguf_file_data(g), *infos = NULL;
    const char *name = "blk.0.attn_q.weight";
    uint64_t n_tensors = bnet_gguf_n_tensors(g), lowest = UINT64_MAX;
    for (size_t i = 0; i < n_tensors; i++) { /* the list begins with the first tensor of any */
        const bnet_tensor *t = bnet_gguf_tensor_at(g, i);
        const uint8_t *at = memmem(file, (size_t)bnet_gguf_file_bytes(g), t->name, strlen(t->name));
        if (at && (uint64_t)(at - file) < lowest) {
            lowest = (uint64_t)(at - file);
            infos = at - 8;
        }
    }
    assert_non_null(infos);
    bnet_str_add(&head, (const char *)file, (size_t)(infos - file));
    n_tensors++;
    memcpy(head.data + 8, &n_tensors, 8);
    for (size_t i = 0; i + 1 < n_tensors; i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(g, i);
        bool scaled = strcmp(t->name, name) == 0;
        put_info(&head, t->name, t, scaled ? BNET_TQ2_0 : t->type, data.n);
        if (scaled)
            put_blocks(&data, t, first, second);
        else
            bnet_str_add(&data, (const char *)t->data, (size_t)t->n_bytes);
        pad(&data);
    }
    put_info(&head, SCALED_NAME, NULL, BNET_F32, data.n);
    bnet_str_add(&data, (const char *)&separate, sizeof separate);
    pad(&data);
    pad(&head);
    bnet_str_add(&head, data.data, data.n);
    bnet_str_free(&data);
    bnet_gguf_close(g);
    return head;
}

static void wrong_blocks(const uint8_t *w, size_t n_blocks, const float *scales, size_t n_rows,
                         const int8_t *x, size_t x_stride, size_t n_tokens, float *y)
{
    (void)w;
    (void)n_blocks;
    (void)scales;
    (void)x;
    (void)x_stride;
    for (size_t i = 0; i < n_rows * n_tokens; i++)
        y[i] = 1;
}

static bitnet_health health_of(bitnet_runtime *r, const bnet_str *file)
{
    bitnet_engine *e = NULL;
    bitnet_health h;
    OK(bitnet_engine_open_memory(r, file->data, file->n, NULL, &e, &err));
    bitnet_health_init(&h);
    OK(bitnet_health_check(e, &h, &err));
    bitnet_engine_close(e);
    return h;
}

/* Scales of blocks, equal ones, ones below zero: each times the separate one is the file's. */
static void test_V_6_a_separate_scale_is_looked_at(void **state)
{
    (void)state;
    static const float scales[][2] = {{0.25f, 0.5f}, {0.5f, 0.5f}, {-0.5f, -0.5f}};
    nano n = nano_open(1);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        bnet_str file = scaled_nano(scales[i][0], scales[i][1]);
        bitnet_health h = health_of(n.runtime, &file);
        if (!h.compute_ok)
            fail_msg("scales %g and %g: %s", (double)scales[i][0], (double)scales[i][1], h.detail);
        bnet_str_free(&file);
    }
    bitnet_kernel k;
    bitnet_kernel_init(&k);
    k.id = "linear_i2s_b256.ones";
    k.op = "linear";
    k.format = "i2s_b256";
    k.dtype = "i8";
    k.tier = BITNET_TIER_EXTREMELY;
    k.fn = (void (*)(void))wrong_blocks;
    OK(bitnet_kernel_register(n.runtime, &k, &err));
    bnet_str file = scaled_nano(0.25f, 0.5f);
    bitnet_health h = health_of(n.runtime, &file);
    assert_false(h.compute_ok);
    assert_non_null(strstr(h.detail, "blk.0.attn_q.weight: row 0 times a vector is"));
    bnet_str_free(&file);
    nano_close(&n);
}

static void *work(void *arg)
{
    const nano *n = arg;
    bitnet_session *s = NULL;
    bitnet_error err;
    int32_t ids[24];
    for (int i = 0; i < 24; i++)
        ids[i] = i;
    if (bitnet_session_open(n->engine, NULL, &s, &err) != BITNET_OK)
        return (void *)1;
    bitnet_status st = bitnet_session_append(s, ids, 24, NULL, NULL, &err);
    for (int i = 0; st == BITNET_OK && i < 24; i++)
        st = bitnet_session_append(s, ids + i, 1, NULL, NULL, &err);
    bitnet_session_close(s);
    return (void *)(uintptr_t)(st != BITNET_OK);
}

static void test_V_6_while_a_session_works(void **state)
{
    (void)state;
    nano n = nano_open(2);
    pthread_t t;
    void *failed;
    assert_int_equal(pthread_create(&t, NULL, work, &n), 0);
    for (int i = 0; i < 10; i++) {
        bitnet_health h;
        bitnet_health_init(&h);
        OK(bitnet_health_check(n.engine, &h, &err));
        if (!h.compute_ok || !h.cache_ok)
            fail_msg("%s", h.detail);
    }
    pthread_join(t, &failed);
    assert_null(failed);
    nano_close(&n);
}

typedef struct visitor {
    bitnet_engine *engine;
    atomic_bool leaves;
} visitor;

static void *look_after(void *user)
{
    visitor *v = user;
    while (!atomic_load(&v->leaves)) {
        bitnet_health h;
        bitnet_health_init(&h);
        if (bitnet_health_check(v->engine, &h, NULL) != BITNET_OK)
            break;
    }
    return NULL;
}

/* Appends tokens one by one; each kernel of theirs was called so often for each of them. */
static size_t append_singly(nano *n, size_t n_tokens, bitnet_session_kernel *used)
{
    bitnet_session *s = nano_session(n, 64, 8, BITNET_KV_F16);
    for (size_t i = 0; i < n_tokens; i++) {
        int32_t id = (int32_t)(1 + i % 7);
        OK(bitnet_session_append(s, &id, 1, NULL, NULL, &err));
    }
    size_t n_used = bitnet_session_kernels(s, used, BNET_SESSION_KERNELS);
    bitnet_session_close(s);
    return n_used;
}

/* What a health check calls beside a session is not the session's own. */
static void calls_of_a_check_are_told_apart(void **state)
{
    (void)state;
    enum { TOKENS = 48 };
    nano n = nano_open(1);
    visitor v = {.engine = n.engine};
    pthread_t thread;
    bitnet_session_kernel alone[BNET_SESSION_KERNELS], among[BNET_SESSION_KERNELS];
    size_t n_alone = append_singly(&n, TOKENS, alone);
    assert_int_equal(pthread_create(&thread, NULL, look_after, &v), 0);
    size_t n_among = append_singly(&n, TOKENS, among);
    atomic_store(&v.leaves, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (size_t i = 0; i < n_alone; i++)
        for (size_t k = 0; k < n_among; k++)
            if (alone[i].id == among[k].id) {
                uint64_t own = among[k].n_calls - among[k].n_shared;
                assert_true(own <= alone[i].n_calls);
                assert_int_equal(own % (alone[i].n_calls / TOKENS), 0);
            }
    nano_close(&n);
}

static void test_arguments(void **state)
{
    (void)state;
    bitnet_health h;
    bitnet_health_init(&h);
    FAILS(bitnet_health_check(NULL, &h, &err), BITNET_ARGUMENT, "engine");
    nano n = nano_open(1);
    FAILS(bitnet_health_check(n.engine, NULL, &err), BITNET_ARGUMENT, "bitnet_health_init");
    h.struct_size = 1;
    FAILS(bitnet_health_check(n.engine, &h, &err), BITNET_ARGUMENT, "bitnet_health_init");
    bitnet_engine_options o;
    bitnet_engine *e = NULL;
    bitnet_engine_options_init(&o);
    o.vocab_only = true;
    OK(bitnet_engine_open(n.runtime, NANO_PATH, &o, &e, &err));
    bitnet_health_init(&h);
    FAILS(bitnet_health_check(e, &h, &err), BITNET_ARGUMENT, "vocabulary only");
    bitnet_engine_close(e);
    nano_close(&n);
}

/* ---- V-8 ---- */

static bitnet_status compare(const char *before, const char *now, double most,
                             bitnet_baseline_result *r, bitnet_error *err)
{
    return bitnet_baseline_compare(before, strlen(before), now, strlen(now), most, NULL, NULL, r,
                                   err);
}

#define ROW(name, value) "{\"name\": \"" name "\", \"value\": " value "}\n"
#define LOW(name, value) "{\"name\": \"" name "\", \"value\": " value ", \"better\": \"lower\"}\n"

static void test_V_8_table_of_regressions(void **state)
{
    (void)state;
    static const struct {
        const char *before, *now;
        bitnet_status status;
        size_t compared, regressed, missing, fresh;
    } rows[] = {
        {ROW("tg", "100"), ROW("tg", "100"), BITNET_OK, 1, 0, 0, 0},
        {ROW("tg", "100"), ROW("tg", "95"), BITNET_OK, 1, 0, 0, 0},
        {ROW("tg", "100"), ROW("tg", "94.9"), BITNET_PERFORMANCE, 1, 1, 0, 0},
        {ROW("tg", "100"), ROW("tg", "500"), BITNET_OK, 1, 0, 0, 0},
        {LOW("ms", "100"), LOW("ms", "105"), BITNET_OK, 1, 0, 0, 0},
        {LOW("ms", "100"), LOW("ms", "106"), BITNET_PERFORMANCE, 1, 1, 0, 0},
        {LOW("ms", "100"), LOW("ms", "10"), BITNET_OK, 1, 0, 0, 0},
        {ROW("a", "1") ROW("b", "1"), ROW("b", "1"), BITNET_PERFORMANCE, 1, 0, 1, 0},
        {ROW("a", "1"), ROW("a", "1") "\n" ROW("b", "1"), BITNET_OK, 1, 0, 0, 1},
        {ROW("a", "9") ROW("a", "1"), ROW("a", "1"), BITNET_OK, 1, 0, 0, 0},
        {"{\"name\":\"a\",\"model\":\"x\",\"threads\":2,\"value\":5,\"commit\":\"c\"}",
         "{\"value\":5,\"threads\":2,\"model\":\"x\",\"name\":\"a\",\"spread\":0.1}", BITNET_OK, 1,
         0, 0, 0},
        {"{\"name\":\"a\",\"threads\":2,\"value\":5}", "{\"name\":\"a\",\"threads\":4,\"value\":5}",
         BITNET_PERFORMANCE, 0, 0, 1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bitnet_baseline_result r = {0};
        bitnet_error err = {0};
        bitnet_status st = compare(rows[i].before, rows[i].now, 0.05, &r, &err);
        if (st != rows[i].status || r.n_compared != rows[i].compared ||
            r.n_regressed != rows[i].regressed || r.n_missing != rows[i].missing ||
            r.n_new != rows[i].fresh)
            fail_msg("row %zu: status %d (%s), compared %zu, regressed %zu, missing %zu, new %zu",
                     i, (int)st, err.message, r.n_compared, r.n_regressed, r.n_missing, r.n_new);
    }
}

static void note(void *user, const bitnet_regression *row)
{
    bitnet_regression *seen = user;
    *seen = *row;
}

static void test_V_8_each_row_is_told(void **state)
{
    (void)state;
    bitnet_regression seen = {0};
    const char *a = "{\"name\": \"tg128\", \"model\": \"nano\", \"device\": \"cpu\", "
                    "\"threads\": 2, \"value\": 200}\n",
               *b = "{\"name\": \"tg128\", \"model\": \"nano\", \"device\": \"cpu\", "
                    "\"threads\": 2, \"value\": 100}\n";
    FAILS(bitnet_baseline_compare(a, strlen(a), b, strlen(b), 0.05, note, &seen, NULL, &err),
          BITNET_PERFORMANCE, "1 of 1 rows are more than 5 % worse");
    assert_string_equal(seen.name, "tg128 nano cpu 2");
    assert_true(seen.before == 200 && seen.now == 100 && seen.change == -0.5);
    assert_true(seen.regressed && !seen.missing);
}

static void test_V_8_bad_lines_are_named(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {ROW("a", "1") "nonsense\n", "baseline: line 2: no JSON object"},
        {"[1]", "line 1: no JSON object"},
        {"{\"value\": 1}", "\"name\""},
        {"{\"name\": \"a\", \"value\": 0}", "\"value\""},
        {"{\"name\": \"a\", \"value\": \"fast\"}", "\"value\""},
        {"{\"name\": \"a\", \"value\": 1, \"better\": \"bigger\"}", "\"better\""},
        {"{\"name\": \"a\", \"value\": 1, \"model\": []}", "\"model\""},
        {"\n \n", "no rows"},
    };
    bitnet_baseline_result r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        FAILS(compare(bad[i][0], ROW("a", "1"), 0.05, &r, &err), BITNET_ARGUMENT, bad[i][1]);
    FAILS(compare(ROW("a", "1"), "x", 0.05, &r, &err), BITNET_ARGUMENT, "new results: line 1");
    FAILS(compare(ROW("a", "1"), ROW("a", "1"), 1.5, &r, &err), BITNET_ARGUMENT, "max_regress");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_V_6_a_sound_engine_is_healthy),
        cmocka_unit_test(test_V_6_wrong_arithmetic_is_unhealthy),
        cmocka_unit_test(test_V_6_a_separate_scale_is_looked_at),
        cmocka_unit_test(test_V_6_while_a_session_works),
        cmocka_unit_test(calls_of_a_check_are_told_apart),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_V_8_table_of_regressions),
        cmocka_unit_test(test_V_8_each_row_is_told),
        cmocka_unit_test(test_V_8_bad_lines_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
