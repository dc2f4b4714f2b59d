/* native_read.c - reads a request of the server's own inference API: a prompt as it is, and how to
 * continue it. */
#include "native/native_read.h"

#include <string.h>

#include "ask/fields.h"
#include "http/refuse.h"
#include "server.h"

/* Fields that several APIs share have other defaults here. */
static json_t *defaults(void)
{
    return json_pack("{s:i, s:f, s:f, s:i, s:f}", "max_tokens", 64, "temperature", 1.0, "top_p",
                     0.9, "top_k", 50, "repetition_penalty", 1.0);
}

static bool check_max_tokens(srv_exchange *x, json_t *body)
{
    json_t *wanted = srv_field(body, "max_tokens");
    size_t most = srv_server_of(x)->config->max_tokens;
    if (!most || !json_is_number(wanted) || json_number_value(wanted) <= (double)most)
        return true;
    srv_fail(x, 400, "too_many_tokens", "max_tokens", "max_tokens is %.0f: this server allows %zu",
             json_number_value(wanted), most);
    return false;
}

static bool read_sampling(srv_exchange *x, json_t *body, srv_inference *r)
{
    const char *key;
    json_t *value;
    int bad = 0;
    int64_t n = 1;
    if (!check_max_tokens(x, body) || !srv_field_int(x, body, "n", 1, 1, &n))
        return false;
    r->sampling = defaults();
    json_object_foreach(body, key, value)
    {
        if (!json_is_null(value))
            bad |= json_object_set(r->sampling, key, value);
    }
    return r->sampling && !bad ? srv_ask_read_sampling(x, &r->ask, r->sampling) : srv_no_memory(x);
}

/* Wishes that are taken note of: a process computes on one device, and a model has the weights that
 * its file has. The reply says which. */
static bool read_wishes(srv_exchange *x, json_t *body)
{
    const char *ignored = NULL;
    return srv_field_text(x, body, "device_preference", 256, &ignored) &&
           srv_field_text(x, body, "quantization_hint", 256, &ignored);
}

static bool read_prompt(srv_exchange *x, json_t *body, srv_inference *r)
{
    json_t *prompt = srv_field(body, "prompt");
    if (!prompt)
        return srv_missing(x, "prompt");
    if (!json_is_string(prompt))
        return srv_field_wrong(x, "prompt", "a string");
    r->ask.text = json_string_value(prompt);
    r->ask.n_text = json_string_length(prompt);
    return srv_field_text(x, body, "model", 256, &r->ask.model);
}

bool srv_inference_read(srv_exchange *x, double timeout_s, srv_inference *r)
{
    json_t *body = srv_body_json(x);
    *r = (srv_inference){0};
    srv_ask_init(&r->ask);
    if (!body || !read_prompt(x, body, r) || !read_wishes(x, body) || !read_sampling(x, body, r) ||
        !srv_field_number(x, body, "timeout_seconds", 0.001, 86400, &timeout_s) ||
        !srv_field_bool(x, body, "detailed_errors", &r->detailed_errors))
        return false;
    if (r->ask.job.deadline_ms <= 0)
        r->ask.job.deadline_ms = timeout_s * 1e3;
    r->timeout_ms = r->ask.job.deadline_ms;
    return true;
}

void srv_inference_free(srv_inference *r)
{
    srv_ask_free(&r->ask);
    json_decref(r->sampling);
}
