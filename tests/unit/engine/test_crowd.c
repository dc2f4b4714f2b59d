/* More sessions than the shared cache holds: whatever is evicted and computed again, every token
 * and every bit of the logits is that of a session with a cache of its own. */
#include "crowd.h"

#include <pthread.h>
#include <unistd.h>

#include "torture/interpose.h"

enum { N_CROWD = 5, N_PROMPT = 50, N_STEPS = INTERPOSE_SANITIZED ? 20 : 40, N_TIMELINE = 256 };

/* What each session must say: prompts of different lengths, then greedy tokens. */
typedef struct script {
    int32_t prompt[N_CROWD][N_PROMPT + 8 * N_CROWD];
    size_t n_prompt[N_CROWD];
    int32_t said[N_CROWD][N_STEPS];
    float *last[N_CROWD]; /* logits at the end */
} script;

static script *script_make(const nano *n, bitnet_kv_type type)
{
    script *w = calloc(1, sizeof *w);
    assert_non_null(w);
    for (int i = 0; i < N_CROWD; i++) {
        bitnet_session *s = nano_session(n, N_TIMELINE, 0, type);
        w->n_prompt[i] = (size_t)(N_PROMPT + 8 * i);
        nano_ids(n, (uint64_t)i + 100, w->prompt[i], w->n_prompt[i]);
        OK(bitnet_session_append(s, w->prompt[i], w->n_prompt[i], NULL, NULL, &err));
        for (int k = 0; k < N_STEPS; k++) {
            w->said[i][k] = crowd_best(n, s);
            OK(bitnet_session_append(s, &w->said[i][k], 1, NULL, NULL, &err));
        }
        w->last[i] = malloc((size_t)n->n_vocab * sizeof(float));
        assert_non_null(w->last[i]);
        memcpy(w->last[i], bitnet_session_logits(s), (size_t)n->n_vocab * sizeof(float));
        bitnet_session_close(s);
    }
    return w;
}

static void script_free(script *w)
{
    for (int i = 0; i < N_CROWD; i++)
        free(w->last[i]);
    free(w);
}

static void check_word(const script *w, int i, int k, int32_t id, const char *how)
{
    if (id != w->said[i][k])
        fail_msg("%s: session %d says %d at step %d, alone it says %d", how, i, id, k,
                 w->said[i][k]);
}

static void check_end(const nano *n, const script *w, bitnet_session *const *s, const char *how)
{
    for (int i = 0; i < N_CROWD; i++) {
        assert_int_equal(bitnet_session_position(s[i]), w->n_prompt[i] + N_STEPS);
        assert_same_logits(n, bitnet_session_logits(s[i]), w->last[i], how);
    }
}

static void by_batch(const nano *n, const script *w, bitnet_session **s)
{
    int32_t ids[N_CROWD];
    for (int k = 0; k < N_STEPS; k++) {
        for (int i = 0; i < N_CROWD; i++) {
            ids[i] = crowd_best(n, s[i]);
            check_word(w, i, k, ids[i], "batch");
        }
        OK(step_each(n->engine, s, NULL, ids, N_CROWD, NULL, &err));
    }
}

/* In turns of uneven length, forth and back. */
static void by_append(const nano *n, const script *w, bitnet_session **s)
{
    int done[N_CROWD] = {0}, left = N_CROWD * N_STEPS;
    uint64_t seed = 11;
    while (left > 0) {
        int i = (int)(test_rand(&seed) % N_CROWD), turn = 1 + (int)(test_rand(&seed) % 9);
        for (; turn > 0 && done[i] < N_STEPS; turn--, left--) {
            int32_t id = crowd_best(n, s[i]);
            check_word(w, i, done[i]++, id, "append");
            OK(bitnet_session_append(s[i], &id, 1, NULL, NULL, &err));
        }
    }
}

static void crowd_once(const nano *n, const script *w, bitnet_kv_pool_options o, bool batch)
{
    bitnet_kv_pool *p = crowd_pool(n, 4, o); /* two timelines of two blocks */
    bitnet_session *s[N_CROWD];
    for (int i = 0; i < N_CROWD; i++) {
        s[i] = crowd_session(n, p, N_TIMELINE);
        OK(bitnet_session_append(s[i], w->prompt[i], w->n_prompt[i], NULL, NULL, &err));
    }
    if (batch)
        by_batch(n, w, s);
    else
        by_append(n, w, s);
    check_end(n, w, s, batch ? "batch" : "append");
    bitnet_kv_pool_stats st = crowd_stats(p);
    assert_true(st.n_evictions > N_STEPS / 4);
    assert_true(st.n_rebuilds > N_STEPS / 4);
    assert_true(st.n_tokens_rebuilt >= st.n_rebuilds);
    assert_int_equal(st.n_sessions, N_CROWD);
    for (int i = 0; i < N_CROWD; i++)
        bitnet_session_close(s[i]);
    assert_int_equal(crowd_stats(p).n_free, 4);
    bitnet_kv_pool_close(p);
}

static void crowd_types(bool batch)
{
    static const bitnet_kv_type types[] = {BITNET_KV_F16, BITNET_KV_INT8, BITNET_KV_F32};
    nano n = nano_open(1);
    for (int t = 0; t < 3; t++) {
        script *w = script_make(&n, types[t]);
        for (int row = 0; row < 6; row++) {
            if ((t > 0 || INTERPOSE_SANITIZED) && row > 0) /* sanitizers: every type, one policy */
                break;
            bitnet_kv_pool_options o = crowd_options((bitnet_kv_policy)(row % 3), row < 3);
            o.kv_type = types[t];
            crowd_once(&n, w, o, batch);
        }
        script_free(w);
    }
    nano_close(&n);
}

static void test_KV_2_crowd_by_batch(void **state)
{
    (void)state;
    crowd_types(true);
}

static void test_KV_2_crowd_by_append(void **state)
{
    (void)state;
    crowd_types(false);
}

/* Sessions of two pools and one with its own cache in a step, more than the scratch carries. */
static void test_KV_2_mixed_batch(void **state)
{
    (void)state;
    nano n = nano_open(2);
    script *w = script_make(&n, BITNET_KV_F16);
    bitnet_kv_pool *p = crowd_pool(&n, 3, crowd_options(BITNET_KV_LRU, false)),
                   *q = crowd_pool(&n, 3, crowd_options(BITNET_KV_FIFO, true));
    bitnet_session *s[N_CROWD];
    for (int i = 0; i < N_CROWD; i++) {
        bitnet_session_options o;
        bitnet_session_options_init(&o);
        o.n_ctx = N_TIMELINE;
        o.n_batch = 2;
        o.kv_pool = i == 2 ? NULL : i % 2 ? p : q;
        OK(bitnet_session_open(n.engine, &o, &s[i], &err));
        OK(bitnet_session_append(s[i], w->prompt[i], w->n_prompt[i], NULL, NULL, &err));
    }
    by_batch(&n, w, s);
    check_end(&n, w, s, "mixed");
    assert_true(crowd_stats(p).n_rebuilds > 0 && crowd_stats(q).n_rebuilds > 0);
    for (int i = 0; i < N_CROWD; i++)
        bitnet_session_close(s[i]);
    bitnet_kv_pool_close(p);
    bitnet_kv_pool_close(q);
    script_free(w);
    nano_close(&n);
}

/* With room for all nobody is evicted, and the token loop allocates nothing. */
static void test_KV_2_uncrowded(void **state)
{
    (void)state;
    nano n = nano_open(1);
    bitnet_kv_pool *p = crowd_pool(&n, 12, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *s[3];
    int32_t ids[60];
    nano_ids(&n, 4, ids, 60);
    for (int i = 0; i < 3; i++)
        s[i] = crowd_session(&n, p, N_TIMELINE);
    bitnet_batch *batch = NULL;
    bitnet_batch_item items[3];
    OK(bitnet_batch_open(n.engine, NULL, &batch, &err));
    for (int i = 0; i < 3; i++) {
        bitnet_batch_item_init(&items[i]);
        items[i].session = s[i];
        items[i].n_ids = 1;
    }
    bitnet_error err = {0};
    bitnet_status st = BITNET_OK;
    interpose_start(-1, false);
    for (int i = 0; i < 3 && st == BITNET_OK; i++)
        st = bitnet_session_append(s[i], ids, 60, NULL, NULL, &err);
    for (int k = 0; k < 60 && st == BITNET_OK; k++) {
        for (int i = 0; i < 3; i++)
            items[i].ids = ids + k % 50 + i;
        st = bitnet_batch_step(batch, items, 3, &err);
    }
    if (st == BITNET_OK)
        st = bitnet_session_rewind(s[0], 10, &err);
    long n_asked = interpose_stop();
    if (st != BITNET_OK)
        fail_msg("%s", err.message);
    assert_int_equal(n_asked, 0);
    bitnet_kv_pool_stats now = crowd_stats(p);
    assert_int_equal(now.n_evictions + now.n_rebuilds + now.n_tokens_rebuilt, 0);
    assert_int_equal(now.n_hits, 3 + 60 * 3); /* the second pass of each prompt, then the steps */
    assert_int_equal(now.n_used, 1 + 2 + 2);  /* rewinding gave a block back at once */
    bitnet_batch_close(batch);
    for (int i = 0; i < 3; i++)
        bitnet_session_close(s[i]);
    bitnet_kv_pool_close(p);
    nano_close(&n);
}

/* Takes everything the pool has, so that s must compute its cache again. */
static void push_out(bitnet_session *other, bitnet_session *s, const int32_t *ids, size_t n_ids)
{
    OK(bitnet_session_sync(other, ids, n_ids, NULL, &err));
    assert_int_equal(bnet_kv_mapped(s->kv), 0);
}

typedef struct bench {
    nano n;
    bitnet_kv_pool *p;
    bitnet_session *s, *other, *alone;
    int32_t ids[192];
} bench;

static bench bench_open(void)
{
    bench b = {.n = nano_open(1)};
    b.p = crowd_pool(&b.n, 3, crowd_options(BITNET_KV_LRU, false));
    b.s = crowd_session(&b.n, b.p, 192);
    b.other = crowd_session(&b.n, b.p, 192);
    b.alone = nano_session(&b.n, 192, 0, BITNET_KV_F16);
    nano_ids(&b.n, 21, b.ids, 192);
    OK(bitnet_session_append(b.s, b.ids, 150, NULL, NULL, &err));
    OK(bitnet_session_append(b.alone, b.ids, 150, NULL, NULL, &err));
    return b;
}

static void bench_same(bench *b, const char *what)
{
    assert_int_equal(bitnet_session_position(b->s), bitnet_session_position(b->alone));
    assert_memory_equal(bitnet_session_tokens(b->s), bitnet_session_tokens(b->alone),
                        bitnet_session_position(b->s) * sizeof(int32_t));
    assert_same_logits(&b->n, bitnet_session_logits(b->s), bitnet_session_logits(b->alone), what);
}

static void bench_close(bench *b)
{
    bitnet_session_close(b->s);
    bitnet_session_close(b->other);
    bitnet_session_close(b->alone);
    bitnet_kv_pool_close(b->p);
    nano_close(&b->n);
}

static void test_KV_2_rewind_and_sync(void **state)
{
    (void)state;
    bench b = bench_open();
    push_out(b.other, b.s, b.ids + 1, 180);
    bench_same(&b, "logits survive an eviction");
    OK(bitnet_session_rewind(b.s, 100, &err)); /* while it has no blocks */
    OK(bitnet_session_rewind(b.alone, 100, &err));
    OK(bitnet_session_append(b.s, b.ids + 5, 30, NULL, NULL, &err));
    OK(bitnet_session_append(b.alone, b.ids + 5, 30, NULL, NULL, &err));
    bench_same(&b, "rewound");
    push_out(b.other, b.s, b.ids + 1, 190);
    size_t reused = 0, reused_alone = 0;
    OK(bitnet_session_sync(b.s, b.ids, 120, &reused, &err));
    OK(bitnet_session_sync(b.alone, b.ids, 120, &reused_alone, &err));
    assert_int_equal(reused, reused_alone);
    bench_same(&b, "synced");
    /* a half of it is left, and the rewind cuts into that half */
    OK(bitnet_session_sync(b.other, b.ids + 2, 120, NULL, &err));
    assert_int_equal(bnet_kv_mapped(b.s->kv), 1);
    OK(bitnet_session_rewind(b.s, 40, &err));
    OK(bitnet_session_rewind(b.alone, 40, &err));
    OK(bitnet_session_append(b.s, b.ids + 9, 60, NULL, NULL, &err));
    OK(bitnet_session_append(b.alone, b.ids + 9, 60, NULL, NULL, &err));
    bench_same(&b, "rewound into what was left");
    bench_close(&b);
}

static void test_KV_2_save_and_load(void **state)
{
    (void)state;
    bench b = bench_open();
    char path[] = "/tmp/bitnet-crowd-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    push_out(b.other, b.s, b.ids + 1, 180);
    OK(bitnet_session_save(b.s, path, &err)); /* computes its cache again first */
    OK(bitnet_session_rewind(b.alone, 3, &err));
    OK(bitnet_session_load(b.alone, path, &err)); /* off the pool */
    OK(bitnet_session_rewind(b.s, 0, &err));
    OK(bitnet_session_sync(b.other, b.ids + 1, 190, NULL, &err));
    OK(bitnet_session_load(b.s, path, &err)); /* onto it, pushing out the other */
    assert_null(bitnet_session_logits(b.s));
    assert_int_equal(bnet_kv_mapped(b.other->kv), 0);
    int32_t next = 17;
    OK(bitnet_session_append(b.s, &next, 1, NULL, NULL, &err));
    OK(bitnet_session_append(b.alone, &next, 1, NULL, NULL, &err));
    bench_same(&b, "loaded");
    bitnet_session *fresh = nano_session(&b.n, 192, 0, BITNET_KV_F16);
    OK(bitnet_session_append(fresh, b.ids, 150, NULL, NULL, &err));
    OK(bitnet_session_append(fresh, &next, 1, NULL, NULL, &err));
    assert_same_logits(&b.n, bitnet_session_logits(fresh), bitnet_session_logits(b.s), "fresh");
    bitnet_session_close(fresh);
    /* a pool too small for the file: refused, and the session is as before */
    bitnet_kv_pool *small = crowd_pool(&b.n, 1, crowd_options(BITNET_KV_LRU, false));
    bitnet_session *t = crowd_session(&b.n, small, 192);
    OK(bitnet_session_append(t, b.ids, 20, NULL, NULL, &err));
    FAILS(bitnet_session_load(t, path, &err), BITNET_CONTEXT, "3 blocks");
    assert_int_equal(bitnet_session_position(t), 20);
    assert_non_null(bitnet_session_logits(t));
    bitnet_session_close(t);
    bitnet_kv_pool_close(small);
    unlink(path);
    bench_close(&b);
}

/* Nobody finds another's bytes in a block: in the file, what lies behind the last token is zero. */
static void test_KV_2_blocks_come_clean(void **state)
{
    (void)state;
    bench b = bench_open();
    push_out(b.other, b.s, b.ids + 1, 190);
    OK(bitnet_session_sync(b.s, b.ids + 70, 1, NULL,
                           &err)); /* takes a block the other had filled */
    OK(bitnet_session_sync(b.alone, b.ids + 70, 1, NULL, &err));
    OK(bitnet_session_rewind(b.s, 1, &err));
    bitnet_session *fresh = nano_session(&b.n, 192, 0, BITNET_KV_F16);
    OK(bitnet_session_append(fresh, b.ids + 70, 1, NULL, NULL, &err));
    char path[2][32] = {"/tmp/bitnet-clean-XXXXXX", "/tmp/bitnet-clean-XXXXXX"};
    char *data[2];
    long size[2];
    for (int i = 0; i < 2; i++) {
        int fd = mkstemp(path[i]);
        assert_true(fd >= 0);
        close(fd);
        OK(bitnet_session_save(i ? fresh : b.s, path[i], &err));
        FILE *f = fopen(path[i], "rb");
        assert_non_null(f);
        fseek(f, 0, SEEK_END);
        size[i] = ftell(f);
        rewind(f);
        data[i] = malloc((size_t)size[i]);
        assert_non_null(data[i]);
        assert_int_equal(fread(data[i], 1, (size_t)size[i], f), size[i]);
        fclose(f);
        unlink(path[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(data[0], data[1], (size_t)size[0]);
    free(data[0]);
    free(data[1]);
    bitnet_session_close(fresh);
    bench_close(&b);
}

static bool when_none_is_left(void *user)
{
    return --*(int *)user < 0;
}

/* Cancelled while the cache is computed again: the timeline is untouched and what was computed is
 * not wasted. */
static void test_KV_2_cancel_in_rebuild(void **state)
{
    (void)state;
    bench b = bench_open();
    push_out(b.other, b.s, b.ids + 1, 180);
    int polls = 2 + bitnet_engine_model(b.s->engine)->n_layers; /* the call, a pass, its layers */
    int32_t id = 3;
    bitnet_session_on_cancel(b.s, when_none_is_left, &polls);
    FAILS(bitnet_session_append(b.s, &id, 1, NULL, NULL, &err), BITNET_CANCELLED, "150");
    assert_int_equal(bitnet_session_position(b.s), 150);
    assert_int_equal(b.s->entry.n_valid, 32); /* that pass */
    bitnet_session_on_cancel(b.s, NULL, NULL);
    OK(bitnet_session_append(b.s, &id, 1, NULL, NULL, &err));
    OK(bitnet_session_append(b.alone, &id, 1, NULL, NULL, &err));
    bench_same(&b, "after a cancelled rebuild");
    bench_close(&b);
}

typedef struct nested {
    bench *b;
    size_t n_seen;
} nested;

/* Uses the pool's other session inside the callback of this one. */
static bool meddle(void *user, size_t i, const float *logits)
{
    nested *m = user;
    (void)logits;
    if (i % 50 == 0)
        OK(bitnet_session_sync(m->b->other, m->b->ids + i / 50, 180, NULL, &err));
    m->n_seen++;
    return true;
}

static void test_KV_2_callbacks_may_use_others(void **state)
{
    (void)state;
    bench b = bench_open();
    nested m = {&b, 0};
    OK(bitnet_session_rewind(b.s, 0, &err));
    OK(bitnet_session_append(b.s, b.ids, 150, meddle, &m, &err));
    assert_int_equal(m.n_seen, 150);
    bench_same(&b, "each callback pushed it out");
    bench_close(&b);
}

/* ---- a backend that fails ---- */

static const bnet_backend_vtable *true_backend;
static int n_syncs_left;

static bitnet_status failing_sync(bnet_backend *be, bitnet_error *err)
{
    if (n_syncs_left >= 0 && n_syncs_left-- == 0)
        return bnet_fail(err, BITNET_ERROR, "the test pulled the plug");
    return true_backend->sync(be, err);
}

/* While an evicted session computes its cache again, the backend fails: it leaves the pool for the
 * spare and says the same within float error. */
static void test_KV_2_backend_fails_in_rebuild(void **state)
{
    (void)state;
    bench b = bench_open();
    bnet_backend_vtable v = *b.n.engine->backend->v;
    true_backend = b.n.engine->backend->v;
    v.sync = failing_sync;
    push_out(b.other, b.s, b.ids + 1, 180);
    n_syncs_left = 2;
    b.n.engine->backend->v = &v;
    bitnet_session *both[2] = {b.other, b.s};
    int32_t ids[2] = {b.ids[181], 7};
    OK(step_each(b.n.engine, both, NULL, ids, 2, NULL, &err));
    b.n.engine->backend->v = true_backend;
    assert_true(b.s->fallen || b.other->fallen);
    assert_int_equal(bitnet_session_position(b.s), 151);
    assert_int_equal(bitnet_session_position(b.other), 181);
    OK(bitnet_session_append(b.alone, &ids[1], 1, NULL, NULL, &err));
    const float *x = bitnet_session_logits(b.s), *y = bitnet_session_logits(b.alone);
    for (int i = 0; i < b.n.n_vocab; i++)
        if (x[i] - y[i] > 0.5f || y[i] - x[i] > 0.5f)
            fail_msg("logit %d: %g, alone %g", i, (double)x[i], (double)y[i]);
    assert_int_equal(crowd_stats(b.p).n_sessions, 2 - b.s->fallen - b.other->fallen);
    bench_close(&b);
}

/* ---- threads ---- */

typedef struct runner {
    const nano *n;
    const script *w;
    bitnet_kv_pool *p;
    int i;
    char wrong[128];
} runner;

static void *run_one(void *arg)
{
    runner *r = arg;
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = N_TIMELINE;
    o.n_batch = 32;
    o.kv_pool = r->p;
    bitnet_session *s = NULL;
    bitnet_error err = {0};
    bitnet_status st = bitnet_session_open(r->n->engine, &o, &s, &err);
    if (st == BITNET_OK)
        st = bitnet_session_append(s, r->w->prompt[r->i], r->w->n_prompt[r->i], NULL, NULL, &err);
    for (int k = 0; k < N_STEPS && st == BITNET_OK; k++) {
        int32_t id = crowd_best(r->n, s);
        if (id != r->w->said[r->i][k])
            snprintf(r->wrong, sizeof r->wrong, "step %d: says %d", k, id);
        st = bitnet_session_append(s, &id, 1, NULL, NULL, &err);
    }
    if (st != BITNET_OK)
        snprintf(r->wrong, sizeof r->wrong, "%.100s", err.message);
    bitnet_session_close(s);
    return NULL;
}

static void test_KV_2_threads(void **state)
{
    (void)state;
    nano n = nano_open(1);
    script *w = script_make(&n, BITNET_KV_F16);
    for (size_t n_blocks = 2; n_blocks <= 4; n_blocks += 2) { /* room for one, room for two */
        bitnet_kv_pool *p = crowd_pool(&n, n_blocks, crowd_options(BITNET_KV_LRU, false));
        pthread_t t[N_CROWD];
        runner r[N_CROWD];
        for (int i = 0; i < N_CROWD; i++) {
            r[i] = (runner){&n, w, p, i, ""};
            assert_int_equal(pthread_create(&t[i], NULL, run_one, &r[i]), 0);
        }
        for (int i = 0; i < N_CROWD; i++)
            pthread_join(t[i], NULL);
        for (int i = 0; i < N_CROWD; i++)
            if (r[i].wrong[0])
                fail_msg("%zu blocks, thread %d: %s", n_blocks, i, r[i].wrong);
        assert_int_equal(crowd_stats(p).n_sessions, 0);
        assert_int_equal(crowd_stats(p).n_used, 0);
        bitnet_kv_pool_close(p);
    }
    script_free(w);
    nano_close(&n);
}

int main(void)
{
    if (getenv("QEMU_CPU")) { /* set by the cross suites */
        print_message("skipped: crowds take minutes under an emulator; they run natively\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_KV_2_crowd_by_batch),
        cmocka_unit_test(test_KV_2_crowd_by_append),
        cmocka_unit_test(test_KV_2_mixed_batch),
        cmocka_unit_test(test_KV_2_uncrowded),
        cmocka_unit_test(test_KV_2_rewind_and_sync),
        cmocka_unit_test(test_KV_2_save_and_load),
        cmocka_unit_test(test_KV_2_blocks_come_clean),
        cmocka_unit_test(test_KV_2_cancel_in_rebuild),
        cmocka_unit_test(test_KV_2_callbacks_may_use_others),
        cmocka_unit_test(test_KV_2_backend_fails_in_rebuild),
        cmocka_unit_test(test_KV_2_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
