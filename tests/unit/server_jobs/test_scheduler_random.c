/* Jobs of every kind come and go at random: prompts of any length with common beginnings, several
 * choices, stop strings, grammars, cancels, deadlines, a cache that is too small for all. Whoever
 * is not cancelled says what the same request says alone. */
#include "answers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "unit/engine/crowd.h"

enum { AT_A_TIME = 24, PROMPT_MOST = 400, COMMON = 200 };

typedef struct member {
    srv_job *job; /* NULL: the place is empty */
    srv_job_options o;
    int32_t ids[PROMPT_MOST];
    char stop[8];
    const char *stops[2];
    bitnet_bias bias;
    answer *a;
    int cancel_after; /* events; -1: never */
    bool cancelled;
    bool hasty; /* it has a deadline that will pass */
} member;

typedef struct world {
    nano n;
    srv_scheduler *s;
    uint64_t rng;
    int32_t common[COMMON];
    member m[AT_A_TIME];
    int n_begun, n_whole, n_cancelled, n_cached, n_stopped;
    atomic_bool done;
} world;

static uint64_t roll(world *w, uint64_t n)
{
    return test_rand(&w->rng) % n;
}

/* ---- one member ---- */

static void make_prompt(world *w, member *m)
{
    size_t n_common = roll(w, 2) ? roll(w, COMMON) + 1 : 0;
    m->o.n_ids = n_common + 1 + roll(w, PROMPT_MOST - n_common);
    if (roll(w, 3) == 0)
        m->o.n_ids = n_common + 1;
    nano_ids(&w->n, w->rng, m->ids, m->o.n_ids);
    memcpy(m->ids, w->common, n_common * sizeof *m->ids);
    m->o.ids = m->ids;
}

static void make_wishes(world *w, member *m)
{
    srv_job_options *o = &m->o;
    o->n_choices = roll(w, 4) ? 1 : 2 + (int)roll(w, 3);
    o->max_tokens = 1 + roll(w, 30);
    o->min_tokens = roll(w, 5) ? 0 : roll(w, 10);
    o->ignore_eos = roll(w, 3) == 0;
    o->print_special = roll(w, 2);
    o->n_top = (int)roll(w, 4) - 1;
    o->scope = roll(w, 4);
    o->priority = (srv_priority)roll(w, 4);
    o->sampling.temperature = roll(w, 2) ? 0 : 1.1f;
    o->sampling.seed = w->rng;
    o->sampling.top_k = roll(w, 2) ? 0 : 20;
    o->sampling.repetition_penalty = roll(w, 3) ? 1 : 1.2f;
    m->stop[0] = (char)('a' + roll(w, 26));
    m->stops[0] = "never said";
    m->stops[1] = m->stop;
    o->stops = m->stops;
    o->n_stops = roll(w, 3) ? 0 : 2;
    m->bias = (bitnet_bias){(int32_t)roll(w, (uint64_t)w->n.n_vocab), 3};
    o->biases = &m->bias;
    o->n_biases = roll(w, 4) == 0;
}

static void join(world *w, member *m)
{
    *m = (member){.cancel_after = roll(w, 6) ? -1 : (int)roll(w, 12), .hasty = roll(w, 9) == 0};
    srv_job_options_init(&m->o);
    make_prompt(w, m);
    make_wishes(w, m);
    m->o.deadline_ms = m->hasty ? 1 + (double)roll(w, 20) : 0;
    m->a = calloc(1, sizeof *m->a);
    OK(srv_job_submit(w->s, &m->o, &m->job, &err));
    w->n_begun++;
}

static void leave(world *w, member *m)
{
    answer *a = m->a;
    bool may_end = m->cancelled || m->hasty;
    w->n_cached += a->usage.n_cached > 0;
    w->n_stopped += a->choice[0].stop[0] != 0;
    if (may_end && a->error.status == BITNET_CANCELLED) {
        w->n_cancelled++;
    } else {
        assert_alone(&w->n, &m->o, a, "a member");
        w->n_whole++;
    }
    answer_free(a);
    srv_job_release(m->job);
    m->job = NULL;
}

static void go_on(world *w, member *m)
{
    if (!answer_take(m->a, m->job, roll(w, 2) ? 0 : 1)) /* some read slowly */
        return;
    if (m->a->ended)
        leave(w, m);
    else if (m->cancel_after >= 0 && m->cancel_after-- == 0) {
        m->cancelled = true;
        srv_job_cancel(m->job);
    }
}

/* ---- all ---- */

/* Somebody looks on all the time. */
static void *watch(void *user)
{
    world *w = user;
    srv_load l;
    srv_slot slots[AT_A_TIME];
    while (!atomic_load(&w->done)) {
        srv_scheduler_load(w->s, &l);
        assert_true(l.n_active <= (size_t)l.max_active);
        assert_true(srv_scheduler_slots(w->s, slots, AT_A_TIME) <= AT_A_TIME);
        assert_true(srv_scheduler_wait(w->s) >= 1);
        usleep(500);
    }
    return NULL;
}

static void everybody_as_alone(void **state)
{
    (void)state;
    int most = CROWD_SLOW ? 40 : 250;
    world *w = calloc(1, sizeof *w);
    w->n = nano_open(1);
    w->rng = 20261117;
    srv_scheduler_options o = {.n_ctx = 512, .n_tokens = 96, .max_active = 9, .max_queued = 64};
    o.kv_bytes = 40 * bnet_kv_block_bytes(w->n.engine->model, BITNET_KV_F16) + 1;
    OK(srv_scheduler_open(w->n.engine, &o, &w->s, &err));
    nano_ids(&w->n, 1, w->common, COMMON);
    pthread_t watcher;
    assert_int_equal(pthread_create(&watcher, NULL, watch, w), 0);
    for (int n_open = 1; w->n_begun < most || n_open > 0;) {
        n_open = 0;
        for (size_t i = 0; i < AT_A_TIME; i++) {
            member *m = &w->m[i];
            if (m->job)
                go_on(w, m);
            else if (w->n_begun < most && roll(w, 3) == 0)
                join(w, m);
            n_open += m->job != NULL;
        }
    }
    atomic_store(&w->done, true);
    pthread_join(watcher, NULL);
    srv_load l;
    srv_scheduler_load(w->s, &l);
    print_message("%d whole, %d cancelled, %d began in the cache, %d ended by stop strings\n",
                  w->n_whole, w->n_cancelled, w->n_cached, w->n_stopped);
    assert_int_equal(l.n_jobs, w->n_begun);
    assert_int_equal(l.n_failed, 0);
    assert_int_equal(l.n_active + l.n_queued, 0);
    assert_int_equal(l.kv.n_used, 0); /* every block was given back */
    assert_int_equal(l.kv.n_sessions, 0);
    assert_int_equal(l.kv.n_evictions, 0); /* and nobody's was taken */
    assert_true(w->n_whole > most / 2 && w->n_cancelled > 0 && w->n_cached > 0);
    srv_scheduler_close(w->s);
    nano_close(&w->n);
    free(w);
}

/* ---- on the device that is no CPU ---- */

static void submit_all(srv_scheduler *s, srv_job_options *o, srv_job **jobs, int n)
{
    for (int i = 0; i < n; i++)
        OK(srv_job_submit(s, &o[i], &jobs[i], &err));
}

/* With fixed pieces and batch_invariant a device says the same alone and in company, with a cached
 * prefix and without. */
static void on_a_device(void **state)
{
    (void)state;
    enum { N = 8 };
    nano n = {0};
    bitnet_runtime_options ro;
    bitnet_engine_options eo;
    bitnet_runtime_options_init(&ro);
    bitnet_engine_options_init(&eo);
    ro.n_threads = 1;
    ro.device = "host";
    eo.batch_invariant = true;
    OK(bitnet_runtime_open(&ro, &n.runtime, &err));
    OK(bitnet_engine_open(n.runtime, NANO_PATH, &eo, &n.engine, &err));
    n.n_vocab = bitnet_engine_model(n.engine)->n_vocab;
    srv_scheduler_options so = {
        .n_ctx = 512, .max_active = 8, .piece = 64, .kv_bytes = (uint64_t)32 << 20};
    srv_scheduler *s = NULL;
    OK(srv_scheduler_open(n.engine, &so, &s, &err));
    int32_t ids[N][200];
    srv_job_options o[N];
    srv_job *jobs[N];
    for (int i = 0; i < N; i++) {
        nano_ids(&n, (uint64_t)i, ids[i], 200);
        memcpy(ids[i], ids[0], 130 * sizeof ids[i][0]);
        srv_job_options_init(&o[i]);
        o[i].ids = ids[i];
        o[i].n_ids = (size_t)(131 + 7 * i);
        o[i].max_tokens = 10;
        o[i].sampling.temperature = i % 2 ? 0 : 1;
    }
    answer *want[N], *got = calloc(1, sizeof *got);
    for (int i = 0; i < N; i++)
        want[i] = answer_of(s, &o[i]); /* scope 0: each computes all */
    for (int i = 0; i < N; i++)
        o[i].scope = 5;
    for (int turn = 0; turn < 2; turn++) {
        submit_all(s, o, jobs, N);
        for (int i = 0; i < N; i++) {
            memset(got, 0, sizeof *got);
            answer_all(got, jobs[i]);
            assert_int_equal(got->error.status, BITNET_OK);
            assert_said(&got->choice[0], &want[i]->choice[0], "in company");
            if (turn)
                assert_int_equal(got->usage.n_cached, 128);
            srv_job_release(jobs[i]);
        }
    }
    for (int i = 0; i < N; i++)
        answer_free(want[i]);
    free(got);
    srv_scheduler_close(s);
    nano_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_as_alone),
        cmocka_unit_test(on_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
