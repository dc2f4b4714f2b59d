/* engine.c - one model file, loaded: the file, its weights on a backend, its tokenizer, its chat
 * template, and the facts about it. Hides: the order in which these are opened, and what each may
 * fail with. */
#include "engine/engine.h"
#include "model/strict.h"
#include "ops/inspect.h"

void bitnet_engine_options_init(bitnet_engine_options *o)
{
    if (o)
        *o = (bitnet_engine_options){.struct_size = sizeof *o, .i2s_layout = BITNET_I2S_128};
}

/* ---- facts ---- */

static void count_weights(bitnet_engine *e)
{
    uint64_t n_elems = 0, n_bytes = 0;
    for (size_t i = 0; i < bnet_gguf_n_tensors(e->gguf); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(e->gguf, i);
        n_elems += bnet_tensor_elems(t);
        n_bytes += t->n_bytes;
    }
    e->info.n_params = n_elems;
    e->info.bits_per_weight = n_elems ? 8.0 * (double)n_bytes / (double)n_elems : 0.0;
}

static void describe_model(bitnet_engine *e)
{
    bitnet_model_info *i = &e->info;
    if (!e->model) {
        i->activation = i->weight_type = i->embedding_type = i->head_type = "";
        i->n_vocab = (int)bnet_tokenizer_size(e->tokenizer);
        return;
    }
    const bnet_hparams *h = bnet_model_hparams(e->model);
    i->activation = h->act == BNET_ACT_RELU2 ? "relu2" : "silu";
    i->weight_type = bnet_model_weight_type(e->model);
    i->embedding_type = bnet_model_embedding_type(e->model);
    i->head_type = bnet_model_head_type(e->model);
    i->n_layers = h->n_layers;
    i->n_embd = h->n_embd;
    i->n_ff = h->n_ff;
    i->n_heads = h->n_heads;
    i->n_kv_heads = h->n_kv_heads;
    i->head_dim = h->head_dim;
    i->n_vocab = h->n_vocab;
    i->n_ctx_train = h->n_ctx_train;
    i->tied_head = h->tied_head;
}

static void describe(bitnet_engine *e)
{
    bitnet_model_info *i = &e->info;
    i->struct_size = sizeof *i;
    i->path = e->path;
    i->name = e->name;
    i->architecture = e->architecture;
    i->tokenizer = bnet_tokenizer_name(e->tokenizer);
    i->chat_template = e->chat ? bnet_chat_name(e->chat) : "";
    i->bos_id = bnet_tokenizer_bos(e->tokenizer);
    i->eos_id = bnet_tokenizer_eos(e->tokenizer);
    i->n_file_bytes = bnet_gguf_file_bytes(e->gguf);
    describe_model(e);
    count_weights(e);
}

/* A copy of a string key of the file, "" if it is absent. */
static bitnet_status copy_key(const bitnet_engine *e, const char *key, char **out,
                              bitnet_error *err)
{
    bnet_span text = {"", 0};
    bitnet_status st = bnet_gguf_string(e->gguf, key, &text, NULL, err);
    if (st != BITNET_OK)
        return st;
    *out = bnet_memdup(text.data, text.n);
    return *out ? BITNET_OK : bnet_no_memory(err, key);
}

/* ---- opening ---- */

static bitnet_status open_on(bitnet_engine *e, const bitnet_engine_options *o,
                             bnet_progress *progress, bitnet_error *err)
{
    const bitnet_runtime *r = e->runtime;
    bnet_pack_cache pack;
    const bnet_backend_want want = {.device = e->selection.kind,
                                    .index = e->selection.index,
                                    .ranks = e->selection.ranks,
                                    .pool = r->pool,
                                    .registry = r->registry,
                                    .isa = r->isa,
                                    .strict = r->strict,
                                    .log = &e->log,
                                    .cache = bnet_model_cache_want(&e->cache, &pack) ? &pack : NULL,
                                    .cache_dir = o->cache_dir,
                                    .nvrtc = o->nvrtc_path,
                                    .ranges = o->nvtx,
                                    .specialise = o->gpu_specialise,
                                    .no_pack = o->no_pack,
                                    .precision = o->precision,
                                    .batch_invariant = o->batch_invariant,
                                    .trace_dir = o->trace_dir};
    bitnet_status st = bnet_backend_open(&want, &e->backend, err);
    if (st != BITNET_OK)
        return st;
    if (r->statistics)
        e->backend->meter = &e->meter;
    st = bnet_model_open(e->gguf, e->backend, e->layout, &e->log, progress, &e->model, err);
    if (st == BITNET_OK && e->selection.kind == BNET_DEV_CPU)
        bnet_model_count(e->model, &e->runtime->ledger.reserved);
    if (st == BITNET_OK)
        bnet_op_weights_done(e->backend, &e->log);
    if (st == BITNET_OK)
        bnet_model_cache_tidy(&e->cache, &e->log);
    return st;
}

/* If `auto` chose the device and it cannot take the model, the CPU is used instead. */
static bitnet_status open_weights(bitnet_engine *e, const bitnet_engine_options *o,
                                  bnet_progress *progress, bitnet_error *err)
{
    const bitnet_runtime *r = e->runtime;
    bitnet_error why = {0};
    bitnet_status st = bnet_model_cache_open(o, e->path, e->gguf, &e->log, &e->cache, err);
    if (st != BITNET_OK)
        return st;
    st = open_on(e, o, progress, err ? err : &why);
    bool device = st == BITNET_MEMORY || st == BITNET_NOT_AVAILABLE || st == BITNET_NOT_COMPILED;
    if (!device || !e->selection.is_auto || e->selection.kind == BNET_DEV_CPU || r->strict)
        return st;
    bnet_backend_close(e->backend);
    e->backend = NULL;
    bnet_select_cpu(&e->selection);
    bnet_logf(&e->log, BITNET_LOG_WARN, "device", "%s; %s", err ? err->message : why.message,
              e->selection.summary);
    return open_on(e, o, progress, err);
}

/* Checks the weights before they are prepared: in strict mode, or if the caller has a policy. */
static bitnet_status check_weights(const bitnet_engine *e, const bitnet_engine_options *o,
                                   bnet_progress *progress, bitnet_error *err)
{
    bitnet_status st = BITNET_OK;
    if (e->runtime->strict)
        st = bnet_strict_weights(e->gguf, progress, err);
    if (st == BITNET_OK && o->policy_path)
        st = bnet_policy_check(o->policy_path, e->gguf, &e->log, progress, err);
    return st == BITNET_OK ? st : bnet_wrap(err, st, "%s", e->path);
}

/* Bytes of tensors, as often as they will be read; none without weights. */
static uint64_t bytes_to_read(const bitnet_engine *e, const bitnet_engine_options *o)
{
    uint64_t n_bytes = 0, n_times = 1u + e->runtime->strict + (o->policy_path != NULL);
    for (size_t i = 0; !o->vocab_only && i < bnet_gguf_n_tensors(e->gguf); i++)
        n_bytes += bnet_gguf_tensor_at(e->gguf, i)->n_bytes;
    return n_bytes * n_times;
}

static bitnet_status loading_cancelled(const bitnet_engine *e, bitnet_error *err)
{
    return bnet_fail(err, BITNET_CANCELLED, "%s: loading was cancelled", e->path);
}

/* Everything behind an open file. */
static bitnet_status open_parts(bitnet_engine *e, const bitnet_engine_options *o, bitnet_error *err)
{
    bnet_progress progress = {o->on_progress, o->progress_user, 0, bytes_to_read(e, o), e->cancel};
    bitnet_status st = bnet_cancelled(&e->cancel) ? loading_cancelled(e, err) : BITNET_OK;
    if (st == BITNET_OK)
        st = copy_key(e, "general.name", &e->name, err);
    if (st == BITNET_OK)
        st = copy_key(e, "general.architecture", &e->architecture, err);
    if (st == BITNET_OK && !o->vocab_only)
        st = check_weights(e, o, &progress, err);
    if (st == BITNET_OK && !o->vocab_only)
        st = open_weights(e, o, &progress, err);
    uint64_t n_vocab = e->model ? (uint64_t)bnet_model_hparams(e->model)->n_vocab : 0;
    if (st == BITNET_OK)
        st = bnet_tokenizer_open(e->gguf, n_vocab, &e->log, &e->tokenizer, err);
    if (st == BITNET_OK && (bnet_cancelled(&e->cancel) || !bnet_progress_end(&progress)))
        st = loading_cancelled(e, err);
    if (st != BITNET_OK)
        return st;
    e->chat = bnet_chat_detect(e->gguf, e->tokenizer, &e->info.template_match);
    if (e->chat && e->info.template_match != BITNET_TEMPLATE_EXACT)
        bnet_logf(&e->log, BITNET_LOG_INFO, "tokenizer", "%s: %s; conversations take the form '%s'",
                  e->path,
                  e->info.template_match == BITNET_TEMPLATE_ABSENT
                      ? "no chat template"
                      : bnet_chat_own_of(e->tokenizer)->problem,
                  bnet_chat_name(e->chat));
    e->longest_token = bnet_token_longest(e->tokenizer);
    describe(e);
    e->invariant = e->invariant && e->selection.kind != BNET_DEV_CPU;
    return BITNET_OK;
}

static bitnet_status read_options(const bitnet_engine_options *given, bitnet_engine_options *o,
                                  bitnet_error *err)
{
    bitnet_engine_options_init(o);
    bitnet_status st = bnet_options_copy(o, sizeof *o, given, "engine options", err);
    if (st == BITNET_OK)
        st = bnet_check_int("engine options", "i2s_layout", (int)o->i2s_layout, BITNET_I2S_128,
                            BITNET_I2S_4ROW, err);
    if (st == BITNET_OK)
        st = bnet_check_int("engine options", "precision", (int)o->precision, BITNET_PRECISION_FP32,
                            BITNET_PRECISION_AUTO, err);
    return st;
}

/* data NULL: from the file at path. */
static bitnet_status open_any(bitnet_runtime *r, const char *path, const void *data, size_t n_bytes,
                              const bitnet_engine_options *options, bitnet_engine **out,
                              bitnet_error *err)
{
    bitnet_engine_options o;
    bitnet_status st = read_options(options, &o, err);
    if (st != BITNET_OK)
        return st;
    bitnet_engine *e = bnet_calloc(1, sizeof *e);
    if (!e || !(e->path = bnet_strdup(path))) {
        bnet_free(e);
        return bnet_no_memory(err, "engine");
    }
    pthread_mutex_init(&e->spare_lock, NULL);
    bnet_workspaces_init(&e->workspaces);
    e->runtime = r;
    e->log = r->log;
    e->selection = r->selection;
    e->layout = o.i2s_layout;
    e->invariant = o.batch_invariant;
    e->cancel = (bnet_cancel){o.cancel, o.cancel_user};
    st = data ? bnet_gguf_open_memory(data, n_bytes, path, &e->log, &e->gguf, err)
              : bnet_gguf_open(path, &e->log, &e->gguf, err);
    if (st == BITNET_OK)
        st = open_parts(e, &o, err);
    if (st != BITNET_OK) {
        bitnet_engine_close(e);
        return st;
    }
    *out = e;
    return BITNET_OK;
}

bitnet_status bitnet_engine_open(bitnet_runtime *runtime, const char *path,
                                 const bitnet_engine_options *options, bitnet_engine **out,
                                 bitnet_error *err)
{
    if (!runtime || !path || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "engine: runtime, path and out must not be NULL");
    return open_any(runtime, path, NULL, 0, options, out, err);
}

bitnet_status bitnet_engine_open_memory(bitnet_runtime *runtime, const void *data, size_t n_bytes,
                                        const bitnet_engine_options *options, bitnet_engine **out,
                                        bitnet_error *err)
{
    if (!runtime || (n_bytes && !data) || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "engine: runtime, data and out must not be NULL");
    return open_any(runtime, "<memory>", data ? data : "", n_bytes, options, out, err);
}

void bitnet_engine_close(bitnet_engine *e)
{
    if (!e)
        return;
    bnet_workspaces_close(&e->workspaces);
    bnet_spare_close(e);
    bnet_tokenizer_close(e->tokenizer);
    bnet_model_close(e->model);
    bnet_backend_close(e->backend);
    bnet_gguf_close(e->gguf);
    bnet_model_cache_close(&e->cache);
    bnet_free(e->architecture);
    bnet_free(e->name);
    bnet_free(e->path);
    bnet_free(e);
}

const bitnet_model_info *bitnet_engine_model(const bitnet_engine *e)
{
    return e ? &e->info : NULL;
}

bool bitnet_engine_pin_caller(const bitnet_engine *e)
{
    return e && e->selection.kind == BNET_DEV_CPU && bnet_pool_pin_caller(e->runtime->pool);
}

const char *bitnet_engine_map(const bitnet_engine *e, const void *address)
{
    if (!e)
        return NULL;
    if (bnet_gguf_holds(e->gguf, address))
        return e->path;
    return bnet_backend_maps(e->backend, address) ? e->cache.pack_path : NULL;
}

bitnet_status bnet_check_weights(const bitnet_engine *e, bitnet_error *err)
{
    if (e->model)
        return BITNET_OK;
    return bnet_fail(err, BITNET_ARGUMENT,
                     "%s: opened with vocab_only, there are no weights to run", e->path);
}

bitnet_status bnet_check_memory(bitnet_engine *e, bnet_backend *be, uint64_t need, const char *what,
                                const char *remedy, uint64_t *held, bitnet_error *err)
{
    bitnet_status st;
    if (bnet_backend_admit(be, need, what, remedy, &st, err))
        return st;
    return bnet_host_admit(&e->runtime->ledger, need, what, remedy, held, err);
}

bitnet_status bnet_check_ids(const bitnet_engine *e, const char *what, const int32_t *ids, size_t n,
                             bitnet_error *err)
{
    if (n && !ids)
        return bnet_fail(err, BITNET_ARGUMENT, "%s: ids must not be NULL", what);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->info.n_vocab)
            return bnet_fail(err, BITNET_ARGUMENT,
                             "%s: id %d at index %zu is outside the vocabulary 0..%d", what,
                             (int)ids[i], i, e->info.n_vocab - 1);
    return BITNET_OK;
}
