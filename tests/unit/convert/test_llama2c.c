/* test_llama2c.c - llama2.c files: versions 0 and 1, every weight, the tokenizer, and what is
 * refused. */
#include "unit/convert/malformed.h"

#include "convert/convert.h"
#include "format/codec.h"
#include "format/gguf.h"

enum {
    DIM = 8,
    HIDDEN = 12,
    LAYERS = 2,
    HEADS = 4,
    KV = 2,
    VOCAB = 262,
    CTX = 16,
    HEAD_DIM = DIM / HEADS
};

static char dir[1024], model_path[1100], tok_path[1100], out_path[1100];

static int set_up(void **state)
{
    (void)state;
    fx_make_dir(dir, sizeof dir);
    fx_path(dir, "model.bin", model_path, sizeof model_path);
    fx_path(dir, "tok.bin", tok_path, sizeof tok_path);
    fx_path(dir, "out.gguf", out_path, sizeof out_path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fx_remove_dir(dir);
    return 0;
}

static void add_i32(bnet_str *s, int32_t v)
{
    bnet_str_add(s, &v, 4);
}

static void add_floats(bnet_str *s, const char *name, uint64_t rows, uint64_t cols)
{
    for (uint64_t i = 0; i < rows * cols; i++) {
        float x = fx_value(name, i / cols, i % cols);
        bnet_str_add(s, &x, 4);
    }
}

/* One kind of tensor for all layers. */
static void add_layers(bnet_str *s, const char *part, uint64_t rows, uint64_t cols)
{
    for (int i = 0; i < LAYERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, part);
        add_floats(s, name, rows, cols);
    }
}

static void add_header(bnet_str *s, int vocab)
{
    const int32_t fields[] = {DIM, HIDDEN, LAYERS, HEADS, KV, vocab, CTX};
    for (size_t i = 0; i < BNET_COUNT(fields); i++)
        add_i32(s, fields[i]);
}

static void add_attention(bnet_str *s)
{
    add_layers(s, "attn_q", DIM, DIM);
    add_layers(s, "attn_k", KV * HEAD_DIM, DIM);
    add_layers(s, "attn_v", KV * HEAD_DIM, DIM);
    add_layers(s, "attn_output", DIM, DIM);
}

static void add_ffn(bnet_str *s)
{
    add_layers(s, "ffn_gate", HIDDEN, DIM);
    add_layers(s, "ffn_down", DIM, HIDDEN);
    add_layers(s, "ffn_up", HIDDEN, DIM);
}

static void build_v0(bnet_str *s, bool tied)
{
    add_header(s, tied ? VOCAB : -VOCAB);
    add_floats(s, "token_embd.weight", VOCAB, DIM);
    add_layers(s, "attn_norm", 1, DIM);
    add_attention(s);
    add_layers(s, "ffn_norm", 1, DIM);
    add_ffn(s);
    add_floats(s, "output_norm.weight", 1, DIM);
    add_floats(s, "unused", CTX, HEAD_DIM);
    if (!tied)
        add_floats(s, "output.weight", VOCAB, DIM);
}

static void build_v1(bnet_str *s, bool tied, int version)
{
    static const char zeros[256];
    add_i32(s, 0x616b3432);
    add_i32(s, version);
    add_header(s, VOCAB);
    bnet_str_putc(s, tied ? 1 : 0);
    bnet_str_add(s, zeros, 256 - s->n);
    add_layers(s, "attn_norm", 1, DIM);
    add_layers(s, "ffn_norm", 1, DIM);
    add_floats(s, "output_norm.weight", 1, DIM);
    add_floats(s, "token_embd.weight", VOCAB, DIM);
    add_attention(s);
    add_ffn(s);
    if (!tied)
        add_floats(s, "output.weight", VOCAB, DIM);
}

static void add_piece(bnet_str *s, float score, const char *text)
{
    bnet_str_add(s, &score, 4);
    add_i32(s, (int32_t)strlen(text));
    bnet_str_puts(s, text);
}

static void build_tokenizer(bnet_str *s)
{
    add_i32(s, 7);
    add_piece(s, 0, "<unk>");
    add_piece(s, 0, "\n<s>\n");
    add_piece(s, 0, "\n</s>\n");
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i & 255);
        add_piece(s, 0, name);
    }
    add_piece(s, -1, " a");
    add_piece(s, -2, "b c ");
    add_piece(s, -3, "d");
}

static void save(const char *name, bnet_str *s)
{
    fx_write(dir, name, s->data, s->n);
    bnet_str_free(s);
}

static bitnet_status convert(bnet_type type, bitnet_error *err)
{
    bnet_convert_options o;
    bnet_convert_options_init(&o);
    o.weight_type = type;
    o.embedding_type = type == BNET_F16 ? BNET_F16 : BNET_F32;
    o.tokenizer = tok_path;
    return bnet_convert(model_path, out_path, &o, err);
}

static void check_tensors(const bnet_gguf *g, bnet_type type)
{
    for (size_t i = 0; i < bnet_gguf_n_tensors(g); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(g, i);
        float row[HIDDEN];
        uint64_t n_row = 0;
        assert_int_equal(t->type, t->n_dims == 1 ? BNET_F32 : type);
        assert_true(bnet_type_bytes(t->type, t->ne[0], 1, &n_row));
        for (uint64_t r = 0; r < t->ne[1]; r++) {
            bnet_decode_row(t->type, t->data + r * n_row, row, t->ne[0]);
            for (uint64_t c = 0; c < t->ne[0]; c++)
                if (row[c] != fx_value(t->name, r, c))
                    fail_msg("%s row %llu column %llu: %g", t->name, (unsigned long long)r,
                             (unsigned long long)c, (double)row[c]);
        }
    }
}

static void check_output(bool tied, bnet_type type)
{
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    if (convert(type, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    assert_int_equal(bnet_gguf_open(out_path, NULL, &g, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_n_tensors(g), 2 + 9 * LAYERS + !tied);
    check_tensors(g, type);
    bnet_gguf_close(g);
}

static void test_versions(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        bnet_str model = {0}, tok = {0};
        bool tied = i & 1;
        if (i & 2)
            build_v1(&model, tied, 1);
        else
            build_v0(&model, tied);
        build_tokenizer(&tok);
        save("model.bin", &model);
        save("tok.bin", &tok);
        check_output(tied, i & 4 ? BNET_F16 : BNET_F32);
    }
}

static void assert_piece(const bnet_gguf *g, int id, const char *text, int type, float score)
{
    const bnet_gguf_kv *tokens = bnet_gguf_find(g, "tokenizer.ggml.tokens");
    const bnet_gguf_kv *types = bnet_gguf_find(g, "tokenizer.ggml.token_type");
    const bnet_gguf_kv *scores = bnet_gguf_find(g, "tokenizer.ggml.scores");
    bnet_span s = {0};
    assert_true(tokens && types && scores && tokens->count == VOCAB);
    const uint8_t *cursor = tokens->data;
    for (int i = 0; i <= id; i++)
        s = bnet_gguf_next_string(&cursor);
    if (s.n != strlen(text) || memcmp(s.data, text, s.n) != 0)
        fail_msg("token %d: \"%.*s\", \"%s\" was expected", id, (int)s.n, s.data, text);
    assert_int_equal(bnet_u32(types->data + 4 * id), type);
    assert_true(bnet_f32(scores->data + 4 * id) == score);
}

static void test_tokenizer(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    bnet_str model = {0}, tok = {0};
    bnet_span s = {0};
    int64_t bos = -1;
    build_v0(&model, true);
    build_tokenizer(&tok);
    save("model.bin", &model);
    save("tok.bin", &tok);
    assert_int_equal(convert(BNET_F32, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_open(out_path, NULL, &g, &err), BITNET_OK);
    assert_piece(g, 0, "<unk>", 2, 0);
    assert_piece(g, 1, "<s>", 3, 0);
    assert_piece(g, 2, "</s>", 3, 0);
    assert_piece(g, 3, "<0x00>", 6, 0);
    assert_piece(g, 258, "<0xFF>", 6, 0);
    assert_piece(g, 259,
                 "\xe2\x96\x81"
                 "a",
                 1, -1);
    assert_piece(g, 260,
                 "b\xe2\x96\x81"
                 "c\xe2\x96\x81",
                 1, -2);
    assert_int_equal(bnet_gguf_string(g, "general.architecture", &s, NULL, NULL), BITNET_OK);
    assert_memory_equal(s.data, "llama", 5);
    assert_int_equal(bnet_gguf_int(g, "tokenizer.ggml.bos_token_id", 0, 10, &bos, NULL, NULL),
                     BITNET_OK);
    assert_int_equal(bos, 1);
    bnet_gguf_close(g);
}

/* ---- refusals ---- */

typedef enum what { MODEL_FILE, TOKENIZER_FILE } what;

typedef struct row {
    what file;
    size_t at;     /* where bytes are changed */
    int32_t value; /* 32 bits put there */
    long cut;      /* bytes dropped from the end; negative: zeros added */
    malformed want;
} row;

static const row rows[] = {
    {MODEL_FILE, 0, 0, 0, {NULL, NULL, BITNET_MODEL, "field dim is 0"}},
    {MODEL_FILE, 4, -5, 0, {NULL, NULL, BITNET_MODEL, "field hidden_dim is -5"}},
    {MODEL_FILE, 8, 100000, 0, {NULL, NULL, BITNET_MODEL, "field n_layers is 100000"}},
    {MODEL_FILE, 12, 3, 0, {NULL, NULL, BITNET_MODEL, "n_heads 3 and n_kv_heads 2 do not divide"}},
    {MODEL_FILE, 20, INT32_MIN, 0, {NULL, NULL, BITNET_MODEL, "field vocab_size is -2147483648"}},
    {MODEL_FILE, 24, 0, 0, {NULL, NULL, BITNET_MODEL, "field seq_len is 0"}},
    {MODEL_FILE, 24, CTX + 1, 0, {NULL, NULL, BITNET_MODEL, "unused.weight needs 34 values"}},
    {MODEL_FILE, 0, DIM, 4, {NULL, NULL, BITNET_MODEL, "unused.weight needs 32 values"}},
    {MODEL_FILE, 0, DIM, -4, {NULL, NULL, BITNET_MODEL, "4 bytes behind the last weight"}},
    {MODEL_FILE, 0, DIM, 1 << 20, {NULL, NULL, BITNET_MODEL, "0 bytes: too short"}},
    {MODEL_FILE, 0, 0x46554747, 0, {NULL, NULL, BITNET_MODEL, "is a GGUF file already"}},
    {MODEL_FILE, 0, 0x04034b50, 0, {NULL, NULL, BITNET_MODEL, "is a pickle"}},
    {MODEL_FILE,
     8,
     '{',
     0,
     {NULL, NULL, BITNET_MODEL, "is a safetensors file; give its directory"}},
    {TOKENIZER_FILE, 0, 7, 1, {NULL, NULL, BITNET_TOKENIZER, "token 261: length 1 does not fit"}},
    {TOKENIZER_FILE, 0, 7, 9, {NULL, NULL, BITNET_TOKENIZER, "ends at token 261"}},
    {TOKENIZER_FILE, 0, 7, -3, {NULL, NULL, BITNET_TOKENIZER, "3 bytes behind token 261"}},
    {TOKENIZER_FILE, 8, -1, 0, {NULL, NULL, BITNET_TOKENIZER, "token 0: length -1 does not fit"}},
    {TOKENIZER_FILE,
     4,
     0x7fc00000,
     0,
     {NULL, NULL, BITNET_TOKENIZER, "token 0: score is not a number"}},
    {TOKENIZER_FILE, 0, 7, 1 << 20, {NULL, NULL, BITNET_TOKENIZER, "ends at token 0"}},
};

static void change(bnet_str *s, const row *r)
{
    static const char zeros[16];
    memcpy(s->data + r->at, &r->value, 4);
    if (r->cut < 0)
        bnet_str_add(s, zeros, (size_t)-r->cut);
    else
        s->n -= BNET_MIN((size_t)r->cut, s->n);
}

static void test_malformed(void **state)
{
    (void)state;
    malformed_run run = {0};
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_str model = {0}, tok = {0};
        bitnet_error err = {0};
        build_v0(&model, true);
        build_tokenizer(&tok);
        change(rows[i].file == MODEL_FILE ? &model : &tok, &rows[i]);
        save("model.bin", &model);
        save("tok.bin", &tok);
        malformed_check(&run, &rows[i].want, convert(BNET_F32, &err), &err);
        assert_int_equal(fx_count(dir, "out.gguf"), 0);
    }
    malformed_end(&run, 19);
}

static void test_refusals(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bnet_str model = {0}, tok = {0};
    build_v1(&model, true, 2);
    build_tokenizer(&tok);
    save("model.bin", &model);
    save("tok.bin", &tok);
    assert_int_equal(convert(BNET_F32, &err), BITNET_MODEL);
    assert_non_null(strstr(err.message, "version 2 (int8) is not supported"));
    build_v0(&model, true);
    save("model.bin", &model);
    assert_int_equal(convert(BNET_I2_S, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "--type f16 or --type f32"));
    bnet_convert_options o;
    bnet_convert_options_init(&o);
    o.weight_type = BNET_F32;
    assert_int_equal(bnet_convert(model_path, out_path, &o, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "--tokenizer FILE"));
}

/* The real float model nobody here made. */
static void test_stories(void **state)
{
    (void)state;
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    bnet_convert_options o;
    char tok[1024], model[1024];
    if (!shared_path("third-party/tok512.bin", tok, sizeof tok) ||
        !shared_path("third-party/stories260K.bin", model, sizeof model))
        skip();
    bnet_convert_options_init(&o);
    o.weight_type = o.embedding_type = BNET_F32;
    o.tokenizer = tok;
    if (bnet_convert(model, out_path, &o, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    assert_int_equal(bnet_gguf_open(out_path, NULL, &g, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_n_tensors(g), 2 + 9 * 5);
    bnet_gguf_close(g);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_versions), TEST(test_tokenizer),
                                       TEST(test_malformed), TEST(test_refusals),
                                       TEST(test_stories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
