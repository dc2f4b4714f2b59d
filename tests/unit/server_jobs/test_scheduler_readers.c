/* Jobs whose events nobody takes: they wait for their reader, and nobody waits with them. */
#include "answers.h"

#include <unistd.h>

#include "jobs/scheduler_impl.h"

enum { MANY = 1000, CHOICES = 4, ALL_UNREAD = 2 * SRV_UNREAD };

typedef struct world {
    nano n;
    srv_scheduler *s;
    int32_t ids[2048];
} world;

static world world_open(size_t max_unread)
{
    world w = {.n = nano_open(1)};
    srv_scheduler_options o = {.kv_bytes = (uint64_t)64 << 20,
                               .n_ctx = 2048,
                               .n_tokens = 128,
                               .max_active = 16,
                               .max_unread = max_unread};
    OK(srv_scheduler_open(w.n.engine, &o, &w.s, &err));
    nano_ids(&w.n, 7, w.ids, 2048);
    return w;
}

static srv_job_options ask(const world *w, size_t n_ids, size_t max_tokens)
{
    srv_job_options o;
    srv_job_options_init(&o);
    o.ids = w->ids;
    o.n_ids = n_ids;
    o.max_tokens = max_tokens;
    o.sampling.temperature = 0;
    return o;
}

static srv_job *submit(world *w, const srv_job_options *o)
{
    srv_job *job = NULL;
    OK(srv_job_submit(w->s, o, &job, &err));
    return job;
}

/* Everything a job tells, as one number, and how much it is. */
typedef struct digest {
    uint64_t sum;
    size_t n_prompt, n_tokens, n_finished;
    bitnet_status status;
} digest;

static uint64_t mix(uint64_t sum, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ p[i]) * 0x100000001b3u;
    return sum;
}

static digest digest_of(srv_job *job)
{
    digest d = {0};
    uint64_t sums[CHOICES] = {0}; /* choices may be told in any order */
    for (srv_event e = {0}; e.kind != SRV_END;) {
        if (!srv_job_next(job, ANSWER_WAIT_MS, &e))
            fail_msg("no event within five minutes");
        d.n_prompt += e.kind == SRV_PROMPT;
        d.n_tokens += e.kind == SRV_TOKEN;
        d.n_finished += e.kind == SRV_FINISH;
        d.status = e.error.status;
        sums[e.choice] = mix(sums[e.choice], &e.id, sizeof e.id);
        sums[e.choice] = mix(sums[e.choice], e.text, e.n_text);
        for (size_t i = 0; i < e.n_top; i++) {
            sums[e.choice] = mix(sums[e.choice], &e.top[i].id, sizeof e.top[i].id);
            sums[e.choice] = mix(sums[e.choice], &e.top[i].logprob, sizeof e.top[i].logprob);
        }
    }
    d.sum = mix(0, sums, sizeof sums);
    return d;
}

static bool has_ended(srv_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool ended = job->ended;
    pthread_mutex_unlock(&job->lock);
    return ended;
}

/* Waits until the job must wait for its reader. False: it ended. */
static bool wait_until_held(const world *w, srv_job *job)
{
    while (!has_ended(job)) {
        if (atomic_load(&job->n_unread) > SRV_UNREAD && atomic_load(&w->s->n_unread) > ALL_UNREAD)
            return true;
        usleep(1000);
    }
    return false;
}

/* Tokens that a job has read and made. */
static size_t progress(const world *w, const srv_job *job)
{
    srv_slot slots[16];
    size_t n = srv_scheduler_slots(w->s, slots, 16), sum = 0;
    for (size_t i = 0; i < n; i++)
        if (slots[i].job == job->id)
            sum += slots[i].n_done + slots[i].n_generated;
    return sum;
}

static void ask_beside(world *w)
{
    srv_job_options small = ask(w, 30, 8);
    answer *a = answer_of(w->s, &small);
    assert_alone(&w->n, &small, a, "beside a job whose reader is behind");
    answer_free(a);
}

static srv_job_options much(const world *w, bool scored)
{
    srv_job_options o = ask(w, scored ? 2000 : 20, scored ? 0 : MANY);
    o.ignore_eos = true;
    o.n_top = 200;
    o.n_choices = scored ? 1 : CHOICES;
    o.prompt_logprobs = scored;
    return o;
}

/* A job whose events nobody takes makes no more of them than there is room for, while others go on;
 * once they are taken, it tells what it tells to a quick reader. */
static void whoever_is_behind_waits_alone(void **state)
{
    (void)state;
    world w = world_open(ALL_UNREAD);
    for (int scored = 0; scored < 2; scored++) {
        srv_job_options o = much(&w, scored);
        srv_job *quick = submit(&w, &o);
        digest want = digest_of(quick);
        srv_job_release(quick);
        assert_int_equal(want.n_prompt, scored ? 1999 : 0);
        assert_int_equal(want.n_tokens, scored ? 0 : CHOICES * MANY);

        srv_job *slow = submit(&w, &o);
        assert_true(wait_until_held(&w, slow));
        ask_beside(&w); /* the step that may have been under way is over then */
        size_t before = progress(&w, slow);
        ask_beside(&w);
        ask_beside(&w);
        assert_true(before > 0 && progress(&w, slow) == before);
        digest got = digest_of(slow);
        srv_job_release(slow);
        assert_int_equal(got.status, BITNET_OK);
        assert_int_equal(got.n_prompt, want.n_prompt);
        assert_int_equal(got.n_tokens, want.n_tokens);
        assert_int_equal(got.n_finished, want.n_finished);
        assert_true(got.sum == want.sum);
        assert_int_equal(atomic_load(&w.s->n_unread), 0);
    }
    srv_scheduler_close(w.s);
    nano_close(&w.n);
}

/* While there is room for all, nobody waits for a reader. */
static void one_alone_has_all_the_room(void **state)
{
    (void)state;
    world w = world_open((size_t)1 << 30);
    srv_job_options o = much(&w, false);
    srv_job *job = submit(&w, &o);
    while (!has_ended(job))
        usleep(1000);
    assert_true(atomic_load(&job->n_unread) > 10 * SRV_UNREAD);
    assert_int_equal(digest_of(job).n_tokens, CHOICES * MANY);
    srv_job_release(job);
    srv_scheduler_close(w.s);
    nano_close(&w.n);
}

/* Nor do they keep it from being cancelled, or the scheduler from being closed. */
static void whoever_is_behind_can_leave(void **state)
{
    (void)state;
    world w = world_open(ALL_UNREAD);
    srv_job_options o = much(&w, false);
    srv_job *one = submit(&w, &o), *two = submit(&w, &o);
    assert_true(wait_until_held(&w, one) && wait_until_held(&w, two));
    srv_job_cancel(one);
    assert_int_equal(digest_of(one).status, BITNET_CANCELLED);
    srv_job_release(one);
    assert_int_equal(atomic_load(&w.s->n_unread), atomic_load(&two->n_unread));
    srv_scheduler_close(w.s);
    assert_int_equal(digest_of(two).status, BITNET_CANCELLED);
    srv_job_release(two);
    nano_close(&w.n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_is_behind_waits_alone),
        cmocka_unit_test(one_alone_has_all_the_room),
        cmocka_unit_test(whoever_is_behind_can_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
