/* hf_config.c - reads config.json. */
#include "convert/hf_config.h"

#include <stdio.h>

#include "convert/json.h"

#define MAX_CONFIG (4u << 20)

/* One row per model class we convert. */
static const struct hf_class {
    const char *name;
    const char *arch;       /* in the output; NULL: one of the bitnet networks, by activation */
    bool permute;           /* as in bnet_hf_config */
    const char *activation; /* where hidden_act is absent */
    double rope_base;       /* where rope_theta is absent */
} classes[] = {
    {"BitNetForCausalLM", NULL, false, "relu2", 500000.0},
    {"BitnetForCausalLM", NULL, false, "silu", 10000.0},
    {"LlamaForCausalLM", "llama", true, "silu", 10000.0},
};

typedef struct reader {
    const json_t *root;
    bnet_json_at at;
    const bnet_log *log;
    const struct hf_class *class;
    bnet_hf_config *c;
} reader;

static void refuse_class(reader *r, const char *name)
{
    char why[512] = "is not supported; ";
    for (size_t i = 0, n = strlen(why); i < BNET_COUNT(classes) && n < sizeof why; i++)
        n += (size_t)snprintf(why + n, sizeof why - n, "%s%s", classes[i].name,
                              i + 2 < BNET_COUNT(classes)   ? ", "
                              : i + 1 < BNET_COUNT(classes) ? " and "
                                                            : " are");
    bnet_json_refuse(&r->at, "architectures", name, why);
}

static void read_class(reader *r)
{
    const json_t *list = bnet_json_array(r->root, &r->at, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    for (size_t i = 0; name && i < BNET_COUNT(classes); i++)
        if (strcmp(classes[i].name, name) == 0)
            r->class = &classes[i];
    if (!name)
        bnet_json_fail(&r->at, "architectures", "does not name a model class");
    else if (!r->class)
        refuse_class(r, name);
    else {
        r->c->sub_norms = !r->class->arch;
        r->c->permute = r->class->permute;
    }
}

static void read_activation(reader *r)
{
    const char *act = bnet_json_string(r->root, &r->at, "hidden_act", r->class->activation);
    bool relu2 = strcmp(act, "relu2") == 0, silu = strcmp(act, "silu") == 0;
    if (!relu2 && !silu)
        bnet_json_refuse(&r->at, "hidden_act", act, "is not supported; relu2 and silu are");
    if (relu2 && r->class->arch)
        bnet_json_fail(&r->at, "hidden_act", "\"relu2\" is not known for %s; silu was expected",
                       r->class->name);
    r->c->activation = relu2 ? "relu2" : "silu";
    r->c->arch = r->class->arch ? r->class->arch : relu2 ? "bitnet-b1.58" : "bitnet";
}

static void read_sizes(reader *r)
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
        *rows[i].out = bnet_json_int(r->root, &r->at, rows[i].key, 1, rows[i].hi, 0);
        if (!*rows[i].out)
            bnet_json_fail(&r->at, rows[i].key, "is missing");
    }
}

static void read_heads(reader *r)
{
    bnet_hf_config *c = r->c;
    c->n_kv_heads =
        bnet_json_int(r->root, &r->at, "num_key_value_heads", 1, c->n_heads, c->n_heads);
    c->head_dim = bnet_json_int(r->root, &r->at, "head_dim", 2, 65536, 0);
    if (c->n_heads % c->n_kv_heads != 0)
        bnet_json_fail(&r->at, "num_key_value_heads",
                       "%lld does not divide num_attention_heads %lld", (long long)c->n_kv_heads,
                       (long long)c->n_heads);
    if (!c->head_dim && c->n_embd % c->n_heads != 0)
        bnet_json_fail(&r->at, "num_attention_heads", "%lld does not divide hidden_size %lld",
                       (long long)c->n_heads, (long long)c->n_embd);
    if (!c->head_dim)
        c->head_dim = c->n_embd / c->n_heads;
    if (c->head_dim % 2 != 0)
        bnet_json_fail(&r->at, "head_dim", "%lld is odd; rotary positions need pairs",
                       (long long)c->head_dim);
    c->explicit_head_dim = c->head_dim * c->n_heads != c->n_embd;
}

static void read_llama3_rope(reader *r, const json_t *scaling)
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
        *rows[i].out = bnet_json_float(scaling, &r->at, rows[i].key, rows[i].lo, 1e9, 0);
        if (*rows[i].out == 0)
            bnet_json_fail(&r->at, rows[i].key, "is missing");
    }
    if (c->rope_high <= c->rope_low)
        bnet_json_fail(&r->at, "high_freq_factor", "%g must exceed low_freq_factor %g",
                       c->rope_high, c->rope_low);
    c->llama3_rope = true;
}

/* `scaling` is rope_scaling or rope_parameters; both spell the kind "rope_type", old files "type".
 */
static void read_rope_kind(reader *r, const json_t *scaling)
{
    char quoted[64];
    const char *kind = bnet_json_string(scaling, &r->at, "type", "default");
    kind = bnet_json_string(scaling, &r->at, "rope_type", kind);
    if (strcmp(kind, "llama3") == 0) {
        read_llama3_rope(r, scaling);
        return;
    }
    double factor = bnet_json_float(scaling, &r->at, "factor", 0, 1e9, 1);
    if (strcmp(kind, "default") != 0 && (strcmp(kind, "linear") != 0 || factor != 1))
        bnet_json_fail(&r->at, "rope_type",
                       "\"%s\" (factor %g) is not supported; default and llama3 are",
                       bnet_quote(kind, strlen(kind), quoted, sizeof quoted), factor);
}

static void read_rope(reader *r)
{
    bnet_json_at *at = &r->at;
    double base = bnet_json_float(r->root, at, "rope_theta", 1, 1e12, r->class->rope_base);
    const json_t *scaling = bnet_json_object(r->root, at, "rope_scaling"),
                 *params = bnet_json_object(r->root, at, "rope_parameters");
    double partial = bnet_json_float(r->root, at, "partial_rotary_factor", 0, 1e3, 1);
    if (partial != 1)
        bnet_json_fail(at, "partial_rotary_factor", "%g is not supported; 1 is", partial);
    at->section = "rope_scaling.";
    if (scaling)
        read_rope_kind(r, scaling);
    at->section = "rope_parameters.";
    if (params) {
        base = bnet_json_float(params, at, "rope_theta", 1, 1e12, base);
        read_rope_kind(r, params);
    }
    at->section = "";
    r->c->rope_base = base;
}

static void read_quantization(reader *r)
{
    bnet_json_at *at = &r->at;
    const json_t *q = bnet_json_object(r->root, at, "quantization_config");
    r->c->weights = !r->class->arch ? BNET_HF_MASTER : BNET_HF_DENSE;
    r->c->packed_by_default = !q;
    if (!q)
        return;
    at->section = "quantization_config.";
    const char *method = bnet_json_string(q, at, "quant_method", ""),
               *class = bnet_json_string(q, at, "linear_class", "bitlinear"),
               *mode = bnet_json_string(q, at, "quantization_mode", "offline");
    bool rms = bnet_json_bool(q, at, "use_rms_norm", false);
    bool multiply = strcmp(class, "autobitlinear") == 0, online = strcmp(mode, "online") == 0;
    if (strcmp(method, "bitnet") != 0)
        bnet_json_refuse(at, "quant_method", method, "is not supported; bitnet is");
    if (rms)
        bnet_json_fail(at, "use_rms_norm",
                       "true (a norm before every projection) is not supported");
    if (!multiply && strcmp(class, "bitlinear") != 0)
        bnet_json_refuse(at, "linear_class", class,
                         "is not supported; bitlinear and autobitlinear are");
    if (!online && strcmp(mode, "offline") != 0)
        bnet_json_refuse(at, "quantization_mode", mode, "is not supported; offline and online are");
    if (online && !multiply)
        bnet_json_refuse(at, "quantization_mode", mode, "needs linear_class autobitlinear");
    at->section = "";
    r->c->weights = online ? BNET_HF_MASTER : multiply ? BNET_HF_MULTIPLY : BNET_HF_DIVIDE;
}

static void add_eos(reader *r, const json_t *v)
{
    int64_t id = json_integer_value(v);
    if (!json_is_integer(v))
        bnet_json_fail(&r->at, "eos_token_id", "holds %s; an integer was expected",
                       bnet_json_kind(v));
    else if (id < 0 || id >= r->c->n_vocab)
        bnet_json_fail(&r->at, "eos_token_id", "value %lld is outside the vocabulary of %lld",
                       (long long)id, (long long)r->c->n_vocab);
    else
        r->c->eos[r->c->n_eos++] = (int32_t)id;
}

/* eos_token_id: one id, a list of them, or null. */
static void read_eos(reader *r)
{
    const json_t *v = json_object_get(r->root, "eos_token_id");
    if (!v || json_is_null(v))
        return;
    if (!json_is_array(v))
        add_eos(r, v);
    else if (json_array_size(v) > BNET_HF_MAX_EOS)
        bnet_json_fail(&r->at, "eos_token_id", "lists %zu ids; at most %d are supported",
                       json_array_size(v), BNET_HF_MAX_EOS);
    else
        for (size_t i = 0; i < json_array_size(v); i++)
            add_eos(r, json_array_get(v, i));
}

static void read_tokens(reader *r)
{
    int64_t hi = r->c->n_vocab - 1;
    r->c->bos = (int32_t)bnet_json_int(r->root, &r->at, "bos_token_id", 0, hi, -1);
    r->c->pad = (int32_t)bnet_json_int(r->root, &r->at, "pad_token_id", -1, hi, -1);
    read_eos(r);
}

/* A published model's "owner/model"; local paths are nobody's business. */
static void read_name(reader *r)
{
    const char *name = bnet_json_string(r->root, &r->at, "_name_or_path", "");
    const char *slash = strchr(name, '/');
    size_t n = strlen(name);
    if (slash && slash != name && slash[1] && !strchr(slash + 1, '/') && name[0] != '.' &&
        name[0] != '~' && n < sizeof r->c->name)
        memcpy(r->c->name, name, n + 1);
}

/* Parts of a network that ours lacks. */
static void refuse_biases(reader *r)
{
    static const char *const keys[] = {"attention_bias", "mlp_bias"};
    for (size_t i = 0; i < BNET_COUNT(keys); i++)
        if (bnet_json_bool(r->root, &r->at, keys[i], false))
            bnet_json_fail(&r->at, keys[i], "true (biases in the projections) is not supported");
}

/* A window as long as the context, or switched off, changes nothing. */
static void refuse_window(reader *r)
{
    const json_t *v = json_object_get(r->root, "use_sliding_window");
    bool use = bnet_json_bool(r->root, &r->at, "use_sliding_window", false);
    int64_t window = bnet_json_int(r->root, &r->at, "sliding_window", 0, INT64_MAX, INT64_MAX);
    if (use)
        bnet_json_fail(&r->at, "use_sliding_window", "true is not supported");
    bool off = v && json_is_false(v);
    if (!off && window < r->c->n_ctx)
        bnet_json_fail(&r->at, "sliding_window",
                       "%lld is below max_position_embeddings %lld; attention within a "
                       "window is not supported",
                       (long long)window, (long long)r->c->n_ctx);
}

static void read_rest(reader *r)
{
    const json_t *tie = json_object_get(r->root, "tie_word_embeddings");
    r->c->eps = bnet_json_float(r->root, &r->at, "rms_norm_eps", 1e-20, 1, 0);
    if (r->c->eps == 0)
        bnet_json_fail(&r->at, "rms_norm_eps", "is missing");
    r->c->tied = bnet_json_bool(r->root, &r->at, "tie_word_embeddings", false);
    r->c->tied_known = tie && json_is_boolean(tie);
    read_name(r);
}

static void read_all(reader *r)
{
    static void (*const steps[])(reader *) = {
        read_class,    read_activation, read_sizes,        read_heads,  read_rope,
        refuse_biases, refuse_window,   read_quantization, read_tokens, read_rest};
    for (size_t i = 0; r->at.status == BITNET_OK && i < BNET_COUNT(steps); i++)
        steps[i](r);
    if (r->at.status == BITNET_OK && !json_object_get(r->root, "rope_theta") &&
        !json_object_get(r->root, "rope_parameters"))
        bnet_logf(r->log, BITNET_LOG_WARN, "convert", "%s: no rope_theta; %g is assumed",
                  r->at.file, r->c->rope_base);
}

bitnet_status bnet_hf_config_parse(const char *data, size_t n, const char *path,
                                   const bnet_log *log, bnet_hf_config *out, bitnet_error *err)
{
    bnet_hf_config c = {0};
    reader r = {.at = {path, "", BITNET_MODEL, err, BITNET_OK}, .log = log, .c = &c};
    json_t *root = bnet_json_parse(data, n, "document", &r.at);
    r.root = root;
    read_all(&r);
    json_decref(root);
    if (r.at.status == BITNET_OK)
        *out = c;
    return r.at.status;
}

bitnet_status bnet_hf_config_read(const char *path, const bnet_log *log, bnet_hf_config *out,
                                  bitnet_error *err)
{
    char *data;
    size_t n;
    bitnet_status st = bnet_read_file(path, MAX_CONFIG, &data, &n, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_hf_config_parse(data, n, path, log, out, err);
    bnet_free(data);
    return st;
}
