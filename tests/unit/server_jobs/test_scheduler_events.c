/* What a job tells where memory is short: an answer whose end is missing is never told as a whole
 * one. */
#include "test.h"

#include "jobs/scheduler_impl.h"
#include "torture/interpose.h"

/* A job that has told a token, which nobody has taken, and has its end staged. */
typedef struct scene {
    srv_scheduler s;
    srv_choice choice;
    srv_job job;
} scene;

static scene *scene_open(void)
{
    static const char end[1024] = "the end of the text";
    const srv_told told = {.id = 7};
    scene *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->choice = (srv_choice){.job = &c->job, .n_made = 1};
    c->job = (srv_job){.s = &c->s, .choices = &c->choice, .o = {.n_choices = 1}};
    pthread_mutex_init(&c->s.figures.lock, NULL);
    pthread_mutex_init(&c->job.lock, NULL);
    pthread_cond_init(&c->job.come, NULL);
    assert_true(srv_event_token(&c->choice, &told, "a", 1));
    srv_events_flush(&c->job);
    assert_true(srv_event_finish(&c->choice, BITNET_FINISH_LENGTH, -1, end, sizeof end));
    return c;
}

static void scene_close(scene *c)
{
    srv_bytes_free(&c->job.stage);
    srv_bytes_free(&c->job.queue);
    srv_bytes_free(&c->job.taken);
    pthread_cond_destroy(&c->job.come);
    pthread_mutex_destroy(&c->job.lock);
    pthread_mutex_destroy(&c->s.figures.lock);
    free(c);
}

/* Ends the job well; returns its last event. *finished: the end of the text came. */
static srv_event end_of(scene *c, bool without_memory, bool *finished)
{
    srv_event e;
    *finished = false;
    if (without_memory)
        interpose_start(0, true);
    srv_job_end(&c->s, &c->job, BITNET_OK, "%s", "");
    interpose_stop();
    assert_true(srv_job_next(&c->job, 0, &e));
    assert_int_equal(e.kind, SRV_TOKEN);
    do {
        assert_true(srv_job_next(&c->job, 0, &e));
        *finished |= e.kind == SRV_FINISH;
    } while (e.kind != SRV_END);
    return e;
}

static void a_whole_answer_ends_well(void **state)
{
    (void)state;
    bool finished;
    scene *c = scene_open();
    assert_int_equal(end_of(c, false, &finished).error.status, BITNET_OK);
    assert_true(finished);
    assert_int_equal(c->s.figures.load.n_failed, 0);
    scene_close(c);
}

static void an_answer_without_its_end_has_failed(void **state)
{
    (void)state;
    bool finished;
    if (INTERPOSE_SANITIZED)
        skip(); /* the server's own memory does not fail there */
    scene *c = scene_open();
    assert_int_equal(end_of(c, true, &finished).error.status, BITNET_MEMORY);
    assert_false(finished);
    assert_int_equal(c->s.figures.load.n_failed, 1);
    scene_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer_ends_well),
        cmocka_unit_test(an_answer_without_its_end_has_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
