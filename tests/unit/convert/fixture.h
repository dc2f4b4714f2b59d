/* fixture.h - small checkpoints written to a folder of their own, for the tests of convert/. Every
 * weight is a function of its name, row and column, so that a test computes what the output must
 * hold without reading the input. */
#ifndef CONVERT_FIXTURE_H
#define CONVERT_FIXTURE_H

#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "test.h"

#include "base/file.h"
#include "base/str.h"

#define FX_WIDTH    256
#define FX_FF       512
#define FX_HEADS    4
#define FX_KV       2
#define FX_HEAD_DIM 64
#define FX_VOCAB    300
#define FX_LAYERS   2

/* ---- folders and files ---- */

/* "dir/name" into a buffer that is large enough, or the test fails. */
static inline char *fx_path(const char *dir, const char *name, char *buf, size_t cap)
{
    int n = snprintf(buf, cap, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= cap)
        fail_msg("path too long: %s/%s", dir, name);
    return buf;
}

static inline void fx_make_dir(char *buf, size_t cap)
{
    fx_path(TEST_BINARY_DIR, "fixture.XXXXXX", buf, cap);
    if (!mkdtemp(buf))
        fail_msg("cannot make %s", buf);
}

static inline void fx_remove_dir(const char *dir)
{
    char path[1024];
    struct dirent *e;
    DIR *d = opendir(dir);
    while (d && (e = readdir(d)) != NULL) {
        fx_path(dir, e->d_name, path, sizeof path);
        unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(dir);
}

/* Number of entries of a folder whose name contains `part`. */
static inline int fx_count(const char *dir, const char *part)
{
    int n = 0;
    struct dirent *e;
    DIR *d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d)) != NULL)
        n += strstr(e->d_name, part) != NULL;
    closedir(d);
    return n;
}

static inline void fx_write(const char *dir, const char *name, const void *data, size_t n)
{
    char path[1024];
    fx_path(dir, name, path, sizeof path);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        fail_msg("cannot write %s", path);
}

static inline void fx_write_text(const char *dir, const char *name, const char *text)
{
    fx_write(dir, name, text, strlen(text));
}

/* `base` with the first occurrence of `from` replaced; from NULL: `to` alone. Free with free(). */
static inline char *fx_replace(const char *base, const char *from, const char *to)
{
    if (!from)
        return strdup(to);
    const char *at = strstr(base, from);
    if (!at)
        fail_msg("the fixture has no %s", from);
    size_t head = (size_t)(at - base), n = strlen(base) - strlen(from) + strlen(to) + 1;
    char *out = malloc(n);
    assert_non_null(out);
    snprintf(out, n, "%.*s%s%s", (int)head, base, to, at + strlen(from));
    return out;
}

/* ---- safetensors ---- */

typedef struct fx_file {
    bnet_str header, data;
} fx_file;

static inline void fx_add(fx_file *f, const char *name, const char *dtype, const uint64_t *shape,
                          int n_dims, const void *data, size_t n)
{
    bnet_str_addf(&f->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", f->header.n ? "," : "{",
                  name, dtype);
    for (int i = 0; i < n_dims; i++)
        bnet_str_addf(&f->header, "%s%llu", i ? "," : "", (unsigned long long)shape[i]);
    bnet_str_addf(&f->header, "],\"data_offsets\":[%zu,%zu]}", f->data.n, f->data.n + n);
    bnet_str_add(&f->data, data, n);
}

/* Header length, header, data: the bytes of a file, NUL behind. Free out->data with bnet_str_free.
 */
static inline void fx_join(const char *header, const void *data, size_t n_data, bnet_str *out)
{
    uint8_t len[8];
    bnet_put_u64(len, strlen(header));
    bnet_str_add(out, len, 8);
    bnet_str_puts(out, header);
    bnet_str_add(out, data, n_data);
}

static inline void fx_finish(fx_file *f, const char *dir, const char *name)
{
    bnet_str bytes = {0};
    bnet_str_puts(&f->header, f->header.n ? "}" : "{}");
    fx_join(f->header.data, f->data.data, f->data.n, &bytes);
    fx_write(dir, name, bytes.data, bytes.n);
    bnet_str_free(&bytes);
    bnet_str_free(&f->header);
    bnet_str_free(&f->data);
}

/* ---- weights by formula ---- */

static inline uint64_t fx_hash(const char *name, uint64_t row, uint64_t col)
{
    uint64_t s = 1469598103934665603u;
    for (; *name; name++)
        s = (s ^ (unsigned char)*name) * 1099511628211u;
    s ^= row * 0x9e3779b97f4a7c15u + col * 0xc2b2ae3d27d4eb4fu;
    return test_rand(&s);
}

static inline int fx_trit(const char *name, uint64_t row, uint64_t col)
{
    return (int)(fx_hash(name, row, col) % 3) - 1;
}

/* A float that bf16, f16 and f32 all hold exactly: k/64 for |k| < 128. */
static inline float fx_value(const char *name, uint64_t row, uint64_t col)
{
    return (float)((int)(fx_hash(name, row, col) % 255) - 127) / 64.0f;
}

/* Powers of two and three halves: exact in bf16, and so are the first's reciprocals. */
static inline float fx_scale(const char *name)
{
    static const float scales[] = {0.5f, 1.0f, 2.0f, 0.25f, 1.5f};
    return scales[fx_hash(name, 0, 0) % 5];
}

static inline uint16_t fx_f16(float x)
{
    int e;
    if (x == 0)
        return 0;
    float m = frexpf(fabsf(x), &e); /* x = m * 2^e, 0.5 <= m < 1: exact and normal here */
    return (uint16_t)((x < 0 ? 0x8000 : 0) | (e + 14) << 10 | ((int)(m * 2048) - 1024));
}

/* `x` in the named type; returns its size. */
static inline size_t fx_put(uint8_t *p, const char *dtype, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (strcmp(dtype, "F32") == 0) {
        bnet_put_u32(p, bits);
        return 4;
    }
    bnet_put_u16(p, strcmp(dtype, "BF16") == 0 ? (uint16_t)(bits >> 16) : fx_f16(x));
    return 2;
}

static inline void fx_add_floats(fx_file *f, const char *name, const char *dtype, uint64_t rows,
                                 uint64_t cols)
{
    uint64_t shape[2] = {rows, cols}, n = (rows ? rows : 1) * cols;
    uint8_t *data = malloc(n * 4), *p = data;
    assert_non_null(data);
    for (uint64_t i = 0; i < n; i++)
        p += fx_put(p, dtype, fx_value(name, i / cols, i % cols));
    fx_add(f, name, dtype, rows ? shape : shape + 1, rows ? 2 : 1, data, (size_t)(p - data));
    free(data);
}

static inline void fx_add_packed(fx_file *f, const char *name, uint64_t rows, uint64_t cols)
{
    char scale_name[160];
    uint64_t packed = (rows + 3) / 4, shape[2] = {packed, cols}, one[1] = {1};
    uint8_t *data = calloc(packed, cols), scale[4];
    assert_non_null(data);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++)
            data[r % packed * cols + c] |= (uint8_t)((fx_trit(name, r, c) + 1) << 2 * (r / packed));
    fx_add(f, name, "U8", shape, 2, data, packed * cols);
    snprintf(scale_name, sizeof scale_name, "%s_scale", name);
    fx_add(f, scale_name, "BF16", one, 1, scale, fx_put(scale, "BF16", fx_scale(name)));
    free(data);
}

/* ---- whole models ---- */

typedef struct fx_model {
    const char *class; /* of config.json */
    const char *act;   /* hidden_act */
    const char *quant; /* text of quantization_config, or NULL */
    const char *dtype; /* "U8" packed, else of the masters */
    const char *extra; /* more keys of config.json, each with a comma before */
    bool sub_norms, old_names, head;
    const char *skip; /* a tensor left out */
    int n_shards;     /* 0: one file */
} fx_model;

#define FX_MULTIPLY                                                                                \
    "{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\",\"quantization_mode\":"       \
    "\"offline\"}"
#define FX_ONLINE                                                                                  \
    "{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\",\"quantization_mode\":"       \
    "\"online\"}"
#define FX_DIVIDE "{\"quant_method\":\"bitnet\",\"linear_class\":\"bitlinear\"}"

static const struct {
    const char *hf, *gguf;
    uint64_t rows, cols;
    int rotary_heads; /* llama: rows reordered in heads */
} fx_linears[] = {
    {"self_attn.q_proj", "attn_q", FX_HEADS *FX_HEAD_DIM, FX_WIDTH, FX_HEADS},
    {"self_attn.k_proj", "attn_k", FX_KV *FX_HEAD_DIM, FX_WIDTH, FX_KV},
    {"self_attn.v_proj", "attn_v", FX_KV *FX_HEAD_DIM, FX_WIDTH, 0},
    {"self_attn.o_proj", "attn_output", FX_WIDTH, FX_HEADS *FX_HEAD_DIM, 0},
    {"mlp.gate_proj", "ffn_gate", FX_FF, FX_WIDTH, 0},
    {"mlp.up_proj", "ffn_up", FX_FF, FX_WIDTH, 0},
    {"mlp.down_proj", "ffn_down", FX_WIDTH, FX_FF, 0},
};

static const struct {
    const char *hf, *old, *gguf;
    uint64_t cols;
    bool sub;
} fx_norms[] = {
    {"input_layernorm", NULL, "attn_norm", FX_WIDTH, false},
    {"post_attention_layernorm", NULL, "ffn_norm", FX_WIDTH, false},
    {"self_attn.attn_sub_norm", "self_attn.inner_attn_ln", "attn_sub_norm", FX_WIDTH, true},
    {"mlp.ffn_sub_norm", "mlp.ffn_layernorm", "ffn_sub_norm", FX_FF, true},
};

static const char fx_config[] = "{\"architectures\":[\"%s\"],\"hidden_act\":\"%s\",\"hidden_size\":"
                                "256,\"intermediate_size\":512,"
                                "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_"
                                "heads\":2,\"vocab_size\":300,"
                                "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"rope_"
                                "theta\":10000.0,\"bos_token_id\":290,"
                                "\"eos_token_id\":[291,292]%s%s%s}";

static const char fx_tokenizer[] =
    "{\"added_tokens\":[{\"id\":290,\"content\":\"<|begin_of_text|>\",\"special\":true},"
    "{\"id\":291,\"content\":\"<|end_of_text|>\",\"special\":true},"
    "{\"id\":292,\"content\":\"<|eot_id|>\",\"special\":true},{\"id\":293,\"content\":\"<tool>\","
    "\"special\":false}],"
    "\"normalizer\":null,"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
    "\"Regex\":"
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":"
    "false,\"use_regex\":false}]},"
    "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"byte_fallback\":false,"
    "\"ignore_merges\":true,"
    "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4},\"merges\":[[\"a\",\"b\"],[\"ab\","
    "\"c\"]]}}";

static inline void fx_shard(const fx_model *m, const char *dir, fx_file *f, bnet_str *index, int i,
                            bool last)
{
    char name[64];
    if (m->n_shards == 0) {
        if (last)
            fx_finish(f, dir, "model.safetensors");
        return;
    }
    snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i + 1, m->n_shards);
    /* the names of the header just closed go into the index */
    for (const char *p = f->header.data; p && (p = strstr(p, "\":{\"dtype")) != NULL; p++) {
        const char *q = p;
        while (q[-1] != '"')
            q--;
        bnet_str_addf(index, "%s\"%.*s\":\"%s\"", index->n ? "," : "", (int)(p - q), q, name);
    }
    fx_finish(f, dir, name);
    if (last) {
        bnet_str all = {0};
        bnet_str_addf(&all, "{\"metadata\":{},\"weight_map\":{%s}}", index->data);
        fx_write(dir, "model.safetensors.index.json", all.data, all.n);
        bnet_str_free(&all);
    }
}

static inline void fx_add_layer(const fx_model *m, fx_file *f, int layer)
{
    char name[128];
    for (size_t i = 0; i < BNET_COUNT(fx_norms); i++) {
        const char *hf = m->old_names && fx_norms[i].old ? fx_norms[i].old : fx_norms[i].hf;
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, hf);
        if ((m->sub_norms || !fx_norms[i].sub) && !(m->skip && strcmp(m->skip, name) == 0))
            fx_add_floats(f, name, "BF16", 0, fx_norms[i].cols);
    }
    for (size_t i = 0; i < BNET_COUNT(fx_linears); i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, fx_linears[i].hf);
        if (m->skip && strcmp(m->skip, name) == 0)
            continue;
        if (strcmp(m->dtype, "U8") == 0)
            fx_add_packed(f, name, fx_linears[i].rows, fx_linears[i].cols);
        else
            fx_add_floats(f, name, m->dtype, fx_linears[i].rows, fx_linears[i].cols);
    }
}

static inline void fx_write_config(const fx_model *m, const char *dir)
{
    bnet_str text = {0};
    bnet_str_addf(&text, fx_config, m->class, m->act, m->extra ? m->extra : "",
                  m->quant ? ",\"quantization_config\":" : "", m->quant ? m->quant : "");
    fx_write(dir, "config.json", text.data, text.n);
    bnet_str_free(&text);
}

/* Three shards at most: the embedding, the layers, the rest. */
static inline void fx_write_model(const fx_model *m, const char *dir)
{
    fx_file f = {0};
    bnet_str index = {0};
    int shard = 0;
    fx_write_config(m, dir);
    fx_write_text(dir, "tokenizer.json", fx_tokenizer);
    fx_add_floats(&f, "model.embed_tokens.weight", "BF16", FX_VOCAB, FX_WIDTH);
    if (m->n_shards == 3)
        fx_shard(m, dir, &f, &index, shard++, false);
    for (int i = 0; i < FX_LAYERS; i++)
        fx_add_layer(m, &f, i);
    if (m->n_shards >= 2)
        fx_shard(m, dir, &f, &index, shard++, false);
    fx_add_floats(&f, "model.norm.weight", "BF16", 0, FX_WIDTH);
    if (m->head)
        fx_add_floats(&f, "lm_head.weight", "BF16", FX_VOCAB, FX_WIDTH);
    fx_shard(m, dir, &f, &index, shard, true);
    bnet_str_free(&index);
}

#endif
