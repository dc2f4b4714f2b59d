/* native_text.c - text, tokens and templates of a model, and what it offers: POST /tokenize,
 * /detokenize, /apply-template, GET /props, /slots. */
#include <stdlib.h>
#include <string.h>

#include "ask/ask.h"
#include "ask/ask_render.h"
#include "ask/fields.h"
#include "ask/json_text.h"
#include "http/refuse.h"
#include "server.h"
#include "ask/tokens.h"
#include "ask/use_model.h"

void srv_native_tokenize(srv_exchange *x);
void srv_native_detokenize(srv_exchange *x);
void srv_native_apply_template(srv_exchange *x);
void srv_native_props(srv_exchange *x);
void srv_native_slots(srv_exchange *x);

enum { PIECE_BYTES = 600 }; /* of a token with its text in a reply, about */

/* ---- tokenize ---- */

typedef struct tokenizing {
    const char *model;
    json_t *content;
    bool add_special, parse_special, with_pieces;
} tokenizing;

static bool read_tokenizing(srv_exchange *x, json_t *body, tokenizing *t)
{
    t->content = srv_field(body, "content");
    if (!body || !srv_field_text(x, body, "model", 256, &t->model) ||
        !srv_field_bool(x, body, "add_special", &t->add_special) ||
        !srv_field_bool(x, body, "parse_special", &t->parse_special) ||
        !srv_field_bool(x, body, "with_pieces", &t->with_pieces))
        return false;
    if (!t->content)
        return srv_missing(x, "content");
    return json_is_string(t->content) || srv_field_wrong(x, "content", "a string");
}

/* A token with its text; bytes that are no text by themselves come as a list of numbers. */
static json_t *piece_json(const srv_model *model, int32_t id)
{
    size_t n = 0;
    const char *bytes = bitnet_token_bytes(model->engine, id, &n);
    json_t *piece = json_stringn(bytes ? bytes : "", bytes ? n : 0);
    if (!piece) {
        piece = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(piece, json_integer((unsigned char)bytes[i]));
    }
    return json_pack("{s:i, s:o}", "id", (int)id, "piece", piece);
}

static json_t *tokens_json(const srv_model *model, const int32_t *ids, size_t n, bool with_pieces)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(list,
                                  with_pieces ? piece_json(model, ids[i]) : json_integer(ids[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

void srv_native_tokenize(srv_exchange *x)
{
    json_t *body = srv_body_json(x);
    tokenizing t = {.parse_special = true};
    srv_model *model = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    if (!body || !read_tokenizing(x, body, &t) || !srv_use_model(x, t.model, &model))
        return;
    unsigned flags =
        (t.add_special ? BITNET_TEXT_BOS : 0u) | (t.parse_special ? BITNET_TEXT_SPECIAL : 0u);
    if (srv_tokenize(x, model, json_string_value(t.content), json_string_length(t.content), flags,
                     &ids, &n)) {
        bitnet_error err = {0};
        if (srv_reply_charge(x, n * (t.with_pieces ? PIECE_BYTES : SRV_NUMBER_BYTES), &err) ==
            BITNET_OK)
            srv_reply_json(x, 200,
                           json_pack("{s:o}", "tokens", tokens_json(model, ids, n, t.with_pieces)));
        else
            srv_fail_with(x, &err);
    }
    free(ids);
    srv_model_release(srv_server_of(x)->models, model);
}

/* ---- detokenize ---- */

/* Ids of a list, to be freed; false: the client has been told. */
static bool read_ids(srv_exchange *x, const srv_model *model, json_t *list, int32_t **out)
{
    size_t i;
    json_t *v;
    *out = malloc((json_array_size(list) + 1) * sizeof **out);
    if (!*out)
        return srv_no_memory(x);
    json_array_foreach(list, i, v)
    {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= model->info->n_vocab) {
            srv_fail(x, 400, "invalid_value", "tokens",
                     "tokens: what stands at %zu is no token of this model, which has 0 to %d", i,
                     model->info->n_vocab - 1);
            return false;
        }
        (*out)[i] = (int32_t)id;
    }
    return true;
}

void srv_native_detokenize(srv_exchange *x)
{
    json_t *body = srv_body_json(x), *list = NULL;
    const char *name = NULL;
    srv_model *model = NULL;
    srv_textbuf text = {0};
    int32_t *ids = NULL;
    if (!body || !srv_field_text(x, body, "model", 256, &name) ||
        !srv_field_array(x, body, "tokens", SIZE_MAX, &list))
        return;
    if (!list) {
        srv_missing(x, "tokens");
        return;
    }
    if (!srv_use_model(x, name, &model))
        return;
    if (read_ids(x, model, list, &ids) &&
        srv_detokenize(x, model, ids, json_array_size(list), BITNET_TEXT_SPECIAL, &text))
        srv_reply_json(x, 200, json_pack("{s:o}", "content", srv_json_buf(&text)));
    free(ids);
    srv_textbuf_free(&text);
    srv_model_release(srv_server_of(x)->models, model);
}

/* ---- the chat template ---- */

void srv_native_apply_template(srv_exchange *x)
{
    json_t *body = srv_body_json(x);
    srv_textbuf text = {0};
    srv_ask ask;
    srv_ask_init(&ask);
    if (!body || !srv_field_text(x, body, "model", 256, &ask.model) ||
        !srv_field_array(x, body, "messages", SIZE_MAX, &ask.messages) ||
        !srv_field_array(x, body, "tools", SIZE_MAX, &ask.tools) ||
        !srv_field_object(x, body, "chat_template_kwargs", &ask.template_kwargs))
        return;
    if (!ask.messages)
        srv_missing(x, "messages");
    else if (srv_ask_render(x, &ask, &text))
        srv_reply_json(x, 200, json_pack("{s:o}", "prompt", srv_json_buf(&text)));
    srv_textbuf_free(&text);
    srv_ask_free(&ask);
}

/* ---- what it offers ---- */

static json_t *limits_json(const srv_config *c)
{
    return json_pack("{s:I, s:I, s:I, s:i, s:i}", "max_body_bytes", (json_int_t)c->max_body,
                     "max_prompt_tokens", (json_int_t)c->max_prompt_tokens, "max_tokens",
                     (json_int_t)c->max_tokens, "max_choices", c->max_choices, "max_requests",
                     c->max_requests);
}

static json_t *props_json(srv_exchange *x, const srv_model *m)
{
    srv_load load;
    srv_scheduler_load(m->scheduler, &load);
    return json_pack(
        "{s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:{s:b, s:b}, s:{s:i}, s:o}",
        "model", m->name, "n_ctx", m->n_ctx, "n_ctx_train", m->info->n_ctx_train, "device",
        m->device, "summary", m->summary, "version", bitnet_version(), "build_info",
        bitnet_version(), "chat_template", m->info->chat_template, "quantization_type",
        m->info->weight_type, "n_vocab", m->info->n_vocab, "total_slots", load.max_active,
        "n_params", (json_int_t)m->info->n_params, "modalities", "vision", 0, "audio", 0,
        "default_generation_settings", "n_ctx", m->n_ctx, "limits",
        limits_json(srv_server_of(x)->config));
}

void srv_native_props(srv_exchange *x)
{
    srv_model *model = NULL;
    if (!srv_use_model(x, srv_query(x, "model"), &model))
        return;
    srv_reply_json(x, 200, props_json(x, model));
    srv_model_release(srv_server_of(x)->models, model);
}

/* No text of a prompt or an answer is in it. */
static json_t *slot_json(const srv_model *model, const srv_slot *s, size_t i)
{
    return json_pack("{s:I, s:I, s:i, s:s, s:b, s:s, s:i, s:I, s:I, s:I, s:f}", "id", (json_int_t)i,
                     "id_task", (json_int_t)s->job, "choice", s->choice, "model", model->name,
                     "is_processing", 1, "state", s->prompting ? "prompt" : "generate", "n_ctx",
                     model->n_ctx, "n_prompt_tokens", (json_int_t)s->n_prompt, "n_done",
                     (json_int_t)s->n_done, "n_generated", (json_int_t)s->n_generated, "age_ms",
                     s->age_ms);
}

void srv_native_slots(srv_exchange *x)
{
    enum { MOST = 1024 };
    srv_model *model = NULL;
    if (!srv_use_model(x, srv_query(x, "model"), &model))
        return;
    srv_slot *slots = calloc(MOST, sizeof *slots);
    size_t n = slots ? srv_scheduler_slots(model->scheduler, slots, MOST) : 0;
    json_t *list = slots ? json_array() : NULL;
    for (size_t i = 0; i < n && i < MOST; i++)
        json_array_append_new(list, slot_json(model, &slots[i], i));
    srv_reply_json(x, 200, list);
    free(slots);
    srv_model_release(srv_server_of(x)->models, model);
}
