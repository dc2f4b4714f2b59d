/* tiny.h - a small model made in code: every tensor's values are a function of its name, so that
 * files of different types hold the same network and a naive reference can recompute it without
 * reading them. */
#ifndef TEST_TINY_H
#define TEST_TINY_H

#include <math.h>
#include <unistd.h>

#include "format/codec.h"
#include "format/gguf.h"
#include "model/model.h"

typedef struct tiny {
    const char *arch;
    int n_layers, n_embd, n_ff, n_heads, n_kv, head_dim, n_vocab, n_rot;
    float eps, base;
    bool sub_norms, untied, rope_freqs, relu2_key, silu_key;
    bnet_type type, embd_type;
    bitnet_i2s_layout layout;
    bool mixed_scales; /* TQ: block scales differ */
    /* faults: each names what is wrong with the file */
    const char *drop;     /* tensor left out */
    const char *reshape;  /* tensor with one row (or element) too many */
    const char *extra;    /* an additional F32[1] tensor of this name */
    const char *bad_type; /* this matrix is written as F32 noise */
    const char *nan_in;   /* tensor whose scale (I2_S) or first value is NaN */
    const char *drop_key; /* key left out */
    const char *int_key;  /* "<suffix>" to overwrite ... */
    int int_value;        /* ... with this */
    const char *string_key, *string_value;
    bool code_3; /* one invalid code in blk.0.attn_q.weight */
    float scale; /* value of `extra`; 0: 0.5 */
} tiny;

static inline tiny tiny_default(void)
{
    return (tiny){.arch = "bitnet-b1.58",
                  .n_layers = 2,
                  .n_embd = 256,
                  .n_ff = 512,
                  .n_heads = 4,
                  .n_kv = 2,
                  .head_dim = 64,
                  .n_vocab = 24,
                  .n_rot = 64,
                  .eps = 1e-5f,
                  .base = 10000.0f,
                  .sub_norms = true,
                  .type = BNET_I2_S,
                  .embd_type = BNET_F32};
}

static inline uint64_t tiny_hash(const char *name, uint64_t i)
{
    uint64_t h = 1469598103934665603u ^ (i * 0x9e3779b97f4a7c15u);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    return h ^ h >> 32;
}

static inline int tiny_trit(const char *name, uint64_t i)
{
    return (int)(tiny_hash(name, i) % 3) - 1;
}

/* Scales are powers of two, so that every float type holds them exactly. */
static inline float tiny_scale(const tiny *t, const char *name, uint64_t i)
{
    float s = strstr(name, "ffn") ? 0.0625f : 0.125f;
    return t->mixed_scales && i / 256 % 2 ? 2 * s : s; /* of the file; see tiny_weight */
}

static inline float tiny_value(const char *name, uint64_t i)
{
    bool norm = strstr(name, "norm") != NULL;
    float noise = (float)(int32_t)(tiny_hash(name, i) >> 40) / 16777216.0f;
    return norm ? 0.5f + noise : 2 * noise - 1;
}

static inline float tiny_weight(const tiny *t, const char *name, uint64_t i)
{
    size_t n = strlen(name) - strlen("weight");
    bool halved = t->extra && strstr(t->extra, ".scale") && strncmp(t->extra, name, n) == 0;
    if (t->bad_type && strcmp(name, t->bad_type) == 0)
        return tiny_value(name, i);
    return (float)tiny_trit(name, i) * tiny_scale(t, name, i) * (halved ? 0.5f : 1.0f);
}

typedef struct tiny_tensor {
    char name[64];
    bnet_type type;
    uint64_t ne[2];
    bool projection;
} tiny_tensor;

static inline void tiny_add(const tiny *t, tiny_tensor *list, int *n, const char *name,
                            bnet_type type, int n_in, int n_out)
{
    if (t->drop && strcmp(t->drop, name) == 0)
        return;
    tiny_tensor *x = &list[(*n)++];
    snprintf(x->name, sizeof x->name, "%s", name);
    x->projection = strstr(name, "attn_q.w") || strstr(name, "attn_k.w") ||
                    strstr(name, "attn_v.w") || strstr(name, "attn_output.w") ||
                    strstr(name, "ffn_gate.w") || strstr(name, "ffn_up.w") ||
                    strstr(name, "ffn_down.w");
    bool noisy = t->bad_type && strcmp(t->bad_type, name) == 0;
    x->type = x->projection && !noisy ? t->type : noisy ? BNET_F32 : type;
    x->ne[0] = (uint64_t)n_in;
    x->ne[1] = (uint64_t)n_out;
    if (t->reshape && strcmp(t->reshape, name) == 0)
        x->ne[n_out > 0 ? 1 : 0]++;
}

static inline int tiny_list(const tiny *t, tiny_tensor *list)
{
    int n = 0, q = t->n_heads * t->head_dim, kv = t->n_kv * t->head_dim;
    char name[64];
    const struct {
        const char *suffix;
        int n_in, n_out;
        bool wanted;
    } rows[] = {{"attn_norm", t->n_embd, 0, true},     {"attn_q", t->n_embd, q, true},
                {"attn_k", t->n_embd, kv, true},       {"attn_v", t->n_embd, kv, true},
                {"attn_sub_norm", q, 0, t->sub_norms}, {"attn_output", q, t->n_embd, true},
                {"ffn_norm", t->n_embd, 0, true},      {"ffn_gate", t->n_embd, t->n_ff, true},
                {"ffn_up", t->n_embd, t->n_ff, true},  {"ffn_sub_norm", t->n_ff, 0, t->sub_norms},
                {"ffn_down", t->n_ff, t->n_embd, true}};
    tiny_add(t, list, &n, "token_embd.weight", t->embd_type, t->n_embd, t->n_vocab);
    for (int l = 0; l < t->n_layers; l++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, rows[i].suffix);
            if (rows[i].wanted)
                tiny_add(t, list, &n, name, BNET_F32, rows[i].n_in, rows[i].n_out);
        }
    tiny_add(t, list, &n, "output_norm.weight", BNET_F32, t->n_embd, 0);
    if (t->untied)
        tiny_add(t, list, &n, "output.weight", BNET_F16, t->n_embd, t->n_vocab);
    if (t->rope_freqs)
        tiny_add(t, list, &n, "rope_freqs.weight", BNET_F32, t->n_rot / 2, 0);
    if (t->extra)
        tiny_add(t, list, &n, t->extra, BNET_F32, 1, 0);
    return n;
}

static inline float tiny_plain(const tiny *t, const char *name, uint64_t i)
{
    if (t->nan_in && strcmp(t->nan_in, name) == 0 && i == 0)
        return NAN;
    if (strcmp(name, "rope_freqs.weight") == 0)
        return 1.0f + 0.25f * (float)(i % 4);
    if (strstr(name, ".scale"))
        return t->scale != 0 ? t->scale : 0.5f;
    return tiny_value(name, i);
}

static inline void tiny_write_i2s(const tiny *t, bnet_gguf_writer *w, const tiny_tensor *x)
{
    uint64_t n = x->ne[0] * x->ne[1];
    uint8_t *data = calloc(n / 4 + 32, 1);
    int8_t *row = malloc(x->ne[0]);
    for (uint64_t r = 0; r < x->ne[1]; r++) {
        for (uint64_t i = 0; i < x->ne[0]; i++)
            row[i] = (int8_t)tiny_trit(x->name, r * x->ne[0] + i);
        bnet_i2s_encode_row(t->layout, data, x->ne[0], r, row);
    }
    if (t->code_3 && strcmp(x->name, "blk.0.attn_q.weight") == 0)
        data[5] |= 3;
    bnet_put_f32(data + n / 4,
                 t->nan_in && strcmp(t->nan_in, x->name) == 0 ? NAN : tiny_scale(t, x->name, 0));
    assert_int_equal(bnet_gguf_data(w, data, n / 4 + 32, NULL), BITNET_OK);
    free(data);
    free(row);
}

static inline void tiny_write_tensor(const tiny *t, bnet_gguf_writer *w, const tiny_tensor *x)
{
    if (x->type == BNET_I2_S) {
        tiny_write_i2s(t, w, x);
        return;
    }
    uint64_t n_bytes = 0, n_rows = x->ne[1] ? x->ne[1] : 1;
    assert_true(bnet_type_bytes(x->type, x->ne[0], 1, &n_bytes));
    float *f = malloc(x->ne[0] * sizeof *f);
    uint8_t *row = malloc(n_bytes);
    for (uint64_t r = 0; r < n_rows; r++) {
        for (uint64_t i = 0; i < x->ne[0]; i++)
            f[i] = x->projection ? tiny_weight(t, x->name, r * x->ne[0] + i)
                                 : tiny_plain(t, x->name, r * x->ne[0] + i);
        assert_true(bnet_encode_row(x->type, f, row, x->ne[0]));
        assert_int_equal(bnet_gguf_data(w, row, n_bytes, NULL), BITNET_OK);
    }
    free(f);
    free(row);
}

static inline void tiny_int(const tiny *t, bnet_gguf_writer *w, const char *suffix, int v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", t->arch, suffix);
    if (t->drop_key && strcmp(t->drop_key, suffix) == 0)
        return;
    bnet_gguf_put_u32(w, key,
                      (uint32_t)(t->int_key && strcmp(t->int_key, suffix) == 0 ? t->int_value : v));
}

static inline void tiny_keys(const tiny *t, bnet_gguf_writer *w)
{
    char key[96];
    if (!t->drop_key || strcmp(t->drop_key, "general.architecture") != 0)
        bnet_gguf_put_string(w, "general.architecture", t->arch, strlen(t->arch));
    tiny_int(t, w, "block_count", t->n_layers);
    tiny_int(t, w, "embedding_length", t->n_embd);
    tiny_int(t, w, "feed_forward_length", t->n_ff);
    tiny_int(t, w, "attention.head_count", t->n_heads);
    tiny_int(t, w, "attention.head_count_kv", t->n_kv);
    tiny_int(t, w, "context_length", 512);
    if (t->head_dim * t->n_heads != t->n_embd)
        tiny_int(t, w, "attention.key_length", t->head_dim);
    tiny_int(t, w, "attention.value_length", t->head_dim);
    tiny_int(t, w, "rope.dimension_count", t->n_rot);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", t->arch);
    if (!t->drop_key || strcmp(t->drop_key, "attention.layer_norm_rms_epsilon") != 0)
        bnet_gguf_put_f32(w, key, t->eps);
    snprintf(key, sizeof key, "%s.rope.freq_base", t->arch);
    bnet_gguf_put_f32(w, key, t->base);
    snprintf(key, sizeof key, "%s.hidden_activation", t->arch);
    if (t->relu2_key || t->silu_key)
        bnet_gguf_put_string(w, key, t->relu2_key ? "relu2" : "silu", t->relu2_key ? 5 : 4);
    snprintf(key, sizeof key, "%s.%s", t->arch, t->string_key ? t->string_key : "");
    if (t->string_key)
        bnet_gguf_put_string(w, key, t->string_value, strlen(t->string_value));
}

/* Writes the file; the path stands in buf. */
static inline void tiny_file(const tiny *t, char *buf, size_t cap)
{
    static tiny_tensor list[64];
    int n = tiny_list(t, list);
    bitnet_error err;
    const char *folder = access(TEST_BINARY_DIR, W_OK) == 0 ? TEST_BINARY_DIR : "/tmp";
    snprintf(buf, cap, "%s/tiny-%d.gguf", folder, (int)getpid());
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    tiny_keys(t, w);
    for (int i = 0; i < n; i++)
        bnet_gguf_declare(w, list[i].name, list[i].type, list[i].ne, list[i].ne[1] ? 2 : 1);
    if (bnet_gguf_begin(w, buf, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    for (int i = 0; i < n; i++)
        tiny_write_tensor(t, w, &list[i]);
    if (bnet_gguf_finish(w, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    bnet_gguf_writer_free(w);
}

/* The three steps of readying a timeline for writing, as one. */
static inline bitnet_status tiny_reserve(bnet_kv *kv, int n_valid, int n_pos, bitnet_error *err)
{
    bnet_kv_taken t = bnet_kv_take(kv, n_valid, n_pos);
    bitnet_status st = bnet_kv_ready(kv, &t, err);
    bnet_kv_settle(kv, &t, st == BITNET_OK);
    return st;
}

#endif
