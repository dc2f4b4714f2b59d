/* The scheduler's promises, one by one: answers are those of bitnet_generate, whatever is computed
 * beside them; the queue is bounded and fair; memory is promised before it is used; nobody hangs.
 * test_scheduler_random.c has them all at once. */
#include "answers.h"

#include <dirent.h>
#include <unistd.h>

#include "bitnet_check.h"
#include "jobs/scheduler_impl.h"
#include "unit/engine/broken.h"

typedef struct world {
    nano n;
    srv_scheduler *s;
    int32_t ids[4096];
} world;

static srv_scheduler_options options(void)
{
    return (srv_scheduler_options){
        .kv_bytes = (uint64_t)64 << 20, .n_ctx = 2048, .n_tokens = 128, .max_active = 8};
}

static world world_open(const srv_scheduler_options *o)
{
    world w = {.n = nano_open(1)};
    srv_scheduler_options usual = options();
    OK(srv_scheduler_open(w.n.engine, o ? o : &usual, &w.s, &err));
    nano_ids(&w.n, 7, w.ids, 4096);
    return w;
}

static void world_close(world *w)
{
    srv_scheduler_close(w->s);
    nano_close(&w->n);
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

static srv_load load_of(world *w)
{
    srv_load l;
    srv_scheduler_load(w->s, &l);
    return l;
}

/* ---- one answer ---- */

static void same_as_alone(void **state)
{
    (void)state;
    world w = world_open(NULL);
    for (int i = 0; i < 12; i++) {
        srv_job_options o = ask(&w, (size_t)(1 + i * 40), 24);
        o.sampling.temperature = i % 2 ? 1.2f : 0;
        o.sampling.seed = (uint64_t)i;
        o.sampling.repetition_penalty = i % 3 ? 1 : 1.3f;
        o.n_choices = 1 + i % 3;
        o.ignore_eos = i % 4 == 0;
        o.min_tokens = i % 5 == 0 ? 8 : 0;
        o.print_special = i % 2;
        o.n_top = i % 3 - 1;
        answer *a = answer_of(w.s, &o);
        assert_alone(&w.n, &o, a, "a job");
        assert_int_equal(a->usage.n_prompt, o.n_ids);
        assert_true(a->usage.first_token_ms > 0);
        answer_free(a);
    }
    world_close(&w);
}

static void biases_count(void **state)
{
    (void)state;
    world w = world_open(NULL);
    const bitnet_bias biases[] = {{5, 100}, {6, -INFINITY}};
    srv_job_options o = ask(&w, 20, 8);
    o.biases = biases;
    o.n_biases = 2;
    answer *a = answer_of(w.s, &o);
    assert_alone(&w.n, &o, a, "biases");
    assert_int_equal(a->choice[0].ids[0], 5);
    answer_free(a);
    o.min_tokens = 4; /* ends are forbidden besides */
    a = answer_of(w.s, &o);
    assert_alone(&w.n, &o, a, "biases and min_tokens");
    answer_free(a);
    world_close(&w);
}

/* The stop strings are taken from what it says without them. */
static void stops_are_told(void **state)
{
    (void)state;
    world w = world_open(NULL);
    srv_job_options o = ask(&w, 30, 40);
    o.sampling.temperature = 1.5f;
    o.ignore_eos = true;
    answer *whole = answer_of(w.s, &o);
    char stop[8] = {0};
    const said *s = &whole->choice[0];
    size_t at = s->n_text / 2;
    while (at + 3 < s->n_text &&
           (s->text[at] < ' ' || s->text[at + 1] < ' ' || s->text[at + 2] < ' '))
        at++;
    assert_true(at + 3 < s->n_text);
    memcpy(stop, s->text + at, 3);
    const char *stops[] = {"never said", stop, "nor this"};
    o.stops = stops;
    o.n_stops = 3;
    answer *a = answer_of(w.s, &o);
    assert_alone(&w.n, &o, a, "stops");
    assert_int_equal(a->choice[0].finish, BITNET_FINISH_STOP_STRING);
    assert_string_equal(a->choice[0].stop, stop);
    assert_true(a->choice[0].n_text <= at);
    answer_free(a);
    answer_free(whole);
    world_close(&w);
}

/* A token that may begin a stop string, then a mark: the token's text comes before the mark. */
static void text_comes_before_marks(void **state)
{
    (void)state;
    world w = world_open(NULL);
    srv_job_options o = ask(&w, 20, 3);
    int32_t mark = 0, letter = 0;
    size_t n = 0;
    const char *bytes = NULL;
    while (!bitnet_token_special(w.n.engine, mark) || bitnet_token_stops(w.n.engine, mark))
        assert_true(++mark < w.n.n_vocab);
    while (!(bytes = bitnet_token_bytes(w.n.engine, letter, &n)) || n != 1 || *bytes <= ' ')
        assert_true(++letter < w.n.n_vocab);
    bitnet_bias *biases = calloc((size_t)w.n.n_vocab, sizeof *biases);
    for (int32_t id = 0; id < w.n.n_vocab; id++)
        biases[id] = (bitnet_bias){id, id == letter ? 50 : id == mark ? 0 : -INFINITY};
    const char stop[] = {*bytes, *bytes, '\0'}, *const stops[] = {stop, "never said"};
    o.biases = biases;
    o.n_biases = (size_t)w.n.n_vocab;
    o.sampling.temperature = 0;
    o.sampling.presence_penalty = 100; /* the letter, the mark, the letter */
    o.ignore_eos = o.marks = true;
    o.stops = stops;
    o.n_stops = 2;
    srv_job *job = NULL;
    OK(srv_job_submit(w.s, &o, &job, &err));
    for (int i = 0; i < 4; i++) {
        srv_event e;
        assert_true(srv_job_next(job, ANSWER_WAIT_MS, &e));
        assert_int_equal(e.kind, i < 3 ? SRV_TOKEN : SRV_FINISH);
        if (i < 3)
            assert_int_equal(e.id, i == 1 ? mark : letter);
        assert_int_equal(e.n_text, i % 2); /* with the mark, and in the end */
    }
    srv_job_release(job);
    free(biases);
    world_close(&w);
}

/* The model wants to say something else. */
static void grammars_bind(void **state)
{
    (void)state;
    static const char rules[] = "root ::= \"{\" (\"yes\" | \"no\") \"!\"{2,3} \"}\"";
    world w = world_open(NULL);
    srv_job_options o = ask(&w, 30, 40);
    OK(bitnet_grammar_open(w.n.engine, BITNET_GRAMMAR_GBNF, rules, strlen(rules), &o.grammar,
                           &err));
    o.n_choices = 4;
    o.sampling.temperature = 2;
    o.sampling.top_k = 0;
    o.sampling.top_p = 1;
    o.ignore_eos = true; /* nor does this let it talk on */
    srv_job *job = submit(&w, &o);
    bitnet_grammar_close(o.grammar);
    answer *a = calloc(1, sizeof *a);
    answer_all(a, job);
    assert_int_equal(a->error.status, BITNET_OK);
    for (int i = 0; i < 4; i++) {
        const char *t = a->choice[i].text;
        assert_int_equal(a->choice[i].finish, BITNET_FINISH_EOS);
        if (strcmp(t, "{yes!!}") && strcmp(t, "{no!!}") && strcmp(t, "{yes!!!}") &&
            strcmp(t, "{no!!!}"))
            fail_msg("choice %d says \"%s\"", i, t);
    }
    srv_job_release(job);
    answer_free(a);
    world_close(&w);
}

static void context_ends_it(void **state)
{
    (void)state;
    srv_scheduler_options so = options();
    so.n_ctx = 100;
    world w = world_open(&so);
    srv_job_options o = ask(&w, 90, 1000);
    o.ignore_eos = true;
    answer *a = answer_of(w.s, &o);
    assert_int_equal(a->choice[0].finish, BITNET_FINISH_CONTEXT);
    assert_int_equal(a->usage.n_generated, 11);
    answer_free(a);
    o.n_ids = 101;
    srv_job *job = NULL;
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_CONTEXT, "101");
    world_close(&w);
}

/* ---- log-probabilities and vectors ---- */

typedef struct expected {
    const int32_t *ids;
    size_t n_ids;
    int n_vocab;
    double logprobs[512];
} expected;

static bool on_logits(void *user, size_t i, const float *logits)
{
    expected *e = user;
    bitnet_logprob p = {.id = i + 1 < e->n_ids ? e->ids[i + 1] : 0};
    OK(bitnet_logprobs(logits, e->n_vocab, &p, 1, NULL, 0, &err));
    e->logprobs[i] = p.logprob;
    return true;
}

static void prompt_is_scored(void **state)
{
    (void)state;
    world w = world_open(NULL);
    srv_job_options o = ask(&w, 300, 0);
    o.prompt_logprobs = true;
    o.n_top = 2;
    o.scope = 3; /* published, but what is told is computed */
    expected want = {.ids = w.ids, .n_ids = 300, .n_vocab = w.n.n_vocab};
    bitnet_session *session = nano_session(&w.n, 512, 64, BITNET_KV_F16);
    OK(bitnet_session_append(session, w.ids, 300, on_logits, &want, &err));
    bitnet_session_close(session);
    for (int turn = 0; turn < 2; turn++) {
        answer *a = answer_of(w.s, &o);
        assert_int_equal(a->error.status, BITNET_OK);
        assert_int_equal(a->n_prompt_events, 299);
        assert_int_equal(a->usage.n_cached, 0);
        assert_int_equal(a->usage.n_generated, 0);
        assert_int_equal(a->choice[0].finish, BITNET_FINISH_LENGTH);
        assert_memory_equal(a->prompt_logprobs, want.logprobs, 299 * sizeof(double));
        answer_free(a);
    }
    world_close(&w);
}

/* The hidden states of a prompt, from a batch of its own. */
static void hidden_of(const world *w, size_t n_ids, float *out)
{
    bitnet_batch *b = NULL;
    bitnet_batch_options bo;
    bitnet_batch_options_init(&bo);
    OK(bitnet_batch_open(w->n.engine, &bo, &b, &err));
    bitnet_batch_item i;
    bitnet_batch_item_init(&i);
    i.session = nano_session(&w->n, 512, 64, BITNET_KV_F16);
    i.ids = w->ids;
    i.n_ids = n_ids;
    i.every_position = true;
    i.hidden = out;
    OK(bitnet_batch_step(b, &i, 1, &err));
    bitnet_session_close(i.session);
    bitnet_batch_close(b);
}

static void vectors_are_pooled(void **state)
{
    (void)state;
    world w = world_open(NULL);
    size_t n = 200, n_embd = (size_t)bitnet_engine_model(w.n.engine)->n_embd;
    float *hidden = calloc(n * n_embd, sizeof *hidden);
    hidden_of(&w, n, hidden);
    srv_job_options o = ask(&w, n, 0);
    o.kind = SRV_EMBED;
    answer *last = answer_of(w.s, &o);
    o.mean_pooling = true;
    answer *mean = answer_of(w.s, &o);
    assert_int_equal(last->n_vector, n_embd);
    assert_memory_equal(last->vector, hidden + (n - 1) * n_embd, n_embd * sizeof *hidden);
    for (size_t k = 0; k < n_embd; k++) {
        double sum = 0;
        for (size_t r = 0; r < n; r++)
            sum += hidden[r * n_embd + k];
        assert_true(fabs(sum / (double)n - mean->vector[k]) < 1e-5);
    }
    answer_free(last);
    answer_free(mean);
    free(hidden);
    world_close(&w);
}

/* ---- prefixes ---- */

static void chats_grow(void **state)
{
    (void)state;
    world w = world_open(NULL);
    srv_job_options o = ask(&w, 300, 95);
    o.scope = 11;
    o.ignore_eos = true;
    answer *a = answer_of(w.s, &o);
    assert_int_equal(a->usage.n_cached, 0);
    int32_t chat[600];
    memcpy(chat, w.ids, 300 * sizeof *chat);
    memcpy(chat + 300, a->choice[0].ids, 95 * sizeof *chat);
    memcpy(chat + 395, w.ids + 1000, 45 * sizeof *chat);
    answer_free(a);
    o.ids = chat;
    o.n_ids = 440;
    o.max_tokens = 8;
    for (int i = 0; i < 2; i++) { /* 394 tokens were appended, of question and answer; then 447 */
        a = answer_of(w.s, &o);
        assert_int_equal(a->usage.n_cached, i == 0 ? 394 : 439);
        assert_alone(&w.n, &o, a, "a chat that grew");
        answer_free(a);
    }
    o.scope = 12;
    a = answer_of(w.s, &o);
    assert_int_equal(a->usage.n_cached, 0);
    assert_alone(&w.n, &o, a, "another scope");
    answer_free(a);
    o.scope = 0;
    for (int i = 0; i < 2; i++) {
        a = answer_of(w.s, &o);
        assert_int_equal(a->usage.n_cached, 0);
        answer_free(a);
    }
    assert_int_equal(load_of(&w).kv.n_prefix_hits, 2);
    assert_int_equal(load_of(&w).n_cached_tokens, 394 + 439);
    world_close(&w);
}

static void fixed_pieces(void **state)
{
    (void)state;
    srv_scheduler_options so = options();
    so.piece = 128;
    world w = world_open(&so);
    srv_job_options o = ask(&w, 100, 10);
    o.scope = 5;
    answer_free(answer_of(w.s, &o));
    assert_int_equal(load_of(&w).kv.n_cached, 0); /* its piece is not whole */
    o = ask(&w, 350, 10);
    o.scope = 5;
    answer *a = answer_of(w.s, &o);
    assert_alone(&w.n, &o, a, "in pieces");
    answer_free(a);
    assert_int_equal(load_of(&w).kv.n_cached, 4);
    a = answer_of(w.s, &o);
    assert_int_equal(a->usage.n_cached, 256);
    assert_alone(&w.n, &o, a, "in pieces, again");
    answer_free(a);
    world_close(&w);
}

/* ---- beside others ---- */

/* While a prompt of 2000 tokens is read, two others get a token in every step, and the steps are
 * many: the prompt does not have them for itself. */
static void long_prompt_stalls_nobody(void **state)
{
    (void)state;
    world w = world_open(NULL);
    srv_job_options o = ask(&w, 10, 1000);
    o.ignore_eos = true;
    srv_job *jobs[2];
    answer *a[2] = {calloc(1, sizeof(answer)), calloc(1, sizeof(answer))};
    for (int i = 0; i < 2; i++)
        jobs[i] = submit(&w, &o);
    for (int i = 0; i < 2; i++)
        while (a[i]->choice[0].n_ids < 20) /* both are well under way */
            assert_true(answer_take(a[i], jobs[i], ANSWER_WAIT_MS));
    srv_load before = load_of(&w);
    srv_job_options big = ask(&w, 2000, 1);
    answer *b = answer_of(w.s, &big);
    srv_load after = load_of(&w);
    assert_alone(&w.n, &big, b, "the long prompt");
    uint64_t steps = after.n_steps - before.n_steps, tokens = after.n_tokens - before.n_tokens;
    assert_true(steps >= 2000 / 126);
    assert_true(tokens >= 2 * (steps - 1)); /* every step but perhaps one had both */
    for (int i = 0; i < 2; i++) {
        srv_job_release(jobs[i]);
        free(a[i]);
    }
    answer_free(b);
    world_close(&w);
}

static void short_prompt_passes_long_ones(void **state)
{
    (void)state;
    world w = world_open(NULL);
    srv_job_options big = ask(&w, 2000, 1), small = ask(&w, 50, 1);
    srv_job *first = submit(&w, &big), *second = submit(&w, &big);
    while (load_of(&w).n_prompting < 2)
        usleep(100);
    answer *s = answer_of(w.s, &small);
    assert_int_equal(s->error.status, BITNET_OK);
    answer *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    assert_false(answer_take(a, first, 0));
    assert_false(answer_take(b, second, 0));
    answer_all(a, first);
    answer_all(b, second);
    assert_alone(&w.n, &big, a, "the first");
    assert_alone(&w.n, &big, b, "the second");
    srv_job_release(first);
    srv_job_release(second);
    answer_free(a);
    answer_free(b);
    answer_free(s);
    world_close(&w);
}

/* A machine: a step of rows takes `row_ms` each besides `plain_ms`, prompts a fixed time and so
 * much for each token, more with its position. */
typedef struct machine {
    double plain_ms, row_ms, fixed_ms, token_ms, slope_ms;
} machine;

static double takes(const machine *k, size_t n_rows, size_t n_prompt, double at)
{
    double rows = n_rows ? k->plain_ms + k->row_ms * (double)n_rows : 0;
    double each = k->token_ms + k->slope_ms * at, fixed = n_prompt ? k->fixed_ms : 0;
    return rows + fixed + each * (double)n_prompt;
}

/* Reads a prompt of 4000 tokens; returns its time. *worst: the longest step of the second half. */
static double read_prompt(srv_pace *p, const machine *k, size_t n_rows, double *worst)
{
    double sum = 0;
    *worst = 0;
    for (size_t done = 0; done < 4000;) {
        size_t n = srv_pace_room(p, n_rows, 512 - n_rows, (double)done);
        n = n < 4000 - done ? n : 4000 - done;
        double at = (double)done + (double)n / 2, ms = takes(k, n_rows, n, at);
        srv_pace_note(p, n_rows, n, at, ms);
        *worst = done > 2000 && ms > *worst ? ms : *worst;
        sum += ms;
        done += n;
    }
    return sum;
}

/* Both promises at once, where a machine allows both: others wait at most five times as long as
 * usual, and the prompt takes at most half as long again as alone. */
static void pace_keeps_both_promises(void **state)
{
    (void)state;
    static const machine machines[] = {{36, 10, 0, 6, 0.0003},     /* two cores */
                                       {12, 1, 1, 0.6, 0.0003},    /* sixteen */
                                       {1.2, 0.01, 1.2, 0.01, 0}}; /* a GPU */
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        for (size_t n_rows = 4; n_rows <= 64; n_rows *= 4) {
            const machine *k = &machines[i];
            srv_pace p = {0};
            double worst, plain = takes(k, n_rows, 0, 0);
            double alone = read_prompt(&p, k, 0, &worst);
            assert_int_equal(srv_pace_room(&p, n_rows, 448, 0),
                             0); /* first a step without prompts */
            srv_pace_note(&p, n_rows, 0, 0, plain);
            double mixed = read_prompt(&p, k, n_rows, &worst);
            if (worst > 5 * plain || mixed > 1.5 * alone)
                fail_msg("machine %zu, %zu rows: %.1f ms in steps of %.1f, alone %.1f", i, n_rows,
                         mixed, plain, alone);
        }
    srv_pace p = {0};
    assert_int_equal(srv_pace_room(&p, 0, 512, 0), 512); /* nothing is known, nobody waits */
    srv_pace_note(&p, 0, 512, 256, 51200);
    assert_int_equal(srv_pace_room(&p, 0, 512, 0),
                     128); /* a slow machine: whoever comes is let in */
}

/* ---- bells ---- */

/* One thread takes the events of several jobs, and a step wakes it once, whosever events it has
 * brought. */
static void one_bell_for_many(void **state)
{
    (void)state;
    enum { N = 6 };
    world w = world_open(NULL);
    srv_bell bell;
    srv_job *jobs[N];
    srv_job_options o[N];
    answer *a[N];
    size_t n_ended = 0, n_heard = 0;
    srv_bell_open(&bell);
    for (size_t i = 0; i < N; i++) {
        o[i] = ask(&w, 5 + 11 * i, 60);
        jobs[i] = submit(&w, &o[i]);
        srv_job_listen(jobs[i], &bell);
        a[i] = calloc(1, sizeof *a[i]);
    }
    for (srv_bell_ring(&bell); n_ended < N; n_heard++) {
        srv_bell_wait(&bell, ANSWER_WAIT_MS);
        n_ended = 0;
        for (size_t i = 0; i < N; i++) {
            while (answer_take(a[i], jobs[i], 0))
                ;
            n_ended += a[i]->ended;
        }
    }
    assert_in_range(n_heard, 1, load_of(&w).n_steps + N + 1); /* the end of a job rings, too */
    for (size_t i = 0; i < N; i++) {
        assert_alone(&w.n, &o[i], a[i], "a job with a bell");
        srv_job_release(jobs[i]);
        answer_free(a[i]);
    }
    world_close(&w);
    srv_bell_close(&bell);
}

/* How often the one who listens found tokens, and how many the first time. */
static size_t hear(world *w, size_t *n_first)
{
    srv_bell bell;
    answer *a = calloc(1, sizeof *a);
    srv_job_options o = ask(w, 20, 200);
    size_t n_heard = 0;
    srv_bell_open(&bell);
    srv_job *job = submit(w, &o);
    srv_job_listen(job, &bell);
    double begun = srv_now_ms();
    *n_first = 0;
    for (srv_bell_ring(&bell); !a->ended; n_heard += a->choice[0].n_ids > 0) {
        srv_bell_wait(&bell, ANSWER_WAIT_MS);
        while (answer_take(a, job, 0))
            ;
        *n_first = *n_first ? *n_first : a->choice[0].n_ids;
    }
    assert_in_range(n_heard, 1, (size_t)((srv_now_ms() - begun) / 2) + 4);
    assert_alone(&w->n, &o, a, "a job told now and then");
    srv_job_release(job);
    answer_free(a);
    srv_bell_close(&bell);
    return n_heard;
}

/* Tokens of a fast model come together, at most every two milliseconds; the first comes at once,
 * which a thread that is run late may miss. */
static void fast_tokens_are_told_together(void **state)
{
    (void)state;
    world w = world_open(NULL);
    bool at_once = false;
    for (int i = 0; i < 50 && !at_once; i++) {
        size_t n_first, n_heard = hear(&w, &n_first);
        at_once = n_heard >= 2 && n_first < 200;
    }
    assert_true(at_once);
    world_close(&w);
}

/* Whoever stops listening to a bell waits as before. */
static void from_a_bell_to_waiting(void **state)
{
    (void)state;
    world w = world_open(NULL);
    srv_bell bell;
    answer *a = calloc(1, sizeof *a);
    srv_job_options o = ask(&w, 20, 200);
    srv_bell_open(&bell);
    srv_job *job = submit(&w, &o);
    srv_job_listen(job, &bell);
    while (a->choice[0].n_ids < 10) {
        srv_bell_wait(&bell, ANSWER_WAIT_MS);
        while (answer_take(a, job, 0))
            ;
    }
    srv_job_listen(job, NULL);
    answer_all(a, job);
    assert_alone(&w.n, &o, a, "a job that had a bell");
    srv_job_release(job);
    answer_free(a);
    world_close(&w);
    srv_bell_close(&bell);
}

/* ---- the queue ---- */

static srv_job *queued(srv_job *job, srv_queue *q, uint64_t scope, srv_priority p, double at)
{
    *job = (srv_job){.o = {.scope = scope, .priority = p}, .submitted_ms = at};
    srv_queue_add(q, job);
    return job;
}

static srv_job *turn(srv_queue *q, double now)
{
    srv_job *job = srv_queue_next(q, now);
    if (!job)
        return NULL;
    srv_queue_remove(q, job);
    srv_queue_served(q, job->o.scope);
    return job;
}

static void turns_are_fair(void **state)
{
    (void)state;
    srv_queue *q = calloc(1, sizeof *q);
    srv_job j[8];
    for (int i = 0; i < 3; i++)
        queued(&j[i], q, 1, SRV_NORMAL, 0); /* one scope has many */
    queued(&j[3], q, 2, SRV_NORMAL, 0);
    queued(&j[4], q, 3, SRV_HIGH, 0);
    queued(&j[5], q, 4, SRV_LOW, 0);
    assert_ptr_equal(turn(q, 0), &j[4]);
    assert_ptr_equal(turn(q, 0), &j[0]);
    assert_ptr_equal(turn(q, 0), &j[3]);
    queued(&j[6], q, 2, SRV_NORMAL, 0);
    assert_ptr_equal(turn(q, 0), &j[1]);
    assert_ptr_equal(turn(q, 0), &j[6]);
    queued(&j[7], q, 9, SRV_CRITICAL, 5000);
    assert_ptr_equal(turn(q, 9000), &j[7]);
    queued(&j[6], q, 9, SRV_CRITICAL, 44000); /* who waited 45 s, even as LOW, goes first */
    assert_ptr_equal(turn(q, 45000), &j[2]);
    assert_ptr_equal(turn(q, 45000), &j[5]);
    assert_ptr_equal(turn(q, 45000), &j[6]);
    assert_null(turn(q, 0));
    for (uint64_t scope = 100; scope < 100 + 2 * SRV_SCOPES; scope++)
        srv_queue_served(q, scope); /* as many as may come are not kept */
    assert_int_equal(q->n_served, SRV_SCOPES);
    free(q);
}

/* Keeps the only slot of a scheduler busy until it is released. */
static srv_job *occupy(world *w)
{
    srv_job_options o = ask(w, 10, 1900);
    o.ignore_eos = true;
    srv_job *job = submit(w, &o);
    while (load_of(w).n_active < 1)
        usleep(100);
    return job;
}

static void queue_is_bounded(void **state)
{
    (void)state;
    srv_scheduler_options so = options();
    so.max_active = 1;
    so.max_queued = 3;
    world w = world_open(&so);
    srv_job *busy = occupy(&w), *jobs[3], *one = NULL;
    srv_job_options o = ask(&w, 20, 2);
    for (int i = 0; i < 3; i++)
        jobs[i] = submit(&w, &o);
    FAILS(srv_job_submit(w.s, &o, &one, &err), BITNET_AGAIN, "3 requests");
    assert_int_equal(load_of(&w).n_queued, 3);
    srv_job_cancel(jobs[1]); /* leaves at once, not after a step */
    answer *a = calloc(1, sizeof *a);
    assert_true(answer_take(a, jobs[1], 0));
    assert_true(a->ended);
    assert_int_equal(a->error.status, BITNET_CANCELLED);
    assert_int_equal(load_of(&w).n_queued, 2);
    jobs[1] = (srv_job_release(jobs[1]), submit(&w, &o));
    srv_job_release(busy);
    for (int i = 0; i < 3; i++) {
        answer *b = calloc(1, sizeof *b);
        answer_all(b, jobs[i]);
        assert_alone(&w.n, &o, b, "after the queue");
        assert_true(b->usage.queue_ms > 0);
        srv_job_release(jobs[i]);
        answer_free(b);
    }
    assert_true(srv_scheduler_wait(w.s) >= 1);
    answer_free(a);
    world_close(&w);
}

static void deadlines_pass(void **state)
{
    (void)state;
    srv_scheduler_options so = options();
    so.max_active = 1;
    world w = world_open(&so);
    srv_job *busy = occupy(&w);
    srv_job_options o = ask(&w, 20, 2);
    o.deadline_ms = 30;
    answer *a = answer_of(w.s, &o);
    assert_int_equal(a->error.status, BITNET_CANCELLED);
    assert_non_null(strstr(a->error.message, "deadline"));
    answer_free(a);
    srv_job_release(busy);
    o = ask(&w, 20, 1900);
    o.ignore_eos = true;
    o.deadline_ms = 30;
    a = answer_of(w.s, &o);
    assert_int_equal(a->error.status, BITNET_CANCELLED);
    assert_true(a->usage.n_generated < 1900);
    answer_free(a);
    world_close(&w);
}

static bool yes(void *user)
{
    return ++*(int *)user > 2;
}

static void callbacks_cancel(void **state)
{
    (void)state;
    world w = world_open(NULL);
    int n_asked = 0;
    srv_job_options o = ask(&w, 20, 1900);
    o.ignore_eos = true;
    o.cancel = yes;
    o.cancel_user = &n_asked;
    answer *a = answer_of(w.s, &o);
    assert_int_equal(a->error.status, BITNET_CANCELLED);
    assert_int_equal(n_asked, 3);
    assert_int_equal(load_of(&w).n_cancelled, 1);
    answer_free(a);
    world_close(&w);
}

static void drains(void **state)
{
    (void)state;
    world w = world_open(NULL);
    srv_job_options o = ask(&w, 30, 60);
    srv_job *job = submit(&w, &o), *late = NULL;
    srv_scheduler_drain(w.s);
    FAILS(srv_job_submit(w.s, &o, &late, &err), BITNET_CANCELLED, "shutting down");
    answer *a = calloc(1, sizeof *a);
    answer_all(a, job);
    assert_alone(&w.n, &o, a, "while draining");
    srv_job_release(job);
    answer_free(a);
    world_close(&w);
}

/* Jobs outlive their scheduler: running ones and waiting ones are told. */
static void close_tells_everybody(void **state)
{
    (void)state;
    srv_scheduler_options so = options();
    so.max_active = 2;
    world w = world_open(&so);
    srv_job_options o = ask(&w, 30, 1900);
    o.ignore_eos = true;
    srv_job *jobs[6];
    for (int i = 0; i < 6; i++)
        jobs[i] = submit(&w, &o);
    while (load_of(&w).n_tokens < 3)
        usleep(100);
    srv_job_release(jobs[5]);
    world_close(&w);
    for (int i = 0; i < 5; i++) {
        answer *a = calloc(1, sizeof *a);
        answer_all(a, jobs[i]);
        assert_int_equal(a->error.status, BITNET_CANCELLED);
        srv_job_cancel(jobs[i]);
        srv_job_release(jobs[i]);
        answer_free(a);
    }
}

/* ---- memory ---- */

/* A cache of 12 blocks: jobs of 5 blocks each wait for one another, and nobody's blocks are taken.
 */
static void memory_is_promised(void **state)
{
    (void)state;
    world probe = world_open(NULL);
    uint64_t block = load_of(&probe).kv.block_bytes;
    world_close(&probe);
    srv_scheduler_options so = options();
    so.kv_bytes = 12 * block + 1;
    world w = world_open(&so);
    srv_job_options o = ask(&w, 200, 100);
    o.ignore_eos = true;
    srv_job *jobs[6], *one = NULL;
    for (int i = 0; i < 6; i++)
        jobs[i] = submit(&w, &o);
    for (int i = 0; i < 6; i++) {
        answer *a = calloc(1, sizeof *a);
        answer_all(a, jobs[i]);
        assert_alone(&w.n, &o, a, "in a small cache");
        srv_job_release(jobs[i]);
        answer_free(a);
    }
    assert_int_equal(load_of(&w).kv.n_blocks, 12);
    assert_int_equal(load_of(&w).kv.n_evictions, 0);
    o.n_choices = 8;
    FAILS(srv_job_submit(w.s, &o, &one, &err), BITNET_CONTEXT, "19 blocks");
    o.n_choices = 1;
    o.n_ids = 800;
    FAILS(srv_job_submit(w.s, &o, &one, &err), BITNET_CONTEXT, "768");
    world_close(&w);
}

/* ---- failures ---- */

static void refuses(void **state)
{
    (void)state;
    world w = world_open(NULL);
    srv_job *job = NULL;
    srv_job_options good = ask(&w, 10, 4), o = good;
    int32_t bad[] = {1, 1 << 20};
    o.n_ids = 0;
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_ARGUMENT, "ids");
    o = good, o.ids = bad, o.n_ids = 2;
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_ARGUMENT, "ids[1]");
    o = good, o.n_choices = 9;
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_ARGUMENT, "n_choices");
    o = good, o.n_top = 5000;
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_ARGUMENT, "n_top");
    o = good, o.priority = 9;
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_ARGUMENT, "priority");
    o = good, o.deadline_ms = NAN;
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_ARGUMENT, "deadline_ms");
    o = good, o.sampling.temperature = -1;
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_ARGUMENT, "temperature");
    o = good, o.receipt_id = "../x";
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_ARGUMENT, "receipt_id");
    const char *stops[] = {""};
    o = good, o.stops = stops, o.n_stops = 1;
    FAILS(srv_job_submit(w.s, &o, &job, &err), BITNET_ARGUMENT, "stops");
    FAILS(srv_job_submit(w.s, NULL, &job, &err), BITNET_ARGUMENT, "options");
    srv_scheduler *s = NULL;
    srv_scheduler_options so = options();
    so.piece = 100;
    FAILS(srv_scheduler_open(w.n.engine, &so, &s, &err), BITNET_ARGUMENT, "piece");
    so = options(), so.kv_bytes = 10;
    FAILS(srv_scheduler_open(w.n.engine, &so, &s, &err), BITNET_MEMORY, "max_bytes");
    assert_null(job);
    world_close(&w);
}

/* A device that fails once costs nobody anything; one that fails for ever fails everybody. */
static void device_fails(void **state)
{
    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        nano n = nano_open(1);
        n.engine->selection.kind = BNET_DEV_CUDA; /* asked for by name: nothing stands in for it */
        n.engine->selection.is_auto = false;
        world w = {.n = n};
        nano_ids(&w.n, 7, w.ids, 4096);
        break_engine(n.engine, 6, for_ever);
        srv_scheduler_options so = options();
        OK(srv_scheduler_open(n.engine, &so, &w.s, &err));
        srv_job_options o = ask(&w, 40, 30);
        o.ignore_eos = true;
        srv_job *jobs[3];
        answer *a[3];
        for (int i = 0; i < 3; i++)
            jobs[i] = submit(&w, &o);
        for (int i = 0; i < 3; i++) {
            a[i] = calloc(1, sizeof *a[i]);
            answer_all(a[i], jobs[i]);
            srv_job_release(jobs[i]);
        }
        assert_true(the_broken.n_syncs > 6);
        unbreak_engine(n.engine);
        n.engine->selection.kind = BNET_DEV_CPU;
        for (int i = 0; i < 3; i++) {
            if (for_ever) {
                assert_int_equal(a[i]->error.status, BITNET_ERROR);
                assert_non_null(strstr(a[i]->error.message, "injected"));
            } else {
                assert_alone(&n, &o, a[i], "a device that failed once");
            }
            answer_free(a[i]);
        }
        assert_int_equal(load_of(&w).n_failed, for_ever ? 3 : 0);
        world_close(&w);
    }
}

/* ---- receipts ---- */

/* Puts a receipt into the folder, as a file that the verifier reads. */
static void file_receipt(void *dir, const char *id, const char *text, size_t n_bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s.json", (const char *)dir, id);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
}

static void receipts_pass(void **state)
{
    (void)state;
    char dir[] = "/tmp/bitnet-receipts-XXXXXX", path[128];
    assert_non_null(mkdtemp(dir));
    srv_scheduler_options so = options();
    so.receipt = file_receipt;
    so.receipt_user = dir;
    world w = world_open(&so);
    srv_job_options o = ask(&w, 40, 20);
    srv_job *jobs[3];
    for (int i = 0; i < 3; i++) {
        char id[32];
        snprintf(id, sizeof id, "rcpt_%d", i);
        o.receipt_id = id;
        o.n_choices = 1 + i;
        jobs[i] = submit(&w, &o);
    }
    for (int i = 0; i < 3; i++) {
        answer *a = calloc(1, sizeof *a);
        answer_all(a, jobs[i]);
        assert_int_equal(a->error.status, BITNET_OK);
        srv_job_release(jobs[i]);
        answer_free(a);
    }
    world_close(&w); /* writes what is waiting */
    for (int i = 0; i < 3; i++) {
        bitnet_verify_options v;
        bitnet_verify_options_init(&v);
        v.model_path = NANO_PATH;
        snprintf(path, sizeof path, "%s/rcpt_%d.json", dir, i);
        OK(bitnet_receipt_verify(path, &v, NULL, &err));
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0); /* nothing else was left there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_alone),
        cmocka_unit_test(biases_count),
        cmocka_unit_test(stops_are_told),
        cmocka_unit_test(text_comes_before_marks),
        cmocka_unit_test(grammars_bind),
        cmocka_unit_test(context_ends_it),
        cmocka_unit_test(prompt_is_scored),
        cmocka_unit_test(vectors_are_pooled),
        cmocka_unit_test(chats_grow),
        cmocka_unit_test(fixed_pieces),
        cmocka_unit_test(long_prompt_stalls_nobody),
        cmocka_unit_test(short_prompt_passes_long_ones),
        cmocka_unit_test(pace_keeps_both_promises),
        cmocka_unit_test(one_bell_for_many),
        cmocka_unit_test(fast_tokens_are_told_together),
        cmocka_unit_test(from_a_bell_to_waiting),
        cmocka_unit_test(turns_are_fair),
        cmocka_unit_test(queue_is_bounded),
        cmocka_unit_test(deadlines_pass),
        cmocka_unit_test(callbacks_cancel),
        cmocka_unit_test(drains),
        cmocka_unit_test(close_tells_everybody),
        cmocka_unit_test(memory_is_promised),
        cmocka_unit_test(refuses),
        cmocka_unit_test(device_fails),
        cmocka_unit_test(receipts_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
