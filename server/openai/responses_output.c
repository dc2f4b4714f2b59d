/* responses_output.c - the items of an answer of /v1/responses, and the events that tell them. */
#include <string.h>

#include "openai/responses.h"
#include "ask/said.h"

bool srv_output_open(srv_output *o)
{
    o->items = json_array();
    o->token_logprobs = json_array();
    o->early_logprobs = json_array();
    return o->items && o->token_logprobs && o->early_logprobs;
}

void srv_output_free(srv_output *o)
{
    json_decref(o->items);
    json_decref(o->token_logprobs);
    json_decref(o->early_logprobs);
    json_decref(o->name);
    srv_textbuf_free(&o->text);
}

void srv_output_event(srv_output *o, const char *name, json_t *value)
{
    if (!o->stream || o->gone) {
        json_decref(value);
        return;
    }
    json_object_set_new(value, "type", json_string(name));
    json_object_set_new(value, "sequence_number", json_integer(o->sequence++));
    o->gone = !srv_stream_event(o->x, name, value);
}

static json_int_t place(const srv_output *o)
{
    return (json_int_t)json_array_size(o->items);
}

/* An event about the item that is coming, with what `more` has besides; takes `more` over. */
static void item_event(srv_output *o, const char *name, json_t *more)
{
    json_object_set_new(more, "item_id", json_string(o->id));
    json_object_set_new(more, "output_index", json_integer(place(o)));
    srv_output_event(o, name, more);
}

/* ---- items ---- */

static json_t *text_part(const srv_output *o, bool whole)
{
    return json_pack("{s:s, s:o, s:[], s:O}", "type", "output_text", "text",
                     whole ? srv_said_text(&o->text) : json_string(""), "annotations", "logprobs",
                     o->token_logprobs);
}

static json_t *thought_part(const srv_output *o, bool whole)
{
    return json_pack("{s:s, s:o}", "type", "reasoning_text", "text",
                     whole ? srv_said_text(&o->text) : json_string(""));
}

static json_t *item_json(const srv_output *o, const char *status, bool whole)
{
    json_t *text = whole ? srv_said_text(&o->text) : json_string("");
    json_t *out;
    switch (o->kind) {
    case SRV_ITEM_CALL:
        return json_pack("{s:s, s:s, s:s, s:s, s:O, s:o}", "id", o->id, "type", "function_call",
                         "status", status, "call_id", o->call_id, "name", o->name, "arguments",
                         text);
    case SRV_ITEM_THOUGHT:
        out = json_pack("{s:s, s:s, s:[], s:[]}", "id", o->id, "type", "reasoning", "summary",
                        "content");
        if (whole)
            json_array_append_new(json_object_get(out, "content"), thought_part(o, true));
        break;
    default:
        out = json_pack("{s:s, s:s, s:s, s:s, s:[]}", "id", o->id, "type", "message", "status",
                        status, "role", "assistant", "content");
        if (whole)
            json_array_append_new(json_object_get(out, "content"), text_part(o, true));
        break;
    }
    json_decref(text);
    return out;
}

/* The only part of a message or a thought begins or ends. */
static void part_event(srv_output *o, const char *name, bool whole)
{
    json_t *part = o->kind == SRV_ITEM_MESSAGE ? text_part(o, whole) : thought_part(o, whole);
    item_event(o, name, json_pack("{s:i, s:o}", "content_index", 0, "part", part));
}

static void begin_item(srv_output *o, srv_item kind)
{
    static const char *const prefixes[] = {"", "rs_", "msg_", "fc_"};
    o->kind = kind;
    srv_id(o->id, prefixes[kind]);
    srv_textbuf_drop(&o->text, o->text.n);
    json_array_clear(o->token_logprobs);
    if (kind != SRV_ITEM_MESSAGE)
        json_array_clear(o->early_logprobs); /* they were this item's */
    srv_output_event(o, "response.output_item.added",
                     json_pack("{s:I, s:o}", "output_index", place(o), "item",
                               item_json(o, "in_progress", false)));
    if (kind != SRV_ITEM_CALL)
        part_event(o, "response.content_part.added", false);
}

/* What stands before "output_item.done" of each kind. */
static void tell_text_done(srv_output *o)
{
    json_t *text = srv_said_text(&o->text);
    if (o->kind == SRV_ITEM_MESSAGE) {
        item_event(o, "response.output_text.done",
                   json_pack("{s:i, s:o, s:O}", "content_index", 0, "text", text, "logprobs",
                             o->token_logprobs));
        part_event(o, "response.content_part.done", true);
    } else if (o->kind == SRV_ITEM_CALL) {
        item_event(o, "response.function_call_arguments.done",
                   json_pack("{s:o, s:O}", "arguments", text, "name", o->name));
    } else {
        item_event(o, "response.reasoning_text.done",
                   json_pack("{s:i, s:o}", "content_index", 0, "text", text));
        part_event(o, "response.content_part.done", true);
    }
}

static void end_item(srv_output *o, const char *status)
{
    if (o->kind == SRV_ITEM_NONE)
        return;
    tell_text_done(o);
    json_t *made = item_json(o, status, true);
    json_t *item = json_deep_copy(made); /* the list of log-probabilities begins again */
    json_decref(made);
    srv_output_event(o, "response.output_item.done",
                     json_pack("{s:I, s:O}", "output_index", place(o), "item", item));
    json_array_append_new(o->items, item);
    o->kind = SRV_ITEM_NONE;
}

/* ---- deltas ---- */

/* The log-probabilities that come with a piece of the message, a new value: those that waited for
 * its beginning, and the token's own. d may be NULL. The message keeps them too. */
static json_t *logprobs_of(srv_output *o, const srv_delta *d)
{
    json_t *now = json_array();
    json_array_extend(now, o->early_logprobs);
    json_array_clear(o->early_logprobs);
    if (d && o->logprobs && d->has_token)
        json_array_append_new(now, srv_openai_logprob(o->model, d->event));
    json_array_extend(o->token_logprobs, now);
    return now;
}

static void add_text(srv_output *o, srv_item kind, const char *event, const srv_delta *d)
{
    if (o->kind != kind) {
        end_item(o, "completed");
        begin_item(o, kind);
    }
    srv_textbuf_add(&o->text, d->text, d->n_text);
    json_t *more = json_pack("{s:o}", "delta", json_stringn(d->text, d->n_text));
    if (kind != SRV_ITEM_CALL)
        json_object_set_new(more, "content_index", json_integer(0));
    if (kind == SRV_ITEM_MESSAGE)
        json_object_set_new(more, "logprobs", logprobs_of(o, d));
    item_event(o, event, more);
}

/* Tokens of thoughts, with those that said nothing before one or, as its closing mark, after. */
static void count_thought(srv_output *o, const srv_delta *d)
{
    bool silent = d->kind == SRV_DELTA_TEXT && d->n_text == 0;
    o->n_silent += d->has_token;
    if (silent)
        return;
    if (d->kind == SRV_DELTA_REASONING)
        o->n_thought += o->n_silent;
    else if (o->kind == SRV_ITEM_THOUGHT)
        o->n_thought += o->n_silent - d->has_token;
    o->n_silent = 0;
}

void srv_output_take(srv_output *o, const srv_delta *d)
{
    count_thought(o, d);
    switch (d->kind) {
    case SRV_DELTA_TEXT:
        if (d->n_text || (o->logprobs && o->kind == SRV_ITEM_MESSAGE))
            add_text(o, SRV_ITEM_MESSAGE, "response.output_text.delta", d);
        else if (o->logprobs && d->has_token && o->kind == SRV_ITEM_NONE)
            json_array_append_new(o->early_logprobs, srv_openai_logprob(o->model, d->event));
        break;
    case SRV_DELTA_REASONING:
        add_text(o, SRV_ITEM_THOUGHT, "response.reasoning_text.delta", d);
        break;
    case SRV_DELTA_TOOL_BEGIN:
        end_item(o, "completed");
        json_decref(o->name);
        o->name = json_string(d->tool_name);
        strncpy(o->call_id, d->tool_id, sizeof o->call_id - 1);
        begin_item(o, SRV_ITEM_CALL);
        break;
    case SRV_DELTA_TOOL_ARGS:
        add_text(o, SRV_ITEM_CALL, "response.function_call_arguments.delta", d);
        break;
    case SRV_DELTA_TOOL_END:
        end_item(o, d->cut ? "incomplete" : "completed");
        break;
    default:
        break;
    }
}

void srv_output_finish(srv_output *o, bool complete)
{
    if (o->kind == SRV_ITEM_NONE && json_array_size(o->items) == 0) {
        begin_item(o, SRV_ITEM_MESSAGE);
        json_decref(logprobs_of(o, NULL));
    }
    end_item(o, complete ? "completed" : "incomplete");
}
