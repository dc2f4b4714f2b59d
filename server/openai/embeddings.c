/* embeddings.c - POST /v1/embeddings: texts as vectors of length 1. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/fields.h"
#include "openai/openai.h"
#include "ask/prompts.h"

#define WINDOW 8 /* texts that are computed at a time */

typedef struct embedding {
    srv_exchange *x;
    srv_ask ask;
    srv_prompts inputs;
    srv_answer *answers[WINDOW]; /* of input i: answers[i % WINDOW] */
    size_t n_started;
    int64_t dimensions; /* 0: all */
    bool base64;
    char model[256];
    size_t n_tokens;
} embedding;

/* ---- the request ---- */

static bool read_word(srv_exchange *x, const json_t *body, const char *name, const char *yes,
                      const char *no, bool *out)
{
    const char *word = NULL;
    char must[96];
    if (!srv_field_text(x, body, name, 32, &word))
        return false;
    if (word && strcmp(word, yes) != 0 && strcmp(word, no) != 0) {
        snprintf(must, sizeof must, "%s or %s", yes, no);
        return srv_field_bad(x, name, srv_field(body, name), must);
    }
    if (word)
        *out = strcmp(word, yes) == 0;
    return true;
}

static bool read_embedding(embedding *e, json_t *body)
{
    e->ask.job.kind = SRV_EMBED;
    e->ask.job.mean_pooling = true;
    e->ask.job.max_tokens = 0;
    e->ask.want_receipt = false;
    return srv_field_text(e->x, body, "model", 1024, &e->ask.model) &&
           srv_prompts_read(e->x, body, "input", &e->inputs) &&
           srv_ask_read_priority(e->x, &e->ask, body) &&
           srv_field_int(e->x, body, "dimensions", 1, INT32_MAX, &e->dimensions) &&
           read_word(e->x, body, "encoding_format", "base64", "float", &e->base64) &&
           read_word(e->x, body, "pooling", "mean", "last", &e->ask.job.mean_pooling);
}

/* ---- vectors ---- */

enum { BASE64_BYTES = 6 }; /* of a number, about */

/* Cuts to n and makes it 1 long; a vector of zeros stays. */
static void normalise(float *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    double scale = sum > 0 && isfinite(sum) ? 1.0 / sqrt(sum) : 0.0;
    for (size_t i = 0; i < n; i++)
        v[i] = isfinite(v[i]) ? (float)((double)v[i] * scale) : 0.0f;
}

static json_t *as_numbers(const float *v, size_t n)
{
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, json_real((double)v[i]));
    return out;
}

/* Byte k of the vector as 32-bit floats, the lowest byte of each first. */
static unsigned byte_at(const float *v, size_t k)
{
    uint32_t bits;
    memcpy(&bits, &v[k / 4], sizeof bits);
    return bits >> 8 * (k % 4) & 0xff;
}

static json_t *as_base64(const float *v, size_t n)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_bytes = n * 4, at = 0;
    char *text = malloc((n_bytes + 2) / 3 * 4 + 1);
    for (size_t i = 0; text && i < n_bytes; i += 3) {
        unsigned b = byte_at(v, i) << 16;
        b |= i + 1 < n_bytes ? byte_at(v, i + 1) << 8 : 0;
        b |= i + 2 < n_bytes ? byte_at(v, i + 2) : 0;
        text[at++] = letters[b >> 18];
        text[at++] = letters[b >> 12 & 63];
        text[at++] = i + 1 < n_bytes ? letters[b >> 6 & 63] : '=';
        text[at++] = i + 2 < n_bytes ? letters[b & 63] : '=';
    }
    json_t *out = text ? json_stringn(text, at) : NULL;
    free(text);
    return out;
}

static json_t *vector_json(const embedding *e, size_t index, const srv_event *event,
                           bitnet_error *err)
{
    size_t n = e->dimensions > 0 && (size_t)e->dimensions < event->n_vector ? (size_t)e->dimensions
                                                                            : event->n_vector;
    if (srv_reply_charge(e->x, n * (e->base64 ? BASE64_BYTES : SRV_NUMBER_BYTES), err) != BITNET_OK)
        return NULL;
    float *v = malloc((n + 1) * sizeof *v);
    if (!v)
        return NULL;
    memcpy(v, event->vector, n * sizeof *v);
    normalise(v, n);
    json_t *out = json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)index,
                            "embedding", e->base64 ? as_base64(v, n) : as_numbers(v, n));
    free(v);
    return out;
}

/* ---- all texts ---- */

static bool start_more(embedding *e, size_t current)
{
    while (e->n_started < e->inputs.n && e->n_started < current + WINDOW) {
        srv_answer **slot = &e->answers[e->n_started % WINDOW];
        if (!srv_prompts_set(e->x, &e->inputs, e->n_started, &e->ask) ||
            !srv_ask_start(e->x, &e->ask, slot))
            return false;
        e->n_started++;
    }
    return true;
}

/* Adds the vector of one text. False: the client was told. */
static bool one_text(embedding *e, size_t i, json_t *data)
{
    srv_delta d = {0};
    bitnet_error err = {0};
    json_t *vector = NULL;
    srv_answer *answer = e->answers[i % WINDOW];
    while (srv_answer_next(answer, &d) && d.kind != SRV_DELTA_END)
        if (d.kind == SRV_DELTA_VECTOR && !vector)
            vector = vector_json(e, i, d.event, &err);
    if (err.status == BITNET_OK)
        err = d.event->error;
    bool failed = err.status != BITNET_OK;
    if (failed)
        srv_fail_with(e->x, &err);
    else if (!vector)
        srv_fail(e->x, 503, "out_of_memory", NULL, "out of memory");
    if (failed || !vector) {
        json_decref(vector);
        return false;
    }
    e->n_tokens += d.event->usage.n_prompt;
    srv_answer_close(answer);
    e->answers[i % WINDOW] = NULL;
    return json_array_append_new(data, vector) == 0;
}

static bool check_dimensions(embedding *e)
{
    int most = srv_answer_model(e->answers[0])->info->n_embd;
    if (e->dimensions <= most)
        return true;
    srv_fail(e->x, 400, "invalid_value", "dimensions",
             "dimensions is %lld: it must be from 1 to %d", (long long)e->dimensions, most);
    return false;
}

static void answer_all(embedding *e)
{
    json_t *data = json_array();
    bool good = true;
    for (size_t i = 0; i < e->inputs.n && good; i++)
        good = start_more(e, i) && one_text(e, i, data);
    if (good)
        srv_reply_json(e->x, 200,
                       json_pack("{s:s, s:O, s:s, s:{s:I, s:I}}", "object", "list", "data", data,
                                 "model", e->model, "usage", "prompt_tokens",
                                 (json_int_t)e->n_tokens, "total_tokens", (json_int_t)e->n_tokens));
    json_decref(data);
}

void srv_openai_embeddings(srv_exchange *x)
{
    embedding e = {.x = x};
    json_t *body = srv_body_json(x);
    if (!body)
        return;
    srv_ask_init(&e.ask);
    e.ask.words.said = "input";
    if (read_embedding(&e, body) && start_more(&e, 0) && check_dimensions(&e)) {
        strncpy(e.model, srv_answer_model(e.answers[0])->name, sizeof e.model - 1);
        answer_all(&e);
    }
    for (size_t i = 0; i < WINDOW; i++)
        srv_answer_close(e.answers[i]);
    srv_prompts_free(&e.inputs);
    srv_ask_free(&e.ask);
}
