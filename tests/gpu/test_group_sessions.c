/* test_group_sessions.c - several sessions of one engine at the same time, on one device and on a
 * group of virtual ranks: each says what it says alone, recorded steps are repeated, and nothing of
 * one is in another's (P-2, P-3). A session that was saved goes on where it was, on whatever it is
 * restored. On the emulated device or on a real one (device.h). */
#include "device.h"

#include <pthread.h>
#include <unistd.h>

enum { SESSIONS = 3, PROMPT = 9, TOKENS = 30 };

typedef struct talk {
    bitnet_engine *engine;
    int first; /* ids of the prompt begin here */
    int32_t ids[TOKENS];
    bitnet_status status;
    bitnet_error err;
} talk;

/* No asserts: it runs in threads. */
static bitnet_status step(bitnet_session *s, talk *t, int i)
{
    const bitnet_model_info *m = bitnet_engine_model(t->engine);
    const float *logits = bitnet_session_logits(s);
    int best = 0;
    for (int k = 1; logits && k < m->n_vocab; k++)
        best = logits[k] > logits[best] ? k : best;
    t->ids[i] = best;
    return bitnet_session_append(s, &t->ids[i], 1, NULL, NULL, &t->err);
}

static void *speak(void *arg)
{
    talk *t = arg;
    bitnet_session *s = NULL;
    bitnet_session_options o;
    int32_t prompt[PROMPT];
    bitnet_session_options_init(&o);
    o.n_ctx = 128;
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = t->first + 3 * i;
    t->status = bitnet_session_open(t->engine, &o, &s, &t->err);
    if (t->status == BITNET_OK)
        t->status = bitnet_session_append(s, prompt, PROMPT, NULL, NULL, &t->err);
    for (int i = 0; t->status == BITNET_OK && i < TOKENS; i++)
        t->status = step(s, t, i);
    bitnet_session_close(s);
    return NULL;
}

static void talk_together(bitnet_engine *engine, const talk *want)
{
    talk now[SESSIONS];
    pthread_t threads[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        now[i] = (talk){.engine = engine, .first = want[i].first};
        assert_int_equal(pthread_create(&threads[i], NULL, speak, &now[i]), 0);
    }
    for (int i = 0; i < SESSIONS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SESSIONS; i++) {
        if (now[i].status != BITNET_OK)
            fail_msg("session %d: %s", i, now[i].err.message);
        assert_memory_equal(now[i].ids, want[i].ids, sizeof now[i].ids);
    }
}

typedef struct world {
    bitnet_runtime *runtime;
    bitnet_engine *engine;
} world;

static world open_world(const char *device, const char *split)
{
    world w = {NULL, NULL};
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.device = device;
    o.split = split;
    o.n_threads = 1;
    OK(bitnet_runtime_open(&o, &w.runtime, &err));
    OK(bitnet_engine_open(w.runtime, test_model(), NULL, &w.engine, &err));
    return w;
}

static void close_world(world *w)
{
    bitnet_engine_close(w->engine);
    bitnet_runtime_close(w->runtime);
}

static void check_together(const char *device, const char *split)
{
    world w = open_world(device, split);
    bitnet_engine *engine = w.engine;
    talk alone[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        alone[i] = (talk){.engine = engine, .first = 20 + 40 * i};
        speak(&alone[i]);
        if (alone[i].status != BITNET_OK)
            fail_msg("session %d alone: %s", i, alone[i].err.message);
    }
    bnet_backend_stats before, after;
    engine->backend->inspect->stats(engine->backend, &before);
    for (int round = 0; round < (quick() ? 1 : 3); round++)
        talk_together(engine, alone);
    engine->backend->inspect->stats(engine->backend, &after);
    assert_true(before.n_replays > (TOKENS - 4) * SESSIONS);
    assert_true(after.n_replays > before.n_replays + TOKENS);
    assert_int_equal(after.n_unrecorded, 0);
    close_world(&w);
}

static void test_P_3_sessions_of_a_group_by_rows(void **state)
{
    (void)state;
    check_together("cuda:0,cuda:0", "tensor");
}

static void test_P_3_sessions_of_a_group_by_layers(void **state)
{
    (void)state;
    check_together("cuda:0,cuda:0", "layer");
}

static void test_P_2_sessions_of_one_device(void **state)
{
    (void)state;
    check_together("cuda", NULL);
}

/* ---- saved and restored ---- */

static const struct place {
    const char *device, *split;
} places[] = {
    {"cuda", NULL}, {"cuda:0,cuda:0", "tensor"}, {"cuda:0,cuda:0", "layer"}, {"cpu", NULL}};

static bitnet_session *open_session(const world *w, bitnet_kv_type kv)
{
    bitnet_session *s = NULL;
    bitnet_session_options o;
    bitnet_session_options_init(&o);
    o.n_ctx = 128;
    o.kv_type = kv;
    OK(bitnet_session_open(w->engine, &o, &s, &err));
    return s;
}

/* Tokens [from, to) of the talk; the last one before them, or the prompt, is there. */
static void go_on(bitnet_session *s, talk *t, int from, int to)
{
    for (int i = from; i < to; i++)
        if (step(s, t, i) != BITNET_OK)
            fail_msg("token %d: %s", i, t->err.message);
}

/* In a session of its own, restored from the file: [from, to) must be what was said without. */
static void restore(const struct place *p, bitnet_kv_type kv, const char *path, const talk *want)
{
    world w = open_world(p->device, p->split);
    bitnet_session *s = open_session(&w, kv);
    talk now = {.engine = w.engine};
    const int32_t other[] = {5, 6, 7};
    OK(bitnet_session_append(s, other, 3, NULL, NULL, &err)); /* is forgotten */
    OK(bitnet_session_load(s, path, &err));
    assert_int_equal(bitnet_session_position(s), PROMPT + TOKENS / 2);
    OK(bitnet_session_append(s, &want->ids[TOKENS / 2], 1, NULL, NULL, &err));
    go_on(s, &now, TOKENS / 2 + 1, TOKENS);
    for (int i = TOKENS / 2 + 1; i < TOKENS; i++)
        if (now.ids[i] != want->ids[i])
            fail_msg("restored on %s %s, cache %d: token %d is %d, not %d", p->device,
                     p->split ? p->split : "", (int)kv, i, now.ids[i], want->ids[i]);
    bitnet_session_close(s);
    close_world(&w);
}

/* Half of a talk, saved; the other half here and wherever it is restored. */
static void save_and_restore(const struct place *p, bitnet_kv_type kv, const char *path)
{
    world w = open_world(p->device, p->split);
    bitnet_session *s = open_session(&w, kv);
    talk t = {.engine = w.engine};
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = 20 + 3 * i;
    OK(bitnet_session_append(s, prompt, PROMPT, NULL, NULL, &err));
    go_on(s, &t, 0, TOKENS / 2);
    OK(bitnet_session_save(s, path, &err));
    go_on(s, &t, TOKENS / 2, TOKENS);
    bitnet_session_close(s);
    close_world(&w);
    for (size_t i = 0; i < BNET_COUNT(places); i++)
        if (emulated || p == &places[i]) /* a real GPU's sums have an order of their own */
            restore(&places[i], kv, path, &t);
}

static void test_saved_sessions_go_on(void **state)
{
    (void)state;
    char path[] = "/tmp/bitnet-session-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    for (size_t i = 0; i < BNET_COUNT(places); i++) {
        save_and_restore(&places[i], BITNET_KV_INT8, path);
        if (quick())
            continue;
        save_and_restore(&places[i], BITNET_KV_F32, path);
        save_and_restore(&places[i], BITNET_KV_F16, path);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_P_2_sessions_of_one_device),
        cmocka_unit_test(test_P_3_sessions_of_a_group_by_rows),
        cmocka_unit_test(test_P_3_sessions_of_a_group_by_layers),
        cmocka_unit_test(test_saved_sessions_go_on),
    };
    find_device("90");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
