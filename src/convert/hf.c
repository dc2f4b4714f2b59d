/* hf.c - turns a Hugging Face directory into a plan: where each tensor goes, its shape and how it
 * is read. */
#include <math.h>
#include <stdio.h>

#include "convert/hf_config.h"
#include "convert/hf_tokenizer.h"
#include "convert/plan.h"
#include "convert/safetensors.h"
#include "format/codec.h"

typedef enum dim { WIDTH, FF, Q_ROWS, KV_ROWS, NONE } dim;
typedef enum role { NORM, SUB_NORM, LINEAR } role;

/* One row per tensor of a layer, in the order of the output. */
static const struct layer_tensor {
    const char *hf, *alias; /* below model.layers.N; the alias is the older bitnet spelling */
    const char *gguf;       /* below blk.N */
    role role;
    dim rows, cols;
    bool rotary;
} layer_tensors[] = {
    {"input_layernorm", NULL, "attn_norm", NORM, NONE, WIDTH, false},
    {"self_attn.q_proj", NULL, "attn_q", LINEAR, Q_ROWS, WIDTH, true},
    {"self_attn.k_proj", NULL, "attn_k", LINEAR, KV_ROWS, WIDTH, true},
    {"self_attn.v_proj", NULL, "attn_v", LINEAR, KV_ROWS, WIDTH, false},
    {"self_attn.attn_sub_norm", "self_attn.inner_attn_ln", "attn_sub_norm", SUB_NORM, NONE, Q_ROWS,
     false},
    {"self_attn.o_proj", NULL, "attn_output", LINEAR, WIDTH, Q_ROWS, false},
    {"post_attention_layernorm", NULL, "ffn_norm", NORM, NONE, WIDTH, false},
    {"mlp.gate_proj", NULL, "ffn_gate", LINEAR, FF, WIDTH, false},
    {"mlp.up_proj", NULL, "ffn_up", LINEAR, FF, WIDTH, false},
    {"mlp.ffn_sub_norm", "mlp.ffn_layernorm", "ffn_sub_norm", SUB_NORM, NONE, FF, false},
    {"mlp.down_proj", NULL, "ffn_down", LINEAR, WIDTH, FF, false},
};

typedef struct conversion {
    const char *dir;
    bnet_hf_config config;
    bnet_checkpoint files;
    bnet_plan plan;
    float *rope_freqs; /* [head_dim / 2], or NULL */
    const bnet_convert_options *options;
    bitnet_error *err;
} conversion;

static uint64_t size_of(const conversion *c, dim d)
{
    const bnet_hf_config *k = &c->config;
    switch (d) {
    case WIDTH:
        return (uint64_t)k->n_embd;
    case FF:
        return (uint64_t)k->n_ff;
    case Q_ROWS:
        return (uint64_t)(k->n_heads * k->head_dim);
    case KV_ROWS:
        return (uint64_t)(k->n_kv_heads * k->head_dim);
    case NONE:
        break;
    }
    return 1;
}

static bitnet_status missing(const conversion *c, const char *name)
{
    return bnet_fail(c->err, BITNET_MODEL, "%s: tensor %s is missing",
                     bnet_checkpoint_path(&c->files), name);
}

/* Checks a tensor against [rows, cols], or [cols] where rows is 0. */
static bitnet_status check_shape(const conversion *c, const bnet_st_tensor *t, uint64_t rows,
                                 uint64_t cols)
{
    char found[200], want[64];
    if (rows == 0 ? t->n_dims == 1 && t->shape[0] == cols
                  : t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols)
        return BITNET_OK;
    if (rows == 0)
        snprintf(want, sizeof want, "[%llu]", (unsigned long long)cols);
    else
        snprintf(want, sizeof want, "[%llu, %llu]", (unsigned long long)rows,
                 (unsigned long long)cols);
    return bnet_fail(c->err, BITNET_MODEL, "%s: tensor %s: shape is %s; %s was expected", t->path,
                     t->name, bnet_st_shape_text(t, found, sizeof found), want);
}

static bitnet_status float_type(const conversion *c, const bnet_st_tensor *t, bnet_type *out)
{
    switch (t->dtype) {
    case BNET_ST_F32:
        *out = BNET_F32;
        return BITNET_OK;
    case BNET_ST_F16:
        *out = BNET_F16;
        return BITNET_OK;
    case BNET_ST_BF16:
        *out = BNET_BF16;
        return BITNET_OK;
    default:
        return bnet_fail(c->err, BITNET_MODEL,
                         "%s: tensor %s: dtype is %s; F32, F16 or BF16 was expected", t->path,
                         t->name, bnet_st_dtype_name(t->dtype));
    }
}

/* A tensor written with its own values. rows 0: a vector. */
static bitnet_status add_float(conversion *c, const char *name, const bnet_st_tensor *t,
                               uint64_t rows, uint64_t cols, bnet_type type)
{
    bnet_item item = {.kind = BNET_ITEM_FLOAT,
                      .type = type,
                      .n_dims = rows ? 2 : 1,
                      .n_rows = rows ? rows : 1,
                      .n_cols = cols,
                      .data = t->data,
                      .path = t->path};
    snprintf(item.name, sizeof item.name, "%s", name);
    bitnet_status st = check_shape(c, t, rows, cols);
    if (st == BITNET_OK)
        st = float_type(c, t, &item.source_type);
    return st == BITNET_OK ? bnet_plan_add(&c->plan, &item, t->name, c->err) : st;
}

/* ---- projections ---- */

static bitnet_status read_scale(conversion *c, const char *name, float *out)
{
    const bnet_st_tensor *t = bnet_checkpoint_find(&c->files, name);
    bnet_type type = BNET_F32;
    float scale;
    char found[200];
    if (!t)
        return missing(c, name);
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->shape[i]; /* the reader checked the product */
    if (n != 1)
        return bnet_fail(c->err, BITNET_MODEL, "%s: tensor %s: shape is %s; one value was expected",
                         t->path, t->name, bnet_st_shape_text(t, found, sizeof found));
    bitnet_status st = float_type(c, t, &type);
    if (st != BITNET_OK)
        return st;
    bnet_decode_row(type, t->data, &scale, 1);
    float used = c->config.weights == BNET_HF_DIVIDE ? 1.0f / scale : scale;
    if (!(scale > 0) || !isfinite(scale) || !isfinite(used) || !(used > 0))
        return bnet_fail(c->err, BITNET_MODEL, "%s: tensor %s: scale %g is not a positive number",
                         t->path, t->name, (double)scale);
    *out = used;
    return BITNET_OK;
}

static bitnet_status packed_mismatch(const conversion *c, const bnet_st_tensor *t, bool packed)
{
    return bnet_fail(c->err, BITNET_MODEL, "%s: tensor %s: dtype is %s; the config says %s weights",
                     t->path, t->name, bnet_st_dtype_name(t->dtype),
                     packed ? "packed U8" : "float");
}

static bitnet_status add_packed(conversion *c, const struct layer_tensor *row, const char *prefix,
                                const bnet_st_tensor *t, bnet_item *item)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s.weight_scale", prefix, row->hf);
    if (t->dtype != BNET_ST_U8)
        return packed_mismatch(c, t, true);
    bitnet_status st = check_shape(c, t, (item->n_rows + 3) / 4, item->n_cols);
    item->kind = BNET_ITEM_PACKED;
    if (st == BITNET_OK)
        st = read_scale(c, name, &item->scale);
    return st == BITNET_OK ? bnet_plan_add(&c->plan, item, t->name, c->err) : st;
}

static bitnet_status add_unpacked(conversion *c, const bnet_st_tensor *t, bnet_item *item)
{
    bool dense = c->config.weights == BNET_HF_DENSE;
    item->kind = dense ? BNET_ITEM_FLOAT : BNET_ITEM_MASTER;
    if (t->dtype == BNET_ST_U8)
        return packed_mismatch(c, t, false);
    if (dense && bnet_type_is_ternary(item->type))
        return bnet_fail(c->err, BITNET_ARGUMENT,
                         "%s: the weights are not ternary (no bitnet quantization_config); use "
                         "--type f16 or --type f32",
                         c->dir);
    bitnet_status st = check_shape(c, t, item->n_rows, item->n_cols);
    if (st == BITNET_OK)
        st = float_type(c, t, &item->source_type);
    return st == BITNET_OK ? bnet_plan_add(&c->plan, item, t->name, c->err) : st;
}

static bitnet_status add_linear(conversion *c, const struct layer_tensor *row, const char *prefix,
                                const bnet_st_tensor *t, bnet_item *item)
{
    item->n_rows = size_of(c, row->rows);
    item->type = c->options->weight_type;
    if (row->rotary && c->config.permute)
        item->n_heads = (uint32_t)(row->rows == Q_ROWS ? c->config.n_heads : c->config.n_kv_heads);
    /* Without a quantization_config packed bytes still say what they are; they divide, as the key's
     * default does. */
    if (c->config.packed_by_default && t->dtype == BNET_ST_U8)
        c->config.weights = BNET_HF_DIVIDE;
    bool packed = c->config.weights == BNET_HF_MULTIPLY || c->config.weights == BNET_HF_DIVIDE;
    return packed ? add_packed(c, row, prefix, t, item) : add_unpacked(c, t, item);
}

static bitnet_status add_layer_tensor(conversion *c, const struct layer_tensor *row, int layer)
{
    char prefix[64], name[160];
    bnet_item item = {.n_dims = 2, .n_cols = size_of(c, row->cols)};
    snprintf(prefix, sizeof prefix, "model.layers.%d.", layer);
    snprintf(name, sizeof name, "%s%s.weight", prefix, row->hf);
    snprintf(item.name, sizeof item.name, "blk.%d.%s.weight", layer, row->gguf);
    const bnet_st_tensor *t = bnet_checkpoint_find(&c->files, name);
    if (!t && row->alias) {
        char other[160];
        snprintf(other, sizeof other, "%s%s.weight", prefix, row->alias);
        t = bnet_checkpoint_find(&c->files, other);
    }
    if (!t)
        return missing(c, name);
    item.data = t->data;
    item.path = t->path;
    if (row->role == LINEAR)
        return add_linear(c, row, prefix, t, &item);
    return add_float(c, item.name, t, 0, item.n_cols, BNET_F32);
}

static bitnet_status add_layers(conversion *c)
{
    for (int layer = 0; layer < c->config.n_layers; layer++) {
        for (size_t i = 0; i < BNET_COUNT(layer_tensors); i++) {
            if (layer_tensors[i].role == SUB_NORM && !c->config.sub_norms)
                continue;
            bitnet_status st = add_layer_tensor(c, &layer_tensors[i], layer);
            if (st != BITNET_OK)
                return st;
        }
    }
    return BITNET_OK;
}

/* ---- the rest ---- */

static bitnet_status add_named(conversion *c, const char *hf, const char *gguf, uint64_t rows,
                               bnet_type type)
{
    const bnet_st_tensor *t = bnet_checkpoint_find(&c->files, hf);
    return t ? add_float(c, gguf, t, rows, (uint64_t)c->config.n_embd, type) : missing(c, hf);
}

/* The untied head; where the config is silent its presence decides. */
static bitnet_status add_head(conversion *c)
{
    const bnet_st_tensor *t = bnet_checkpoint_find(&c->files, "lm_head.weight");
    bool tied = c->config.tied_known ? c->config.tied : !t;
    if (tied && t)
        bnet_logf(&c->options->log, BITNET_LOG_INFO, "convert",
                  "%s: lm_head.weight is ignored: the config ties the head "
                  "to the embedding",
                  t->path);
    if (tied)
        return BITNET_OK;
    return add_named(c, "lm_head.weight", "output.weight", (uint64_t)c->config.n_vocab,
                     c->options->embedding_type);
}

/* llama-3.1's rule: long wavelengths are stretched by `factor`, short ones stay, those between are
 * blended. */
static float rope_factor(const bnet_hf_config *k, int64_t i)
{
    double two_pi = 6.283185307179586;
    double wave = two_pi * pow(k->rope_base, 2.0 * (double)i / (double)k->head_dim);
    if (wave < k->rope_old_ctx / k->rope_high)
        return 1;
    if (wave > k->rope_old_ctx / k->rope_low)
        return (float)k->rope_factor;
    double smooth = (k->rope_old_ctx / wave - k->rope_low) / (k->rope_high - k->rope_low);
    return (float)(1 / ((1 - smooth) / k->rope_factor + smooth));
}

static bitnet_status add_rope_freqs(conversion *c)
{
    int64_t n = c->config.head_dim / 2;
    if (!c->config.llama3_rope)
        return BITNET_OK;
    c->rope_freqs = bnet_calloc((size_t)n, sizeof *c->rope_freqs);
    if (!c->rope_freqs)
        return bnet_no_memory(c->err, "rope factors");
    for (int64_t i = 0; i < n; i++)
        c->rope_freqs[i] = rope_factor(&c->config, i);
    bnet_item item = {.name = "rope_freqs.weight",
                      .kind = BNET_ITEM_FLOAT,
                      .type = BNET_F32,
                      .n_dims = 1,
                      .n_rows = 1,
                      .n_cols = (uint64_t)n,
                      .source_type = BNET_F32,
                      .data = (const uint8_t *)c->rope_freqs,
                      .path = c->dir};
    return bnet_plan_add(&c->plan, &item, "rope_freqs", c->err);
}

/* Tensors without weights: tables that old exports stored too. */
static bool ignorable(const char *name)
{
    size_t n = strlen(name);
    return n > 20 && strcmp(name + n - 20, ".rotary_emb.inv_freq") == 0;
}

/* A tensor that nothing asked for belongs to a network we do not know. */
static bitnet_status check_extra(const conversion *c)
{
    char quoted[128], shape[200];
    for (size_t i = 0; i < c->files.n_tensors; i++) {
        const bnet_st_tensor *t = c->files.tensors[i];
        if (!c->files.used[i] && !ignorable(t->name))
            return bnet_fail(c->err, BITNET_MODEL,
                             "%s: tensor %s %s has no place in a %s model of %lld layers", t->path,
                             bnet_quote(t->name, strlen(t->name), quoted, sizeof quoted),
                             bnet_st_shape_text(t, shape, sizeof shape), c->config.arch,
                             (long long)c->config.n_layers);
    }
    return BITNET_OK;
}

/* Networks without sub-norms quantise activations for ternary weights alone. */
static void warn_float(const conversion *c)
{
    const bnet_type type = c->options->weight_type;
    if (c->config.weights != BNET_HF_DENSE && !c->config.sub_norms && !bnet_type_is_ternary(type))
        bnet_logf(&c->options->log, BITNET_LOG_WARN, "convert",
                  "%s: the weights are ternary, but as %s they will be multiplied with float "
                  "activations, not with the 8-bit ones of training; --type i2_s keeps those",
                  c->dir, bnet_type_find((uint32_t)type)->name);
}

static bitnet_status make_plan(conversion *c)
{
    uint64_t n_vocab = (uint64_t)c->config.n_vocab;
    bitnet_status st = add_named(c, "model.embed_tokens.weight", "token_embd.weight", n_vocab,
                                 c->options->embedding_type);
    if (st == BITNET_OK)
        st = add_rope_freqs(c);
    if (st == BITNET_OK)
        st = add_layers(c);
    if (st == BITNET_OK)
        warn_float(c);
    if (st == BITNET_OK)
        st = add_named(c, "model.norm.weight", "output_norm.weight", 0, BNET_F32);
    if (st == BITNET_OK)
        st = add_head(c);
    return st == BITNET_OK ? check_extra(c) : st;
}

/* ---- the whole ---- */

/* Last part of a path: the name of a model that has no other. */
static void base_name(const char *path, char *buf, size_t cap)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(buf, cap, "%.*s", (int)(end - begin), path + begin);
}

static bitnet_status write_out(conversion *c, const char *out)
{
    char name[128];
    bnet_vocab vocab;
    const bnet_hf_config *k = &c->config;
    bitnet_status st = bnet_hf_tokenizer_read(c->dir, k, &c->options->log, &vocab, c->err);
    if (st != BITNET_OK)
        return st;
    base_name(k->name[0] ? k->name : c->dir, name, sizeof name);
    bnet_shape shape = {.arch = k->arch,
                        .name = name,
                        .activation = k->activation,
                        .repository = k->name,
                        .n_vocab = (uint32_t)k->n_vocab,
                        .n_ctx = (uint32_t)k->n_ctx,
                        .n_embd = (uint32_t)k->n_embd,
                        .n_layers = (uint32_t)k->n_layers,
                        .n_ff = (uint32_t)k->n_ff,
                        .head_dim = (uint32_t)k->head_dim,
                        .n_heads = (uint32_t)k->n_heads,
                        .n_kv_heads = (uint32_t)k->n_kv_heads,
                        .key_length = k->explicit_head_dim,
                        .eps = (float)k->eps,
                        .rope_base = (float)k->rope_base};
    return bnet_plan_write(&c->plan, &shape, &vocab, out, c->err);
}

static bitnet_status read_config(conversion *c)
{
    bnet_str path = {0};
    bnet_str_addf(&path, "%s/config.json", c->dir);
    bitnet_status st = path.failed
                           ? bnet_no_memory(c->err, c->dir)
                           : bnet_hf_config_read(path.data, &c->options->log, &c->config, c->err);
    bnet_str_free(&path);
    return st;
}

bitnet_status bnet_convert_hf(const char *dir, const char *out, const bnet_convert_options *options,
                              bitnet_error *err)
{
    conversion c = {.dir = dir, .plan = {.options = options}, .options = options, .err = err};
    bitnet_status st = read_config(&c);
    if (st == BITNET_OK)
        st = bnet_checkpoint_open(dir, &c.files, err);
    if (st == BITNET_OK)
        st = make_plan(&c);
    if (st == BITNET_OK)
        st = write_out(&c, out);
    bnet_plan_free(&c.plan);
    bnet_free(c.rope_freqs);
    bnet_checkpoint_close(&c.files);
    return st;
}
