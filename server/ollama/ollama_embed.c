/* ollama_embed.c - POST /api/embed and its older form, /api/embeddings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/clock.h"
#include "ask/fields.h"
#include "ollama/ollama_read.h"
#include "http/refuse.h"
#include "server.h"
#include "ask/tokens.h"
#include "ask/use_model.h"

void srv_ollama_embed(srv_exchange *x);
void srv_ollama_embeddings(srv_exchange *x);

enum { MAX_INPUTS = 2048 };

typedef struct embedding {
    const char *called, *field; /* the model's name, and of the texts, as the client wrote them */
    bool truncate;              /* a text that is too long loses its end */
    bool unit;                  /* vectors have length 1 */
    int64_t dimensions;         /* 0: all */
    json_t *vectors;
    size_t n_tokens;
} embedding;

/* The first n numbers of a vector as JSON, scaled to length 1 if wanted. */
static json_t *vector_json(const float *v, size_t n, bool unit)
{
    json_t *list = json_array();
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)v[i] * v[i];
    double scale = unit && sum > 0 ? 1 / sqrt(sum) : 1;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(v[i] * scale));
    if (json_array_size(list) == n)
        return list;
    json_decref(list);
    return NULL;
}

static bool take_vector(srv_exchange *x, embedding *e, const srv_event *event)
{
    size_t n = event->n_vector;
    if (e->dimensions && (uint64_t)e->dimensions < n)
        n = (size_t)e->dimensions;
    bitnet_error err = {0};
    if (srv_reply_charge(x, n * SRV_NUMBER_BYTES, &err) != BITNET_OK) {
        srv_fail_with(x, &err);
        return false;
    }
    return json_array_append_new(e->vectors, vector_json(event->vector, n, e->unit)) == 0 ||
           srv_no_memory(x);
}

/* Waits for the one vector of an answer. */
static bool take_answer(srv_exchange *x, embedding *e, srv_answer *answer)
{
    bool ok = true;
    srv_delta d;
    while (srv_answer_next(answer, &d)) {
        if (d.kind == SRV_DELTA_VECTOR && ok)
            ok = take_vector(x, e, d.event);
        if (d.kind != SRV_DELTA_END)
            continue;
        e->n_tokens += d.event->usage.n_prompt;
        if (ok && d.event->error.status != BITNET_OK) {
            srv_fail_with(x, &d.event->error);
            ok = false;
        }
        break;
    }
    return ok;
}

static bool embed_ids(srv_exchange *x, embedding *e, const int32_t *ids, size_t n_ids)
{
    srv_ask ask;
    srv_answer *answer = NULL;
    srv_ask_init(&ask);
    ask.words.said = e->field;
    ask.model = e->called;
    ask.ids = ids;
    ask.n_ids = n_ids;
    ask.job.kind = SRV_EMBED;
    ask.job.mean_pooling = true;
    bool ok = srv_ask_start(x, &ask, &answer);
    if (ok) {
        ok = take_answer(x, e, answer);
        srv_answer_close(answer);
    }
    srv_ask_free(&ask);
    return ok;
}

static bool embed_text(srv_exchange *x, embedding *e, const srv_model *model, const json_t *text)
{
    int32_t *ids = NULL;
    size_t n = 0, most = (size_t)model->n_ctx;
    size_t limit = srv_server_of(x)->config->max_prompt_tokens;
    if (!json_is_string(text))
        return srv_field_wrong(x, "input", "a string or a list of strings");
    if (!srv_tokenize(x, model, json_string_value(text), json_string_length(text), BITNET_TEXT_BOS,
                      &ids, &n))
        return false;
    if (limit && limit < most)
        most = limit;
    bool ok = embed_ids(x, e, ids, e->truncate && n > most ? most : n);
    free(ids);
    return ok;
}

static bool embed_all(srv_exchange *x, embedding *e, const json_t *input)
{
    srv_model *model = NULL;
    json_t *text;
    size_t i;
    if (!srv_use_model(x, e->called, &model))
        return false;
    e->vectors = json_array();
    bool ok = !json_is_string(input) || embed_text(x, e, model, input);
    json_array_foreach(input, i, text)
    {
        ok = ok && embed_text(x, e, model, text);
    }
    srv_model_release(srv_server_of(x)->models, model);
    return ok;
}

void srv_ollama_embed(srv_exchange *x)
{
    embedding e = {.field = "input", .truncate = true, .unit = true};
    double began = srv_clock_ms();
    json_t *body = srv_body_json(x), *input = srv_field(body, "input");
    if (!body || !srv_ollama_model(x, body, &e.called) ||
        !srv_field_bool(x, body, "truncate", &e.truncate) ||
        !srv_field_int(x, body, "dimensions", 1, INT32_MAX, &e.dimensions))
        return;
    if (!input)
        srv_missing(x, "input");
    else if (!json_is_string(input) &&
             (!json_is_array(input) || json_array_size(input) > MAX_INPUTS))
        srv_field_wrong(x, "input", "a string or a list of at most 2048 strings");
    else if (embed_all(x, &e, input))
        srv_reply_json(x, 200,
                       json_pack("{s:s, s:O, s:I, s:I, s:I}", "model", e.called, "embeddings",
                                 e.vectors, "total_duration",
                                 (json_int_t)((srv_clock_ms() - began) * 1e6), "load_duration",
                                 (json_int_t)0, "prompt_eval_count", (json_int_t)e.n_tokens));
    json_decref(e.vectors);
}

/* The older form: one prompt, the vector as the model made it. */
void srv_ollama_embeddings(srv_exchange *x)
{
    embedding e = {.field = "prompt", .truncate = true};
    json_t *body = srv_body_json(x), *prompt = srv_field(body, "prompt");
    if (!body || !srv_ollama_model(x, body, &e.called))
        return;
    if (!prompt)
        srv_missing(x, "prompt");
    else if (!json_is_string(prompt))
        srv_field_wrong(x, "prompt", "a string");
    else if (embed_all(x, &e, prompt))
        srv_reply_json(x, 200, json_pack("{s:O}", "embedding", json_array_get(e.vectors, 0)));
    json_decref(e.vectors);
}
