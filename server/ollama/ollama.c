/* ollama.c - POST /api/chat and /api/generate: an answer as lines of JSON, or as one. */
#include "ollama/ollama_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/clock.h"
#include "ask/json_text.h"
#include "http/short_memory.h"
#include "http/refuse.h"
#include "server.h"
#include "ask/use_model.h"

void srv_ollama_chat(srv_exchange *x);
void srv_ollama_generate(srv_exchange *x);

/* An answer on its way. */
typedef struct speech {
    srv_exchange *x;
    const srv_ollama *r;
    srv_textbuf content, thinking, arguments;
    json_t *calls; /* whole calls that were not sent */
    char *tool;    /* name of the call that is coming */
    char finish[16];
    srv_usage usage;
    bitnet_error error;
    double started_ms, loaded_ms;
    bool alive, failed;
} speech;

/* ---- one line ---- */

/* A reply without its content: which model, when. */
static json_t *line_of(const speech *s, bool done)
{
    char now[SRV_TIME_MAX];
    srv_time_now(now);
    return json_pack("{s:s, s:s, s:b}", "model", s->r->called, "created_at", now, "done", done);
}

/* Puts the content into the line, in the words of chat or generate. Takes the values over; NULL:
 * none. */
static void put_content(const speech *s, json_t *line, json_t *text, json_t *thinking,
                        json_t *calls)
{
    json_t *into = s->r->chat ? json_pack("{s:s}", "role", "assistant") : json_incref(line);
    json_object_set_new(into, s->r->chat ? "content" : "response", text ? text : json_string(""));
    if (thinking)
        json_object_set_new(into, "thinking", thinking);
    if (calls)
        json_object_set_new(into, "tool_calls", calls);
    if (s->r->chat)
        json_object_set(line, "message", into);
    json_decref(into);
}

static void put_numbers(const speech *s, json_t *line)
{
    const double ns = 1e6;
    json_t *numbers = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "done_reason",
        strcmp(s->finish, "length") == 0 ? "length" : "stop", "total_duration",
        (json_int_t)((srv_clock_ms() - s->started_ms) * ns), "load_duration",
        (json_int_t)((s->loaded_ms - s->started_ms) * ns), "prompt_eval_count",
        (json_int_t)s->usage.n_prompt, "prompt_eval_duration",
        (json_int_t)(s->usage.prompt_ms * ns), "eval_count", (json_int_t)s->usage.n_generated,
        "eval_duration", (json_int_t)(s->usage.decode_ms * ns));
    json_object_update(line, numbers);
    json_decref(numbers);
}

/* Sends a line of the stream; takes it over. */
static void send_line(speech *s, json_t *line)
{
    char *text = srv_json_whole(line);
    if (!text) /* the stream is seen to be cut */
        srv_stream_event(s->x, NULL, NULL);
    s->alive = s->alive && text && srv_stream_write(s->x, text, strlen(text)) &&
               srv_stream_write(s->x, "\n", 1);
    free(text);
    json_decref(line);
}

static void send_content(speech *s, json_t *text, json_t *thinking, json_t *calls)
{
    json_t *line = line_of(s, false);
    put_content(s, line, text, thinking, calls);
    send_line(s, line);
}

/* ---- deltas ---- */

static void drop_call(speech *s)
{
    srv_textbuf_free(&s->arguments);
    free(s->tool);
    s->tool = NULL;
}

static void end_call(speech *s)
{
    json_t *call = json_pack("{s:{s:s, s:o}}", "function", "name", s->tool ? s->tool : "",
                             "arguments", srv_json_arguments(&s->arguments));
    if (s->r->stream && call)
        send_content(s, NULL, NULL, json_pack("[o]", call));
    else if (s->r->stream)
        send_line(s, NULL); /* out of memory */
    else if (json_array_append_new(s->calls, call))
        s->failed = true;
    drop_call(s);
}

static void take_text(speech *s, const srv_delta *d)
{
    bool thinking = d->kind == SRV_DELTA_REASONING;
    if (d->n_text == 0)
        return;
    if (!s->r->stream) {
        srv_textbuf_add(thinking ? &s->thinking : &s->content, d->text, d->n_text);
        return;
    }
    json_t *text = srv_json_text(d->text, d->n_text);
    send_content(s, thinking ? NULL : text, thinking ? text : NULL, NULL);
}

static void take(speech *s, const srv_delta *d)
{
    switch (d->kind) {
    case SRV_DELTA_TEXT:
    case SRV_DELTA_REASONING:
        take_text(s, d);
        break;
    case SRV_DELTA_TOOL_BEGIN:
        free(s->tool);
        s->tool = strdup(d->tool_name ? d->tool_name : "");
        break;
    case SRV_DELTA_TOOL_ARGS:
        srv_textbuf_add(&s->arguments, d->text, d->n_text);
        break;
    case SRV_DELTA_TOOL_END:
        (d->cut ? drop_call : end_call)(s); /* one without an end is left out */
        break;
    case SRV_DELTA_FINISH:
        snprintf(s->finish, sizeof s->finish, "%s", d->finish ? d->finish : "stop");
        break;
    case SRV_DELTA_END:
        s->usage = d->event->usage;
        s->error = d->event->error;
        break;
    default:
        break;
    }
}

static void take_all(speech *s, srv_answer *answer)
{
    srv_delta d;
    while (s->alive && srv_answer_next(answer, &d)) {
        take(s, &d);
        if (d.kind == SRV_DELTA_END)
            break;
    }
}

/* ---- the reply ---- */

static void reply_stream(speech *s, srv_answer *answer)
{
    srv_stream_begin(s->x, "application/x-ndjson");
    take_all(s, answer);
    if (s->error.status != BITNET_OK) {
        send_line(s, json_pack("{s:s}", "error", srv_failure_text(&s->error)));
    } else {
        json_t *line = line_of(s, true);
        put_content(s, line, NULL, NULL, NULL);
        put_numbers(s, line);
        send_line(s, line);
    }
    srv_stream_end(s->x);
}

static void reply_whole(speech *s, srv_answer *answer)
{
    s->calls = json_array();
    take_all(s, answer);
    if (s->error.status != BITNET_OK) {
        srv_fail_with(s->x, &s->error);
        return;
    }
    json_t *line = line_of(s, true);
    json_t *calls = json_array_size(s->calls) ? json_incref(s->calls) : NULL;
    put_content(s, line, srv_json_buf(&s->content),
                s->thinking.n ? srv_json_buf(&s->thinking) : NULL, calls);
    put_numbers(s, line);
    if (s->failed || s->content.failed) {
        json_decref(line);
        line = NULL;
    }
    srv_reply_json(s->x, 200, line);
}

static void answer_it(srv_exchange *x, srv_ollama *r, double started_ms)
{
    speech s = {.x = x, .r = r, .alive = true, .started_ms = started_ms};
    srv_answer *answer = NULL;
    if (!srv_ask_start(x, &r->ask, &answer))
        return;
    s.loaded_ms = srv_clock_ms();
    srv_answer_tell_receipt(x, answer);
    if (r->stream)
        reply_stream(&s, answer);
    else
        reply_whole(&s, answer);
    srv_answer_close(answer);
    srv_textbuf_free(&s.content);
    srv_textbuf_free(&s.thinking);
    srv_textbuf_free(&s.arguments);
    json_decref(s.calls);
    free(s.tool);
}

/* ---- a request without a prompt: load or unload the model ---- */

static bool load_or_unload(srv_exchange *x, const srv_ollama *r)
{
    srv_models *models = srv_server_of(x)->models;
    srv_model *model = NULL;
    bitnet_error err = {0};
    if (!r->unload) {
        if (!srv_use_model(x, r->called, &model))
            return false;
        srv_model_release(models, model);
        return true;
    }
    if (!srv_may_change_models(x))
        return false;
    if (srv_models_rest(models, r->called, &err) == BITNET_OK)
        return true;
    srv_fail(x, err.status == BITNET_NOT_AVAILABLE ? 404 : 503,
             err.status == BITNET_NOT_AVAILABLE ? "model_not_found" : "model_in_use", "model", "%s",
             err.message);
    return false;
}

static void reply_loaded(srv_exchange *x, const srv_ollama *r)
{
    speech s = {.x = x, .r = r, .alive = true};
    if (!load_or_unload(x, r))
        return;
    json_t *line = line_of(&s, true);
    put_content(&s, line, NULL, NULL, NULL);
    json_object_set_new(line, "done_reason", json_string(r->unload ? "unload" : "load"));
    srv_reply_json(x, 200, line);
}

static void serve(srv_exchange *x, bool chat)
{
    srv_ollama r;
    double started_ms = srv_clock_ms();
    if (srv_ollama_read(x, chat, &r)) {
        if (r.nothing)
            reply_loaded(x, &r);
        else
            answer_it(x, &r, started_ms);
    }
    srv_ollama_free(&r);
}

void srv_ollama_chat(srv_exchange *x)
{
    serve(x, true);
}

void srv_ollama_generate(srv_exchange *x)
{
    serve(x, false);
}
