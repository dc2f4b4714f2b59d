/* synthetic.c - models of known shapes without a file: random weights behind a GGUF header in
 * memory that only this process knows, opened like any other file.
 *
 * Invariants: the same shape, head and version give the same bytes; the weights are in
 * synthetic_fill.c. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/synthetic.h"

typedef struct shape {
    const char *name, *arch;
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab, n_ctx;
    float rope_base;
    const char *head;
    bool tied;
    const char *about;
} shape;

static const shape shapes[] = {
#define SHAPE(name, arch, layers, embd, ff, heads, kv, hd, vocab, ctx, base, head, tied, about)    \
    {name, arch, layers, embd, ff, heads, kv, hd, vocab, ctx, base, head, tied, about},
#include "bench/shapes.inc"
#undef SHAPE
};

struct bitnet_synthetic {
    const shape *shape;
    bnet_type head;
    char name[64]; /* "synthetic:2b-4t/q6_k" */
    int fd;
    size_t n_bytes;
};

bool bitnet_synthetic_at(int i, bitnet_synthetic_info *out)
{
    if (i < 0 || (size_t)i >= BNET_COUNT(shapes) || !out)
        return false;
    const shape *s = &shapes[i];
    *out = (bitnet_synthetic_info){s->name,       s->about,    s->arch,   s->head,
                                   s->n_layers,   s->n_embd,   s->n_ff,   s->n_heads,
                                   s->n_kv_heads, s->head_dim, s->n_vocab};
    return true;
}

/* ---- the header ---- */

static void put_sizes(bnet_gguf_writer *w, const bitnet_synthetic *m)
{
    const shape *s = m->shape;
    const struct {
        const char *suffix;
        int value; /* 0: a float */
        float real;
    } rows[] = {
        {"context_length", s->n_ctx, 0},          {"embedding_length", s->n_embd, 0},
        {"block_count", s->n_layers, 0},          {"feed_forward_length", s->n_ff, 0},
        {"attention.head_count", s->n_heads, 0},  {"attention.head_count_kv", s->n_kv_heads, 0},
        {"attention.key_length", s->head_dim, 0}, {"attention.value_length", s->head_dim, 0},
        {"rope.dimension_count", s->head_dim, 0}, {"attention.layer_norm_rms_epsilon", 0, 1e-5f},
        {"rope.freq_base", 0, s->rope_base}};
    bnet_gguf_put_string(w, "general.architecture", s->arch, strlen(s->arch));
    bnet_gguf_put_string(w, "general.name", m->name, strlen(m->name));
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        char key[96];
        snprintf(key, sizeof key, "%s.%s", s->arch, rows[i].suffix);
        if (rows[i].value)
            bnet_gguf_put_u32(w, key, (uint32_t)rows[i].value);
        else
            bnet_gguf_put_f32(w, key, rows[i].real);
    }
}

/* The letter that stands for a byte in a byte-level vocabulary: printable ones for themselves, the
 * others U+0100 and on. Returns its length. */
static int byte_letter(int b, int *n_other, char *out)
{
    bool plain = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    return bnet_utf8_encode((uint32_t)(plain ? b : 256 + (*n_other)++), out);
}

enum { TOKEN_CAP = 8, N_SPECIAL = 2 };

/* The 256 bytes, numbered words, and at the end the two special tokens. */
static void put_tokens(bnet_gguf_writer *w, size_t n, char *text, bnet_span *spans, int32_t *types)
{
    int n_other = 0;
    for (size_t i = 0; i + N_SPECIAL < n; i++) {
        char *at = text + i * TOKEN_CAP;
        int len = i < 256 ? byte_letter((int)i, &n_other, at) : snprintf(at, TOKEN_CAP, "w%zu", i);
        spans[i] = (bnet_span){at, (size_t)len};
        types[i] = 1;
    }
    spans[n - 2] = (bnet_span){"<|begin_of_text|>", 17};
    spans[n - 1] = (bnet_span){"<|end_of_text|>", 15};
    types[n - 2] = types[n - 1] = 3;
    bnet_gguf_put_strings(w, "tokenizer.ggml.tokens", spans, n);
    bnet_gguf_put_array(w, "tokenizer.ggml.token_type", BNET_GGUF_I32, types, n);
}

static bitnet_status put_vocabulary(bnet_gguf_writer *w, const shape *s, bitnet_error *err)
{
    size_t n = (size_t)s->n_vocab;
    char *text = bnet_calloc(n, TOKEN_CAP);
    bnet_span *spans = bnet_calloc(n, sizeof *spans);
    int32_t *types = bnet_calloc(n, sizeof *types);
    bool ok = text && spans && types;
    bnet_gguf_put_string(w, "tokenizer.ggml.model", "gpt2", 4);
    bnet_gguf_put_string(w, "tokenizer.ggml.pre", "llama-bpe", 9);
    if (ok)
        put_tokens(w, n, text, spans, types);
    bnet_gguf_put_strings(w, "tokenizer.ggml.merges", NULL, 0);
    bnet_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)n - 2);
    bnet_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)n - 1);
    bnet_free(text);
    bnet_free(spans);
    bnet_free(types);
    return ok ? BITNET_OK : bnet_no_memory(err, "vocabulary");
}

static void declare(bnet_gguf_writer *w, bnet_type type, int n_in, int n_out, const char *name)
{
    uint64_t ne[2] = {(uint64_t)n_in, (uint64_t)n_out};
    bnet_gguf_declare(w, name, type, ne, n_out ? 2 : 1);
}

static void declare_layer(bnet_gguf_writer *w, const shape *s, int layer)
{
    bool sub_norms = strcmp(s->arch, "llama") != 0;
    int n_q = s->n_heads * s->head_dim, n_kv = s->n_kv_heads * s->head_dim;
    const struct {
        const char *suffix;
        int n_in, n_out; /* n_out 0: a norm */
        bool wanted;
    } rows[] = {{"attn_norm", s->n_embd, 0, true},     {"attn_q", s->n_embd, n_q, true},
                {"attn_k", s->n_embd, n_kv, true},     {"attn_v", s->n_embd, n_kv, true},
                {"attn_sub_norm", n_q, 0, sub_norms},  {"attn_output", n_q, s->n_embd, true},
                {"ffn_norm", s->n_embd, 0, true},      {"ffn_gate", s->n_embd, s->n_ff, true},
                {"ffn_up", s->n_embd, s->n_ff, true},  {"ffn_sub_norm", s->n_ff, 0, sub_norms},
                {"ffn_down", s->n_ff, s->n_embd, true}};
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, rows[i].suffix);
        if (rows[i].wanted)
            declare(w, rows[i].n_out ? BNET_I2_S : BNET_F32, rows[i].n_in, rows[i].n_out, name);
    }
}

static bitnet_status make_head(const bitnet_synthetic *m, bnet_str *head, uint64_t *n_file,
                               bitnet_error *err)
{
    const shape *s = m->shape;
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    if (!w)
        return bnet_no_memory(err, m->name);
    put_sizes(w, m);
    bitnet_status st = put_vocabulary(w, s, err);
    declare(w, m->head, s->n_embd, s->n_vocab, "token_embd.weight");
    for (int i = 0; i < s->n_layers; i++)
        declare_layer(w, s, i);
    declare(w, BNET_F32, s->n_embd, 0, "output_norm.weight");
    if (!s->tied)
        declare(w, m->head, s->n_embd, s->n_vocab, "output.weight");
    if (st == BITNET_OK)
        st = bnet_gguf_head(w, head, n_file, err);
    bnet_gguf_writer_free(w);
    return st;
}

/* ---- the file in memory ---- */

static bitnet_status fail_file(const bitnet_synthetic *m, const char *what, bitnet_error *err)
{
    return bnet_fail(err, BITNET_IO, "%s: cannot %s a file of %zu bytes in memory", m->name, what,
                     m->n_bytes);
}

/* Linux gives a file in memory pages when they are written, and ends the process where it has none.
 */
static bitnet_status check_room(const bitnet_synthetic *m, bitnet_error *err)
{
    bnet_host_room room = bnet_host_room_read("");
    if (m->n_bytes <= room.free)
        return BITNET_OK;
    return bnet_fail(err, BITNET_MEMORY,
                     "%s: the model takes %.3f GiB, free are %.3f GiB (%s); choose a smaller shape",
                     m->name, (double)m->n_bytes / 0x1p30, (double)room.free / 0x1p30, room.limit);
}

static bitnet_status make_file(bitnet_synthetic *m, bitnet_error *err)
{
    bnet_str head = {0};
    uint64_t n_file = 0;
    bitnet_status st = make_head(m, &head, &n_file, err);
    m->n_bytes = (size_t)n_file;
    if (st == BITNET_OK)
        st = check_room(m, err);
    if (st == BITNET_OK && ((m->fd = memfd_create("bitnet-synthetic", MFD_CLOEXEC)) < 0 ||
                            ftruncate(m->fd, (off_t)n_file) != 0))
        st = fail_file(m, "make", err);
    void *p = MAP_FAILED;
    if (st == BITNET_OK) {
        p = mmap(NULL, m->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
        st = p == MAP_FAILED ? fail_file(m, "map", err) : BITNET_OK;
    }
    if (st == BITNET_OK) {
        memcpy(p, head.data, head.n);
        st = bnet_synthetic_fill(p, m->n_bytes, m->head, m->shape->n_embd, err);
    }
    if (p != MAP_FAILED)
        munmap(p, m->n_bytes);
    bnet_str_free(&head);
    return st;
}

static bitnet_status choose(bitnet_synthetic *m, const char *name, const char *head,
                            bitnet_error *err)
{
    bnet_str known = {0};
    for (size_t i = 0; i < BNET_COUNT(shapes); i++) {
        if (strcmp(shapes[i].name, name) == 0)
            m->shape = &shapes[i];
        bnet_str_addf(&known, "%s%s", i ? ", " : "", shapes[i].name);
    }
    bitnet_status st = BITNET_OK;
    if (!m->shape)
        st = bnet_fail(err, BITNET_ARGUMENT, "synthetic model: no shape is called '%s' (known: %s)",
                       name, known.data ? known.data : "");
    bnet_str_free(&known);
    if (st != BITNET_OK)
        return st;
    const char *type = head ? head : m->shape->head;
    const float none = 0;
    uint8_t bytes[4];
    const bnet_type_info *t = bnet_type_by_name(type);
    if (!t || bnet_type_is_ternary(t->type) || !bnet_encode_row(t->type, &none, bytes, 0))
        return bnet_fail(err, BITNET_ARGUMENT,
                         "synthetic model: '%s' is no format of a head (known: q6_k, q8_0, q4_0, "
                         "f16, bf16, f32)",
                         type);
    m->head = t->type;
    snprintf(m->name, sizeof m->name, "synthetic:%s/%s", m->shape->name, type);
    return BITNET_OK;
}

bitnet_status bitnet_synthetic_open(const char *name, const char *head, bitnet_synthetic **out,
                                    bitnet_error *err)
{
    if (!name || !out)
        return bnet_fail(err, BITNET_ARGUMENT, "synthetic model: shape and out must not be NULL");
    bitnet_synthetic *m = bnet_calloc(1, sizeof *m);
    if (!m)
        return bnet_no_memory(err, "synthetic model");
    m->fd = -1;
    bitnet_status st = choose(m, name, head, err);
    if (st == BITNET_OK)
        st = make_file(m, err);
    if (st != BITNET_OK) {
        bitnet_synthetic_close(m);
        return st;
    }
    *out = m;
    return BITNET_OK;
}

void bitnet_synthetic_close(bitnet_synthetic *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        close(m->fd);
    bnet_free(m);
}

const char *bitnet_synthetic_name(const bitnet_synthetic *m)
{
    return m ? m->name : NULL;
}

void bnet_synthetic_path(const bitnet_synthetic *m, char out[BNET_SYNTHETIC_PATH])
{
    snprintf(out, BNET_SYNTHETIC_PATH, "/proc/self/fd/%d", m->fd);
}

/* The engine maps the file again, so it may outlive the object; it is named after what it is. */
bitnet_status bitnet_synthetic_engine(const bitnet_synthetic *m, bitnet_runtime *runtime,
                                      const bitnet_engine_options *options, bitnet_engine **out,
                                      bitnet_error *err)
{
    char path[BNET_SYNTHETIC_PATH];
    bitnet_engine *e = NULL;
    if (!m || !runtime || !out)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "synthetic model: model, runtime and out must not be NULL");
    bnet_synthetic_path(m, path);
    bitnet_status st = bitnet_engine_open(runtime, path, options, &e, err);
    char *name = st == BITNET_OK ? bnet_strdup(m->name) : NULL;
    if (st == BITNET_OK && !name)
        st = bnet_no_memory(err, m->name);
    if (st != BITNET_OK) {
        bitnet_engine_close(e);
        return st;
    }
    bnet_free(e->path);
    e->path = name;
    e->info.path = name;
    *out = e;
    return BITNET_OK;
}

bitnet_status bitnet_synthetic_save(const bitnet_synthetic *m, const char *path, bitnet_error *err)
{
    bnet_map map;
    bnet_writer *w;
    char own[BNET_SYNTHETIC_PATH];
    if (!m || !path)
        return bnet_fail(err, BITNET_ARGUMENT, "synthetic model: model and path must not be NULL");
    bnet_synthetic_path(m, own);
    bitnet_status st = bnet_map_open(own, &map, err);
    if (st != BITNET_OK)
        return st;
    st = bnet_writer_open(path, &w, err);
    if (st == BITNET_OK) {
        st = bnet_writer_write(w, map.data, map.n_bytes, err);
        if (st == BITNET_OK)
            st = bnet_writer_commit(w, err);
        else
            bnet_writer_abort(w);
    }
    bnet_map_close(&map);
    return st;
}
