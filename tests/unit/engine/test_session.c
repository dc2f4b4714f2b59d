/* Timelines: however tokens are cut into appends, batches and threads, every bit of every logit is
 * the same. */
#include "nano.h"

enum { N = 150 }; /* more than two blocks of the cache */

typedef struct all_logits {
    float *data; /* [N][n_vocab] */
    int n_vocab;
    size_t n_seen, cancel_at; /* 0: never */
} all_logits;

static bool collect(void *user, size_t index, const float *logits)
{
    all_logits *a = user;
    assert_int_equal(index, a->n_seen);
    if (a->data)
        memcpy(a->data + index * (size_t)a->n_vocab, logits, (size_t)a->n_vocab * sizeof *logits);
    return ++a->n_seen != a->cancel_at;
}

/* Logits of all N positions with the given shape of session. */
static float *all_of(int n_threads, int n_batch, bitnet_kv_type kv, const char *how)
{
    nano n = nano_open(n_threads);
    int32_t ids[N];
    nano_ids(&n, 1, ids, N);
    all_logits a = {calloc((size_t)N * (size_t)n.n_vocab, sizeof(float)), n.n_vocab, 0, 0};
    bitnet_session *s = nano_session(&n, 0, n_batch, kv);
    if (strcmp(how, "each") == 0) {
        OK(bitnet_session_append(s, ids, N, collect, &a, &err));
        assert_int_equal(a.n_seen, N);
        assert_same_logits(&n, bitnet_session_logits(s),
                           a.data + (size_t)(N - 1) * (size_t)n.n_vocab, "last");
    } else {
        for (size_t i = 0; i < N; i++) {
            OK(bitnet_session_append(s, ids + i, 1, NULL, NULL, &err));
            collect(&a, i, bitnet_session_logits(s));
        }
    }
    assert_int_equal(bitnet_session_position(s), N);
    assert_memory_equal(bitnet_session_tokens(s), ids, sizeof ids);
    bitnet_session_close(s);
    nano_close(&n);
    return a.data;
}

static void batches_and_threads_change_no_bit(void **state)
{
    (void)state;
    static const bitnet_kv_type types[] = {BITNET_KV_F16, BITNET_KV_F32, BITNET_KV_INT8};
    static const struct {
        int n_threads, n_batch;
        const char *how;
    } rows[] = {{1, 512, "each"}, {2, 512, "each"}, {3, 7, "each"},  {7, 64, "each"},
                {1, 1, "each"},   {2, 7, "each"},   {2, 512, "one"}, {1, 65, "each"}};
    for (size_t t = 0; t < 3; t++) {
        float *want = all_of(1, 512, types[t], "one");
        nano n = nano_open(1);
        size_t n_bytes = (size_t)N * (size_t)n.n_vocab * sizeof *want;
        nano_close(&n);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            float *got = all_of(rows[i].n_threads, rows[i].n_batch, types[t], rows[i].how);
            if (memcmp(got, want, n_bytes) != 0)
                fail_msg("kv %d, %d threads, batch %d, %s: logits differ", (int)types[t],
                         rows[i].n_threads, rows[i].n_batch, rows[i].how);
            free(got);
        }
        free(want);
    }
}

static void the_cache_type_matters(void **state)
{
    (void)state; /* otherwise the test above compares one type with itself three times */
    float *a = all_of(1, 512, BITNET_KV_F16, "each"), *b = all_of(1, 512, BITNET_KV_F32, "each");
    float *c = all_of(1, 512, BITNET_KV_INT8, "each");
    assert_memory_not_equal(a, b, 4096);
    assert_memory_not_equal(a, c, 4096);
    free(a);
    free(b);
    free(c);
}

static void sync_reuses_the_common_prefix(void **state)
{
    (void)state;
    nano n = nano_open(2);
    int32_t ids[N], other[N];
    size_t n_reused = 99;
    nano_ids(&n, 2, ids, N);
    bitnet_session *s = nano_session(&n, 0, 16, BITNET_KV_F16),
                   *fresh = nano_session(&n, 0, 512, BITNET_KV_F16);
    OK(bitnet_session_sync(s, ids, 100, &n_reused, &err));
    assert_int_equal(n_reused, 0);
    memcpy(other, ids, sizeof ids);
    other[70] = (other[70] + 1) % n.n_vocab;
    static const struct {
        bool other;
        size_t n, reused;
    } rows[] = {{false, 140, 100}, {true, 130, 70},  {true, 130, 129}, {true, 60, 59},
                {false, 60, 59},   {false, 150, 60}, {false, 1, 0},    {true, 150, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int32_t *want = rows[i].other ? other : ids;
        OK(bitnet_session_sync(s, want, rows[i].n, &n_reused, &err));
        if (n_reused != rows[i].reused)
            fail_msg("row %zu: %zu tokens reused, not %zu", i, n_reused, rows[i].reused);
        OK(bitnet_session_rewind(fresh, 0, &err));
        OK(bitnet_session_append(fresh, want, rows[i].n, NULL, NULL, &err));
        assert_int_equal(bitnet_session_position(s), rows[i].n);
        assert_memory_equal(bitnet_session_tokens(s), want, rows[i].n * sizeof *want);
        assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(fresh),
                           "sync and fresh");
    }
    /* the session's own tokens are a legal argument */
    OK(bitnet_session_sync(s, bitnet_session_tokens(s), 150, &n_reused, &err));
    assert_int_equal(n_reused, 149);
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(fresh),
                       "sync with itself");
    OK(bitnet_session_sync(s, NULL, 0, &n_reused, &err));
    assert_int_equal(bitnet_session_position(s), 0);
    assert_null(bitnet_session_logits(s));
    bitnet_session_close(s);
    bitnet_session_close(fresh);
    nano_close(&n);
}

static void rewind_forgets(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[N];
    nano_ids(&n, 3, ids, N);
    bitnet_session *s = nano_session(&n, 0, 0, BITNET_KV_F16),
                   *fresh = nano_session(&n, 0, 0, BITNET_KV_F16);
    assert_null(bitnet_session_logits(s));
    OK(bitnet_session_append(s, ids, N, NULL, NULL, &err));
    assert_non_null(bitnet_session_logits(s));
    FAILS(bitnet_session_rewind(s, N + 1, &err), BITNET_ARGUMENT,
          "position 151 is beyond the timeline's 150");
    assert_non_null(bitnet_session_logits(s));
    OK(bitnet_session_rewind(s, 64, &err));
    assert_null(bitnet_session_logits(s));
    assert_int_equal(bitnet_session_position(s), 64);
    OK(bitnet_session_append(s, ids + 100, 20, NULL, NULL, &err));
    OK(bitnet_session_append(fresh, ids, 64, NULL, NULL, &err));
    OK(bitnet_session_append(fresh, ids + 100, 20, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(fresh),
                       "rewound and fresh");
    bitnet_session_close(s);
    bitnet_session_close(fresh);
    nano_close(&n);
}

static void context_is_a_wall(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[40];
    nano_ids(&n, 4, ids, 40);
    bitnet_session *s = nano_session(&n, 32, 0, BITNET_KV_F16);
    assert_int_equal(bitnet_session_context(s), 32);
    OK(bitnet_session_append(s, ids, 30, NULL, NULL, &err));
    FAILS(bitnet_session_append(s, ids, 3, NULL, NULL, &err), BITNET_CONTEXT,
          "3 tokens do not fit behind position 30 of 32");
    assert_int_equal(bitnet_session_position(s), 30);
    assert_non_null(bitnet_session_logits(s));
    OK(bitnet_session_append(s, ids, 2, NULL, NULL, &err));
    FAILS(bitnet_session_append(s, ids, 1, NULL, NULL, &err), BITNET_CONTEXT, "context is full");
    FAILS(bitnet_session_sync(s, ids, 33, NULL, &err), BITNET_CONTEXT,
          "33 tokens do not fit behind position 0 of 32");
    assert_int_equal(bitnet_session_position(s), 32);
    bitnet_session_close(s);
    nano_close(&n);
}

static void foreign_ids_are_refused(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[3] = {1, 2, n.n_vocab};
    bitnet_session *s = nano_session(&n, 0, 0, BITNET_KV_F16);
    FAILS(bitnet_session_append(s, ids, 3, NULL, NULL, &err), BITNET_ARGUMENT,
          "append: id 512 at index 2 is outside the vocabulary 0..511");
    ids[2] = -1;
    FAILS(bitnet_session_sync(s, ids, 3, NULL, &err), BITNET_ARGUMENT, "sync: id -1 at index 2");
    FAILS(bitnet_session_append(s, NULL, 3, NULL, NULL, &err), BITNET_ARGUMENT,
          "ids must not be NULL");
    assert_int_equal(bitnet_session_position(s), 0);
    OK(bitnet_session_append(s, NULL, 0, NULL, NULL, &err));
    bitnet_session_close(s);
    nano_close(&n);
}

static bool after_some_polls(void *user)
{
    return --*(int *)user < 0;
}

static void cancel_stops_between_passes(void **state)
{
    (void)state;
    nano n = nano_open(1);
    int32_t ids[N];
    nano_ids(&n, 5, ids, N);
    bitnet_session *s = nano_session(&n, 0, 10, BITNET_KV_F16),
                   *fresh = nano_session(&n, 0, 0, BITNET_KV_F16);
    int polls = 4 * (1 + bitnet_engine_model(n.engine)->n_layers);
    bitnet_session_on_cancel(s, after_some_polls, &polls);
    FAILS(bitnet_session_append(s, ids, N, NULL, NULL, &err), BITNET_CANCELLED,
          "cancelled at position 40");
    assert_int_equal(bitnet_session_position(s), 40);
    assert_null(bitnet_session_logits(s));
    bitnet_session_on_cancel(s, NULL, NULL);
    OK(bitnet_session_sync(s, ids, N, NULL, &err));
    OK(bitnet_session_append(fresh, ids, N, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(fresh),
                       "cancelled and resumed");
    /* and from inside the logits callback: the position is that of the last token delivered */
    all_logits a = {NULL, n.n_vocab, 0, 23};
    OK(bitnet_session_rewind(s, 0, &err));
    FAILS(bitnet_session_append(s, ids, N, collect, &a, &err), BITNET_CANCELLED,
          "cancelled at position 23");
    assert_int_equal(bitnet_session_position(s), 23);
    OK(bitnet_session_rewind(fresh, 0, &err));
    OK(bitnet_session_append(fresh, ids, 23, NULL, NULL, &err));
    assert_same_logits(&n, bitnet_session_logits(s), bitnet_session_logits(fresh),
                       "cancelled by callback");
    bitnet_session_close(s);
    bitnet_session_close(fresh);
    nano_close(&n);
}

/* A session of another engine is refused. */
static void refuse_a_stranger(const nano *n, bitnet_session *own, const int32_t *ids)
{
    nano m = nano_open(1);
    bitnet_session *both[2] = {own, nano_session(&m, 0, 0, BITNET_KV_F16)};
    FAILS(step_each(n->engine, both, NULL, ids, 2, NULL, &err), BITNET_ARGUMENT,
          "the session of item 1 belongs to another engine");
    bitnet_session_close(both[1]);
    nano_close(&m);
}

static void batch_step_equals_one_by_one(void **state)
{
    (void)state;
    enum { K = 5 };
    nano n = nano_open(2);
    bitnet_session *a[K], *b[K];
    int32_t ids[K], prompt[80];
    nano_ids(&n, 6, prompt, 80);
    for (int i = 0; i < K; i++) {
        /* the smallest batch makes a step of several passes */
        a[i] = nano_session(&n, 100, 3, i % 2 ? BITNET_KV_F32 : BITNET_KV_F16);
        b[i] = nano_session(&n, 100, 64, i % 2 ? BITNET_KV_F32 : BITNET_KV_F16);
        if (i) { /* the first stands at 0 */
            OK(bitnet_session_append(a[i], prompt, (size_t)i * 17, NULL, NULL, &err));
            OK(bitnet_session_append(b[i], prompt, (size_t)i * 17, NULL, NULL, &err));
        }
    }
    for (int step = 0; step < 8; step++) {
        nano_ids(&n, 100 + (uint64_t)step, ids, K);
        OK(step_each(n.engine, a, NULL, ids, K, NULL, &err));
        for (int i = 0; i < K; i++) {
            OK(bitnet_session_append(b[i], &ids[i], 1, NULL, NULL, &err));
            assert_int_equal(bitnet_session_position(a[i]), bitnet_session_position(b[i]));
            assert_int_equal(bitnet_session_tokens(a[i])[bitnet_session_position(a[i]) - 1],
                             ids[i]);
            assert_same_logits(&n, bitnet_session_logits(a[i]), bitnet_session_logits(b[i]),
                               "batch step");
        }
    }
    size_t before = bitnet_session_position(a[0]);
    bitnet_session *twice[4] = {a[0], a[1], a[2], a[1]}, *third = b[3];
    FAILS(step_each(n.engine, twice, NULL, ids, 4, NULL, &err), BITNET_ARGUMENT,
          "the session of item 3 is named twice");
    assert_int_equal(bitnet_session_position(a[0]), before);
    OK(step_each(n.engine, a, NULL, ids, 3, NULL, &err)); /* the mark of the failed call is gone */
    ids[2] = n.n_vocab;
    FAILS(step_each(n.engine, a, NULL, ids, 3, NULL, &err), BITNET_ARGUMENT,
          "outside the vocabulary");
    ids[2] = 0;
    while (bitnet_session_position(third) < 100)
        OK(bitnet_session_append(third, ids, 1, NULL, NULL, &err));
    bitnet_session *full[2] = {b[0], third};
    before = bitnet_session_position(b[0]);
    FAILS(step_each(n.engine, full, NULL, ids, 2, NULL, &err), BITNET_CONTEXT,
          "1 tokens of item 1 do not fit behind position 100 of 100");
    assert_int_equal(bitnet_session_position(b[0]), before + 1); /* fails alone */
    assert_int_equal(bitnet_session_position(third), 100);
    full[1] = NULL;
    FAILS(step_each(n.engine, full, NULL, ids, 2, NULL, &err), BITNET_ARGUMENT,
          "the session of item 1 is NULL");
    OK(step_each(n.engine, NULL, NULL, NULL, 0, NULL, &err));
    refuse_a_stranger(&n, b[0], ids);
    for (int i = 0; i < K; i++) {
        bitnet_session_close(a[i]);
        bitnet_session_close(b[i]);
    }
    nano_close(&n);
}

static void options(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_session_options o;
    bitnet_session *s = NULL;
    bitnet_session_cost large = {0, 0, 0}, small;
    static const struct {
        int n_ctx, n_batch, kv;
        const char *text;
    } rows[] = {{-1, 1, 0, "n_ctx is -1, must be 0..16777216"},
                {1 << 25, 1, 0, "n_ctx is 33554432, must be"},
                {0, 0, 0, "n_batch is 0, must be 1..65536"},
                {0, 65537, 0, "n_batch is 65537"},
                {0, 1, 3, "kv_type is 3, must be 0..2"},
                {0, 1, -1, "kv_type is -1"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bitnet_session_options_init(&o);
        o.n_ctx = rows[i].n_ctx;
        o.n_batch = rows[i].n_batch;
        o.kv_type = (bitnet_kv_type)rows[i].kv;
        FAILS(bitnet_session_open(n.engine, &o, &s, &err), BITNET_ARGUMENT, rows[i].text);
        FAILS(bitnet_session_memory(n.engine, &o, &large, &err), BITNET_ARGUMENT, rows[i].text);
    }
    bitnet_session_options_init(&o);
    o.struct_size = 3;
    FAILS(bitnet_session_open(n.engine, &o, &s, &err), BITNET_ARGUMENT,
          "session options: struct_size is 3");
    OK(bitnet_session_memory(n.engine, NULL, &large, &err));
    bitnet_session_options_init(&o);
    o.n_ctx = 16;
    o.n_batch = 4;
    OK(bitnet_session_memory(n.engine, &o, &small, &err));
    assert_true(small.session_bytes > 0 && small.session_bytes < large.session_bytes);
    assert_true(small.cache_bytes > 0 && small.cache_bytes < large.cache_bytes);
    assert_true(small.workspace_bytes > 0 && small.workspace_bytes < large.workspace_bytes);
    OK(bitnet_session_open(n.engine, NULL, &s, &err));
    assert_int_equal(bitnet_session_context(s), bitnet_engine_model(n.engine)->n_ctx_train);
    bitnet_session_close(s);
    bitnet_session_close(NULL);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_and_threads_change_no_bit),
        cmocka_unit_test(the_cache_type_matters),
        cmocka_unit_test(sync_reuses_the_common_prefix),
        cmocka_unit_test(rewind_forgets),
        cmocka_unit_test(context_is_a_wall),
        cmocka_unit_test(foreign_ids_are_refused),
        cmocka_unit_test(cancel_stops_between_passes),
        cmocka_unit_test(batch_step_equals_one_by_one),
        cmocka_unit_test(options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
