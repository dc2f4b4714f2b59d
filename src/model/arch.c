/* arch.c - hyper-parameters: read from the file, checked against each other, never guessed where a
 * wrong guess would print nonsense. */
#include "model/arch.h"

#include <stdio.h>

typedef enum rope_kind { NORM, NEOX } rope_kind;
typedef enum act_rule { SILU, RELU2, BY_FILE } act_rule;

static const struct arch {
    const char *name;
    rope_kind rope;
    bool ternary;
    act_rule act;
} archs[] = {
#define ARCH(name, rope, ternary, act) {name, rope, ternary, act},
#include "model/arch.inc"
#undef ARCH
};

const char *bnet_arch_at(int i)
{
    return i >= 0 && (size_t)i < BNET_COUNT(archs) ? archs[i].name : NULL;
}

/* Large models are published in parts, each a GGUF file. */
static bitnet_status check_whole(const bnet_gguf *g, bitnet_error *err)
{
    int64_t n_parts = 1;
    bitnet_status st = bnet_gguf_int(g, "split.count", 0, 65535, &n_parts, NULL, err);
    if (st == BITNET_OK && n_parts > 1)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: key split.count: one of %d parts of a model; join them into one file "
                         "first: llama-gguf-split --merge FIRST-PART OUT.gguf",
                         bnet_gguf_path(g), (int)n_parts);
    return st;
}

static bitnet_status find_arch(const bnet_gguf *g, const struct arch **out, bitnet_error *err)
{
    bnet_span s;
    bool found = false;
    char quoted[80], known[512] = "";
    bitnet_status st = check_whole(g, err);
    if (st == BITNET_OK)
        st = bnet_gguf_string(g, "general.architecture", &s, &found, err);
    if (st != BITNET_OK)
        return st;
    if (!found)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: key general.architecture is missing: not a model file",
                         bnet_gguf_path(g));
    for (size_t i = 0, n = 0; i < BNET_COUNT(archs); i++) {
        if (s.n == strlen(archs[i].name) && memcmp(s.data, archs[i].name, s.n) == 0) {
            *out = &archs[i];
            return BITNET_OK;
        }
        if (n < sizeof known)
            n +=
                (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", archs[i].name);
    }
    return bnet_fail(err, BITNET_MODEL,
                     "%s: key general.architecture: '%s' is not supported; supported: %s",
                     bnet_gguf_path(g), bnet_quote(s.data, s.n, quoted, sizeof quoted), known);
}

/* Reading "<arch>.<suffix>" into plain variables; the first failure sticks. */
typedef struct reader {
    const bnet_gguf *g;
    const char *arch;
    bitnet_status st;
    bitnet_error *err;
} reader;

static const char *full_key(const reader *r, const char *suffix, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s.%s", r->arch, suffix);
    return buf;
}

static bool read_int(reader *r, const char *suffix, int64_t lo, int64_t hi, bool required, int *out)
{
    char key[96];
    int64_t v = *out;
    bool found = false;
    if (r->st != BITNET_OK)
        return false;
    r->st = bnet_gguf_int(r->g, full_key(r, suffix, key, sizeof key), lo, hi, &v, &found, r->err);
    if (r->st == BITNET_OK && !found && required)
        r->st = bnet_fail(r->err, BITNET_MODEL, "%s: key %s is missing", bnet_gguf_path(r->g), key);
    if (r->st == BITNET_OK && found)
        *out = (int)v;
    return found;
}

static void read_float(reader *r, const char *suffix, double lo, double hi, bool required,
                       float *out)
{
    char key[96];
    double v = (double)*out;
    bool found = false;
    if (r->st != BITNET_OK)
        return;
    r->st = bnet_gguf_float(r->g, full_key(r, suffix, key, sizeof key), lo, hi, &v, &found, r->err);
    if (r->st == BITNET_OK && !found && required)
        r->st = bnet_fail(r->err, BITNET_MODEL, "%s: key %s is missing", bnet_gguf_path(r->g), key);
    if (r->st == BITNET_OK && found)
        *out = (float)v;
}

static bitnet_status refuse(reader *r, const char *suffix, int value, const char *why)
{
    char key[96];
    return bnet_fail(r->err, BITNET_MODEL, "%s: key %s: %d %s", bnet_gguf_path(r->g),
                     full_key(r, suffix, key, sizeof key), value, why);
}

static void read_sizes(reader *r, bnet_hparams *h)
{
    read_int(r, "block_count", 1, 1024, true, &h->n_layers);
    read_int(r, "embedding_length", 1, 1 << 20, true, &h->n_embd);
    read_int(r, "feed_forward_length", 1, 1 << 22, true, &h->n_ff);
    read_int(r, "attention.head_count", 1, 4096, true, &h->n_heads);
    h->n_kv_heads = h->n_heads;
    read_int(r, "attention.head_count_kv", 1, 4096, false, &h->n_kv_heads);
    h->n_ctx_train = 2048;
    read_int(r, "context_length", 1, 1 << 24, false, &h->n_ctx_train);
    read_float(r, "attention.layer_norm_rms_epsilon", 1e-12, 1.0, true, &h->rms_eps);
    h->rope_base = 10000.0f;
    read_float(r, "rope.freq_base", 1e-3, 1e12, false, &h->rope_base);
}

static void read_heads(reader *r, bnet_hparams *h)
{
    if (r->st != BITNET_OK)
        return;
    bool given = read_int(r, "attention.key_length", 1, BNET_HEAD_DIM_MAX, false, &h->head_dim);
    if (!given && h->n_embd % h->n_heads != 0)
        r->st = refuse(r, "attention.head_count", h->n_heads, "does not divide embedding_length");
    else if (!given)
        h->head_dim = h->n_embd / h->n_heads;
    if (r->st == BITNET_OK && h->head_dim > BNET_HEAD_DIM_MAX)
        r->st = refuse(r, "attention.head_count", h->n_heads, "gives heads larger than 1024");
    int v_len = h->head_dim;
    read_int(r, "attention.value_length", 1, BNET_HEAD_DIM_MAX, false, &v_len);
    if (r->st == BITNET_OK && v_len != h->head_dim)
        r->st =
            refuse(r, "attention.value_length", v_len, "differs from key_length: not supported");
    if (r->st == BITNET_OK && h->n_heads % h->n_kv_heads != 0)
        r->st = refuse(r, "attention.head_count_kv", h->n_kv_heads, "does not divide head_count");
    h->n_rot = h->head_dim;
    read_int(r, "rope.dimension_count", 2, BNET_HEAD_DIM_MAX, false, &h->n_rot);
    if (r->st == BITNET_OK && (h->n_rot % 2 != 0 || h->n_rot > h->head_dim))
        r->st = refuse(r, "rope.dimension_count", h->n_rot, "is odd or larger than the head size");
}

static void check_rope_scaling(reader *r)
{
    char key[96], quoted[64];
    bnet_span type;
    bool found = false;
    float factor = 1.0f;
    read_float(r, "rope.scaling.factor", 1e-6, 1e6, false, &factor);
    if (r->st != BITNET_OK)
        return;
    full_key(r, "rope.scaling.type", key, sizeof key);
    r->st = bnet_gguf_string(r->g, key, &type, &found, r->err);
    if (r->st == BITNET_OK && found && factor != 1.0f &&
        !(type.n == 4 && memcmp(type.data, "none", 4) == 0))
        r->st = bnet_fail(r->err, BITNET_MODEL, "%s: key %s: '%s' with factor %g is not supported",
                          bnet_gguf_path(r->g), key,
                          bnet_quote(type.data, type.n, quoted, sizeof quoted), (double)factor);
}

/* The gate's activation of arch `bitnet`: the file's word if it has one, else squared ReLU for the
 * 2B-4T shape only. */
static void decide_activation(reader *r, const struct arch *a, bnet_hparams *h)
{
    char key[96], quoted[64];
    bnet_span s;
    bool found = false;
    h->act = a->act == RELU2 ? BNET_ACT_RELU2 : BNET_ACT_SILU;
    if (r->st != BITNET_OK || a->act == SILU)
        return;
    r->st = bnet_gguf_string(r->g, full_key(r, "hidden_activation", key, sizeof key), &s, &found,
                             r->err);
    if (r->st != BITNET_OK)
        return;
    if (!found && a->act == BY_FILE && h->n_layers == 30 && h->n_embd == 2560 && h->n_ff == 6912)
        h->act = BNET_ACT_RELU2;
    if (!found)
        return;
    if (s.n == 5 && memcmp(s.data, "relu2", 5) == 0)
        h->act = BNET_ACT_RELU2;
    else if (s.n == 4 && memcmp(s.data, "silu", 4) == 0)
        h->act = BNET_ACT_SILU;
    else
        r->st = bnet_fail(
            r->err, BITNET_MODEL, "%s: key %s: '%s' is not supported; supported: relu2, silu",
            bnet_gguf_path(r->g), key, bnet_quote(s.data, s.n, quoted, sizeof quoted));
}

bitnet_status bnet_hparams_read(const bnet_gguf *g, bnet_hparams *out, bitnet_error *err)
{
    const struct arch *a = NULL;
    bnet_hparams h = {0};
    bitnet_status st = find_arch(g, &a, err);
    if (st != BITNET_OK)
        return st;
    snprintf(h.arch, sizeof h.arch, "%s", a->name);
    h.rope_neox = a->rope == NEOX;
    h.ternary_required = a->ternary;
    reader r = {g, a->name, BITNET_OK, err};
    read_sizes(&r, &h);
    read_heads(&r, &h);
    check_rope_scaling(&r);
    decide_activation(&r, a, &h);
    if (r.st == BITNET_OK)
        *out = h;
    return r.st;
}
