/* ask_sampling.c - the fields of a request that several APIs share: how to choose tokens, how many,
 * when to stop. Hides their bounds (numbers of the sampler: sampling_fields.inc). */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/ask.h"
#include "ask/fields.h"
#include "server.h"

#define MAX_STOPS      16
#define MAX_BIASES     1024
#define MAX_TIMEOUT_MS 86400000.0

typedef struct number_field {
    const char *name;
    size_t at; /* of a float in bitnet_sampler_options */
    double min, max;
} number_field;

static const number_field numbers[] = {
#define NUMBER(name, member, min, max) {name, offsetof(bitnet_sampler_options, member), min, max},
#include "ask/sampling_fields.inc"
#undef NUMBER
};

static bool read_numbers(srv_exchange *x, bitnet_sampler_options *o, const json_t *body)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const number_field *f = &numbers[i];
        double v = NAN;
        if (!srv_field_number(x, body, f->name, f->min, f->max, &v))
            return false;
        float value = (float)v;
        if (!isnan(v))
            memcpy((char *)o + f->at, &value, sizeof value);
    }
    return true;
}

/* top_k may be -1 or 0 (both: off), as other servers have it. */
static bool read_whole_numbers(srv_exchange *x, srv_ask *a, const json_t *body)
{
    bitnet_sampler_options *o = &a->job.sampling;
    int64_t top_k = o->top_k, window = o->penalty_window;
    int64_t seed = 0, n = a->job.n_choices, max = srv_server_of(x)->config->max_choices;
    bool has_seed = srv_field(body, "seed") != NULL;
    if (!srv_field_int(x, body, "top_k", -1, INT_MAX, &top_k) ||
        !srv_field_int(x, body, "repeat_last_n", -1, INT_MAX, &window) ||
        !srv_field_int(x, body, "seed", INT64_MIN, INT64_MAX, &seed) ||
        !srv_field_int(x, body, "n", 1, max > 0 ? max : INT_MAX, &n))
        return false;
    o->top_k = top_k < 0 ? 0 : (int)top_k;
    o->penalty_window = window < 0 ? 0 : (int)window;
    a->job.n_choices = (int)n;
    if (has_seed) {
        o->seed = (uint64_t)seed;
        a->random_seed = false;
    }
    return true;
}

/* The newer name counts where both are given. */
static bool read_max_tokens(srv_exchange *x, srv_ask *a, const json_t *body)
{
    static const char *const names[] = {"max_tokens", "max_completion_tokens"};
    size_t most = srv_server_of(x)->config->max_tokens;
    int64_t least = a->no_tokens ? 0 : 1, max = most && most < INT_MAX ? (int64_t)most : INT_MAX;
    for (size_t i = 0; i < 2; i++) {
        int64_t v = -1;
        if (!srv_field_int(x, body, names[i], least, max, &v))
            return false;
        if (v >= 0)
            a->job.max_tokens = (size_t)v;
    }
    int64_t min = 0;
    if (!srv_field_int(x, body, "min_tokens", 0, max, &min) ||
        !srv_field_bool(x, body, "ignore_eos", &a->job.ignore_eos))
        return false;
    a->job.min_tokens = (size_t)min;
    return true;
}

/* ---- stops ---- */

static const char *stop_name(const srv_ask *a)
{
    return a->words.stop ? a->words.stop : "stop";
}

static bool add_stop(srv_exchange *x, srv_ask *a, const json_t *stop)
{
    const char *text = json_string_value(stop);
    size_t n = text ? json_string_length(stop) : 0;
    if (!text || strlen(text) != n || n > BITNET_STOP_MAX)
        return srv_field_wrong(x, stop_name(a),
                               "a string, or at most 16 strings, of at most 256 bytes each");
    if (n)
        a->owned_stops[a->job.n_stops++] = text;
    return true;
}

static bool read_stops(srv_exchange *x, srv_ask *a, json_t *body)
{
    json_t *stop = srv_field(body, stop_name(a));
    size_t n = json_is_array(stop) ? json_array_size(stop) : 1;
    if (!stop)
        return true;
    if (n > MAX_STOPS)
        return srv_field_wrong(x, stop_name(a), "at most 16 strings");
    free(a->owned_stops);
    a->owned_stops = calloc(MAX_STOPS, sizeof *a->owned_stops);
    a->job.stops = a->owned_stops;
    a->job.n_stops = 0;
    if (!a->owned_stops) {
        srv_fail(x, 503, "out_of_memory", NULL, "out of memory");
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!add_stop(x, a, json_is_array(stop) ? json_array_get(stop, i) : stop))
            return false;
    return true;
}

/* ---- biases ---- */

/* A token's number, written as digits alone. */
static bool token_number(const char *text, int32_t *out)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 9 || text[n])
        return false;
    *out = (int32_t)strtol(text, NULL, 10);
    return true;
}

static bool add_bias(srv_exchange *x, srv_ask *a, const char *key, const json_t *value)
{
    bitnet_bias *b = &a->owned_biases[a->job.n_biases];
    double v = json_number_value(value);
    if (!token_number(key, &b->id))
        return srv_field_wrong(x, "logit_bias", "an object whose keys are token numbers");
    if (!json_is_number(value) || !(v >= -100 && v <= 100))
        return srv_field_wrong(x, "logit_bias", "an object whose values are from -100 to 100");
    for (size_t i = 0; i < a->job.n_biases; i++)
        if (a->owned_biases[i].id == b->id) /* "7" and "07" */
            return srv_field_wrong(x, "logit_bias", "an object that has each token once");
    b->bias = v <= -100 ? -INFINITY : (float)v;
    a->job.n_biases++;
    return true;
}

static bool read_biases(srv_exchange *x, srv_ask *a, json_t *body)
{
    json_t *all = NULL, *value;
    const char *key;
    if (!srv_field_object(x, body, "logit_bias", &all))
        return false;
    if (!all)
        return true;
    if (json_object_size(all) > MAX_BIASES)
        return srv_field_wrong(x, "logit_bias", "an object of at most 1024 tokens");
    free(a->owned_biases);
    a->owned_biases = calloc(json_object_size(all) + 1, sizeof *a->owned_biases);
    a->job.biases = a->owned_biases;
    a->job.n_biases = 0;
    if (!a->owned_biases) {
        srv_fail(x, 503, "out_of_memory", NULL, "out of memory");
        return false;
    }
    json_object_foreach(all, key, value)
    {
        if (!add_bias(x, a, key, value))
            return false;
    }
    return true;
}

/* ---- whose turn, and until when ---- */

bool srv_ask_read_priority(srv_exchange *x, srv_ask *a, const json_t *body)
{
    static const char *const names[] = {"low", "normal", "high", "critical"};
    const char *name = NULL;
    double timeout_ms = 0;
    if (!srv_field_text(x, body, "priority", 16, &name) ||
        !srv_field_number(x, body, "timeout_ms", 1, MAX_TIMEOUT_MS, &timeout_ms))
        return false;
    a->job.deadline_ms = timeout_ms;
    for (size_t i = 0; name && i < 4; i++)
        if (strcmp(name, names[i]) == 0) {
            a->job.priority = (srv_priority)(SRV_LOW + (int)i);
            return true;
        }
    return !name || srv_field_bad(x, "priority", srv_field(body, "priority"),
                                  "low, normal, high or critical");
}

bool srv_ask_read_sampling(srv_exchange *x, srv_ask *a, json_t *body)
{
    return read_numbers(x, &a->job.sampling, body) && read_whole_numbers(x, a, body) &&
           read_max_tokens(x, a, body) && read_stops(x, a, body) && read_biases(x, a, body) &&
           srv_ask_read_priority(x, a, body);
}
