/* weights.c - finding every tensor by name, checking its shape, handing it to the backend. */
#include "model/weights.h"

#include "model/arch.h"

#include <math.h>
#include <stdio.h>

typedef struct loader {
    const bnet_gguf *g;
    bnet_model *m;
    bitnet_i2s_layout layout;
    const bnet_log *log;
    bnet_progress *progress;
    bitnet_error *err;
    size_t n_used;          /* tensors that found a place */
    bool warned;            /* of a separate scale that is not positive */
    bnet_features features; /* seen while loading */
    int layer, n_units;     /* of the weight that is prepared (bnet_weight_request) */
} loader;

static bitnet_status check_shape(loader *l, const bnet_tensor *t, uint64_t n_in, uint64_t n_out)
{
    bool vector = n_out == 0;
    bool ok =
        t->ne[0] == n_in && t->ne[1] == (vector ? 1 : n_out) && t->ne[2] == 1 && t->ne[3] == 1;
    if (ok)
        return BITNET_OK;
    return bnet_fail(l->err, BITNET_MODEL,
                     "%s: tensor %s: shape [%llu, %llu, %llu, %llu] where [%llu, %llu] is expected",
                     bnet_gguf_path(l->g), t->name, (unsigned long long)t->ne[0],
                     (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                     (unsigned long long)t->ne[3], (unsigned long long)n_in,
                     (unsigned long long)(vector ? 1 : n_out));
}

/* A separate F32[1] tensor "<base>.scale" multiplies a ternary projection; 1 if there is none. */
static bitnet_status separate_scale(loader *l, const char *base, float *scale)
{
    char name[96];
    *scale = 1.0f;
    snprintf(name, sizeof name, "%s.scale", base);
    const bnet_tensor *t = bnet_gguf_tensor(l->g, name);
    if (!t)
        return BITNET_OK;
    if (t->type != BNET_F32 || bnet_tensor_elems(t) != 1)
        return bnet_fail(l->err, BITNET_MODEL, "%s: tensor %s: a scale must be one F32 value",
                         bnet_gguf_path(l->g), name);
    *scale = bnet_f32(t->data);
    l->n_used++;
    l->features |= BNET_FEATURE(SCALES);
    if (!isfinite(*scale))
        return bnet_fail(l->err, BITNET_MODEL, "%s: tensor %s: value %g is not finite",
                         bnet_gguf_path(l->g), name, (double)*scale);
    if (*scale <= 0 && !l->warned)
        bnet_logf(l->log, BITNET_LOG_WARN, "model", "%s: tensor %s: value %g is not positive",
                  bnet_gguf_path(l->g), name, (double)*scale);
    l->warned = l->warned || *scale <= 0;
    return BITNET_OK;
}

static bitnet_status prepare_as(loader *l, const bnet_tensor *t, bool ternarise, float scale,
                                bool head, bnet_weight **out)
{
    bnet_weight_request r = {.source.tensor = t,
                             .source.file = bnet_gguf_path(l->g),
                             .source.layout = l->layout,
                             .source.ternarise = ternarise && !bnet_type_is_ternary(t->type),
                             .source.extra_scale = scale,
                             .mapped = bnet_gguf_mapped(l->g),
                             .head = head,
                             .layer = l->layer,
                             .n_units = l->n_units};
    l->n_used++;
    bitnet_status st = bnet_op_weight(l->m->be, &r, l->log, out, l->err);
    if (st == BITNET_OK && !bnet_progress_add(l->progress, t->n_bytes))
        st = bnet_fail(l->err, BITNET_CANCELLED, "%s: loading was cancelled", r.source.file);
    return st;
}

static bitnet_status prepare(loader *l, const bnet_tensor *t, bool ternarise, float scale,
                             bnet_weight **out)
{
    return prepare_as(l, t, ternarise, scale, false, out);
}

static const bnet_tensor *require(loader *l, const char *base)
{
    char name[96];
    snprintf(name, sizeof name, "%s.weight", base);
    const bnet_tensor *t = bnet_gguf_tensor(l->g, name);
    if (!t)
        bnet_fail(l->err, BITNET_MODEL, "%s: tensor %s is missing", bnet_gguf_path(l->g), name);
    return t;
}

/* A vector of width n: norm weights. */
static bitnet_status load_norm(loader *l, const char *base, int n, bnet_weight **out)
{
    const bnet_tensor *t = require(l, base);
    if (!t)
        return BITNET_MODEL;
    bitnet_status st = check_shape(l, t, (uint64_t)n, 0);
    if (st != BITNET_OK)
        return st;
    bnet_tensor flat = *t; /* [n, 1] written with two dims is a vector all the same */
    flat.n_dims = 1;
    return prepare(l, &flat, false, 1.0f, out);
}

static bitnet_status load_projection(loader *l, const char *base, int n_in, int n_out,
                                     bnet_weight **out)
{
    char bias[96];
    float scale;
    const bnet_tensor *t = require(l, base);
    if (!t)
        return BITNET_MODEL;
    snprintf(bias, sizeof bias, "%s.bias", base);
    if (bnet_gguf_tensor(l->g, bias))
        return bnet_fail(l->err, BITNET_MODEL, "%s: tensor %s: biases are not supported",
                         bnet_gguf_path(l->g), bias);
    bitnet_status st = check_shape(l, t, (uint64_t)n_in, (uint64_t)n_out);
    if (st == BITNET_OK)
        st = separate_scale(l, base, &scale);
    if (st != BITNET_OK)
        return st;
    if (scale != 1.0f && !l->m->hp.ternary_required && !bnet_type_is_ternary(t->type))
        return bnet_fail(l->err, BITNET_MODEL,
                         "%s: tensor %s.scale: only ternary weights may have a separate scale",
                         bnet_gguf_path(l->g), base);
    const char *type = bnet_type_find(t->type)->name;
    if (!l->m->weight_type)
        l->m->weight_type = type;
    else if (strcmp(l->m->weight_type, type) != 0)
        l->m->weight_type = "mixed";
    return prepare(l, t, l->m->hp.ternary_required, scale, out);
}

/* The rows of a layer: which field, which tensor, how large. */
typedef struct slot {
    const char *suffix;
    bnet_weight **out;
    int n_in, n_out; /* n_out 0: a norm */
    bool wanted;
    int n_units;
} slot;

/* Norms of each head's queries and keys are not computed: without them every result would be wrong.
 */
static bitnet_status refuse_qk_norms(const loader *l, int index)
{
    static const char *const suffixes[] = {"attn_q_norm", "attn_k_norm"};
    for (size_t i = 0; i < BNET_COUNT(suffixes); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", index, suffixes[i]);
        if (bnet_gguf_tensor(l->g, name))
            return bnet_fail(l->err, BITNET_MODEL,
                             "%s: tensor %s: norms of queries and keys are not supported",
                             bnet_gguf_path(l->g), name);
    }
    return BITNET_OK;
}

static bitnet_status load_layer(loader *l, int index)
{
    const bnet_hparams *h = &l->m->hp;
    bnet_layer *y = &l->m->layers[index];
    int n_q = h->n_heads * h->head_dim, n_kv = h->n_kv_heads * h->head_dim;
    const slot slots[] = {
        {"attn_norm", &y->attn_norm, h->n_embd, 0, true, 0},
        {"attn_q", &y->q, h->n_embd, n_q, true, h->n_kv_heads},
        {"attn_k", &y->k, h->n_embd, n_kv, true, h->n_kv_heads},
        {"attn_v", &y->v, h->n_embd, n_kv, true, h->n_kv_heads},
        {"attn_sub_norm", &y->attn_sub_norm, n_q, 0, h->sub_norms, 0},
        {"attn_output", &y->o, n_q, h->n_embd, true, 0},
        {"ffn_norm", &y->ffn_norm, h->n_embd, 0, true, 0},
        {"ffn_gate", &y->gate, h->n_embd, h->n_ff, true, 0},
        {"ffn_up", &y->up, h->n_embd, h->n_ff, true, 0},
        {"ffn_sub_norm", &y->ffn_sub_norm, h->n_ff, 0, h->sub_norms, 0},
        {"ffn_down", &y->down, h->n_ff, h->n_embd, true, 0},
    };
    bitnet_status st = refuse_qk_norms(l, index);
    for (size_t i = 0; st == BITNET_OK && i < BNET_COUNT(slots); i++) {
        char base[64];
        snprintf(base, sizeof base, "blk.%d.%s", index, slots[i].suffix);
        if (!slots[i].wanted)
            continue;
        l->n_units = slots[i].n_units;
        st = slots[i].n_out ? load_projection(l, base, slots[i].n_in, slots[i].n_out, slots[i].out)
                            : load_norm(l, base, slots[i].n_in, slots[i].out);
    }
    return st;
}

static bitnet_status load_embedding(loader *l)
{
    bnet_model *m = l->m;
    const bnet_tensor *t = require(l, "token_embd");
    if (!t)
        return BITNET_MODEL;
    if (t->n_dims != 2 || t->ne[0] != (uint64_t)m->hp.n_embd || t->ne[1] > (1 << 24))
        return bnet_fail(
            l->err, BITNET_MODEL,
            "%s: tensor token_embd.weight: shape [%llu, %llu] where [%d, vocabulary] is expected",
            bnet_gguf_path(l->g), (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
            m->hp.n_embd);
    if (bnet_type_is_ternary(t->type))
        return bnet_fail(l->err, BITNET_MODEL,
                         "%s: tensor token_embd.weight: type %s is not supported for embeddings",
                         bnet_gguf_path(l->g), bnet_type_find(t->type)->name);
    m->hp.n_vocab = (int)t->ne[1];
    m->embedding_type = m->head_type = bnet_type_find(t->type)->name;
    return prepare_as(l, t, false, 1.0f, !bnet_gguf_tensor(l->g, "output.weight"), &m->embd);
}

/* A head in the file is used; without one the embedding is the head. */
static bitnet_status load_head(loader *l)
{
    bnet_model *m = l->m;
    const bnet_tensor *t = bnet_gguf_tensor(l->g, "output.weight");
    m->hp.tied_head = t == NULL;
    m->head = t ? NULL : m->embd;
    if (!t)
        return BITNET_OK;
    m->head_type = bnet_type_find(t->type)->name;
    bitnet_status st = check_shape(l, t, (uint64_t)m->hp.n_embd, (uint64_t)m->hp.n_vocab);
    if (st == BITNET_OK && bnet_type_is_ternary(t->type))
        st = bnet_fail(l->err, BITNET_MODEL,
                       "%s: tensor output.weight: type %s is not supported for the head",
                       bnet_gguf_path(l->g), m->head_type);
    return st == BITNET_OK ? prepare_as(l, t, false, 1.0f, true, &m->head) : st;
}

static bitnet_status load_rope(loader *l)
{
    bnet_model *m = l->m;
    int n = m->hp.n_rot / 2;
    m->inv_freq = bnet_calloc((size_t)n, sizeof *m->inv_freq);
    if (!m->inv_freq)
        return bnet_no_memory(l->err, "rope frequencies");
    for (int j = 0; j < n; j++)
        m->inv_freq[j] = pow((double)m->hp.rope_base, -2.0 * j / m->hp.n_rot);
    m->rope = (bnet_rope){m->inv_freq, m->hp.n_rot, m->hp.head_dim, m->hp.rope_neox};
    const bnet_tensor *t = bnet_gguf_tensor(l->g, "rope_freqs.weight");
    if (!t)
        return BITNET_OK;
    l->n_used++;
    l->features |= BNET_FEATURE(ROPE_FACTORS);
    if (t->type != BNET_F32 || bnet_tensor_elems(t) != (uint64_t)n)
        return bnet_fail(l->err, BITNET_MODEL,
                         "%s: tensor rope_freqs.weight: %d F32 values are expected",
                         bnet_gguf_path(l->g), n);
    for (int j = 0; j < n; j++) {
        float f = bnet_f32(t->data + 4 * j);
        if (!(f > 0) || !isfinite(f))
            return bnet_fail(l->err, BITNET_MODEL,
                             "%s: tensor rope_freqs.weight: value %d is %g, not a positive number",
                             bnet_gguf_path(l->g), j, (double)f);
        m->inv_freq[j] /= (double)f;
    }
    return BITNET_OK;
}

/* Both sub-norms or none; the bitnet architectures need them. */
static bitnet_status decide_sub_norms(loader *l)
{
    bool attn = bnet_gguf_tensor(l->g, "blk.0.attn_sub_norm.weight") != NULL;
    bool ffn = bnet_gguf_tensor(l->g, "blk.0.ffn_sub_norm.weight") != NULL;
    if (attn != ffn || (l->m->hp.ternary_required && !attn))
        return bnet_fail(l->err, BITNET_MODEL, "%s: tensor blk.0.%s_sub_norm.weight is missing",
                         bnet_gguf_path(l->g), attn ? "ffn" : "attn");
    l->m->hp.sub_norms = attn;
    return BITNET_OK;
}

static bnet_features matrix_features(const bnet_model *m, const bnet_weight *w)
{
    const bnet_weight_info *i = bnet_op_weight_info(m->be, w);
    if (!i->ternary)
        return BNET_FEATURE(FLOAT_MATRICES);
    return i->scale == 0 ? BNET_FEATURE(BLOCK_SCALES) : 0;
}

static bnet_features head_features(const bnet_model *m)
{
    bnet_type t = bnet_op_weight_info(m->be, m->head)->type;
    bool plain = t == BNET_F32 || t == BNET_F16 || t == BNET_BF16;
    return (plain ? BNET_FEATURE(FLOAT_HEAD) : BNET_FEATURE(QUANTISED_HEAD)) |
           (m->hp.tied_head ? BNET_FEATURE(TIED_HEAD) : 0);
}

/* Everything the file turned out to have; l->features: what was seen while loading. */
static bnet_features features_of(const loader *l)
{
    const bnet_model *m = l->m;
    bnet_features f = l->features | head_features(m);
    f |= m->hp.act == BNET_ACT_RELU2 ? BNET_FEATURE(RELU2) : BNET_FEATURE(SILU);
    f |= m->hp.rope_neox ? BNET_FEATURE(ROPE_HALVES) : BNET_FEATURE(ROPE_PAIRS);
    f |= m->hp.sub_norms ? BNET_FEATURE(SUB_NORMS) : 0;
    for (int i = 0; i < m->hp.n_layers; i++) {
        const bnet_layer *y = &m->layers[i];
        const bnet_weight *all[] = {y->q, y->k, y->v, y->o, y->gate, y->up, y->down};
        for (size_t j = 0; j < BNET_COUNT(all); j++)
            f |= matrix_features(m, all[j]);
    }
    return f;
}

static void tell_unknown(const loader *l)
{
    bnet_features f = bnet_op_unknown(l->m->be, &l->m->net);
    for (int i = 0; i < BNET_N_FEATURES; i++)
        if (f >> i & 1)
            bnet_logf(l->log, BITNET_LOG_INFO, "model",
                      "%s: passes are composed of single operations: %s has none for %s",
                      bnet_gguf_path(l->g), bnet_backend_name(l->m->be),
                      bnet_feature_name((bnet_feature_index)i));
}

static bitnet_status describe_net(loader *l)
{
    bnet_model *m = l->m;
    const bnet_hparams *h = &m->hp;
    m->net_layers = bnet_calloc((size_t)h->n_layers, sizeof *m->net_layers);
    if (!m->net_layers)
        return bnet_no_memory(l->err, "layers");
    for (int i = 0; i < h->n_layers; i++) {
        const bnet_layer *y = &m->layers[i];
        m->net_layers[i] = (bnet_net_layer){.attn_norm = y->attn_norm,
                                            .q = y->q,
                                            .k = y->k,
                                            .v = y->v,
                                            .attn_sub_norm = y->attn_sub_norm,
                                            .o = y->o,
                                            .ffn_norm = y->ffn_norm,
                                            .gate = y->gate,
                                            .up = y->up,
                                            .ffn_sub_norm = y->ffn_sub_norm,
                                            .down = y->down};
    }
    m->net = (bnet_net){.features = features_of(l),
                        .n_layers = h->n_layers,
                        .n_heads = h->n_heads,
                        .n_kv_heads = h->n_kv_heads,
                        .head_dim = h->head_dim,
                        .n_embd = (size_t)h->n_embd,
                        .n_ff = (size_t)h->n_ff,
                        .n_vocab = (size_t)h->n_vocab,
                        .rms_eps = h->rms_eps,
                        .act = h->act,
                        .rope = m->rope,
                        .embd = m->embd,
                        .output_norm = m->output_norm,
                        .head = m->head,
                        .layers = m->net_layers};
    tell_unknown(l);
    return BITNET_OK;
}

/* Tells the backend which network will be loaded. */
static bitnet_status announce(loader *l)
{
    const bnet_hparams *h = &l->m->hp;
    bnet_expect e = {.file = bnet_gguf_path(l->g),
                     .n_layers = h->n_layers,
                     .n_heads = h->n_heads,
                     .n_kv_heads = h->n_kv_heads};
    for (size_t i = 0; i < bnet_gguf_n_tensors(l->g); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(l->g, i);
        *(strncmp(t->name, "blk.", 4) == 0     ? &e.layer_bytes
          : strncmp(t->name, "output", 6) == 0 ? &e.last_bytes
                                               : &e.first_bytes) += t->n_bytes;
    }
    e.layer_bytes /= (uint64_t)h->n_layers;
    return bnet_op_expect(l->m->be, &e, l->log, l->err);
}

static bitnet_status load_all(loader *l)
{
    bnet_model *m = l->m;
    m->layers = bnet_calloc((size_t)m->hp.n_layers, sizeof *m->layers);
    if (!m->layers)
        return bnet_no_memory(l->err, "layers");
    bitnet_status st = announce(l);
    l->layer = -1;
    if (st == BITNET_OK)
        st = load_embedding(l);
    if (st == BITNET_OK)
        st = decide_sub_norms(l);
    for (l->layer = 0; st == BITNET_OK && l->layer < m->hp.n_layers; l->layer++)
        st = load_layer(l, l->layer);
    l->n_units = 0;
    if (st == BITNET_OK)
        st = load_norm(l, "output_norm", m->hp.n_embd, &m->output_norm);
    if (st == BITNET_OK)
        st = load_head(l);
    if (st == BITNET_OK)
        st = load_rope(l);
    if (st == BITNET_OK)
        st = describe_net(l);
    size_t n_tensors = bnet_gguf_n_tensors(l->g);
    size_t n_unused = n_tensors > l->n_used ? n_tensors - l->n_used : 0;
    if (st == BITNET_OK && n_unused)
        bnet_logf(l->log, BITNET_LOG_WARN, "model", "%s: %zu tensor%s not used by architecture %s",
                  bnet_gguf_path(l->g), n_unused, n_unused == 1 ? " is" : "s are", m->hp.arch);
    return st;
}

void bnet_model_count(bnet_model *m, atomic_uint_fast64_t *n_bytes)
{
    m->reserved = n_bytes;
}

void bnet_model_reserve(const bnet_model *m, uint64_t n_bytes)
{
    if (m->reserved)
        atomic_fetch_add(m->reserved, n_bytes);
}

void bnet_model_release(const bnet_model *m, uint64_t n_bytes)
{
    if (m->reserved)
        atomic_fetch_sub(m->reserved, n_bytes);
}

bitnet_status bnet_model_open(const bnet_gguf *g, bnet_backend *be, bitnet_i2s_layout layout,
                              const bnet_log *log, bnet_progress *progress, bnet_model **out,
                              bitnet_error *err)
{
    bnet_hparams hp;
    bitnet_status st = bnet_hparams_read(g, &hp, err);
    if (st != BITNET_OK)
        return st;
    bnet_model *m = bnet_calloc(1, sizeof *m);
    if (!m)
        return bnet_no_memory(err, "model");
    m->hp = hp;
    m->be = be;
    loader l = {.g = g, .m = m, .layout = layout, .log = log, .progress = progress, .err = err};
    st = load_all(&l);
    if (st != BITNET_OK) {
        bnet_model_close(m);
        return st;
    }
    *out = m;
    return BITNET_OK;
}

static void free_layer(bnet_backend *be, bnet_layer *y)
{
    bnet_weight **all = (bnet_weight **)(void *)y; /* a layer is nothing else */
    for (size_t i = 0; i < sizeof *y / sizeof *all; i++)
        bnet_op_weight_free(be, all[i]);
}

void bnet_model_close(bnet_model *m)
{
    if (!m)
        return;
    for (int i = 0; m->layers && i < m->hp.n_layers; i++)
        free_layer(m->be, &m->layers[i]);
    if (m->head != m->embd)
        bnet_op_weight_free(m->be, m->head);
    bnet_op_weight_free(m->be, m->embd);
    bnet_op_weight_free(m->be, m->output_norm);
    bnet_free(m->inv_freq);
    bnet_free(m->net_layers);
    bnet_free(m->layers);
    bnet_free(m);
}

const bnet_hparams *bnet_model_hparams(const bnet_model *m)
{
    return &m->hp;
}

const char *bnet_model_weight_type(const bnet_model *m)
{
    return m->weight_type;
}

const char *bnet_model_embedding_type(const bnet_model *m)
{
    return m->embedding_type;
}

const char *bnet_model_head_type(const bnet_model *m)
{
    return m->head_type;
}
