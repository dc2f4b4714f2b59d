/* llama2c.c - llama2.c checkpoints: a float model .bin (legacy, or version 1 with its "ak42" mark)
 * and a tokenizer .bin. Rope is already of adjacent pairs there, so rows keep their order. */
#include <stdio.h>

#include "convert/plan.h"
#include "convert/vocab.h"

#define MAGIC         0x616b3432u /* "ak42" */
#define MAX_TOKENIZER (64u << 20)
#define MAX_TOKEN     65536

typedef struct header {
    int32_t dim, hidden, n_layers, n_heads, n_kv_heads, n_vocab, n_ctx;
    bool shared;      /* the head is the embedding */
    size_t n_header;  /* bytes before the weights */
    bool norms_first; /* version 1 stores all norms before the matrices */
} header;

typedef struct conversion {
    const char *path;
    bnet_map map;
    header h;
    uint64_t at; /* next unread byte of the map */
    bnet_plan plan;
    const bnet_convert_options *options;
    bitnet_error *err;
} conversion;

/* ---- the header ---- */

static bitnet_status check_header(const conversion *c)
{
    const header *h = &c->h;
    const struct {
        const char *name;
        int32_t v, hi;
    } rows[] = {{"dim", h->dim, 1 << 20},
                {"hidden_dim", h->hidden, 1 << 22},
                {"n_layers", h->n_layers, 4096},
                {"n_heads", h->n_heads, 65536},
                {"n_kv_heads", h->n_kv_heads, 65536},
                {"vocab_size", h->n_vocab, 1 << 24},
                {"seq_len", h->n_ctx, INT32_MAX}};
    for (size_t i = 0; i < BNET_COUNT(rows); i++)
        if (rows[i].v < 1 || rows[i].v > rows[i].hi)
            return bnet_fail(c->err, BITNET_MODEL,
                             "%s: not a llama2.c model: field %s is %d, outside 1..%d", c->path,
                             rows[i].name, rows[i].v, rows[i].hi);
    if (h->dim % h->n_heads || h->n_heads % h->n_kv_heads || h->dim / h->n_heads % 2)
        return bnet_fail(c->err, BITNET_MODEL,
                         "%s: dim %d, n_heads %d and n_kv_heads %d do not divide into even heads",
                         c->path, h->dim, h->n_heads, h->n_kv_heads);
    return BITNET_OK;
}

static void take_fields(header *h, const uint8_t *p)
{
    int32_t *const fields[] = {&h->dim,        &h->hidden,  &h->n_layers, &h->n_heads,
                               &h->n_kv_heads, &h->n_vocab, &h->n_ctx};
    for (size_t i = 0; i < BNET_COUNT(fields); i++)
        *fields[i] = (int32_t)bnet_u32(p + 4 * i);
}

/* What a file is that is no llama2.c model; NULL: not known. */
static const char *known_kind(const uint8_t *p, size_t n)
{
    if (n >= 4 && memcmp(p, "GGUF", 4) == 0)
        return "is a GGUF file already";
    if (n >= 4 && (memcmp(p, "PK\3\4", 4) == 0 || (p[0] == 0x80 && p[1] <= 5 && p[1] >= 2)))
        return "is a pickle, which can run code and is never read; save the model as safetensors";
    if (n >= 9 && p[8] == '{')
        return "is a safetensors file; give its directory, with config.json and tokenizer.json in "
               "it";
    return NULL;
}

static bitnet_status read_versioned(conversion *c)
{
    const uint8_t *p = c->map.data;
    uint32_t version = bnet_u32(p + 4);
    if (version != 1)
        return bnet_fail(c->err, BITNET_MODEL,
                         "%s: llama2.c version %u%s is not supported; export as version 0 or 1 "
                         "(float32)",
                         c->path, version, version == 2 ? " (int8)" : "");
    take_fields(&c->h, p + 8);
    c->h.shared = p[36] != 0;
    c->h.n_header = 256;
    c->h.norms_first = true;
    return check_header(c);
}

static bitnet_status read_header(conversion *c)
{
    const uint8_t *p = c->map.data;
    size_t n = c->map.n_bytes;
    const char *kind = known_kind(p, n);
    if (kind)
        return bnet_fail(c->err, BITNET_MODEL, "%s: %s", c->path, kind);
    bool versioned = n >= 4 && bnet_u32(p) == MAGIC;
    if (n < (versioned ? 256u : 28u))
        return bnet_fail(c->err, BITNET_MODEL, "%s: %zu bytes: too short for a llama2.c model",
                         c->path, n);
    if (versioned)
        return read_versioned(c);
    take_fields(&c->h, p);
    c->h.shared = c->h.n_vocab > 0;
    if (c->h.n_vocab < 0 && c->h.n_vocab != INT32_MIN)
        c->h.n_vocab = -c->h.n_vocab;
    c->h.n_header = 28;
    return check_header(c);
}

/* ---- weights ---- */

typedef struct part {
    const char *gguf; /* "blk.%d.x", or a whole name, or NULL to skip */
    bool per_layer, matrix, head;
    uint64_t rows, cols; /* rows 1: a vector; 0: not in this file */
} part;

/* Advances over n f32 values; fails where the file ends before. */
static bitnet_status take(conversion *c, uint64_t n, const char *what, const uint8_t **out)
{
    uint64_t n_bytes, end;
    if (!bnet_mul(n, 4, &n_bytes) || !bnet_add(c->at, n_bytes, &end) || end > c->map.n_bytes)
        return bnet_fail(
            c->err, BITNET_MODEL,
            "%s: %s needs %llu values at offset 0x%llx, behind the end of the file (%zu "
            "bytes)",
            c->path, what, (unsigned long long)n, (unsigned long long)c->at, c->map.n_bytes);
    *out = c->map.data + c->at;
    c->at = end;
    return BITNET_OK;
}

static bitnet_status add_part(conversion *c, const part *p, int layer)
{
    bnet_item item = {.kind = BNET_ITEM_FLOAT,
                      .n_dims = p->matrix || p->head ? 2 : 1,
                      .n_rows = p->rows,
                      .n_cols = p->cols,
                      .source_type = BNET_F32,
                      .path = c->path};
    item.type = p->matrix ? c->options->weight_type
                : p->head ? c->options->embedding_type
                          : BNET_F32;
    if (p->per_layer)
        snprintf(item.name, sizeof item.name, "blk.%d.%s.weight", layer, p->gguf);
    else
        snprintf(item.name, sizeof item.name, "%s.weight", p->gguf ? p->gguf : "unused");
    bitnet_status st = take(c, p->rows * p->cols, item.name, &item.data);
    if (st != BITNET_OK || !p->gguf)
        return st;
    return bnet_plan_add(&c->plan, &item, item.name, c->err);
}

/* Every part of a file in order, those with no rows left out: a legacy file has its norms among the
 * matrices and a table of rotations behind them, a versioned one begins with the norms. */
static bitnet_status add_parts(conversion *c)
{
    const header *h = &c->h;
    const uint64_t d = (uint64_t)h->dim, f = (uint64_t)h->hidden, v = (uint64_t)h->n_vocab,
                   hd = d / (uint64_t)h->n_heads, kv = hd * (uint64_t)h->n_kv_heads,
                   first = h->norms_first, among = !h->norms_first;
    const part parts[] = {{"attn_norm", true, false, false, first, d},
                          {"ffn_norm", true, false, false, first, d},
                          {"output_norm", false, false, false, first, d},
                          {"token_embd", false, false, true, v, d},
                          {"attn_norm", true, false, false, among, d},
                          {"attn_q", true, true, false, d, d},
                          {"attn_k", true, true, false, kv, d},
                          {"attn_v", true, true, false, kv, d},
                          {"attn_output", true, true, false, d, d},
                          {"ffn_norm", true, false, false, among, d},
                          {"ffn_gate", true, true, false, f, d},
                          {"ffn_down", true, true, false, d, f},
                          {"ffn_up", true, true, false, f, d},
                          {"output_norm", false, false, false, among, d},
                          {NULL, false, false, false, among * (uint64_t)h->n_ctx, hd},
                          {"output", false, false, true, h->shared ? 0 : v, d}};
    bitnet_status st = BITNET_OK;
    for (size_t i = 0; i < BNET_COUNT(parts); i++) {
        int n = !parts[i].rows ? 0 : parts[i].per_layer ? h->n_layers : 1;
        for (int layer = 0; st == BITNET_OK && layer < n; layer++)
            st = add_part(c, &parts[i], layer);
    }
    return st;
}

static bitnet_status make_plan(conversion *c)
{
    c->at = c->h.n_header;
    bitnet_status st = add_parts(c);
    if (st != BITNET_OK)
        return st;
    if (c->at != c->map.n_bytes)
        return bnet_fail(
            c->err, BITNET_MODEL,
            "%s: %llu bytes behind the last weight (offset 0x%llx): not a llama2.c model "
            "of these dimensions",
            c->path, (unsigned long long)(c->map.n_bytes - c->at), (unsigned long long)c->at);
    return BITNET_OK;
}

/* ---- the tokenizer ---- */

/* Spaces were decoded when the file was made: they become U+2581 again. */
static bool store_piece(bnet_vocab *v, const char *s, size_t n, bnet_vocab_text *out)
{
    *out = (bnet_vocab_text){(uint32_t)v->text.n, 0};
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ')
            bnet_str_puts(&v->text, "\xe2\x96\x81");
        else
            bnet_str_putc(&v->text, s[i]);
    }
    out->n = (uint32_t)(v->text.n - out->at);
    return !v->text.failed;
}

static bool is_byte_piece(const char *s, size_t n, size_t id)
{
    char want[8];
    snprintf(want, sizeof want, "<0x%02X>", (unsigned)(id - 3) & 255);
    return id >= 3 && id < 259 && n == 6 && memcmp(s, want, 6) == 0;
}

static bool store_token(bnet_vocab *v, size_t id, const char *s, size_t n, float score)
{
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    bnet_vocab_token *t = &v->tokens[id];
    t->score = score;
    if (id < 3) {
        t->type = id == 0 ? BNET_TOKEN_UNKNOWN : BNET_TOKEN_CONTROL;
        return bnet_vocab_store(v, special[id], strlen(special[id]), &t->text);
    }
    t->type = is_byte_piece(s, n, id) ? BNET_TOKEN_BYTE : BNET_TOKEN_NORMAL;
    return store_piece(v, s, n, &t->text);
}

static bitnet_status read_pieces(bnet_vocab *v, const char *path, const char *data, size_t n,
                                 bitnet_error *err)
{
    size_t at = 4;
    for (size_t id = 0; id < v->n_tokens; id++) {
        if (n < 8 || at > n - 8)
            return bnet_fail(err, BITNET_TOKENIZER,
                             "%s: ends at token %zu (offset 0x%zx); the model has %zu", path, id,
                             at, v->n_tokens);
        float score = bnet_f32(data + at);
        int32_t len = (int32_t)bnet_u32(data + at + 4);
        at += 8;
        if (len < 1 || len > MAX_TOKEN || (size_t)len > n - at)
            return bnet_fail(err, BITNET_TOKENIZER,
                             "%s: token %zu: length %d does not fit the file (offset 0x%zx)", path,
                             id, len, at - 4);
        if (!(score == score))
            return bnet_fail(err, BITNET_TOKENIZER,
                             "%s: token %zu: score is not a number (offset 0x%zx)", path, id,
                             at - 8);
        if (!store_token(v, id, data + at, (size_t)len, score))
            return bnet_no_memory(err, path);
        at += (size_t)len;
    }
    if (at != n)
        return bnet_fail(err, BITNET_TOKENIZER,
                         "%s: %zu bytes behind token %zu, the model's last: a tokenizer of another "
                         "model?",
                         path, n - at, v->n_tokens - 1);
    return BITNET_OK;
}

static bitnet_status read_tokenizer(const conversion *c, bnet_vocab *out)
{
    const char *path = c->options->tokenizer;
    char *data = NULL;
    size_t n = 0;
    bnet_vocab v = {0};
    if (!path)
        return bnet_fail(c->err, BITNET_ARGUMENT,
                         "%s: a llama2.c model needs its tokenizer .bin; use --tokenizer FILE",
                         c->path);
    if (c->h.n_vocab < 4)
        return bnet_fail(c->err, BITNET_MODEL,
                         "%s: field vocab_size is %d; at least 4 was expected", c->path,
                         c->h.n_vocab);
    bitnet_status st = bnet_read_file(path, MAX_TOKENIZER, &data, &n, c->err);
    if (st != BITNET_OK)
        return st;
    st = bnet_vocab_init(&v, (size_t)c->h.n_vocab) ? read_pieces(&v, path, data, n, c->err)
                                                   : bnet_no_memory(c->err, path);
    bnet_free(data);
    if (st != BITNET_OK) {
        bnet_vocab_free(&v);
        return st;
    }
    v.model = "llama";
    v.pre = "default";
    v.add_bos = 1;
    v.add_space_prefix = true;
    v.unk = 0;
    v.bos = 1;
    v.eos = 2;
    *out = v;
    return BITNET_OK;
}

/* ---- the whole ---- */

static void model_name(const char *path, char *buf, size_t cap)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    size_t n = dot && dot != base ? (size_t)(dot - base) : strlen(base);
    snprintf(buf, cap, "%.*s", (int)BNET_MIN(n, cap - 1), base);
}

static bitnet_status write_out(conversion *c, const char *out)
{
    char name[128];
    bnet_vocab vocab;
    const header *h = &c->h;
    bitnet_status st = read_tokenizer(c, &vocab);
    if (st != BITNET_OK)
        return st;
    model_name(c->path, name, sizeof name);
    bnet_shape shape = {.arch = "llama",
                        .name = name,
                        .activation = "silu",
                        .repository = "",
                        .n_vocab = (uint32_t)h->n_vocab,
                        .n_ctx = (uint32_t)h->n_ctx,
                        .n_embd = (uint32_t)h->dim,
                        .n_layers = (uint32_t)h->n_layers,
                        .n_ff = (uint32_t)h->hidden,
                        .head_dim = (uint32_t)(h->dim / h->n_heads),
                        .n_heads = (uint32_t)h->n_heads,
                        .n_kv_heads = (uint32_t)h->n_kv_heads,
                        .eps = 1e-5f,
                        .rope_base = 10000};
    return bnet_plan_write(&c->plan, &shape, &vocab, out, c->err);
}

bitnet_status bnet_convert_llama2c(const char *path, const char *out,
                                   const bnet_convert_options *options, bitnet_error *err)
{
    conversion c = {.path = path, .plan = {.options = options}, .options = options, .err = err};
    bitnet_status st = bnet_map_open(path, &c.map, err);
    if (st == BITNET_OK)
        st = read_header(&c);
    if (st == BITNET_OK && bnet_type_is_ternary(options->weight_type))
        st = bnet_fail(err, BITNET_ARGUMENT,
                       "%s: the weights are not ternary; use --type f16 or --type f32", path);
    if (st == BITNET_OK)
        st = make_plan(&c);
    if (st == BITNET_OK)
        st = write_out(&c, out);
    bnet_plan_free(&c.plan);
    bnet_map_close(&c.map);
    return st;
}
