/* ollama_models.c - Ollama's lists of models: GET /api/tags, /api/ps, /api/version, POST /api/show.
 */
#include <stdio.h>
#include <string.h>

#include "jobs/clock.h"
#include "ask/fields.h"
#include "ask/model_card.h"
#include "ollama/ollama_read.h"
#include "server.h"
#include "ask/use_model.h"

void srv_ollama_tags(srv_exchange *x);
void srv_ollama_ps(srv_exchange *x);
void srv_ollama_version(srv_exchange *x);
void srv_ollama_show(srv_exchange *x);

static json_t *details_of(const srv_card *card)
{
    char size[16];
    srv_card_size(card, size);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf",
                     "family", card->architecture, "families", card->architecture, "parameter_size",
                     size, "quantization_level", card->type);
}

/* What tags and ps both tell of a model. Names carry a tag there. */
static json_t *entry_of(const srv_model_row *row)
{
    char name[SRV_OLLAMA_NAME_MAX + 8], modified[SRV_TIME_MAX];
    srv_card card;
    srv_card_read(row, &card); /* a file that cannot be read has no details */
    srv_time_text(row->created, 0, modified);
    snprintf(name, sizeof name, "%.250s%s", row->name, strchr(row->name, ':') ? "" : ":latest");
    json_t *entry = json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", name, "model", name,
                              "modified_at", modified, "size", (json_int_t)row->n_bytes, "digest",
                              card.digest, "details", details_of(&card));
    srv_card_free(&card);
    return entry;
}

void srv_ollama_tags(srv_exchange *x)
{
    json_t *list = json_array();
    srv_model_row row;
    for (size_t i = 0; srv_models_at(srv_server_of(x)->models, i, &row); i++)
        json_array_append_new(list, entry_of(&row));
    srv_reply_json(x, 200, json_pack("{s:o}", "models", list));
}

/* Models have no hour at which they go: the one in the reply is far away. */
static json_t *loaded_entry(const srv_model_row *row, bool on_gpu)
{
    json_t *entry = entry_of(row);
    json_object_set_new(entry, "expires_at", json_string("2318-01-01T00:00:00Z"));
    json_object_set_new(entry, "size_vram", json_integer(on_gpu ? (json_int_t)row->n_bytes : 0));
    return entry;
}

/* Whether what computes the model is something else than the CPU. */
static bool on_gpu(srv_exchange *x, const char *name)
{
    srv_models *models = srv_server_of(x)->models;
    srv_model *model = srv_model_peek(models, name);
    bool is = model && model->device && strcmp(model->device, "cpu") != 0;
    if (model)
        srv_model_looked(models, model);
    return is;
}

void srv_ollama_ps(srv_exchange *x)
{
    json_t *list = json_array();
    srv_model_row row;
    for (size_t i = 0; srv_models_at(srv_server_of(x)->models, i, &row); i++)
        if (row.state == SRV_LOADED)
            json_array_append_new(list, loaded_entry(&row, on_gpu(x, row.name)));
    srv_reply_json(x, 200, json_pack("{s:o}", "models", list));
}

/* Clients ask which version of Ollama's API they speak to, and refuse old ones. */
void srv_ollama_version(srv_exchange *x)
{
    srv_reply_json(x, 200,
                   json_pack("{s:s, s:s}", "version", "0.12.6", "bitnet", bitnet_version()));
}

/* ---- show ---- */

static json_t *capabilities_of(const srv_card *card)
{
    json_t *list = json_pack("[s, s]", "completion", "embedding");
    if (card->template && strstr(card->template, "tools"))
        json_array_append_new(list, json_string("tools"));
    if (card->template && strstr(card->template, "think"))
        json_array_append_new(list, json_string("thinking"));
    return list;
}

static json_t *shown(const srv_model_row *row, const srv_card *card)
{
    char modified[SRV_TIME_MAX];
    srv_time_text(row->created, 0, modified);
    json_object_set_new(card->metadata, "general.parameter_count",
                        json_integer((json_int_t)card->n_params));
    return json_pack("{s:s, s:s, s:s, s:o, s:O, s:o, s:s}", "modelfile", "", "parameters", "",
                     "template", card->template ? card->template : "", "details", details_of(card),
                     "model_info", card->metadata, "capabilities", capabilities_of(card),
                     "modified_at", modified);
}

void srv_ollama_show(srv_exchange *x)
{
    json_t *body = srv_body_json(x);
    const char *called = NULL;
    srv_model_row row;
    srv_card card;
    if (!body || !srv_ollama_model(x, body, &called))
        return;
    if (!srv_find_row(x, called, &row)) {
        srv_fail(x, 404, "model_not_found", "model", "model '%s' not found", called);
        return;
    }
    if (srv_card_read(&row, &card))
        srv_reply_json(x, 200, shown(&row, &card));
    else
        srv_fail(x, 500, "model_unreadable", "model", "the file of model '%s' cannot be read",
                 called);
    srv_card_free(&card);
}
