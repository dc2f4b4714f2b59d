/* validate_golden.c - a model's logits against stored ones, computed by another program in double.
 * golden.json is a list of prompts: ids, the name of a file of raw floats [n_ids][n_vocab], a
 * greedy continuation and the margin of each of its choices. */
#include "check/validate.h"

#include "base/file.h"
#include "format/json_file.h"

#include <math.h>
#include <stdio.h>

#define MIN_COSINE 0.998 /* an int8 value on a rounding tie may fall either way */
#define MARGIN     0.5

enum { JSON_MAX = 64 << 20, LOGITS_MAX = 1 << 30 };

typedef struct golden_prompt {
    validation_run *run;
    const json_t *greedy, *margin;
    const char *logits; /* little-endian floats */
    size_t n_ids, n_vocab;
} golden_prompt;

static bitnet_status malformed(const validation_run *r, size_t i, const char *what)
{
    return bnet_fail(r->err, BITNET_ARGUMENT, "%s/golden.json: prompt %zu: %s", r->o.golden_dir, i,
                     what);
}

static void compare_row(bitnet_golden_result *g, const char *want, const float *got, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        double a = (double)got[i], b = (double)bnet_f32(want + 4 * i);
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    double cosine = ab / sqrt(aa * bb);
    g->n_positions++;
    if (!(cosine >= g->min_cosine)) /* also for a NaN */
        g->min_cosine = cosine;
}

static bool on_logits(void *user, size_t index, const float *logits)
{
    const golden_prompt *p = user;
    bitnet_golden_result *g = &p->run->out->golden;
    if (index < p->n_ids)
        compare_row(g, p->logits + 4 * index * p->n_vocab, logits, p->n_vocab);
    size_t step = index + 1 - p->n_ids;
    if (index + 1 >= p->n_ids && step < json_array_size(p->greedy) &&
        json_number_value(json_array_get(p->margin, step)) >= MARGIN) {
        size_t best = 0;
        for (size_t i = 1; i < p->n_vocab; i++)
            best = logits[i] > logits[best] ? i : best;
        g->n_argmax++;
        g->n_wrong += (json_int_t)best != json_integer_value(json_array_get(p->greedy, step));
    }
    return bnet_validate_poll(p->run) == BITNET_OK;
}

static size_t add_ids(const json_t *list, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        ids[n++] = (int32_t)json_integer_value(json_array_get(list, i));
    return n;
}

/* Prompt and continuation together, each position compared as it comes. */
static bitnet_status run_prompt(golden_prompt *p, bitnet_session *s, const json_t *ids)
{
    size_t n_greedy = json_array_size(p->greedy), n;
    int32_t *all = bnet_calloc(p->n_ids + n_greedy, sizeof *all);
    if (!all)
        return bnet_no_memory(p->run->err, "golden logits");
    n = add_ids(ids, all, 0);
    n = add_ids(p->greedy, all, n);
    bitnet_status st = bitnet_session_rewind(s, 0, p->run->err);
    if (st == BITNET_OK)
        st = bitnet_session_append(s, all, n, on_logits, p, p->run->err);
    bnet_free(all);
    return st;
}

static bitnet_status check_prompt(validation_run *r, bitnet_session *s, const json_t *o, size_t i)
{
    const json_t *ids = json_object_get(o, "ids");
    const char *name = json_string_value(json_object_get(o, "logits"));
    golden_prompt p = {.run = r,
                       .greedy = json_object_get(o, "greedy"),
                       .margin = json_object_get(o, "greedy_margin"),
                       .n_ids = json_array_size(ids),
                       .n_vocab = (size_t)bitnet_engine_model(s->engine)->n_vocab};
    if (!p.n_ids || !name || strchr(name, '/'))
        return malformed(r, i, "\"ids\" and the name of a file \"logits\" are expected");
    if (json_array_size(p.margin) != json_array_size(p.greedy))
        return malformed(r, i, "\"greedy\" and \"greedy_margin\" must be equally long");
    bnet_str path = {0};
    char *data = NULL;
    size_t n_bytes = 0;
    bnet_str_addf(&path, "%s/%s", r->o.golden_dir, name);
    bitnet_status st = path.failed ? bnet_no_memory(r->err, "golden logits")
                                   : bnet_read_file(path.data, LOGITS_MAX, &data, &n_bytes, r->err);
    if (st == BITNET_OK && n_bytes != p.n_ids * p.n_vocab * sizeof(float))
        st = malformed(r, i, "the file of logits does not have ids times vocabulary floats");
    p.logits = data;
    if (st == BITNET_OK)
        st = run_prompt(&p, s, ids);
    bnet_free(data);
    bnet_str_free(&path);
    return st;
}

static bitnet_status read_json(const validation_run *r, json_t **out)
{
    bnet_str path = {0};
    char *data = NULL;
    size_t n = 0;
    char why[256];
    bnet_str_addf(&path, "%s/golden.json", r->o.golden_dir);
    bitnet_status st = path.failed ? bnet_no_memory(r->err, "golden logits")
                                   : bnet_read_file(path.data, JSON_MAX, &data, &n, r->err);
    if (st == BITNET_OK)
        st = bnet_json_load(data, n, path.data, out, why, sizeof why, r->err);
    if (st == BITNET_OK && !json_array_size(*out))
        st = bnet_fail(r->err, BITNET_ARGUMENT, "%s: %s", path.data,
                       *out ? "a list of prompts is expected" : why);
    bnet_free(data);
    bnet_str_free(&path);
    return st;
}

static bitnet_status check_all(validation_run *r, bitnet_engine *e, const json_t *root)
{
    bitnet_session_options so;
    bitnet_session *s = NULL;
    bitnet_session_options_init(&so);
    so.kv_type = BITNET_KV_F32;
    bitnet_status st = bitnet_session_open(e, &so, &s, r->err);
    for (size_t i = 0; st == BITNET_OK && i < json_array_size(root); i++) {
        st = check_prompt(r, s, json_array_get(root, i), i);
        r->out->golden.n_prompts++;
    }
    bitnet_session_close(s);
    return st;
}

static void judge(bitnet_golden_result *g)
{
    bool pass = g->min_cosine >= MIN_COSINE && g->n_wrong == 0;
    g->verdict = pass ? BITNET_VERDICT_PASS : BITNET_VERDICT_FAIL;
    if (!pass)
        snprintf(g->note, sizeof g->note,
                 "least cosine %.6f (%.3f is needed), %llu of %llu sure choices differ",
                 g->min_cosine, MIN_COSINE, (unsigned long long)g->n_wrong,
                 (unsigned long long)g->n_argmax);
}

bitnet_status bnet_validate_golden(validation_run *r)
{
    bitnet_golden_result *g = &r->out->golden;
    bitnet_engine_options eo;
    bitnet_engine *e = NULL;
    json_t *root = NULL;
    *g = (bitnet_golden_result){.min_cosine = 1};
    if (!r->o.golden_dir || !r->o.model_path) {
        g->verdict = BITNET_VERDICT_SKIP;
        snprintf(g->note, sizeof g->note, "no golden logits were given");
        return BITNET_OK;
    }
    bitnet_engine_options_init(&eo);
    eo.i2s_layout = r->o.i2s_layout;
    bitnet_status st = read_json(r, &root);
    if (st == BITNET_OK)
        st = bitnet_engine_open(r->runtime, r->o.model_path, &eo, &e, r->err);
    if (st == BITNET_OK)
        st = check_all(r, e, root);
    if (st == BITNET_OK)
        judge(g);
    bitnet_engine_close(e);
    json_decref(root);
    return st;
}
