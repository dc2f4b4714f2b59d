/* chat.c - POST /v1/chat/completions, whole and streamed. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask/event_form.h"
#include "ask/fields.h"
#include "http/ids.h"
#include "openai/openai.h"
#include "ask/said.h"
#include "server.h"

#define MAX_TOP 20

typedef struct chat {
    srv_exchange *x;
    srv_ask ask;
    srv_answer *answer;
    const char *model; /* its name */
    bool stream, include_usage, logprobs;
    bool begun; /* the stream */
    char id[SRV_ID_MAX];
    int64_t created;
    srv_form words; /* the event of a piece of text of choice 0 */
} chat;

/* ---- the request ---- */

static bool read_logprobs(chat *c, json_t *body)
{
    int64_t top = -1;
    if (!srv_field_bool(c->x, body, "logprobs", &c->logprobs) ||
        !srv_field_int(c->x, body, "top_logprobs", 0, MAX_TOP, &top))
        return false;
    if (top > 0 && !c->logprobs)
        return srv_field_wrong(c->x, "top_logprobs", "left out unless logprobs is true");
    c->ask.job.n_top = !c->logprobs ? -1 : top > 0 ? (int)top : 0;
    return true;
}

/* "function_call": "none" */
static bool asks_for_nothing(const json_t *body)
{
    const char *word = json_string_value(json_object_get(body, "function_call"));
    return word && strcmp(word, "none") == 0;
}

static bool refuse_others(srv_exchange *x, const json_t *body)
{
    return srv_field_refuse(x, body, "functions", "use tools") &&
           (asks_for_nothing(body) ||
            srv_field_refuse(x, body, "function_call", "use tool_choice")) &&
           srv_field_refuse(x, body, "audio", "models here read and write text alone") &&
           srv_field_refuse(x, body, "web_search_options", "this server reaches no network");
}

static bool read_chat(chat *c, json_t *body)
{
    c->ask.messages = srv_field(body, "messages");
    c->ask.tools = srv_field(body, "tools");
    c->ask.tool_choice = srv_field(body, "tool_choice");
    if (!c->ask.messages)
        return srv_field_wrong(c->x, "messages", "given: a list of 1 to 8192 messages");
    if (!refuse_others(c->x, body) ||
        !srv_openai_read_stream(c->x, body, &c->stream, &c->include_usage))
        return false;
    c->ask.whole_calls = !c->stream;
    return read_logprobs(c, body) && srv_openai_read(c->x, &c->ask, body);
}

/* ---- whole ---- */

static json_t *message_of(srv_said *s)
{
    json_t *content = s->calls && s->text.n == 0 ? json_null() : srv_said_text(&s->text);
    json_t *m = json_pack("{s:s, s:o, s:n, s:[]}", "role", "assistant", "content", content,
                          "refusal", "annotations");
    if (s->reasoning.n)
        json_object_set_new(m, "reasoning_content", srv_said_text(&s->reasoning));
    if (s->calls)
        json_object_set(m, "tool_calls", s->calls);
    return m;
}

static json_t *choice_of(int index, srv_said *s, json_t *logprobs)
{
    return json_pack("{s:i, s:o, s:o, s:s}", "index", index, "message", message_of(s), "logprobs",
                     logprobs ? json_pack("{s:O, s:n}", "content", logprobs, "refusal")
                              : json_null(),
                     "finish_reason", s->finish ? s->finish : "stop");
}

static json_t *whole_reply(chat *c, srv_said *said, json_t **logprobs, const srv_usage *usage)
{
    json_t *choices = json_array();
    for (int i = 0; i < c->ask.job.n_choices; i++)
        json_array_append_new(choices, choice_of(i, &said[i], c->logprobs ? logprobs[i] : NULL));
    json_t *reply =
        json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:s}", "id", c->id, "object", "chat.completion",
                  "created", (json_int_t)c->created, "model", c->model, "choices", choices, "usage",
                  srv_openai_usage(usage), "system_fingerprint", srv_openai_fingerprint());
    srv_openai_receipt(reply, c->answer);
    return reply;
}

static void take_delta(chat *c, srv_said *said, json_t **logprobs, const srv_delta *d,
                       bitnet_error *err)
{
    if (!srv_said_take(&said[d->choice], d))
        *err = (bitnet_error){BITNET_MEMORY, "out of memory"};
    else if (c->logprobs && d->has_token &&
             srv_reply_charge(c->x, SRV_LOGPROB_BYTES(c->ask.job.n_top), err) == BITNET_OK)
        json_array_append_new(logprobs[d->choice],
                              srv_openai_logprob(srv_answer_model(c->answer), d->event));
}

static void answer_whole(chat *c)
{
    int n = c->ask.job.n_choices;
    bitnet_error err = {0};
    srv_delta d = {0};
    srv_said *said = calloc((size_t)n, sizeof *said);
    json_t **logprobs = calloc((size_t)n, sizeof(json_t *));
    for (int i = 0; logprobs && i < n; i++)
        logprobs[i] = json_array();
    while (said && logprobs && err.status == BITNET_OK && srv_answer_next(c->answer, &d) &&
           d.kind != SRV_DELTA_END)
        take_delta(c, said, logprobs, &d, &err);
    if (!said || !logprobs)
        srv_fail(c->x, 503, "out_of_memory", NULL, "out of memory");
    else if (err.status != BITNET_OK || d.event->error.status != BITNET_OK)
        srv_fail_with(c->x, err.status != BITNET_OK ? &err : &d.event->error);
    else
        srv_reply_json(c->x, 200, whole_reply(c, said, logprobs, &d.event->usage));
    for (int i = 0; i < n; i++) {
        if (said)
            srv_said_free(&said[i]);
        if (logprobs)
            json_decref(logprobs[i]);
    }
    free(said);
    free(logprobs);
}

/* ---- streamed ---- */

static json_t *chunk(const chat *c, json_t *choices)
{
    json_t *out =
        json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object", "chat.completion.chunk",
                  "created", (json_int_t)c->created, "model", c->model, "system_fingerprint",
                  srv_openai_fingerprint(), "choices", choices);
    if (c->include_usage)
        json_object_set_new(out, "usage", json_null());
    return out;
}

/* A chunk about one choice; takes `delta` and `logprobs` (NULL: none) over. */
static json_t *choice_chunk(const chat *c, int index, json_t *delta, json_t *logprobs,
                            const char *finish)
{
    json_t *wrapped =
        logprobs ? json_pack("{s:[o], s:n}", "content", logprobs, "refusal") : json_null();
    json_t *choice =
        json_pack("{s:i, s:o, s:o, s:s?}", "index", index, "delta", delta ? delta : json_object(),
                  "logprobs", wrapped, "finish_reason", finish);
    return chunk(c, json_pack("[o]", choice));
}

static bool send_choice(chat *c, int index, json_t *delta, json_t *logprobs, const char *finish)
{
    return srv_stream_event(c->x, NULL, choice_chunk(c, index, delta, logprobs, finish));
}

/* Most chunks are a piece of text of the only choice. */
static bool send_words(chat *c, const srv_delta *d)
{
    static const char mark[] = "<the words>";
    if (!c->words.n_before &&
        !srv_form_open(&c->words,
                       choice_chunk(c, 0, json_pack("{s:s}", "content", mark), NULL, NULL), mark))
        return false;
    return srv_form_write(&c->words, c->x, d->text, d->n_text);
}

static bool begin_stream(chat *c)
{
    c->begun = true;
    srv_stream_begin(c->x, SRV_EVENT_STREAM);
    for (int i = 0; i < c->ask.job.n_choices; i++) {
        json_t *delta = json_pack("{s:s, s:s, s:n}", "role", "assistant", "content", "", "refusal");
        if (i == 0)
            srv_openai_receipt(delta, c->answer);
        if (!send_choice(c, i, delta, NULL, NULL))
            return false;
    }
    return true;
}

static json_t *delta_json(const srv_delta *d)
{
    json_t *text = json_stringn(d->text, d->n_text);
    switch (d->kind) {
    case SRV_DELTA_REASONING:
        return json_pack("{s:o}", "reasoning_content", text);
    case SRV_DELTA_TOOL_BEGIN:
        json_decref(text);
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:s}}]}", "tool_calls", "index",
                         d->tool_index, "id", d->tool_id, "type", "function", "function", "name",
                         d->tool_name, "arguments", "");
    case SRV_DELTA_TOOL_ARGS:
        return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", d->tool_index, "function",
                         "arguments", text);
    default:
        return json_pack("{s:o}", "content", text);
    }
}

static bool stream_delta(chat *c, const srv_delta *d)
{
    bool logprob = c->logprobs && d->has_token;
    if (d->kind == SRV_DELTA_FINISH)
        return send_choice(c, d->choice, NULL, NULL, d->finish);
    if (d->kind == SRV_DELTA_TOOL_END || (d->kind == SRV_DELTA_TEXT && d->n_text == 0)) {
        if (!logprob)
            return true;
        return send_choice(c, d->choice, json_pack("{s:s}", "content", ""),
                           srv_openai_logprob(srv_answer_model(c->answer), d->event), NULL);
    }
    if (d->kind == SRV_DELTA_TEXT && d->choice == 0 && !logprob)
        return send_words(c, d);
    return send_choice(c, d->choice, delta_json(d),
                       logprob ? srv_openai_logprob(srv_answer_model(c->answer), d->event) : NULL,
                       NULL);
}

static void end_stream(chat *c, const srv_event *end)
{
    if (end->error.status != BITNET_OK) {
        srv_openai_stream_error(c->x, &end->error);
    } else if (c->include_usage) {
        json_t *last = chunk(c, json_array());
        json_object_set_new(last, "usage", srv_openai_usage(&end->usage));
        srv_stream_event(c->x, NULL, last);
    }
    srv_openai_stream_done(c->x);
}

/* A stream begins with its first delta, or when that takes long. */
static bool take_streamed(void *chat_, const srv_delta *d)
{
    chat *c = chat_;
    return (c->begun || begin_stream(c)) && stream_delta(c, d);
}

/* Failures before the stream begins are told by a status. */
static void answer_stream(chat *c)
{
    srv_delta d = {0};
    bool there = srv_answer_soon(c->answer) || begin_stream(c);
    bool ended = there && srv_answer_each(c->answer, take_streamed, c, &d);
    if (ended && !c->begun && d.event->error.status != BITNET_OK)
        srv_fail_with(c->x, &d.event->error);
    else if (ended && (c->begun || begin_stream(c)))
        end_stream(c, d.event);
    else
        srv_stream_end(c->x);
}

void srv_openai_chat(srv_exchange *x)
{
    chat c = {.x = x, .created = (int64_t)time(NULL)};
    json_t *body = srv_body_json(x);
    if (!body)
        return;
    srv_ask_init(&c.ask);
    srv_id(c.id, "chatcmpl-");
    if (read_chat(&c, body) && srv_ask_start(x, &c.ask, &c.answer)) {
        c.model = srv_answer_model(c.answer)->name;
        srv_answer_tell_receipt(x, c.answer);
        if (c.stream)
            answer_stream(&c);
        else
            answer_whole(&c);
    }
    srv_form_free(&c.words);
    srv_answer_close(c.answer);
    srv_ask_free(&c.ask);
}
