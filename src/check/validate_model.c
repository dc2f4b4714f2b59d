/* validate_model.c - a whole model on the device and on the reference at once, operation by
 * operation; and whether opening, generating and closing gives all memory back. */
#include "check/validate.h"

#include <stdio.h>

#include "device/device.h"
#include "model/strict.h"

static const char prompt[] = "Once upon a time, there was a little fox who lived near the river. "
                             "One day the fox said, \"I want to see the sea.\"";

enum { PROMPT_MAX = 48, STEPS = 8, CONTEXT = 64, WARM_ROUNDS = 3, GENERATED = 8 };

typedef struct model_trial {
    validation_run *run;
    bnet_gguf *gguf;
    bnet_backend *tee;
    bnet_model *model;
    int32_t ids[CONTEXT];
    size_t n_prompt;
} model_trial;

/* ---- the prompt ---- */

static bitnet_status read_prompt(model_trial *t)
{
    const validation_run *r = t->run;
    bitnet_engine_options o;
    bitnet_engine *e = NULL;
    size_t n = 0;
    int32_t ids[2 * sizeof prompt];
    bitnet_engine_options_init(&o);
    o.vocab_only = true;
    bitnet_status st = bitnet_engine_open(r->runtime, r->o.model_path, &o, &e, r->err);
    if (st == BITNET_OK)
        st = bitnet_tokenize(e, prompt, sizeof prompt - 1, BITNET_TEXT_BOS, ids, BNET_COUNT(ids),
                             &n, r->err);
    bitnet_engine_close(e);
    t->n_prompt = BNET_MIN(n, (size_t)PROMPT_MAX);
    memcpy(t->ids, ids, t->n_prompt * sizeof *ids);
    return st;
}

/* ---- both sides ---- */

static bitnet_status open_model(model_trial *t)
{
    validation_run *r = t->run;
    bitnet_status st = bnet_gguf_open(r->o.model_path, &r->runtime->log, &t->gguf, r->err);
    if (st == BITNET_OK && r->runtime->strict) {
        st = bnet_strict_weights(t->gguf, NULL, r->err); /* as when it is run */
        if (st != BITNET_OK)
            return bnet_wrap(r->err, st, "%s", r->o.model_path);
    }
    if (st == BITNET_OK)
        st = bnet_validate_open_device(r, r->runtime->registry, &r->runtime->log, &t->tee);
    if (st == BITNET_OK)
        st = bnet_validate_open_tee(r, r->runtime->registry, &t->tee);
    if (st == BITNET_OK)
        st = bnet_model_open(t->gguf, t->tee, r->o.i2s_layout, &r->runtime->log, NULL, &t->model,
                             r->err);
    return st;
}

static int32_t largest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* n tokens from position `first` in one pass; the most likely next token. */
static bitnet_status pass(model_trial *t, bnet_workspace *ws, bnet_kv *kv, int first, int n,
                          int32_t *next)
{
    int32_t pos[CONTEXT], seq[CONTEXT] = {0}, row = n - 1;
    const float *logits;
    for (int i = 0; i < n; i++)
        pos[i] = first + i;
    bnet_batch b = {n, t->ids + first, pos, seq, &kv, 1, &row, 1, false, NULL, NULL};
    bitnet_status st = bnet_forward(ws, &b, t->run->err);
    if (st == BITNET_OK)
        st = bnet_head(ws, 0, 1, &logits, t->run->err);
    if (st == BITNET_OK)
        *next = largest(logits, bnet_model_hparams(t->model)->n_vocab);
    return st;
}

/* The prompt at once, then token by token: both shapes of work a model has. */
static bitnet_status tell(model_trial *t, bitnet_kv_type type)
{
    validation_run *r = t->run;
    bnet_workspace *ws = NULL;
    bnet_kv *kv = NULL;
    int n = (int)t->n_prompt;
    bitnet_status st = bnet_kv_open(t->model, CONTEXT, type, &kv, r->err);
    if (st == BITNET_OK)
        st = bnet_workspace_open(t->model, PROMPT_MAX, &ws, r->err);
    if (st == BITNET_OK)
        st = pass(t, ws, kv, 0, n, &t->ids[n]);
    for (int i = 0; st == BITNET_OK && i < STEPS; i++) {
        st = bnet_validate_poll(r);
        if (st == BITNET_OK)
            st = pass(t, ws, kv, n + i, 1, &t->ids[n + i + 1]);
    }
    r->out->model.n_tokens += t->n_prompt + STEPS;
    bnet_workspace_close(ws);
    bnet_kv_close(kv);
    return st;
}

static void judge(const model_trial *t, bitnet_model_result *m)
{
    const bnet_tee_report *r = bnet_tee_result(t->tee);
    const bnet_tee_diff *d = &r->diff;
    m->n_ops = r->n_ops;
    m->n_values = r->n_values;
    m->n_differ = r->n_differ;
    m->n_ties = r->n_ties;
    m->max_error = r->max_error;
    m->verdict = r->n_differ ? BITNET_VERDICT_FAIL : BITNET_VERDICT_PASS;
    m->layer = m->position = -1;
    if (!r->n_differ)
        return;
    m->layer = d->layer;
    m->position = d->position;
    m->element = d->element;
    m->got = d->first;
    m->want = d->second;
    snprintf(m->op, sizeof m->op, "%s", d->op);
    memcpy(m->tensor, d->tensor, sizeof m->tensor);
    memcpy(m->kernels, d->kernels[0], sizeof m->kernels);
    memcpy(m->reference_kernels, d->kernels[1], sizeof m->reference_kernels);
    snprintf(m->note, sizeof m->note,
             "%s differs first: layer %d, position %d, element %zu is %.9g instead of %.9g", d->op,
             d->layer, (int)d->position, d->element, d->first, d->second);
}

_Static_assert(sizeof((bitnet_model_result *)0)->kernels == BNET_TEE_KERNELS, "copied whole");

bitnet_status bnet_validate_model(validation_run *r)
{
    bitnet_model_result *m = &r->out->model;
    model_trial t = {.run = r};
    *m = (bitnet_model_result){.layer = -1, .position = -1};
    if (!r->o.model_path) {
        m->verdict = BITNET_VERDICT_SKIP;
        snprintf(m->note, sizeof m->note, "no model was given");
        return BITNET_OK;
    }
    bitnet_status st = read_prompt(&t);
    if (st == BITNET_OK)
        st = open_model(&t);
    static const bitnet_kv_type types[] = {BITNET_KV_F16, BITNET_KV_F32, BITNET_KV_INT8};
    for (size_t i = 0; st == BITNET_OK && i < (r->o.quick ? 1 : BNET_COUNT(types)); i++)
        st = tell(&t, types[i]);
    if (st == BITNET_OK)
        judge(&t, m);
    bnet_model_close(t.model);
    bnet_backend_close(t.tee);
    bnet_gguf_close(t.gguf);
    return st;
}

/* ---- memory ---- */

static bitnet_status one_round(validation_run *r)
{
    bitnet_engine_options eo;
    bitnet_sampler_options so;
    bitnet_generate_options go;
    bitnet_generate_result result;
    bitnet_engine *e = NULL;
    bitnet_session *s = NULL;
    bitnet_sampler *sampler = NULL;
    int32_t id = 0;
    bitnet_engine_options_init(&eo);
    eo.i2s_layout = r->o.i2s_layout;
    bitnet_sampler_options_init(&so);
    so.temperature = 0;
    bitnet_generate_options_init(&go);
    go.max_tokens = GENERATED;
    go.ignore_eos = true;
    bitnet_status st = bitnet_engine_open(r->runtime, r->o.model_path, &eo, &e, r->err);
    if (st == BITNET_OK)
        st = bitnet_session_open(e, NULL, &s, r->err);
    if (st == BITNET_OK)
        st = bitnet_sampler_open(&so, bitnet_engine_model(e)->n_vocab, &sampler, r->err);
    if (st == BITNET_OK)
        st = bitnet_generate(s, sampler, &id, 1, &go, &result, r->err);
    bitnet_sampler_close(sampler);
    bitnet_session_close(s);
    bitnet_engine_close(e);
    return st;
}

static bitnet_status rounds(validation_run *r, int n)
{
    bitnet_status st = BITNET_OK;
    for (int i = 0; st == BITNET_OK && i < n; i++) {
        st = bnet_validate_at(r, (size_t)i, (size_t)n);
        if (st == BITNET_OK)
            st = one_round(r);
    }
    return st;
}

/* Resident bytes after the C library has returned freed memory: what it keeps varies by megabytes
 * with sizes and threads, and is no leak. */
static bool resident(uint64_t *out)
{
    bnet_alloc_trim();
    return bnet_resident_read("", out);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KEEPS_FREED_MEMORY 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KEEPS_FREED_MEMORY 1
#endif

static const char *cannot_measure(const validation_run *r)
{
#ifdef KEEPS_FREED_MEMORY
    (void)r;
    return "this build keeps freed memory to find faults";
#else
    uint64_t bytes;
    return !r->o.model_path    ? "no model was given"
           : !resident(&bytes) ? "the system does not say how much memory is resident"
                               : NULL;
#endif
}

bitnet_status bnet_validate_memory(validation_run *r)
{
    bitnet_memory_result *m = &r->out->memory;
    const char *why = cannot_measure(r);
    *m = (bitnet_memory_result){.verdict = BITNET_VERDICT_PASS};
    if (why) {
        m->verdict = BITNET_VERDICT_SKIP;
        snprintf(m->note, sizeof m->note, "%s", why);
        return BITNET_OK;
    }
    m->n_rounds = r->o.quick ? 4 : 12;
    bitnet_status st = rounds(r, WARM_ROUNDS);
    resident(&m->start_bytes);
    if (st == BITNET_OK)
        st = rounds(r, m->n_rounds);
    resident(&m->end_bytes);
    m->growth_bytes = (int64_t)m->end_bytes - (int64_t)m->start_bytes;
    m->verdict = m->growth_bytes <= 1 << 20 ? BITNET_VERDICT_PASS : BITNET_VERDICT_FAIL;
    if (m->verdict == BITNET_VERDICT_FAIL)
        snprintf(m->note, sizeof m->note,
                 "%lld bytes more after %d rounds: something is not given "
                 "back",
                 (long long)m->growth_bytes, m->n_rounds);
    return st;
}
