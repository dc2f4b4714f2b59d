/* hf_config.c - reads config.json. */
#include "convert/hf_config.h"

#include <stdio.h>

#include "convert/json.h"

#define MAX_CONFIG (4u << 20)

/* One row per model class we convert. */
static const struct hf_class {
    const char *name;
    bool bitnet;
    const char *activation; /* where hidden_act is absent */
    double rope_base;       /* where rope_theta is absent */
} classes[] = {
    {"BitNetForCausalLM", true, "relu2", 500000.0},
    {"BitnetForCausalLM", true, "silu", 10000.0},
    {"LlamaForCausalLM", false, "silu", 10000.0},
};

typedef struct reader {
    const json_t *root;
    bnet_json_at at;
    const bnet_log *log;
    const struct hf_class *class;
    bnet_hf_config *c;
} reader;

static bitnet_status fail_value(const reader *r, const char *key, const char *value,
                                const char *why)
{
    char quoted[128];
    return bnet_json_fail(&r->at, key, "\"%s\" %s",
                          bnet_quote(value, strlen(value), quoted, sizeof quoted), why);
}

static bitnet_status read_class(reader *r)
{
    json_t *list = NULL;
    bitnet_status st = bnet_json_array(r->root, &r->at, "architectures", &list);
    if (st != BITNET_OK)
        return st;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name)
        return bnet_json_fail(&r->at, "architectures", "does not name a model class");
    for (size_t i = 0; i < BNET_COUNT(classes); i++)
        if (strcmp(classes[i].name, name) == 0)
            r->class = &classes[i];
    if (!r->class)
        return fail_value(
            r, "architectures", name,
            "is not supported; BitNetForCausalLM, BitnetForCausalLM and LlamaForCausalLM are");
    r->c->sub_norms = r->class->bitnet;
    r->c->permute = !r->class->bitnet;
    return BITNET_OK;
}

static bitnet_status read_activation(reader *r)
{
    const char *act = r->class->activation;
    bitnet_status st = bnet_json_string(r->root, &r->at, "hidden_act", &act);
    if (st != BITNET_OK)
        return st;
    bool relu2 = strcmp(act, "relu2") == 0, silu = strcmp(act, "silu") == 0;
    if (!relu2 && !silu)
        return fail_value(r, "hidden_act", act, "is not supported; relu2 and silu are");
    if (relu2 && !r->class->bitnet)
        return fail_value(r, "hidden_act", act,
                          "is not known for LlamaForCausalLM; silu was expected");
    r->c->activation = relu2 ? "relu2" : "silu";
    r->c->arch = !r->class->bitnet ? "llama" : relu2 ? "bitnet-b1.58" : "bitnet";
    return BITNET_OK;
}

static bitnet_status need_int(reader *r, const char *key, int64_t hi, int64_t *out)
{
    bool found = false;
    bitnet_status st = bnet_json_int(r->root, &r->at, key, 1, hi, out, &found);
    if (st == BITNET_OK && !found)
        st = bnet_json_fail(&r->at, key, "is missing");
    return st;
}

static bitnet_status read_sizes(reader *r)
{
    bnet_hf_config *c = r->c;
    const struct {
        const char *key;
        int64_t hi, *out;
    } rows[] = {
        {"hidden_size", 1 << 20, &c->n_embd},
        {"intermediate_size", 1 << 22, &c->n_ff},
        {"num_hidden_layers", 4096, &c->n_layers},
        {"num_attention_heads", 65536, &c->n_heads},
        {"vocab_size", 1 << 24, &c->n_vocab},
        {"max_position_embeddings", INT32_MAX, &c->n_ctx},
    };
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bitnet_status st = need_int(r, rows[i].key, rows[i].hi, rows[i].out);
        if (st != BITNET_OK)
            return st;
    }
    return BITNET_OK;
}

static bitnet_status read_heads(reader *r)
{
    bnet_hf_config *c = r->c;
    bool found = false;
    c->n_kv_heads = c->n_heads;
    bitnet_status st =
        bnet_json_int(r->root, &r->at, "num_key_value_heads", 1, c->n_heads, &c->n_kv_heads, NULL);
    if (st == BITNET_OK)
        st = bnet_json_int(r->root, &r->at, "head_dim", 2, 65536, &c->head_dim, &found);
    if (st != BITNET_OK)
        return st;
    if (c->n_heads % c->n_kv_heads != 0)
        return bnet_json_fail(&r->at, "num_key_value_heads",
                              "%lld does not divide num_attention_heads %lld",
                              (long long)c->n_kv_heads, (long long)c->n_heads);
    if (!found && c->n_embd % c->n_heads != 0)
        return bnet_json_fail(&r->at, "num_attention_heads",
                              "%lld does not divide hidden_size %lld", (long long)c->n_heads,
                              (long long)c->n_embd);
    if (!found)
        c->head_dim = c->n_embd / c->n_heads;
    if (c->head_dim % 2 != 0)
        return bnet_json_fail(&r->at, "head_dim", "%lld is odd; rotary positions need pairs",
                              (long long)c->head_dim);
    c->explicit_head_dim = c->head_dim * c->n_heads != c->n_embd;
    return BITNET_OK;
}

static bitnet_status read_llama3_rope(reader *r, const json_t *scaling, const bnet_json_at *at)
{
    bnet_hf_config *c = r->c;
    const struct {
        const char *key;
        double lo, *out;
    } rows[] = {{"factor", 1, &c->rope_factor},
                {"low_freq_factor", 1e-6, &c->rope_low},
                {"high_freq_factor", 1e-6, &c->rope_high},
                {"original_max_position_embeddings", 1, &c->rope_old_ctx}};
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bool found = false;
        bitnet_status st =
            bnet_json_float(scaling, at, rows[i].key, rows[i].lo, 1e9, rows[i].out, &found);
        if (st == BITNET_OK && !found)
            st = bnet_json_fail(at, rows[i].key, "is missing");
        if (st != BITNET_OK)
            return st;
    }
    if (c->rope_high <= c->rope_low)
        return bnet_json_fail(at, "high_freq_factor", "%g must exceed low_freq_factor %g",
                              c->rope_high, c->rope_low);
    c->llama3_rope = true;
    return BITNET_OK;
}

/* `scaling` is rope_scaling or rope_parameters; both spell the kind "rope_type", old files "type".
 */
static bitnet_status read_rope_kind(reader *r, const json_t *scaling, const char *section)
{
    char quoted[64];
    const char *kind = "default";
    bnet_json_at at = r->at;
    double factor = 1;
    at.section = section;
    bitnet_status st = bnet_json_string(scaling, &at, "type", &kind);
    if (st == BITNET_OK)
        st = bnet_json_string(scaling, &at, "rope_type", &kind);
    if (st == BITNET_OK && strcmp(kind, "llama3") == 0)
        return read_llama3_rope(r, scaling, &at);
    if (st == BITNET_OK)
        st = bnet_json_float(scaling, &at, "factor", 0, 1e9, &factor, NULL);
    if (st != BITNET_OK || strcmp(kind, "default") == 0 ||
        (strcmp(kind, "linear") == 0 && factor == 1))
        return st;
    return bnet_json_fail(&at, "rope_type",
                          "\"%s\" (factor %g) is not supported; default and llama3 are",
                          bnet_quote(kind, strlen(kind), quoted, sizeof quoted), factor);
}

static bitnet_status read_rope(reader *r)
{
    json_t *scaling = NULL, *params = NULL;
    bnet_json_at inner = r->at;
    double partial = 1;
    r->c->rope_base = r->class->rope_base;
    bitnet_status st =
        bnet_json_float(r->root, &r->at, "rope_theta", 1, 1e12, &r->c->rope_base, NULL);
    if (st == BITNET_OK)
        st = bnet_json_object(r->root, &r->at, "rope_scaling", &scaling);
    if (st == BITNET_OK)
        st = bnet_json_object(r->root, &r->at, "rope_parameters", &params);
    if (st == BITNET_OK)
        st = bnet_json_float(r->root, &r->at, "partial_rotary_factor", 0, 1e3, &partial, NULL);
    if (st == BITNET_OK && partial != 1)
        return bnet_json_fail(&r->at, "partial_rotary_factor", "%g is not supported; 1 is",
                              partial);
    if (st == BITNET_OK && scaling)
        st = read_rope_kind(r, scaling, "rope_scaling.");
    if (st != BITNET_OK || !params)
        return st;
    inner.section = "rope_parameters.";
    st = bnet_json_float(params, &inner, "rope_theta", 1, 1e12, &r->c->rope_base, NULL);
    return st == BITNET_OK ? read_rope_kind(r, params, "rope_parameters.") : st;
}

static bitnet_status read_quantization(reader *r)
{
    json_t *q = NULL;
    const char *method = "", *class = "bitlinear", *mode = "offline";
    bool rms = false;
    bnet_json_at at = r->at;
    bitnet_status st = bnet_json_object(r->root, &r->at, "quantization_config", &q);
    if (st != BITNET_OK)
        return st;
    r->c->weights = r->class->bitnet ? BNET_HF_MASTER : BNET_HF_DENSE;
    r->c->packed_by_default = !q;
    if (!q)
        return BITNET_OK;
    at.section = "quantization_config.";
    reader inner = *r;
    inner.at = at;
    st = bnet_json_string(q, &at, "quant_method", &method);
    if (st == BITNET_OK)
        st = bnet_json_string(q, &at, "linear_class", &class);
    if (st == BITNET_OK)
        st = bnet_json_string(q, &at, "quantization_mode", &mode);
    if (st == BITNET_OK)
        st = bnet_json_bool(q, &at, "use_rms_norm", &rms);
    if (st != BITNET_OK)
        return st;
    if (strcmp(method, "bitnet") != 0)
        return fail_value(&inner, "quant_method", method, "is not supported; bitnet is");
    if (rms)
        return bnet_json_fail(&at, "use_rms_norm",
                              "true (a norm before every projection) is not supported");
    bool multiply = strcmp(class, "autobitlinear") == 0, online = strcmp(mode, "online") == 0;
    if (!multiply && strcmp(class, "bitlinear") != 0)
        return fail_value(&inner, "linear_class", class,
                          "is not supported; bitlinear and autobitlinear are");
    if (!online && strcmp(mode, "offline") != 0)
        return fail_value(&inner, "quantization_mode", mode,
                          "is not supported; offline and online are");
    if (online && !multiply)
        return fail_value(&inner, "quantization_mode", mode, "needs linear_class autobitlinear");
    r->c->weights = online ? BNET_HF_MASTER : multiply ? BNET_HF_MULTIPLY : BNET_HF_DIVIDE;
    return BITNET_OK;
}

static bitnet_status add_eos(reader *r, const json_t *v)
{
    if (!json_is_integer(v))
        return bnet_json_fail(&r->at, "eos_token_id", "holds %s; an integer was expected",
                              bnet_json_kind(v));
    int64_t id = json_integer_value(v);
    if (id < 0 || id >= r->c->n_vocab)
        return bnet_json_fail(&r->at, "eos_token_id",
                              "value %lld is outside the vocabulary of %lld", (long long)id,
                              (long long)r->c->n_vocab);
    r->c->eos[r->c->n_eos++] = (int32_t)id;
    return BITNET_OK;
}

/* eos_token_id: one id, a list of them, or null. */
static bitnet_status read_eos(reader *r)
{
    const json_t *v = json_object_get(r->root, "eos_token_id");
    if (!v || json_is_null(v))
        return BITNET_OK;
    if (!json_is_array(v))
        return add_eos(r, v);
    if (json_array_size(v) > BNET_HF_MAX_EOS)
        return bnet_json_fail(&r->at, "eos_token_id", "lists %zu ids; at most %d are supported",
                              json_array_size(v), BNET_HF_MAX_EOS);
    for (size_t i = 0; i < json_array_size(v); i++) {
        bitnet_status st = add_eos(r, json_array_get(v, i));
        if (st != BITNET_OK)
            return st;
    }
    return BITNET_OK;
}

static bitnet_status read_tokens(reader *r)
{
    int64_t bos = -1, pad = -1, hi = r->c->n_vocab - 1;
    bitnet_status st = bnet_json_int(r->root, &r->at, "bos_token_id", 0, hi, &bos, NULL);
    if (st == BITNET_OK)
        st = bnet_json_int(r->root, &r->at, "pad_token_id", -1, hi, &pad, NULL);
    r->c->bos = (int32_t)bos;
    r->c->pad = (int32_t)pad;
    return st == BITNET_OK ? read_eos(r) : st;
}

/* A published model's "owner/model"; local paths are nobody's business. */
static bitnet_status read_name(reader *r)
{
    const char *name = NULL;
    bitnet_status st = bnet_json_string(r->root, &r->at, "_name_or_path", &name);
    if (st != BITNET_OK || !name)
        return st;
    const char *slash = strchr(name, '/');
    size_t n = strlen(name);
    if (slash && slash != name && slash[1] && !strchr(slash + 1, '/') && name[0] != '.' &&
        name[0] != '~' && n < sizeof r->c->name)
        memcpy(r->c->name, name, n + 1);
    return BITNET_OK;
}

/* Parts of a network that ours has not. */
static bitnet_status refuse_biases(reader *r)
{
    static const char *const keys[] = {"attention_bias", "mlp_bias"};
    for (size_t i = 0; i < BNET_COUNT(keys); i++) {
        bool on = false;
        bitnet_status st = bnet_json_bool(r->root, &r->at, keys[i], &on);
        if (st != BITNET_OK)
            return st;
        if (on)
            return bnet_json_fail(&r->at, keys[i],
                                  "true (biases in the projections) is not supported");
    }
    return BITNET_OK;
}

/* A window as long as the context, or switched off, changes nothing. */
static bitnet_status refuse_window(reader *r)
{
    int64_t window = 0;
    bool found = false, use = false;
    const json_t *v = json_object_get(r->root, "use_sliding_window");
    bitnet_status st = bnet_json_bool(r->root, &r->at, "use_sliding_window", &use);
    if (st == BITNET_OK)
        st = bnet_json_int(r->root, &r->at, "sliding_window", 0, INT64_MAX, &window, &found);
    if (st != BITNET_OK)
        return st;
    if (use)
        return bnet_json_fail(&r->at, "use_sliding_window", "true is not supported");
    bool off = v && json_is_false(v);
    if (found && !off && window < r->c->n_ctx)
        return bnet_json_fail(&r->at, "sliding_window",
                              "%lld is below max_position_embeddings %lld; attention within a "
                              "window is not supported",
                              (long long)window, (long long)r->c->n_ctx);
    return BITNET_OK;
}

static bitnet_status read_rest(reader *r)
{
    bool found = false;
    r->c->eps = 1e-5;
    bitnet_status st =
        bnet_json_float(r->root, &r->at, "rms_norm_eps", 1e-20, 1, &r->c->eps, &found);
    if (st == BITNET_OK && !found)
        st = bnet_json_fail(&r->at, "rms_norm_eps", "is missing");
    if (st == BITNET_OK)
        st = bnet_json_bool(r->root, &r->at, "tie_word_embeddings", &r->c->tied);
    const json_t *tie = json_object_get(r->root, "tie_word_embeddings");
    r->c->tied_known = tie && json_is_boolean(tie);
    return st == BITNET_OK ? read_name(r) : st;
}

static bitnet_status read_all(reader *r)
{
    static bitnet_status (*const steps[])(reader *) = {
        read_class,    read_activation, read_sizes,        read_heads,  read_rope,
        refuse_biases, refuse_window,   read_quantization, read_tokens, read_rest};
    for (size_t i = 0; i < BNET_COUNT(steps); i++) {
        bitnet_status st = steps[i](r);
        if (st != BITNET_OK)
            return st;
    }
    if (!json_object_get(r->root, "rope_theta") && !json_object_get(r->root, "rope_parameters"))
        bnet_logf(r->log, BITNET_LOG_WARN, "convert", "%s: no rope_theta; %g is assumed",
                  r->at.file, r->c->rope_base);
    return BITNET_OK;
}

bitnet_status bnet_hf_config_parse(const char *data, size_t n, const char *path,
                                   const bnet_log *log, bnet_hf_config *out, bitnet_error *err)
{
    bnet_hf_config c = {0};
    json_t *root = NULL;
    reader r = {.at = {path, "", BITNET_MODEL, err}, .log = log, .c = &c};
    bitnet_status st = bnet_json_parse(data, n, &r.at, &root);
    if (st != BITNET_OK)
        return st;
    r.root = root;
    if (!json_is_object(root))
        st = bnet_fail(err, BITNET_MODEL, "%s: the document is %s; an object was expected", path,
                       bnet_json_kind(root));
    else
        st = read_all(&r);
    json_decref(root);
    if (st == BITNET_OK)
        *out = c;
    return st;
}

bitnet_status bnet_hf_config_read(const char *path, const bnet_log *log, bnet_hf_config *out,
                                  bitnet_error *err)
{
    char *data;
    size_t n;
    bitnet_status st = bnet_read_regular_file(path, MAX_CONFIG, &data, &n, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_hf_config_parse(data, n, path, log, out, err);
    bnet_free(data);
    return st;
}
