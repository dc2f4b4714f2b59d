/* scheduler_choice.c - one continuation: what it may choose, what a chosen token does to it, why it
 * ends. The order of the checks is that of bitnet_generate. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/scheduler_impl.h"

/* ---- what may be chosen ---- */

static bool is_end(const srv_scheduler *s, int32_t id)
{
    return bitnet_token_stops(s->engine, id);
}

/* The job's biases, and -INFINITY for every end while they are forbidden; returns how many. */
static size_t list_biases(srv_scheduler *s, const srv_choice *c, bitnet_bias *out)
{
    const srv_job_options *o = &c->job->o;
    size_t n = 0;
    for (size_t i = 0; i < o->n_biases; i++)
        if (!c->no_ends || !is_end(s, o->biases[i].id))
            out[n++] = o->biases[i];
    for (size_t i = 0; c->no_ends && i < s->n_ends; i++)
        out[n++] = (bitnet_bias){s->ends[i], -INFINITY};
    return n;
}

static size_t count_forbidden(const bitnet_bias *biases, size_t n)
{
    size_t n_forbidden = 0;
    for (size_t i = 0; i < n; i++)
        n_forbidden += isinf(biases[i].bias) && biases[i].bias < 0;
    return n_forbidden;
}

/* Takes the ids that biases forbid out of the mask; returns whether any id is left. */
static bool leave_allowed(uint32_t *mask, size_t n_words, const bitnet_bias *biases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isinf(biases[i].bias) && biases[i].bias < 0)
            mask[biases[i].id / 32] &= ~(UINT32_C(1) << biases[i].id % 32);
    for (size_t i = 0; i < n_words; i++)
        if (mask[i])
            return true;
    return false;
}

/* Fails where biases forbid all that the grammar allows: ERROR if the text is whole, as where the
 * model has no token to end with, else ARGUMENT. Requires: a matcher. */
static bitnet_status check_left(const srv_scheduler *s, srv_choice *c, const bitnet_bias *biases,
                                size_t n, bitnet_error *err)
{
    size_t n_words = ((size_t)s->info->n_vocab + 31) / 32;
    if (!count_forbidden(biases, n))
        return BITNET_OK;
    uint32_t *mask = malloc(n_words * sizeof *mask);
    if (!mask)
        return srv_no_memory(err);
    bitnet_status st = bitnet_matcher_mask(c->matcher, mask, n_words, err);
    bool whole = c->n_made && bitnet_matcher_done(c->matcher);
    if (st == BITNET_OK && !leave_allowed(mask, n_words, biases, n))
        st = srv_error(err, whole ? BITNET_ERROR : BITNET_ARGUMENT,
                       "logit_bias forbids every token with which the text can go on in its "
                       "grammar: leave one of the two out");
    free(mask);
    return st;
}

/* Tells the sampler what its next choice is restricted to. */
static bitnet_status constrain(srv_scheduler *s, srv_choice *c, bitnet_error *err)
{
    bitnet_constraints k;
    bitnet_constraints_init(&k);
    size_t most = c->job->o.n_biases + s->n_ends;
    bitnet_bias *biases = malloc((most ? most : 1) * sizeof *biases);
    if (!biases)
        return srv_no_memory(err);
    k.biases = biases;
    k.n_biases = list_biases(s, c, biases);
    bitnet_status st = BITNET_OK;
    if (c->matcher)
        st = check_left(s, c, k.biases, k.n_biases, err);
    else if (count_forbidden(biases, k.n_biases) >= (size_t)s->info->n_vocab)
        st = srv_error(err, BITNET_ARGUMENT, "logit_bias forbids every token of the model");
    if (st == BITNET_OK)
        st = c->matcher ? bitnet_matcher_constrain(c->matcher, c->sampler, biases, k.n_biases, err)
                        : bitnet_sampler_constrain(c->sampler, &k, err);
    free(biases);
    return st;
}

/* ---- opening and closing ---- */

static bitnet_status open_stream(const srv_scheduler *s, srv_choice *c, bitnet_error *err)
{
    const srv_job_options *o = &c->job->o;
    bitnet_stream_options so;
    bitnet_stream_options_init(&so);
    so.stops = o->stops;
    so.n_stops = o->n_stops;
    so.print_special = o->print_special;
    so.continues = !bitnet_token_special(s->engine, o->ids[o->n_ids - 1]);
    return bitnet_stream_open(s->engine, &so, &c->stream, err);
}

/* The grammar may be closed once the job is submitted: later choices go by the first one's copy. */
static bitnet_status open_matcher(const srv_scheduler *s, srv_choice *c, bitnet_error *err)
{
    const srv_job_options *o = &c->job->o;
    bool continues = !bitnet_token_special(s->engine, o->ids[o->n_ids - 1]);
    if (c->index > 0)
        return bitnet_matcher_fork(c->job->choices[0].matcher, &c->matcher, err);
    return bitnet_matcher_open(o->grammar, continues, &c->matcher, err);
}

bitnet_status srv_choice_open(srv_scheduler *s, srv_choice *c, bitnet_error *err)
{
    const srv_job_options *o = &c->job->o;
    bitnet_sampler_options so = o->sampling;
    so.seed += (uint64_t)c->index;
    c->no_ends = o->min_tokens > 0 && !o->ignore_eos && !o->grammar && s->n_ends;
    bitnet_status st = bitnet_sampler_open(&so, s->info->n_vocab, &c->sampler, err);
    if (st == BITNET_OK)
        st = open_stream(s, c, err);
    if (st == BITNET_OK && o->grammar)
        st = open_matcher(s, c, err);
    double begun = srv_now_ms();
    if (st == BITNET_OK && (o->n_biases || c->no_ends || c->matcher))
        st = constrain(s, c, err);
    c->mask_ms = srv_now_ms() - begun;
    return st;
}

void srv_choice_close(srv_choice *c)
{
    bitnet_session_close(c->session);
    bitnet_sampler_close(c->sampler);
    bitnet_stream_close(c->stream);
    bitnet_matcher_close(c->matcher);
    free(c->ids);
    srv_bytes_free(&c->text);
    c->session = NULL;
    c->sampler = NULL;
    c->stream = NULL;
    c->matcher = NULL;
    c->ids = NULL;
}

/* ---- which stop string it was ---- */

enum { TAIL_MAX = 4096 };

/* The text of the last tokens, the one just chosen included: enough for any stop string. Returns
 * its length; *n_last: the length of the last token. */
static size_t tail_of(const srv_scheduler *s, const srv_choice *c, int32_t last, char *out,
                      size_t *n_last)
{
    size_t n = TAIL_MAX, n_bytes, n_old = bitnet_session_position(c->session);
    size_t begin = c->job->o.n_ids;
    const int32_t *old = bitnet_session_tokens(c->session);
    const char *bytes = bitnet_token_bytes(s->engine, last, &n_bytes);
    *n_last = n_bytes;
    for (size_t i = n_old + 1; bytes && n >= n_bytes && i > begin; i--) {
        n -= n_bytes;
        memcpy(out + n, bytes, n_bytes);
        if (i == begin + 1 || TAIL_MAX - n > 2 * BITNET_STOP_MAX + *n_last)
            break;
        int32_t id = old[i - 2];
        bool shown = c->job->o.print_special || !bitnet_token_special(s->engine, id);
        bytes = bitnet_token_bytes(s->engine, id, &n_bytes);
        n_bytes = shown ? n_bytes : 0;
        if (!shown && c->job->o.marks)
            break;
    }
    memmove(out, out + n, TAIL_MAX - n);
    return TAIL_MAX - n;
}

/* The earliest of those that the last token completed; the first of equals. */
static int which_stop(const srv_scheduler *s, const srv_choice *c, int32_t last)
{
    char tail[TAIL_MAX];
    size_t n_last, n = c->job->o.n_stops, best_at = SIZE_MAX;
    int best = 0;
    if (n == 1)
        return 0;
    size_t n_tail = tail_of(s, c, last, tail, &n_last);
    for (size_t i = 0; i < n; i++) {
        const char *stop = c->job->o.stops[i];
        size_t length = strlen(stop), old = n_tail > n_last ? n_tail - n_last : 0;
        size_t from = old > length ? old - length : 0;
        const char *at = memmem(tail + from, n_tail - from, stop, length);
        if (at && (size_t)(at - tail) < best_at) {
            best_at = (size_t)(at - tail);
            best = (int)i;
        }
    }
    return best;
}

/* ---- a token ---- */

/* Keeps it for the receipt. */
static void keep_text(srv_choice *c, const char *text, size_t n_text)
{
    if (c->ids && !srv_bytes_add(&c->text, text, n_text))
        c->job->no_room = true;
}

static void count(srv_scheduler *s, srv_choice *c, int32_t id)
{
    double now = srv_now_ms();
    if (c->ids)
        c->ids[c->n_made] = id;
    c->n_made++;
    c->job->usage.n_generated++;
    if (c->n_made == 1)
        c->first_ms = now;
    if (c->job->usage.first_token_ms == 0)
        c->job->usage.first_token_ms = now - c->job->submitted_ms;
    s->n_made++;
}

/* There is no room for another token after this one. */
static bool ends_by_count(const srv_scheduler *s, const srv_choice *c, bitnet_finish *finish)
{
    if (c->n_made >= c->job->o.max_tokens)
        *finish = BITNET_FINISH_LENGTH;
    else if (bitnet_session_position(c->session) >= s->limit)
        *finish = BITNET_FINISH_CONTEXT;
    else
        return false;
    return true;
}

/* Text before a mark is whole: it is no beginning of a stop string. */
static bool is_mark(const srv_scheduler *s, const srv_choice *c, int32_t id)
{
    return c->job->o.marks && !c->job->o.print_special && bitnet_token_special(s->engine, id);
}

/* The text that the token allows to be shown; false: the job has failed. */
static bool speak(srv_scheduler *s, srv_choice *c, const srv_told *told, bool *stopped)
{
    const char *text;
    size_t n_text;
    bitnet_error e = {0};
    bitnet_status st = is_mark(s, c, told->id)
                           ? bitnet_stream_finish(c->stream, &text, &n_text, &e)
                           : bitnet_stream_push(c->stream, told->id, &text, &n_text, stopped, &e);
    if (st != BITNET_OK) {
        srv_job_end(s, c->job, e.status, "%s", e.message);
        return false;
    }
    keep_text(c, text, n_text);
    srv_event_token(c, told, text, n_text);
    return true;
}

/* What may be chosen after the id; *done: nothing may, and the text is whole. False: the job has
 * failed. */
static bool restrict_next(srv_scheduler *s, srv_choice *c, int32_t id, bool *done)
{
    bitnet_error e = {0};
    bitnet_status st = c->matcher ? bitnet_matcher_accept(c->matcher, id, &e) : BITNET_OK;
    bool freed = c->no_ends && c->n_made >= c->job->o.min_tokens;
    c->no_ends = c->no_ends && !freed;
    if (st == BITNET_OK && (c->matcher || freed))
        st = constrain(s, c, &e);
    *done = st == BITNET_ERROR && c->matcher && bitnet_matcher_done(c->matcher);
    if (st != BITNET_OK && !*done)
        srv_job_end(s, c->job, st, "%s", e.message);
    return st == BITNET_OK || *done;
}

void srv_choice_take(srv_scheduler *s, srv_choice *c, const srv_told *told)
{
    const srv_job_options *o = &c->job->o;
    bool stopped = false;
    bitnet_finish finish;
    count(s, c, told->id);
    if ((!o->ignore_eos || c->matcher) && is_end(s, told->id)) {
        srv_choice_finish(s, c, BITNET_FINISH_EOS, -1);
        return;
    }
    if (!speak(s, c, told, &stopped))
        return;
    if (stopped)
        srv_choice_finish(s, c, BITNET_FINISH_STOP_STRING, which_stop(s, c, told->id));
    else if (ends_by_count(s, c, &finish))
        srv_choice_finish(s, c, finish, -1);
    else {
        c->next = told->id;
        if (c->matcher)
            c->waits = ++s->last_wait;
        else
            srv_choice_restrict(s, c);
    }
}

void srv_choice_restrict(srv_scheduler *s, srv_choice *c)
{
    bool done = false;
    if (restrict_next(s, c, c->next, &done) && done)
        srv_choice_finish(s, c, BITNET_FINISH_EOS, -1);
}

void srv_choice_finish(srv_scheduler *s, srv_choice *c, bitnet_finish finish, int stop)
{
    const char *text = "";
    size_t n_text = 0;
    if (c->stream && finish != BITNET_FINISH_STOP_STRING)
        bitnet_stream_finish(c->stream, &text, &n_text, NULL);
    keep_text(c, text, n_text);
    srv_event_finish(c, finish, stop, text, n_text);
    if (c->first_ms > 0) {
        double ms = srv_now_ms() - c->first_ms;
        srv_usage *u = &c->job->usage;
        u->decode_ms = ms > u->decode_ms ? ms : u->decode_ms;
    }
    srv_choice_leave(s, c, finish);
    if (--c->job->n_open == 0)
        srv_job_end(s, c->job, BITNET_OK, "%s", "");
}

/* ---- after the prompt ---- */

/* The first token of a choice other than the first, from the logits that all begin with. */
static bitnet_status first_of(srv_scheduler *s, srv_choice *c, const float *logits, srv_told *told,
                              bitnet_logprob *top, bitnet_error *err)
{
    const srv_job_options *o = &c->job->o;
    bitnet_logprob chosen;
    bitnet_status st = bitnet_sampler_pick(c->sampler, logits, o->ids, o->n_ids, &told->id, err);
    if (st != BITNET_OK || o->n_top < 0)
        return st;
    chosen.id = told->id;
    told->top = top;
    told->n_top = (size_t)o->n_top;
    st = bitnet_logprobs(logits, s->info->n_vocab, &chosen, 1, top, told->n_top, err);
    told->logprob = chosen.logprob;
    return st;
}

/* Forks the session for the choice and chooses its first token. */
static bitnet_status begin(srv_scheduler *s, srv_choice *c, srv_told *told, bitnet_logprob *top,
                           bitnet_error *err)
{
    const srv_choice *from = &c->job->choices[0];
    const float *logits = bitnet_session_logits(from->session);
    if (!logits)
        return srv_error(err, BITNET_ERROR, "the logits of the prompt could not be computed");
    bitnet_status st = srv_choice_open(s, c, err);
    if (st == BITNET_OK)
        st = first_of(s, c, logits, told, top, err);
    if (st == BITNET_OK)
        st = bitnet_session_fork(from->session, c->job->o.n_ids, &c->session, err);
    if (st == BITNET_OK) {
        bitnet_session_on_cancel(c->session, srv_job_unwanted_fn, c->job);
        c->live = true;
    }
    return st;
}

/* All forks are made before any of them moves. */
void srv_choices_begin(srv_scheduler *s, srv_job *job, const srv_told *told)
{
    int n = job->o.n_choices;
    size_t n_top = job->o.n_top > 0 ? (size_t)job->o.n_top : 0;
    srv_told *first = calloc((size_t)n, sizeof *first);
    bitnet_logprob *tops = calloc((size_t)n * n_top + 1, sizeof *tops);
    bitnet_error e = {0};
    bitnet_status st = first && tops ? BITNET_OK : srv_no_memory(&e);
    for (int i = 1; i < n && st == BITNET_OK; i++)
        st = begin(s, &job->choices[i], &first[i], tops + (size_t)i * n_top, &e);
    if (st != BITNET_OK)
        srv_job_end(s, job, st, "%s", e.message);
    for (int i = 0; i < n && !job->over; i++)
        srv_choice_take(s, &job->choices[i], i ? &first[i] : told);
    free(first);
    free(tops);
}
