/* models.c - GET /v1/models and /v1/models/{id}: what is offered, loaded or not. */
#include <string.h>
#include <time.h>

#include "openai/openai.h"
#include "server.h"

static const char *state_word(srv_model_state state)
{
    static const char *const words[] = {"unloaded", "loading", "loaded", "broken"};
    return words[state];
}

/* What is known of a loaded model; an unloaded one is not loaded for it. */
static json_t *meta_of(srv_exchange *x, const srv_model_row *row)
{
    srv_models *models = srv_server_of(x)->models;
    srv_model *m = srv_model_peek(models, row->name);
    json_t *meta = json_pack("{s:I}", "n_bytes", (json_int_t)row->n_bytes);
    if (!m)
        return meta;
    json_t *more =
        json_pack("{s:i, s:i, s:i, s:i, s:I, s:s, s:s, s:s, s:s}", "n_ctx", m->n_ctx, "n_ctx_train",
                  m->info->n_ctx_train, "n_vocab", m->info->n_vocab, "n_embd", m->info->n_embd,
                  "n_params", (json_int_t)m->info->n_params, "architecture", m->info->architecture,
                  "weight_type", m->info->weight_type, "device", m->device ? m->device : "",
                  "chat_template", m->info->chat_template);
    if (more)
        json_object_update(meta, more);
    json_decref(more);
    srv_model_looked(models, m);
    return meta;
}

/* The fields of Anthropic's list, which the same path has. */
static void add_anthropic(json_t *out, const srv_model_row *row)
{
    char at[32] = "";
    struct tm tm;
    time_t created = (time_t)row->created;
    if (gmtime_r(&created, &tm))
        strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_object_set_new(out, "type", json_string("model"));
    json_object_set_new(out, "display_name", json_string(row->name));
    json_object_set_new(out, "created_at", json_string(at));
}

static json_t *row_json(srv_exchange *x, const srv_model_row *row)
{
    json_t *out = json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", row->name, "object", "model",
                            "created", (json_int_t)row->created, "owned_by", "bitnet", "state",
                            state_word(row->state), "meta", meta_of(x, row));
    add_anthropic(out, row);
    if (row->state == SRV_LOADING)
        json_object_set_new(out, "progress", json_real(row->progress));
    return out;
}

void srv_openai_models(srv_exchange *x)
{
    srv_model_row row;
    json_t *data = json_array();
    for (size_t i = 0; srv_models_at(srv_server_of(x)->models, i, &row); i++)
        json_array_append_new(data, row_json(x, &row));
    json_t *first = json_array_get(data, 0);
    json_t *last = first ? json_array_get(data, json_array_size(data) - 1) : NULL;
    srv_reply_json(x, 200,
                   json_pack("{s:s, s:o, s:b, s:O?, s:O?}", "object", "list", "data", data,
                             "has_more", 0, "first_id", json_object_get(first, "id"), "last_id",
                             json_object_get(last, "id")));
}

void srv_openai_model(srv_exchange *x)
{
    srv_model_row row;
    const char *name = srv_path_part(x);
    for (int tagged = 0; tagged < 2; tagged++) /* its very name comes first */
        for (size_t i = 0; srv_models_at(srv_server_of(x)->models, i, &row); i++)
            if (tagged ? srv_model_is_called(row.name, name) : strcmp(row.name, name) == 0) {
                srv_reply_json(x, 200, row_json(x, &row));
                return;
            }
    srv_fail(x, 404, "model_not_found", "model", "there is no model \"%.200s\"", name);
}
