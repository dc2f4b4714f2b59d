/* anthropic.c - POST /v1/messages and /v1/messages/count_tokens: an answer as Anthropic's content
 * blocks, whole or as events in its order. */
#include "anthropic/anthropic_read.h"

#include <stdio.h>
#include <string.h>

#include "ask/ask_render.h"
#include "http/ids.h"
#include "ask/json_text.h"
#include "http/refuse.h"

void srv_anthropic_messages(srv_exchange *x);
void srv_anthropic_count_tokens(srv_exchange *x);

/* What an answer came to. */
typedef struct outcome {
    char finish[16];
    bool no_context; /* it ended where the context did */
    json_t *stop;    /* the stop sequence that ended it, or null; owned */
    srv_usage usage;
    bitnet_error error;
} outcome;

static void take_finish(outcome *o, const srv_delta *d)
{
    o->no_context = d->event && d->event->finish == BITNET_FINISH_CONTEXT;
    snprintf(o->finish, sizeof o->finish, "%s", d->finish ? d->finish : "stop");
    json_decref(o->stop);
    o->stop = d->stop ? srv_json_text(d->stop, strlen(d->stop)) : json_null();
}

static void take_end(outcome *o, const srv_delta *d)
{
    if (d->event) {
        o->usage = d->event->usage;
        o->error = d->event->error;
    }
}

static const char *stop_reason(const outcome *o)
{
    if (strcmp(o->finish, "length") == 0)
        return o->no_context ? "model_context_window_exceeded" : "max_tokens";
    if (strcmp(o->finish, "tool_calls") == 0)
        return "tool_use";
    return json_is_string(o->stop) ? "stop_sequence" : "end_turn";
}

/* Anthropic counts tokens that were found in the cache apart from those that were not. Fields of
 * its own service are null here. */
static json_t *usage_json(const srv_usage *u)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:n, s:n, s:n, s:n, s:n}", "input_tokens",
                     (json_int_t)(u->n_prompt - u->n_cached), "cache_creation_input_tokens",
                     (json_int_t)0, "cache_read_input_tokens", (json_int_t)u->n_cached,
                     "output_tokens", (json_int_t)u->n_generated, "cache_creation", "inference_geo",
                     "output_tokens_details", "server_tool_use", "service_tier");
}

/* A call of one of the client's tools, without its input. */
static json_t *tool_block(const srv_delta *d)
{
    return json_pack("{s:s, s:s, s:s, s:{s:s}}", "type", "tool_use", "id", d->tool_id, "name",
                     d->tool_name, "caller", "type", "direct");
}

/* ---- in one piece ---- */

/* Blocks that are being collected. */
typedef struct collected {
    json_t *blocks;
    const char *type; /* of the open block: "text", "thinking", "tool_use"; NULL: none */
    json_t *tool;     /* the open tool_use block */
    srv_textbuf text;
    bool failed;
} collected;

static json_t *finished_block(collected *c)
{
    if (strcmp(c->type, "tool_use") == 0) {
        c->failed |= json_object_set_new(c->tool, "input", srv_json_arguments(&c->text)) != 0;
        return json_incref(c->tool);
    }
    if (strcmp(c->type, "thinking") == 0)
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", srv_json_buf(&c->text),
                         "signature", "");
    return json_pack("{s:s, s:o, s:n}", "type", "text", "text", srv_json_buf(&c->text),
                     "citations");
}

static void close_block(collected *c)
{
    if (c->type && json_array_append_new(c->blocks, finished_block(c)))
        c->failed = true;
    json_decref(c->tool);
    srv_textbuf_free(&c->text);
    c->tool = NULL;
    c->type = NULL;
}

static void open_block(collected *c, const char *type)
{
    if (c->type == type)
        return;
    close_block(c);
    c->type = type;
}

static void collect(collected *c, const srv_delta *d)
{
    static const char text[] = "text", thinking[] = "thinking", tool_use[] = "tool_use";
    if (d->kind == SRV_DELTA_TOOL_BEGIN) {
        close_block(c);
        c->tool = tool_block(d);
        c->type = tool_use;
        c->failed |= !c->tool;
    } else if (d->kind == SRV_DELTA_TOOL_ARGS) {
        srv_textbuf_add(&c->text, d->text, d->n_text);
    } else if (d->kind == SRV_DELTA_TOOL_END) {
        c->type = d->cut ? NULL : c->type; /* a call without an end is left out */
        close_block(c);
    } else if (d->n_text) {
        open_block(c, d->kind == SRV_DELTA_REASONING ? thinking : text);
        srv_textbuf_add(&c->text, d->text, d->n_text);
    }
}

static void collect_all(srv_answer *answer, collected *c, outcome *o)
{
    srv_delta d;
    while (srv_answer_next(answer, &d)) {
        if (d.kind == SRV_DELTA_FINISH)
            take_finish(o, &d);
        else if (d.kind == SRV_DELTA_END)
            take_end(o, &d);
        else if (d.kind >= SRV_DELTA_TEXT && d.kind <= SRV_DELTA_TOOL_END)
            collect(c, &d);
        if (d.kind == SRV_DELTA_END)
            break;
    }
    close_block(c);
}

static void reply_whole(srv_exchange *x, srv_answer *answer)
{
    collected c = {.blocks = json_array()};
    outcome o = {.stop = json_null()};
    char id[SRV_ID_MAX];
    srv_id(id, "msg_");
    collect_all(answer, &c, &o);
    if (o.error.status != BITNET_OK)
        srv_fail_with(x, &o.error);
    else
        srv_reply_json(x, 200,
                       c.failed
                           ? NULL
                           : json_pack("{s:s, s:s, s:s, s:s, s:O, s:s, s:O, s:n, s:o, s:n}", "id",
                                       id, "type", "message", "role", "assistant", "model",
                                       srv_answer_model(answer)->name, "content", c.blocks,
                                       "stop_reason", stop_reason(&o), "stop_sequence", o.stop,
                                       "stop_details", "usage", usage_json(&o.usage), "container"));
    json_decref(c.blocks);
    json_decref(o.stop);
}

/* ---- as events ---- */

typedef struct stream {
    srv_exchange *x;
    int index;     /* of the open block, or of the next */
    char open[12]; /* its type; "": none is open */
    bool pinged;
    bool alive;
} stream;

/* Sends an event whose data has its own name as "type"; takes `data` over. */
static void tell(stream *s, const char *name, json_t *data)
{
    json_object_set_new(data, "type", json_string(name));
    if (!data || !s->alive)
        s->alive = false;
    else
        s->alive = srv_stream_event(s->x, name, json_incref(data));
    json_decref(data);
}

static void begin_block(stream *s, const char *type, json_t *block)
{
    snprintf(s->open, sizeof s->open, "%s", type);
    tell(s, "content_block_start",
         json_pack("{s:i, s:o}", "index", s->index, "content_block", block));
    if (!s->pinged)
        tell(s, "ping", json_object());
    s->pinged = true;
}

static void send_delta(stream *s, const char *type, const char *field, const char *text, size_t n)
{
    tell(s, "content_block_delta",
         json_pack("{s:i, s:{s:s, s:o}}", "index", s->index, "delta", "type", type, field,
                   srv_json_text(text, n)));
}

static void end_block(stream *s)
{
    if (!s->open[0])
        return;
    if (strcmp(s->open, "thinking") == 0)
        send_delta(s, "signature_delta", "signature", "", 0);
    tell(s, "content_block_stop", json_pack("{s:i}", "index", s->index));
    s->open[0] = '\0';
    s->index++;
}

static void stream_text(stream *s, const char *type, const srv_delta *d)
{
    bool thinking = strcmp(type, "thinking") == 0;
    if (d->n_text == 0)
        return;
    if (strcmp(s->open, type) != 0) {
        end_block(s);
        begin_block(s, type,
                    thinking ? json_pack("{s:s, s:s, s:s}", "type", type, type, "", "signature", "")
                             : json_pack("{s:s, s:s, s:n}", "type", type, type, "", "citations"));
    }
    send_delta(s, thinking ? "thinking_delta" : "text_delta", type, d->text, d->n_text);
}

static void stream_tool(stream *s, const srv_delta *d)
{
    json_t *block = tool_block(d);
    json_object_set_new(block, "input", json_object());
    end_block(s);
    begin_block(s, "tool_use", block);
}

static void stream_delta(stream *s, const srv_delta *d)
{
    switch (d->kind) {
    case SRV_DELTA_TEXT:
        stream_text(s, "text", d);
        break;
    case SRV_DELTA_REASONING:
        stream_text(s, "thinking", d);
        break;
    case SRV_DELTA_TOOL_BEGIN:
        stream_tool(s, d);
        break;
    case SRV_DELTA_TOOL_ARGS:
        if (d->n_text)
            send_delta(s, "input_json_delta", "partial_json", d->text, d->n_text);
        break;
    case SRV_DELTA_TOOL_END:
        end_block(s);
        break;
    default:
        break;
    }
}

static void stream_begin(stream *s, const srv_answer *answer)
{
    char id[SRV_ID_MAX];
    srv_usage u = {.n_prompt = srv_answer_prompt_tokens(answer)};
    srv_id(id, "msg_");
    srv_stream_begin(s->x, SRV_EVENT_STREAM);
    tell(s, "message_start",
         json_pack("{s:{s:s, s:s, s:s, s:s, s:[], s:n, s:n, s:n, s:o, s:n}}", "message", "id", id,
                   "type", "message", "role", "assistant", "model", srv_answer_model(answer)->name,
                   "content", "stop_reason", "stop_sequence", "stop_details", "usage",
                   usage_json(&u), "container"));
}

/* A request ends from outside when its time is over, or when the server is told to stop. */
static const char *error_type(const srv_exchange *x, const bitnet_error *err)
{
    if (srv_is_timeout(x, err))
        return "timeout_error";
    bool later = err->status == BITNET_MEMORY || err->status == BITNET_CANCELLED;
    return later ? "overloaded_error" : "api_error";
}

/* A block that an error cuts stays open: only what is complete has an end. */
static void stream_end(stream *s, const outcome *o)
{
    if (o->error.status != BITNET_OK) {
        tell(s, "error",
             json_pack("{s:{s:s, s:s}}", "error", "type", error_type(s->x, &o->error), "message",
                       srv_failure_text(&o->error)));
    } else {
        end_block(s);
        tell(s, "message_delta",
             json_pack("{s:{s:s, s:O, s:n, s:n}, s:o}", "delta", "stop_reason", stop_reason(o),
                       "stop_sequence", o->stop, "stop_details", "container", "usage",
                       usage_json(&o->usage)));
        tell(s, "message_stop", json_object());
    }
    srv_stream_end(s->x);
}

static void reply_stream(srv_exchange *x, srv_answer *answer)
{
    stream s = {.x = x, .alive = true};
    outcome o = {.stop = json_null()};
    srv_delta d;
    stream_begin(&s, answer);
    while (s.alive && srv_answer_next(answer, &d)) {
        if (d.kind == SRV_DELTA_FINISH)
            take_finish(&o, &d);
        else if (d.kind == SRV_DELTA_END)
            take_end(&o, &d);
        else
            stream_delta(&s, &d);
        if (d.kind == SRV_DELTA_END)
            break;
    }
    stream_end(&s, &o);
    json_decref(o.stop);
}

/* ---- the two routes ---- */

void srv_anthropic_messages(srv_exchange *x)
{
    srv_anthropic r;
    srv_answer *answer = NULL;
    if (srv_anthropic_read(x, false, &r) && srv_ask_start(x, &r.ask, &answer)) {
        srv_answer_tell_receipt(x, answer);
        if (r.stream)
            reply_stream(x, answer);
        else
            reply_whole(x, answer);
        srv_answer_close(answer);
    }
    srv_anthropic_free(&r);
}

void srv_anthropic_count_tokens(srv_exchange *x)
{
    srv_anthropic r;
    size_t n = 0;
    if (srv_anthropic_read(x, true, &r) && srv_ask_count(x, &r.ask, &n))
        srv_reply_json(x, 200, json_pack("{s:I}", "input_tokens", (json_int_t)n));
    srv_anthropic_free(&r);
}
