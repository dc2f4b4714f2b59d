/* openai.c - see openai.h. */
#include "openai/openai.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/fields.h"
#include "http/refuse.h"
#include "server.h"

/* ---- requests ---- */

static bool is_word(const json_t *value, const char *word)
{
    const char *text = json_string_value(value);
    return text && strcmp(text, word) == 0;
}

bool srv_openai_format(srv_exchange *x, srv_ask *a, const json_t *format, const char *param)
{
    const json_t *type = json_object_get(format, "type");
    if (!format || json_is_null(format) || is_word(type, "text"))
        return true;
    if (is_word(type, "json_object")) {
        a->json_object = true;
        return true;
    }
    if (!is_word(type, "json_schema"))
        return srv_field_wrong(x, param,
                               "an object whose type is \"text\", \"json_object\" or "
                               "\"json_schema\"");
    const json_t *inner = json_object_get(format, "json_schema");
    a->schema = json_object_get(inner ? inner : format, "schema");
    return json_is_object(a->schema) ||
           srv_field_wrong(x, param, "an object with a schema, itself an object");
}

static bool read_reasoning(srv_exchange *x, srv_ask *a, const json_t *body)
{
    const char *how = NULL;
    if (!srv_field_text(x, body, "reasoning_format", 32, &how))
        return false;
    a->split_reasoning = !how || strcmp(how, "none") != 0;
    if (!how || strcmp(how, "none") == 0 || strcmp(how, "auto") == 0 ||
        strcmp(how, "deepseek") == 0)
        return true;
    return srv_field_wrong(x, "reasoning_format", "\"auto\", \"deepseek\" or \"none\"");
}

/* "none" says that nothing shall be thought, in chat as reasoning_effort, in responses as
 * reasoning.effort. How much is thought beyond that is the model's own. */
static bool read_effort(srv_exchange *x, srv_ask *a, const json_t *body)
{
    static const char name[] = "enable_thinking";
    const json_t *inner = json_object_get(json_object_get(body, "reasoning"), "effort");
    bool none =
        is_word(json_object_get(body, "reasoning_effort"), "none") || is_word(inner, "none");
    if (!none || json_object_get(a->template_kwargs, name))
        return true;
    json_decref(a->owned_kwargs);
    a->owned_kwargs = a->template_kwargs ? json_copy(a->template_kwargs) : json_object();
    a->template_kwargs = a->owned_kwargs;
    return json_object_set_new(a->owned_kwargs, name, json_false()) == 0 || srv_no_memory(x);
}

static bool read_parallel(srv_exchange *x, srv_ask *a, const json_t *body)
{
    bool parallel = true;
    if (!srv_field_bool(x, body, "parallel_tool_calls", &parallel))
        return false;
    a->one_call = !parallel;
    return true;
}

bool srv_openai_read(srv_exchange *x, srv_ask *a, json_t *body)
{
    size_t most = srv_server_of(x)->config->max_grammar;
    json_t *format = NULL;
    return srv_field_text(x, body, "model", 1024, &a->model) && srv_ask_read_sampling(x, a, body) &&
           srv_field_object(x, body, "response_format", &format) &&
           srv_openai_format(x, a, format, "response_format") &&
           srv_field_text(x, body, "grammar", most ? most : SIZE_MAX, &a->grammar) &&
           srv_field_object(x, body, "chat_template_kwargs", &a->template_kwargs) &&
           read_reasoning(x, a, body) && read_effort(x, a, body) && read_parallel(x, a, body);
}

bool srv_openai_read_stream(srv_exchange *x, const json_t *body, bool *stream, bool *usage)
{
    json_t *options = NULL;
    return srv_field_bool(x, body, "stream", stream) &&
           srv_field_object(x, body, "stream_options", &options) &&
           srv_field_bool(x, options, "include_usage", usage);
}

/* ---- replies ---- */

json_t *srv_logprob_number(double logprob)
{
    return json_real(isfinite(logprob) ? logprob : -9999.0);
}

/* A token's text as JSON can have it, a new value. */
static json_t *token_text(const srv_model *model, int32_t id)
{
    size_t n = 0;
    srv_textbuf text = {0};
    const char *bytes = bitnet_token_bytes(model->engine, id, &n);
    srv_textbuf_utf8(&text, bytes ? bytes : "", n);
    json_t *out = text.failed ? NULL : json_stringn(text.data, text.n);
    srv_textbuf_free(&text);
    return out;
}

static json_t *token_bytes(const srv_model *model, int32_t id)
{
    size_t n = 0;
    const char *bytes = bitnet_token_bytes(model->engine, id, &n);
    json_t *out = json_array();
    for (size_t i = 0; bytes && i < n; i++)
        json_array_append_new(out, json_integer((unsigned char)bytes[i]));
    return out;
}

static json_t *one_logprob(const srv_model *model, int32_t id, double logprob)
{
    return json_pack("{s:o, s:o, s:o}", "token", token_text(model, id), "logprob",
                     srv_logprob_number(logprob), "bytes", token_bytes(model, id));
}

json_t *srv_openai_logprob(const srv_model *model, const srv_event *e)
{
    json_t *out = one_logprob(model, e->id, e->logprob), *top = json_array();
    for (size_t i = 0; i < e->n_top && e->top[i].id >= 0; i++)
        json_array_append_new(top, one_logprob(model, e->top[i].id, e->top[i].logprob));
    json_object_set_new(out, "top_logprobs", top);
    return out;
}

json_t *srv_openai_usage(const srv_usage *u)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u->n_prompt,
                     "completion_tokens", (json_int_t)u->n_generated, "total_tokens",
                     (json_int_t)(u->n_prompt + u->n_generated), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)u->n_cached);
}

const char *srv_openai_fingerprint(void)
{
    return "bitnet-" BITNET_VERSION;
}

void srv_openai_receipt(json_t *reply, const srv_answer *answer)
{
    if (srv_answer_receipt(answer))
        json_object_set_new(reply, "receipt", json_string(srv_answer_receipt(answer)));
}

/* ---- streams ---- */

static const char *error_type(const bitnet_error *err, bool late)
{
    if (err->status == BITNET_ARGUMENT || err->status == BITNET_CONTEXT)
        return "invalid_request_error";
    return late ? "timeout_error" : "server_error";
}

void srv_openai_stream_error(srv_exchange *x, const bitnet_error *err)
{
    bool ours = err->status == BITNET_ARGUMENT || err->status == BITNET_CONTEXT ||
                err->status == BITNET_CANCELLED || err->status == BITNET_MEMORY ||
                err->status == BITNET_AGAIN;
    bool late = srv_is_timeout(x, err);
    srv_stream_event(x, NULL,
                     json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message",
                               ours ? err->message : bitnet_status_text(err->status), "type",
                               error_type(err, late), "param", "code",
                               late ? "timeout" : bitnet_status_text(err->status)));
}

void srv_openai_stream_done(srv_exchange *x)
{
    static const char done[] = "data: [DONE]\n\n";
    srv_stream_write(x, done, sizeof done - 1);
    srv_stream_end(x);
}
