/* strict_policy.c - a policy file: which root mean squares the tensors of which models may have.
 *
 * {"version": 1, "policies": [{"name": "...", "architecture": "bitnet*", "weight_type": "I2_S",
 *   "rules": [{"tensor": "*attn_norm.weight", "min_rms": 0.01, "max_rms": 2.0}, ...]}, ...]}
 *
 * Patterns are those of the shell (* ? [...]); a missing architecture or weight_type means any. The
 * first policy that fits the model and in it the first rule that fits a tensor decide; a tensor
 * without a rule passes. */
#include "model/strict.h"

#include <fnmatch.h>
#include <stdio.h>

#include "format/json_file.h"
#include "format/tensor_stats.h"

enum { POLICY_MAX = 1 << 20 };

typedef struct policy_file {
    const char *path;
    bnet_progress *progress;
    bitnet_error *err;
} policy_file;

static bitnet_status malformed(const policy_file *f, const char *place, const char *what)
{
    return bnet_fail(f->err, BITNET_ARGUMENT, "policy %s: %s: %s", f->path, place, what);
}

static bool fits(const json_t *o, const char *key, const char *value)
{
    const json_t *pattern = json_object_get(o, key);
    return !pattern || fnmatch(json_string_value(pattern), value, FNM_CASEFOLD) == 0;
}

static bitnet_status check_rule(const policy_file *f, const json_t *rule, const char *policy,
                                size_t i)
{
    char place[160];
    snprintf(place, sizeof place, "policy \"%.64s\", rule %zu", policy, i);
    const json_t *lo = json_object_get(rule, "min_rms"), *hi = json_object_get(rule, "max_rms");
    if (!json_is_string(json_object_get(rule, "tensor")))
        return malformed(f, place, "\"tensor\" must be a pattern");
    if (!json_is_number(lo) || !json_is_number(hi))
        return malformed(f, place, "\"min_rms\" and \"max_rms\" must be numbers");
    if (!(json_number_value(lo) <= json_number_value(hi)))
        return malformed(f, place, "\"min_rms\" is above \"max_rms\"");
    return BITNET_OK;
}

/* All of the file is checked, also what does not concern this model. */
static bitnet_status check_policy(const policy_file *f, const json_t *p, size_t i)
{
    char place[64];
    snprintf(place, sizeof place, "policies[%zu]", i);
    const json_t *rules = json_object_get(p, "rules"), *name = json_object_get(p, "name");
    static const char *const patterns[] = {"architecture", "weight_type"};
    if (!json_is_string(name) || !json_is_array(rules))
        return malformed(f, place, "\"name\" must be a text and \"rules\" a list");
    for (size_t k = 0; k < BNET_COUNT(patterns); k++) {
        const json_t *pattern = json_object_get(p, patterns[k]);
        if (pattern && !json_is_string(pattern))
            return malformed(f, place, "\"architecture\" and \"weight_type\" must be patterns");
    }
    bitnet_status st = BITNET_OK;
    for (size_t k = 0; st == BITNET_OK && k < json_array_size(rules); k++)
        st = check_rule(f, json_array_get(rules, k), json_string_value(name), k);
    return st;
}

static bitnet_status check_file(const policy_file *f, const json_t *root)
{
    const json_t *list = json_object_get(root, "policies");
    if (json_integer_value(json_object_get(root, "version")) != 1 || !json_is_array(list))
        return malformed(f, "top", "must have \"version\": 1 and a list \"policies\"");
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; st == BITNET_OK && i < json_array_size(list); i++)
        st = check_policy(f, json_array_get(list, i), i);
    return st;
}

static const json_t *find_rule(const json_t *policy, const char *tensor)
{
    const json_t *rules = json_object_get(policy, "rules");
    for (size_t i = 0; i < json_array_size(rules); i++)
        if (fits(json_array_get(rules, i), "tensor", tensor))
            return json_array_get(rules, i);
    return NULL;
}

static bitnet_status check_tensor(const policy_file *f, const json_t *policy, const bnet_tensor *t)
{
    const json_t *rule = find_rule(policy, t->name);
    bitnet_tensor_stats s;
    bool wanted =
        rule ? bnet_tensor_stats(t, f->progress, &s) : bnet_progress_add(f->progress, t->n_bytes);
    if (!wanted)
        return bnet_fail(f->err, BITNET_CANCELLED, "the check of the weights was cancelled");
    if (!rule)
        return BITNET_OK;
    double lo = json_number_value(json_object_get(rule, "min_rms"));
    double hi = json_number_value(json_object_get(rule, "max_rms"));
    if (s.rms >= lo && s.rms <= hi)
        return BITNET_OK;
    return bnet_fail(f->err, BITNET_SUSPICIOUS,
                     "tensor %s: rms %.6g is outside %g..%g (policy \"%s\", rule \"%s\" of %s)",
                     t->name, s.rms, lo, hi, json_string_value(json_object_get(policy, "name")),
                     json_string_value(json_object_get(rule, "tensor")), f->path);
}

/* The type of the first projection: what the file is called by. */
static const char *weight_type(const bnet_gguf *g)
{
    for (size_t i = 0; i < bnet_gguf_n_tensors(g); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(g, i);
        const bnet_type_info *type = bnet_type_find((uint32_t)t->type);
        if (type && fnmatch("blk.*.attn_q.weight", t->name, 0) == 0)
            return type->name;
    }
    return "";
}

static bitnet_status apply(const policy_file *f, const json_t *root, const bnet_gguf *g,
                           const bnet_log *log)
{
    const json_t *list = json_object_get(root, "policies"), *p = NULL;
    bnet_span span = {"", 0};
    char arch[64];
    bitnet_status st = bnet_gguf_string(g, "general.architecture", &span, NULL, f->err);
    snprintf(arch, sizeof arch, "%.*s", (int)BNET_MIN(span.n, (size_t)63), span.data);
    for (size_t i = 0; !p && i < json_array_size(list); i++) {
        const json_t *candidate = json_array_get(list, i);
        if (fits(candidate, "architecture", arch) && fits(candidate, "weight_type", weight_type(g)))
            p = candidate;
    }
    if (!p)
        bnet_logf(log, BITNET_LOG_WARN, "policy", "%s says nothing of %s with %s weights", f->path,
                  arch, weight_type(g));
    for (size_t i = 0; p && st == BITNET_OK && i < bnet_gguf_n_tensors(g); i++)
        st = check_tensor(f, p, bnet_gguf_tensor_at(g, i));
    return st;
}

bitnet_status bnet_policy_check(const char *path, const bnet_gguf *g, const bnet_log *log,
                                bnet_progress *progress, bitnet_error *err)
{
    policy_file f = {path, progress, err};
    json_t *root;
    char why[200];
    bitnet_status st = bnet_json_read(path, POLICY_MAX, &root, why, sizeof why, err);
    if (st != BITNET_OK)
        return bnet_wrap(err, st, "policy");
    if (!root)
        return bnet_fail(err, BITNET_ARGUMENT, "policy %s: %s", path, why);
    st = check_file(&f, root);
    if (st == BITNET_OK)
        st = apply(&f, root, g, log);
    json_decref(root);
    return st;
}
