/* native_models.c - models on request, and how the server is doing: POST /v1/models/load, DELETE
 * /v1/models/{id}, GET /v1/stats, /v1/devices, /v1/receipts/{id}. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bitnet_tools.h"
#include "ask/fields.h"
#include "http/http.h"
#include "http/refuse.h"
#include "server.h"
#include "ask/use_model.h"

/* A file that is no model here is the request's fault. What is wrong with it is for the log: it
 * names where the file is. */
static void refuse_load(srv_exchange *x, const bitnet_error *err)
{
    if (err->status != BITNET_MODEL && err->status != BITNET_TOKENIZER) {
        srv_fail_with(x, err);
        return;
    }
    srv_log(srv_server_of(x), BITNET_LOG_WARN, "%s: %s", srv_request_id(x), err->message);
    srv_fail(x, 400, "invalid_value", "model_path",
             "model_path: this file cannot be loaded as a model; the server's log says why under "
             "%s",
             srv_request_id(x));
}

void srv_native_load(srv_exchange *x);
void srv_native_unload(srv_exchange *x);
void srv_native_stats(srv_exchange *x);
void srv_native_devices(srv_exchange *x);
void srv_native_receipt(srv_exchange *x);

enum { NAME_MAX_BYTES = 200 };
enum { RECEIPT_TRIES = 200, RECEIPT_PAUSE_NS = 10000000 }; /* 2 s */

/* ---- loading ---- */

/* The name of a model is the file's, without folders and .gguf. */
static void name_of(const char *path, char out[NAME_MAX_BYTES + 1])
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    snprintf(out, NAME_MAX_BYTES + 1, "%s", base);
    size_t n = strlen(out);
    if (n > 5 && strcmp(out + n - 5, ".gguf") == 0)
        out[n - 5] = '\0';
}

static bool is_name(const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    return *name && *name != '.' && strspn(name, good) == strlen(name);
}

/* A process computes on one device, and the tokenizer is in the model's file. */
static bool check_rest(srv_exchange *x, json_t *body)
{
    const char *device = NULL, *ours = srv_server_of(x)->config->models.runtime.device;
    if (!srv_field_refuse(x, body, "tokenizer_path", "the tokenizer is in the model's own file") ||
        !srv_field_text(x, body, "device", 256, &device))
        return false;
    if (!device || strcmp(device, "auto") == 0 || strcmp(device, ours ? ours : "auto") == 0)
        return true;
    srv_fail(x, 400, "invalid_value", "device",
             "device is '%.60s': this server computes on '%s'; start another with --device", device,
             ours ? ours : "auto");
    return false;
}

void srv_native_load(srv_exchange *x)
{
    json_t *body = srv_body_json(x);
    const char *path = NULL, *id = NULL;
    char name[NAME_MAX_BYTES + 1];
    bitnet_error err = {BITNET_OK, ""};
    if (!body || !srv_may_change_models(x) || !srv_field_text(x, body, "model_path", 4096, &path) ||
        !srv_field_text(x, body, "model_id", NAME_MAX_BYTES, &id) || !check_rest(x, body))
        return;
    if (!path || !*path) {
        srv_missing(x, "model_path");
        return;
    }
    name_of(path, name);
    if (id)
        snprintf(name, sizeof name, "%s", id);
    if (!is_name(name))
        srv_field_wrong(x, "model_id", "a name of letters, digits and . _ : -");
    else if (srv_models_add(srv_server_of(x)->models, path, name, srv_gone_fn, x, &err) !=
             BITNET_OK)
        refuse_load(x, &err);
    else
        srv_reply_json(x, 200,
                       json_pack("{s:s, s:s, s:s}", "model_id", name, "status", "loaded", "message",
                                 "the model is loaded"));
}

void srv_native_unload(srv_exchange *x)
{
    bitnet_error err = {BITNET_OK, ""};
    const char *name = srv_path_part(x);
    if (!srv_may_change_models(x))
        return;
    bitnet_status status = srv_models_remove(srv_server_of(x)->models, name, &err);
    if (status == BITNET_OK)
        srv_reply_bytes(x, 204, NULL, "", 0);
    else if (status == BITNET_AGAIN)
        srv_fail(x, 409, "model_in_use", "id", "%s", err.message);
    else
        srv_fail_with(x, &err);
}

/* ---- how it is doing ---- */

static const char *state_name(srv_model_state state)
{
    static const char *const names[] = {"unloaded", "loading", "loaded", "broken"};
    return names[state];
}

static json_t *load_json(const srv_load *l)
{
    double room = (double)l->kv.n_blocks;
    return json_pack(
        "{s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}",
        "queued", (json_int_t)l->n_queued, "active", (json_int_t)l->n_active, "reading_prompts",
        (json_int_t)l->n_prompting, "max_active", l->max_active, "max_queued", l->max_queued,
        "n_ctx", l->n_ctx, "steps", (json_int_t)l->n_steps, "jobs", (json_int_t)l->n_jobs,
        "cancelled", (json_int_t)l->n_cancelled, "failed", (json_int_t)l->n_failed, "prompt_tokens",
        (json_int_t)(l->n_prompt_tokens + l->n_cached_tokens), "cached_tokens",
        (json_int_t)l->n_cached_tokens, "generated_tokens", (json_int_t)l->n_tokens, "step_ms",
        l->step_ms, "tokens_per_second", l->tokens_per_s, "kv_use",
        room > 0 ? (double)l->kv.n_used / room : 0.0);
}

/* The figures of a loaded model, without a use that would keep it loaded; the others have none. */
static void add_load(srv_models *models, const char *name, json_t *entry)
{
    srv_model *model = srv_model_peek(models, name);
    srv_load load;
    if (!model)
        return;
    srv_scheduler_load(model->scheduler, &load);
    json_object_set_new(entry, "device", json_string(model->device));
    json_object_set_new(entry, "batching", load_json(&load));
    srv_model_looked(models, model);
}

static json_t *models_json(srv_models *models)
{
    json_t *list = json_array();
    srv_model_row row;
    for (size_t i = 0; srv_models_at(models, i, &row); i++) {
        json_t *entry =
            json_pack("{s:s, s:s, s:f, s:I}", "model", row.name, "state", state_name(row.state),
                      "progress", row.progress, "size_bytes", (json_int_t)row.n_bytes);
        add_load(models, row.name, entry);
        json_array_append_new(list, entry);
    }
    return list;
}

static json_t *memory_json(void)
{
    bitnet_host_memory m;
    if (bitnet_host_memory_read(&m, NULL) != BITNET_OK)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I}", "total_bytes", (json_int_t)m.total_bytes,
                     "available_bytes", (json_int_t)m.available_bytes, "process_bytes",
                     (json_int_t)m.process_bytes, "process_peak_bytes",
                     (json_int_t)m.process_peak_bytes);
}

void srv_native_stats(srv_exchange *x)
{
    srv_server *server = srv_server_of(x);
    json_int_t uptime = (json_int_t)time(NULL) - (json_int_t)server->started;
    srv_reply_json(x, 200,
                   json_pack("{s:I, s:s, s:o, s:o, s:o}", "uptime_seconds", uptime < 0 ? 0 : uptime,
                             "version", bitnet_version(), "requests",
                             srv_metrics_json(server->metrics), "models",
                             models_json(server->models), "memory", memory_json()));
}

/* What the machine has, as `bitnet devices` lists it; drivers that this build cannot use are not
 * asked. */
void srv_native_devices(srv_exchange *x)
{
    bitnet_devices_options options;
    bitnet_devices *devices = NULL;
    bitnet_error err = {BITNET_OK, ""};
    const char *ours = srv_server_of(x)->config->models.runtime.device;
    bitnet_devices_options_init(&options);
    options.quick = true;
    if (bitnet_devices_open(&options, &devices, &err) != BITNET_OK) {
        srv_fail_with(x, &err);
        return;
    }
    json_t *found = json_loads(bitnet_devices_json(devices, BITNET_DEVICES_LIST), 0, NULL);
    bitnet_devices_close(devices);
    srv_reply_json(x, 200,
                   json_pack("{s:s, s:o}", "requested", ours ? ours : "auto", "machine", found));
}

/* A receipt is written a moment after its answer: who asks at once waits for it. */
static json_t *wait_for_receipt(srv_exchange *x, srv_receipts *receipts)
{
    const char *id = srv_path_part(x);
    json_t *receipt = srv_receipts_get(receipts, id);
    for (int i = 0; !receipt && i < RECEIPT_TRIES && srv_receipts_expected(receipts, id); i++) {
        if (srv_gone(x))
            return NULL;
        nanosleep(&(struct timespec){0, RECEIPT_PAUSE_NS}, NULL);
        receipt = srv_receipts_get(receipts, id);
    }
    return receipt;
}

void srv_native_receipt(srv_exchange *x)
{
    srv_receipts *receipts = srv_server_of(x)->receipts;
    json_t *receipt = receipts ? wait_for_receipt(x, receipts) : NULL;
    if (receipt)
        srv_reply_json(x, 200, receipt);
    else
        srv_fail(x, 404, "receipt_not_found", "id",
                 "there is no receipt of this id: it comes when its answer is complete, and goes "
                 "when many newer ones have come");
}
