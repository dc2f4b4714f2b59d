/* completions.c - POST /v1/completions, whole and streamed. Several prompts are computed
 * side by side, a few at a time, and told in their order. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask/event_form.h"
#include "ask/fields.h"
#include "http/ids.h"
#include "openai/legacy.h"
#include "openai/openai.h"
#include "ask/prompts.h"
#include "ask/said.h"

#define WINDOW  8   /* prompts that are computed at a time; the most that can be streamed */
#define MAX_TOP 100 /* log-probabilities beside each token */

typedef struct completion {
    srv_exchange *x;
    srv_ask ask;
    srv_prompts prompts;
    srv_answer *answers[WINDOW]; /* of prompt i: answers[i % WINDOW] */
    size_t n_started;
    bool stream, include_usage, echo, logprobs;
    bool watch_end; /* a single token is made, and if it ends the text it must be told */
    char id[SRV_ID_MAX];
    int64_t created;
    char model[256];
    srv_usage usage; /* of all */
    srv_form words;  /* the event of a piece of text of the first choice */
} completion;

/* One choice of the prompt at hand. */
typedef struct side {
    srv_said said;
    srv_legacy legacy;
    size_t n_chars;    /* of its text, the echo included */
    size_t n_prompted; /* prompt tokens in legacy */
    bool ended;        /* by a token that ends */
} side;

/* ---- the request ---- */

static bool read_best_of(completion *c, const json_t *body)
{
    int64_t best = 1;
    if (!srv_field_int(c->x, body, "best_of", 1, INT32_MAX, &best))
        return false;
    if (!srv_field(body, "best_of") || best == c->ask.job.n_choices)
        return true;
    srv_fail(c->x, 400, "unsupported_value", "best_of",
             "best_of is %lld: it is not supported unless it equals n", (long long)best);
    return false;
}

static bool read_completion(completion *c, json_t *body)
{
    int64_t top = -1;
    c->ask.no_tokens = true;
    c->ask.job.max_tokens = 16;
    if (!srv_prompts_read(c->x, body, "prompt", &c->prompts) ||
        !srv_field_refuse(c->x, body, "suffix", "models here continue texts at their end") ||
        !srv_openai_read_stream(c->x, body, &c->stream, &c->include_usage) ||
        !srv_field_bool(c->x, body, "echo", &c->echo) ||
        !srv_field_int(c->x, body, "logprobs", 0, MAX_TOP, &top) ||
        !srv_openai_read(c->x, &c->ask, body) || !read_best_of(c, body))
        return false;
    c->logprobs = top >= 0;
    c->ask.job.n_top = (int)top;
    c->ask.job.prompt_logprobs = c->logprobs && c->echo;
    c->watch_end = c->logprobs && c->ask.job.max_tokens == 1 && c->ask.job.min_tokens == 0;
    c->ask.job.ignore_eos |= c->watch_end;
    if (c->stream && c->prompts.n > WINDOW)
        return srv_field_wrong(c->x, "prompt", "a list of at most 8 prompts where stream is true");
    return true;
}

/* ---- one prompt ---- */

/* Starts the next prompts as far as the window allows. False: the client was told. */
static bool start_more(completion *c, size_t current)
{
    while (c->n_started < c->prompts.n && c->n_started < current + WINDOW) {
        srv_answer **slot = &c->answers[c->n_started % WINDOW];
        if (!srv_prompts_set(c->x, &c->prompts, c->n_started, &c->ask) ||
            !srv_ask_start(c->x, &c->ask, slot))
            return false;
        c->n_started++;
    }
    return true;
}

static const json_t *given_prompt(const completion *c, size_t i)
{
    return c->prompts.is_list ? json_array_get(c->prompts.value, i) : c->prompts.value;
}

/* The prompt as the client gave it, or as its tokens read, without special ones. */
static bool echo_text(const completion *c, size_t i, const srv_answer *answer, srv_textbuf *out)
{
    const json_t *given = given_prompt(c, i);
    size_t n_ids, n = 0;
    const int32_t *ids = srv_answer_prompt(answer, &n_ids);
    const bitnet_engine *engine = srv_answer_model(answer)->engine;
    if (json_is_string(given)) {
        srv_textbuf_add(out, json_string_value(given), json_string_length(given));
        return !out->failed;
    }
    bitnet_status st = bitnet_detokenize(engine, ids, n_ids, 0, NULL, 0, &n, NULL);
    char *bytes = malloc(n + 1);
    if (bytes && n)
        st = bitnet_detokenize(engine, ids, n_ids, 0, bytes, n, &n, NULL);
    if (bytes && st == BITNET_OK)
        srv_textbuf_utf8(out, bytes, n);
    out->failed |= !bytes || st != BITNET_OK;
    free(bytes);
    return !out->failed;
}

/* Adds prompt tokens up to, and with, the one of the event; the first has no log-probability. */
static void add_prompt_token(side *s, const srv_answer *answer, const srv_event *e)
{
    size_t n;
    const int32_t *ids = srv_answer_prompt(answer, &n);
    const srv_model *model = srv_answer_model(answer);
    if (s->n_prompted == 0 && n)
        srv_legacy_add(&s->legacy, model, ids[s->n_prompted++], NULL, 0);
    if (e)
        srv_legacy_add(&s->legacy, model, e->id, e, 0), s->n_prompted++;
}

/* Whether the first token is in no text: BOS stands there once more often than in the text. */
static bool has_added_bos(const srv_model *model, const json_t *given, const int32_t *ids, size_t n)
{
    size_t n_ids = 0, n_bos = 0, at = 0, n_text = json_string_length(given);
    const char *bos = bitnet_token_bytes(model->engine, model->info->bos_id, &n_bos);
    while (n_ids < n && ids[n_ids] == model->info->bos_id)
        n_ids++;
    while (n_bos && n_text - at >= n_bos && memcmp(json_string_value(given) + at, bos, n_bos) == 0)
        at += n_bos;
    return n_ids > (n_bos ? at / n_bos : 0);
}

/* Where each prompt token's text begins, in characters of the echo: of a text special tokens are
 * part of it, of tokens they are not. */
static void set_offsets(side *s, const srv_answer *answer, const json_t *given)
{
    size_t n_ids, chars = 0, n = 0;
    const char *text = "";
    bitnet_stream *stream = NULL;
    bitnet_stream_options o;
    const int32_t *ids = srv_answer_prompt(answer, &n_ids);
    const srv_model *model = srv_answer_model(answer);
    bitnet_stream_options_init(&o);
    o.print_special = json_is_string(given);
    bool unseen = o.print_special && has_added_bos(model, given, ids, n_ids);
    if (bitnet_stream_open(model->engine, &o, &stream, NULL) != BITNET_OK)
        return;
    for (size_t i = 0; i < n_ids && i < json_array_size(s->legacy.offsets); i++) {
        size_t at = chars < s->n_chars ? chars : s->n_chars;
        json_array_set_new(s->legacy.offsets, i, json_integer((json_int_t)at));
        if (!(unseen && i == 0) &&
            bitnet_stream_push(stream, ids[i], &text, &n, NULL, NULL) == BITNET_OK)
            chars += srv_legacy_chars(text, n);
    }
    bitnet_stream_close(stream);
}

static bool take_token(completion *c, side *s, const srv_answer *answer, const srv_delta *d)
{
    const srv_model *model = srv_answer_model(answer);
    if (d->has_token) {
        s->ended = c->watch_end && bitnet_token_stops(model->engine, d->event->id);
        if (c->logprobs && !srv_legacy_made(&s->legacy, answer, d->event))
            return false;
    }
    s->n_chars += srv_utf8_count(d->text, d->n_text);
    return srv_said_take(&s->said, d);
}

static const char *finish_of(const side *s)
{
    return s->ended ? "stop" : s->said.finish ? s->said.finish : "length";
}

/* ---- replies ---- */

static json_t *choice_json(const completion *c, size_t index, json_t *text, side *s,
                           const char *finish)
{
    bool tells = c->logprobs && (!c->stream || json_array_size(s->legacy.tokens));
    json_t *legacy = tells ? srv_legacy_take(&s->legacy) : json_null();
    return json_pack("{s:o, s:I, s:o, s:s?}", "text", text, "index", (json_int_t)index, "logprobs",
                     legacy, "finish_reason", finish);
}

static json_t *reply_json(const completion *c, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object", "text_completion",
                     "created", (json_int_t)c->created, "model", c->model, "system_fingerprint",
                     srv_openai_fingerprint(), "choices", choices);
}

static json_t *chunk_json(const completion *c, json_t *choices, json_t *usage)
{
    json_t *chunk = reply_json(c, choices);
    if (c->include_usage)
        json_object_set_new(chunk, "usage", usage ? usage : json_null());
    return chunk;
}

static bool send_chunk(completion *c, json_t *choices, json_t *usage)
{
    return srv_stream_event(c->x, NULL, chunk_json(c, choices, usage));
}

static void add_usage(srv_usage *all, const srv_usage *one)
{
    all->n_prompt += one->n_prompt;
    all->n_cached += one->n_cached;
    all->n_generated += one->n_generated;
}

/* ---- one prompt, whole or streamed ---- */

typedef struct work {
    completion *c;
    size_t prompt;
    srv_answer *answer;
    side *sides; /* [n_choices] */
    json_t *choices;
    bitnet_error error; /* that the reply is too large */
    size_t n_charged;   /* for log-probabilities of this prompt */
    bool begun;         /* the echo of this prompt */
    bool *stream_begun; /* the stream of all prompts */
} work;

static bool begin_sides(work *w)
{
    completion *c = w->c;
    int n = c->ask.job.n_choices;
    w->sides = calloc((size_t)n, sizeof *w->sides);
    for (int i = 0; w->sides && i < n; i++) {
        side *s = &w->sides[i];
        srv_legacy_open(&s->legacy);
        if (c->echo && !echo_text(c, w->prompt, w->answer, &s->said.text))
            return false;
        s->n_chars = s->said.text.n ? srv_utf8_count(s->said.text.data, s->said.text.n) : 0;
        s->legacy.n_chars = s->n_chars;
    }
    return w->sides != NULL;
}

static void free_sides(work *w)
{
    for (int i = 0; w->sides && i < w->c->ask.job.n_choices; i++) {
        srv_said_free(&w->sides[i].said);
        srv_legacy_free(&w->sides[i].legacy);
    }
    free(w->sides);
}

/* Is there room for the log-probabilities of so many tokens? */
static bool charge(work *w, int n_tokens)
{
    size_t n = (size_t)n_tokens * SRV_LEGACY_BYTES(w->c->ask.job.n_top);
    if (srv_reply_charge(w->c->x, n, &w->error) != BITNET_OK)
        return false;
    w->n_charged += n;
    return true;
}

/* Every choice has the same prompt. */
static bool take_prompt_token(work *w, const srv_event *e)
{
    if (!w->c->echo || !w->c->logprobs)
        return true;
    if (!charge(w, w->c->ask.job.n_choices))
        return false;
    for (int i = 0; i < w->c->ask.job.n_choices; i++)
        add_prompt_token(&w->sides[i], w->answer, e);
    return true;
}

/* The prompt is over: what generated tokens stand behind. */
static void end_prompt(work *w)
{
    if (w->begun)
        return;
    w->begun = true;
    take_prompt_token(w, NULL);
    for (int i = 0; w->c->echo && w->c->logprobs && i < w->c->ask.job.n_choices; i++)
        set_offsets(&w->sides[i], w->answer, given_prompt(w->c, w->prompt));
}

/* Most chunks are a piece of text of the only choice. */
static bool send_words(completion *c, side *s)
{
    static const char mark[] = "<the words>";
    bool ready = c->words.n_before != 0;
    if (!ready) {
        json_t *one = choice_json(c, 0, json_string(mark), s, NULL);
        ready = srv_form_open(&c->words, chunk_json(c, json_pack("[o]", one), NULL), mark);
    }
    return ready && srv_form_write(&c->words, c->x, s->said.text.data, s->said.text.n);
}

/* Sends what a choice has and forgets it. */
static bool flush(work *w, int choice, const char *finish)
{
    side *s = &w->sides[choice];
    size_t index = w->prompt * (size_t)w->c->ask.job.n_choices + (size_t)choice;
    bool empty = s->said.text.n == 0 && json_array_size(s->legacy.tokens) == 0;
    if (empty && !finish)
        return true;
    if (index == 0 && !finish && !w->c->logprobs) {
        bool good = send_words(w->c, s);
        srv_textbuf_drop(&s->said.text, s->said.text.n);
        return good;
    }
    json_t *one = choice_json(w->c, index, srv_said_text(&s->said.text), s, finish);
    srv_textbuf_drop(&s->said.text, s->said.text.n);
    return send_chunk(w->c, json_pack("[o]", one), NULL);
}

/* Takes one delta; a stream tells it at once. */
static bool take_delta(work *w, const srv_delta *d)
{
    if (d->kind == SRV_DELTA_PROMPT)
        return take_prompt_token(w, d->event);
    end_prompt(w);
    side *s = &w->sides[d->choice];
    bool gathers = w->c->logprobs && d->has_token && !w->c->stream;
    bool good = (!gathers || charge(w, 1)) && take_token(w->c, s, w->answer, d);
    if (good && w->c->stream)
        good = flush(w, d->choice, d->kind == SRV_DELTA_FINISH ? finish_of(s) : NULL);
    return good;
}

static void begin_stream(work *w)
{
    if (!*w->stream_begun)
        srv_stream_begin(w->c->x, SRV_EVENT_STREAM);
    *w->stream_begun = true;
}

/* Nothing is heard from the first prompt for long: the stream begins without words. */
static void begin_waiting(work *w)
{
    if (!*w->stream_begun && !srv_answer_soon(w->answer))
        begin_stream(w);
}

static bool take_streamed(void *work_, const srv_delta *d)
{
    begin_stream(work_);
    return take_delta(work_, d);
}

/* All deltas of one prompt. *end: its END, once true was returned. */
static bool read_stream(work *w, srv_delta *end)
{
    bool ended = srv_answer_each(w->answer, take_streamed, w, end);
    if (ended && end->event->error.status == BITNET_OK)
        begin_stream(w);
    return ended;
}

/* The same of a whole answer; and of a stream that tells its prompt, which may be long. */
static bool read_answer(work *w, srv_delta *end)
{
    if (w->c->stream)
        begin_waiting(w);
    if (w->c->stream && !w->c->echo)
        return read_stream(w, end);
    while (srv_answer_next(w->answer, end)) {
        if (w->c->stream && end->event->error.status == BITNET_OK)
            begin_stream(w);
        if (end->kind == SRV_DELTA_END)
            return true;
        if (!take_delta(w, end))
            return false;
    }
    return false;
}

/* Adds the choices of a whole answer, or what a stream without any token still has to tell. */
static bool finish_prompt(work *w)
{
    end_prompt(w);
    for (int i = 0; i < w->c->ask.job.n_choices; i++) {
        side *s = &w->sides[i];
        size_t index = w->prompt * (size_t)w->c->ask.job.n_choices + (size_t)i;
        if (!w->c->stream)
            json_array_append_new(w->choices, choice_json(w->c, index, srv_said_text(&s->said.text),
                                                          s, finish_of(s)));
        else if (!s->said.finish && !flush(w, i, finish_of(s)))
            return false;
    }
    return true;
}

/* ---- all prompts ---- */

static void tell_failure(completion *c, const bitnet_error *err, bool stream_begun)
{
    if (!stream_begun) {
        srv_fail_with(c->x, err);
        return;
    }
    srv_openai_stream_error(c->x, err);
    srv_openai_stream_done(c->x);
}

/* False: everything is told already, or nobody listens. */
static bool one_prompt(completion *c, size_t i, json_t *choices, bool *stream_begun)
{
    static const bitnet_error no_memory = {BITNET_MEMORY, "out of memory"};
    srv_delta end = {0};
    if (!start_more(c, i))
        return false;
    work w = {.c = c, .prompt = i, .answer = c->answers[i % WINDOW], .choices = choices};
    w.stream_begun = stream_begun;
    bool good = begin_sides(&w), read = good && read_answer(&w, &end);
    if (w.error.status != BITNET_OK)
        tell_failure(c, &w.error, *stream_begun);
    else if (!good || (!read && !c->stream))
        tell_failure(c, &no_memory, *stream_begun);
    else if (!read)
        srv_stream_end(c->x); /* nobody listens */
    else if (end.event->error.status != BITNET_OK)
        tell_failure(c, &end.event->error, *stream_begun);
    good = read && end.event->error.status == BITNET_OK;
    if (good) {
        add_usage(&c->usage, &end.event->usage);
        finish_prompt(&w);
    }
    if (c->stream)
        srv_reply_sent(c->x, w.n_charged);
    free_sides(&w);
    srv_answer_close(w.answer);
    c->answers[i % WINDOW] = NULL;
    return good;
}

static void answer_all(completion *c)
{
    json_t *choices = json_array();
    bool stream_begun = false, good = true;
    for (size_t i = 0; i < c->prompts.n && good; i++)
        good = one_prompt(c, i, choices, &stream_begun);
    if (good && c->stream) {
        if (c->include_usage)
            send_chunk(c, json_array(), srv_openai_usage(&c->usage));
        srv_openai_stream_done(c->x);
    } else if (good) {
        json_t *reply = reply_json(c, json_incref(choices));
        json_object_set_new(reply, "usage", srv_openai_usage(&c->usage));
        srv_reply_json(c->x, 200, reply);
    }
    json_decref(choices);
}

void srv_openai_completions(srv_exchange *x)
{
    completion *c = calloc(1, sizeof *c);
    json_t *body = srv_body_json(x);
    if (body && !c)
        srv_fail(x, 503, "out_of_memory", NULL, "out of memory");
    if (!body || !c) {
        free(c);
        return;
    }
    c->x = x;
    c->created = (int64_t)time(NULL);
    srv_ask_init(&c->ask);
    srv_id(c->id, "cmpl-");
    if (read_completion(c, body) && start_more(c, 0)) {
        strncpy(c->model, srv_answer_model(c->answers[0])->name, sizeof c->model - 1);
        srv_answer_tell_receipt(x, c->answers[0]);
        answer_all(c);
    }
    for (size_t i = 0; i < WINDOW; i++)
        srv_answer_close(c->answers[i]);
    srv_form_free(&c->words);
    srv_prompts_free(&c->prompts);
    srv_ask_free(&c->ask);
    free(c);
}
