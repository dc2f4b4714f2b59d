/* test_group_sessions.c - several sessions of one group of virtual ranks at the same time: each
 * says what it says alone, recorded steps are repeated, and nothing of one is in another's (P-3).
 * On the emulated device or on a real one (device.h). */
#include "device.h"

#include <pthread.h>

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

static void check_split(const char *split)
{
    bitnet_runtime *runtime = NULL;
    bitnet_engine *engine = NULL;
    bitnet_runtime_options o;
    bitnet_runtime_options_init(&o);
    o.device = "cuda:0,cuda:0";
    o.split = split;
    o.n_threads = 1;
    OK(bitnet_runtime_open(&o, &runtime, &err));
    OK(bitnet_engine_open(runtime, test_model(), NULL, &engine, &err));
    talk alone[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        alone[i] = (talk){.engine = engine, .first = 20 + 40 * i};
        speak(&alone[i]);
        if (alone[i].status != BITNET_OK)
            fail_msg("session %d alone: %s", i, alone[i].err.message);
    }
    bnet_backend_stats before, after;
    engine->backend->v->stats(engine->backend, &before);
    for (int round = 0; round < 3; round++)
        talk_together(engine, alone);
    engine->backend->v->stats(engine->backend, &after);
    assert_true(before.n_replays > (TOKENS - 4) * SESSIONS);
    assert_true(after.n_replays > before.n_replays + TOKENS);
    bitnet_engine_close(engine);
    bitnet_runtime_close(runtime);
}

static void test_P_3_sessions_of_a_group_by_rows(void **state)
{
    (void)state;
    check_split("tensor");
}

static void test_P_3_sessions_of_a_group_by_layers(void **state)
{
    (void)state;
    check_split("layer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_P_3_sessions_of_a_group_by_rows),
        cmocka_unit_test(test_P_3_sessions_of_a_group_by_layers),
    };
    find_device("90");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
