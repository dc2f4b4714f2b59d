/* answers.h - what jobs of a scheduler say, collected, and what the same request says alone. */
#ifndef BNET_TEST_ANSWERS_H
#define BNET_TEST_ANSWERS_H

#include <math.h>

#include "unit/engine/nano.h"

#include "jobs/scheduler.h"

enum { ANSWER_TEXT = 4096, ANSWER_IDS = 512, ANSWER_CHOICES = 4, ANSWER_WAIT_MS = 300000 };

typedef struct said {
    char text[ANSWER_TEXT];
    size_t n_text;
    int32_t ids[ANSWER_IDS]; /* without the token that ended it */
    double logprobs[ANSWER_IDS];
    size_t n_ids;
    bitnet_finish finish;
    char stop[64];
    bool finished;
} said;

typedef struct answer {
    said choice[ANSWER_CHOICES];
    bitnet_error error;
    srv_usage usage;
    bool ended;
    size_t n_prompt_events, n_vector;
    double prompt_logprobs[ANSWER_IDS * 4];
    float *vector;
} answer;

static inline void answer_text(said *s, const srv_event *e)
{
    assert_true(s->n_text + e->n_text < ANSWER_TEXT);
    memcpy(s->text + s->n_text, e->text, e->n_text);
    s->n_text += e->n_text;
}

/* Takes one event; returns false when none came in time. */
static inline bool answer_take(answer *a, srv_job *job, double wait_ms)
{
    srv_event e;
    if (!srv_job_next(job, wait_ms, &e))
        return false;
    said *s = &a->choice[e.choice];
    assert_false(a->ended);
    if (e.kind == SRV_TOKEN) {
        assert_false(s->finished);
        assert_int_equal(e.index, s->n_ids);
        s->logprobs[s->n_ids] = e.logprob;
        s->ids[s->n_ids++] = e.id;
        answer_text(s, &e);
    } else if (e.kind == SRV_FINISH) {
        answer_text(s, &e);
        s->finish = e.finish;
        s->finished = true;
        snprintf(s->stop, sizeof s->stop, "%s", e.stop ? e.stop : "");
    } else if (e.kind == SRV_PROMPT) {
        assert_int_equal(e.index, a->n_prompt_events + 1);
        a->prompt_logprobs[a->n_prompt_events++] = e.logprob;
    } else if (e.kind == SRV_VECTOR) {
        a->n_vector = e.n_vector;
        a->vector = malloc(e.n_vector * sizeof(float));
        memcpy(a->vector, e.vector, e.n_vector * sizeof(float));
    } else {
        a->ended = true;
        a->error = e.error;
        a->usage = e.usage;
    }
    return true;
}

static inline void answer_all(answer *a, srv_job *job)
{
    while (!a->ended)
        if (!answer_take(a, job, ANSWER_WAIT_MS))
            fail_msg("no event within five minutes");
}

/* Submits, waits, releases. */
static inline answer *answer_of(srv_scheduler *s, const srv_job_options *o)
{
    srv_job *job = NULL;
    answer *a = calloc(1, sizeof *a);
    OK(srv_job_submit(s, o, &job, &err));
    answer_all(a, job);
    srv_job_release(job);
    return a;
}

static inline void answer_free(answer *a)
{
    free(a->vector);
    free(a);
}

/* ---- alone ---- */

typedef struct alone_text {
    said *s;
    const bitnet_engine *engine;
    bool ignore_eos;
} alone_text;

static inline bool alone_on_text(void *user, const char *text, size_t n, int32_t id)
{
    alone_text *t = user;
    memcpy(t->s->text + t->s->n_text, text, n);
    t->s->n_text += n;
    if (t->ignore_eos || !bitnet_token_stops(t->engine, id))
        t->s->ids[t->s->n_ids++] = id;
    return true;
}

/* What bitnet_generate says to the choice, in a session of its own. */
static inline void alone(const nano *n, const srv_job_options *o, int choice, said *out)
{
    bitnet_session_options so;
    bitnet_session_options_init(&so);
    so.n_ctx = 2048;
    bitnet_session *session = NULL;
    bitnet_sampler *sampler = NULL;
    bitnet_sampler_options po = o->sampling;
    po.seed += (uint64_t)choice;
    OK(bitnet_session_open(n->engine, &so, &session, &err));
    OK(bitnet_sampler_open(&po, n->n_vocab, &sampler, &err));
    if (o->n_biases) {
        bitnet_constraints k;
        bitnet_constraints_init(&k);
        k.biases = o->biases;
        k.n_biases = o->n_biases;
        OK(bitnet_sampler_constrain(sampler, &k, &err));
    }
    alone_text t = {out, n->engine, o->ignore_eos};
    bitnet_generate_options g;
    bitnet_generate_options_init(&g);
    g.max_tokens = o->max_tokens;
    g.min_tokens = o->min_tokens;
    g.ignore_eos = o->ignore_eos;
    g.stops = o->stops;
    g.n_stops = o->n_stops;
    g.print_special = o->print_special;
    g.on_text = alone_on_text;
    g.user = &t;
    bitnet_generate_result r;
    OK(bitnet_generate(session, sampler, o->ids, o->n_ids, &g, &r, &err));
    out->finish = r.finish;
    out->finished = true;
    bitnet_sampler_close(sampler);
    bitnet_session_close(session);
}

static inline void assert_said(const said *got, const said *want, const char *what)
{
    if (got->n_ids != want->n_ids ||
        memcmp(got->ids, want->ids, got->n_ids * sizeof *got->ids) != 0)
        fail_msg("%s: %zu tokens, alone %zu, or others", what, got->n_ids, want->n_ids);
    if (got->n_text != want->n_text || memcmp(got->text, want->text, got->n_text) != 0)
        fail_msg("%s: the text is \"%.*s\", alone \"%.*s\"", what, (int)got->n_text, got->text,
                 (int)want->n_text, want->text);
    if (got->finish != want->finish)
        fail_msg("%s: finish is %s, alone %s", what, bitnet_finish_text(got->finish),
                 bitnet_finish_text(want->finish));
}

/* Every choice of a job that went well says what it says alone. */
static inline void assert_alone(const nano *n, const srv_job_options *o, const answer *a,
                                const char *what)
{
    if (a->error.status != BITNET_OK)
        fail_msg("%s: status %d: %s", what, a->error.status, a->error.message);
    for (int i = 0; i < o->n_choices; i++) {
        said *want = calloc(1, sizeof *want);
        alone(n, o, i, want);
        assert_true(a->choice[i].finished);
        assert_said(&a->choice[i], want, what);
        free(want);
    }
}

#endif
