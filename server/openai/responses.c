/* responses.c - POST /v1/responses, whole and streamed. Nothing is stored here:
 * previous_response_id and its relatives are refused by name. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask/fields.h"
#include "http/refuse.h"
#include "openai/responses.h"
#include "server.h"

#define MAX_TOP 20

typedef struct response {
    srv_exchange *x;
    srv_ask ask;
    srv_answer *answer;
    json_t *body; /* borrowed */
    json_t *messages, *tools;
    json_int_t max_tokens; /* -1: not given */
    int64_t n_top;         /* log-probabilities of other tokens that were asked for */
    srv_output out;
    char id[SRV_ID_MAX];
    int64_t created;
    bool full; /* it ended because it may not be longer */
} response;

/* ---- the request ---- */

static bool refuse_others(srv_exchange *x, const json_t *body)
{
    static const char stores[] = "this server stores nothing; send the whole conversation as input";
    return srv_field_refuse(x, body, "previous_response_id", stores) &&
           srv_field_refuse(x, body, "conversation", stores) &&
           srv_field_refuse(x, body, "background", stores) &&
           srv_field_refuse(x, body, "prompt", "templates are not stored here");
}

/* "include": ["message.output_text.logprobs"] asks for log-probabilities. */
static bool read_logprobs(response *r)
{
    size_t i;
    int64_t top = 0;
    json_t *include = NULL, *one;
    if (!srv_field_array(r->x, r->body, "include", 64, &include) ||
        !srv_field_int(r->x, r->body, "top_logprobs", 0, MAX_TOP, &top))
        return false;
    r->out.logprobs = top > 0;
    json_array_foreach(include, i, one)
    {
        const char *name = json_string_value(one);
        r->out.logprobs |= name && strcmp(name, "message.output_text.logprobs") == 0;
    }
    r->n_top = top;
    r->ask.job.n_top = r->out.logprobs ? (int)top : -1;
    return true;
}

static bool read_limits(response *r)
{
    size_t most = srv_server_of(r->x)->config->max_tokens;
    int64_t v = -1, max = most && most < INT32_MAX ? (int64_t)most : INT32_MAX;
    if (!srv_field_int(r->x, r->body, "max_output_tokens", 1, max, &v))
        return false;
    r->max_tokens = v;
    if (v > 0)
        r->ask.job.max_tokens = (size_t)v;
    r->ask.job.n_choices = 1;
    return true;
}

static bool read_response(response *r)
{
    json_t *text = NULL, *format = NULL;
    bool unused = false;
    if (!refuse_others(r->x, r->body) ||
        !srv_openai_read_stream(r->x, r->body, &r->out.stream, &unused) ||
        !srv_openai_read(r->x, &r->ask, r->body) || !read_logprobs(r) || !read_limits(r) ||
        !srv_field_object(r->x, r->body, "text", &text) ||
        !srv_field_object(r->x, text, "format", &format) ||
        !srv_openai_format(r->x, &r->ask, format, "text.format"))
        return false;
    json_t *tools = NULL;
    if (!srv_field_array(r->x, r->body, "tools", SIZE_MAX, &tools))
        return false;
    r->messages = srv_responses_messages(r->x, r->body);
    r->tools = srv_responses_tools(tools);
    r->ask.messages = r->messages;
    r->ask.tools = r->tools;
    r->ask.tool_choice = srv_field(r->body, "tool_choice");
    r->ask.whole_calls = !r->out.stream;
    return r->messages != NULL;
}

/* ---- the reply ---- */

static json_t *usage_json(const srv_usage *u, size_t n_thought)
{
    if (!u)
        return json_null();
    return json_pack(
        "{s:I, s:{s:I, s:i}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u->n_prompt,
        "input_tokens_details", "cached_tokens", (json_int_t)u->n_cached, "cache_write_tokens", 0,
        "output_tokens", (json_int_t)u->n_generated, "output_tokens_details", "reasoning_tokens",
        (json_int_t)n_thought, "total_tokens", (json_int_t)(u->n_prompt + u->n_generated));
}

/* A field of the request as it came, or what stands for none; takes `none` over. */
static json_t *echoed(const response *r, const char *name, json_t *none)
{
    json_t *value = srv_field(r->body, name);
    if (!value)
        return none;
    json_decref(none);
    return json_incref(value);
}

/* Three decimals less noise: 0.7f is 0.7. */
static json_t *setting(float v)
{
    return json_real(round((double)v * 1e6) / 1e6);
}

/* The tools as they came, with null for what a function leaves out. */
static json_t *tools_echoed(const response *r)
{
    static const char *const names[] = {"description", "parameters", "strict"};
    size_t i;
    json_t *tool, *tools = srv_field(r->body, "tools"), *out = json_array();
    json_array_foreach(tools, i, tool)
    {
        const char *type = json_string_value(json_object_get(tool, "type"));
        json_t *copy = json_copy(tool);
        for (size_t k = 0; type && strcmp(type, "function") == 0 && k < 3; k++)
            if (!json_object_get(copy, names[k]))
                json_object_set_new(copy, names[k], json_null());
        json_array_append_new(out, copy);
    }
    return out;
}

/* How tokens were chosen. */
static void add_sampling(const response *r, json_t *out)
{
    const bitnet_sampler_options *s = &r->ask.job.sampling;
    json_object_set_new(out, "temperature", setting(s->temperature));
    json_object_set_new(out, "top_p", setting(s->top_p));
    json_object_set_new(out, "presence_penalty", setting(s->presence_penalty));
    json_object_set_new(out, "frequency_penalty", setting(s->frequency_penalty));
    json_object_set_new(out, "top_logprobs", json_integer(r->n_top));
}

/* The form of the answer is told where others of "text" came alone, too. */
static json_t *text_echoed(const response *r)
{
    json_t *out = json_copy(srv_field(r->body, "text"));
    if (!out)
        out = json_object();
    if (!srv_field(out, "format"))
        json_object_set_new(out, "format", json_pack("{s:s}", "type", "text"));
    return out;
}

static json_t *reasoning_echoed(const response *r)
{
    json_t *out = json_pack("{s:n, s:n}", "effort", "summary");
    if (out && json_is_object(srv_field(r->body, "reasoning")))
        json_object_update(out, srv_field(r->body, "reasoning"));
    return out;
}

static void add_settings(const response *r, json_t *out)
{
    json_t *more = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "max_output_tokens",
        r->max_tokens > 0 ? json_integer(r->max_tokens) : json_null(), "instructions",
        echoed(r, "instructions", json_null()), "metadata", echoed(r, "metadata", json_object()),
        "tools", tools_echoed(r), "tool_choice", echoed(r, "tool_choice", json_string("auto")),
        "parallel_tool_calls", echoed(r, "parallel_tool_calls", json_true()), "text",
        text_echoed(r), "user", echoed(r, "user", json_null()), "safety_identifier",
        echoed(r, "safety_identifier", json_null()), "prompt_cache_key",
        echoed(r, "prompt_cache_key", json_null()));
    add_sampling(r, out);
    json_object_set_new(out, "reasoning", reasoning_echoed(r));
    json_object_set_new(out, "max_tool_calls", echoed(r, "max_tool_calls", json_null()));
    if (more)
        json_object_update(out, more);
    json_decref(more);
}

static json_t *response_json(const response *r, const char *status, const srv_usage *usage)
{
    json_t *reason =
        r->full && usage ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null();
    json_t *out = json_pack(
        "{s:s, s:s, s:I, s:o, s:s, s:s, s:O, s:n, s:o, s:o, s:n, s:b, s:b, s:s, s:s}", "id", r->id,
        "object", "response", "created_at", (json_int_t)r->created, "completed_at",
        strcmp(status, "completed") == 0 ? json_integer(time(NULL)) : json_null(), "status", status,
        "model", srv_answer_model(r->answer)->name, "output", r->out.items, "error",
        "incomplete_details", reason, "usage", usage_json(usage, r->out.n_thought),
        "previous_response_id", "store", 0, "background", 0, "truncation", "disabled",
        "service_tier", "default");
    if (!out)
        return NULL;
    add_settings(r, out);
    srv_openai_receipt(out, r->answer);
    json_t *copy = json_deep_copy(out); /* items grow */
    json_decref(out);
    return copy;
}

static const char *final_status(const response *r)
{
    return r->full ? "incomplete" : "completed";
}

static void begin_stream(response *r)
{
    srv_stream_begin(r->x, SRV_EVENT_STREAM);
    srv_output_event(&r->out, "response.created",
                     json_pack("{s:o}", "response", response_json(r, "in_progress", NULL)));
    srv_output_event(&r->out, "response.in_progress",
                     json_pack("{s:o}", "response", response_json(r, "in_progress", NULL)));
}

static void end_stream(response *r, const srv_event *end)
{
    const bitnet_error *err = &end->error;
    json_t *final;
    if (err->status == BITNET_OK) {
        srv_output_finish(&r->out, !r->full);
        final = response_json(r, final_status(r), &end->usage);
        srv_output_event(&r->out, r->full ? "response.incomplete" : "response.completed",
                         json_pack("{s:o}", "response", final));
    } else {
        final = response_json(r, "failed", NULL);
        bool theirs = err->status == BITNET_ARGUMENT || err->status == BITNET_CONTEXT;
        json_object_set_new(final, "error",
                            json_pack("{s:s, s:s}", "code",
                                      theirs ? "invalid_prompt" : "server_error", "message",
                                      srv_failure_text(err)));
        srv_output_event(&r->out, "response.failed", json_pack("{s:o}", "response", final));
    }
    srv_stream_end(r->x);
}

static void end_whole(response *r, const srv_event *end)
{
    if (end->error.status != BITNET_OK) {
        srv_fail_with(r->x, &end->error);
        return;
    }
    srv_output_finish(&r->out, !r->full);
    srv_reply_json(r->x, 200, response_json(r, final_status(r), &end->usage));
}

/* Failures before the stream begins, with its first delta or when that takes long, are told by a
 * status. */
static void answer(response *r)
{
    srv_delta d = {0};
    bool begun = r->out.stream && !srv_answer_soon(r->answer);
    if (begun)
        begin_stream(r);
    while (!r->out.gone && srv_answer_next(r->answer, &d)) {
        bool failed = d.kind == SRV_DELTA_END && d.event->error.status != BITNET_OK;
        if (r->out.stream && !begun && !failed) {
            begin_stream(r);
            begun = true;
        }
        if (d.kind == SRV_DELTA_FINISH)
            r->full = strcmp(d.finish, "length") == 0;
        if (d.kind == SRV_DELTA_END) {
            (begun ? end_stream : end_whole)(r, d.event);
            return;
        }
        srv_event too_large = {0};
        if (r->out.logprobs && d.has_token &&
            srv_reply_charge(r->x, SRV_LOGPROB_BYTES(r->ask.job.n_top), &too_large.error)) {
            (begun ? end_stream : end_whole)(r, &too_large);
            return;
        }
        srv_output_take(&r->out, &d);
    }
    srv_stream_end(r->x); /* nobody listens */
}

static void free_response(response *r)
{
    srv_answer_close(r->answer);
    srv_ask_free(&r->ask);
    srv_output_free(&r->out);
    json_decref(r->messages);
    json_decref(r->tools);
}

void srv_openai_responses(srv_exchange *x)
{
    response r = {.x = x, .created = (int64_t)time(NULL)};
    r.body = srv_body_json(x);
    if (!r.body)
        return;
    srv_ask_init(&r.ask);
    r.ask.words = (srv_words){.said = "input", .form = "text.format"};
    srv_id(r.id, "resp_");
    r.out.x = x;
    if (!srv_output_open(&r.out)) {
        srv_fail(x, 503, "out_of_memory", NULL, "out of memory");
    } else if (read_response(&r) && srv_ask_start(x, &r.ask, &r.answer)) {
        r.out.model = srv_answer_model(r.answer);
        srv_answer_tell_receipt(x, r.answer);
        answer(&r);
    }
    free_response(&r);
}
