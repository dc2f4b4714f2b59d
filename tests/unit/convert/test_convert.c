/* test_convert.c - tiny checkpoints of every form: each weight of each output type is compared with
 * the formula it was written from; then what must leave no file behind. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "unit/convert/fixture.h"

#include "convert/convert.h"
#include "format/codec.h"
#include "format/gguf.h"

static char dir[1024], out_path[1100];

static int set_up(void **state)
{
    (void)state;
    fx_make_dir(dir, sizeof dir);
    fx_path(dir, "out.gguf", out_path, sizeof out_path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fx_remove_dir(dir);
    return 0;
}

/* ---- what a weight must be ---- */

typedef enum form { MULTIPLY, DIVIDE, MASTER, DENSE } form;

typedef struct expectation {
    const fx_model *model;
    form form;
    bool llama;
} expectation;

/* Scale and trits of one projection, [rows][cols], by the definition. */
static float expect_ternary(const expectation *x, const char *name, uint64_t rows, uint64_t cols,
                            int8_t *trits)
{
    double sum = 0;
    if (x->form != MASTER) {
        for (uint64_t i = 0; i < rows * cols; i++)
            trits[i] = (int8_t)fx_trit(name, i / cols, i % cols);
        return x->form == DIVIDE ? 1.0f / fx_scale(name) : fx_scale(name);
    }
    for (uint64_t i = 0; i < rows * cols; i++)
        sum += fabs((double)fx_value(name, i / cols, i % cols));
    float scale = (float)(sum / (double)(rows * cols));
    for (uint64_t i = 0; i < rows * cols; i++) {
        double t = rint((double)fx_value(name, i / cols, i % cols) / (double)scale);
        trits[i] = (int8_t)(t < -1 ? -1 : t > 1 ? 1 : t);
    }
    return scale;
}

/* Input row behind output row r of a llama Q or K. */
static uint64_t unpermuted(uint64_t r, int heads)
{
    uint64_t head = r / FX_HEAD_DIM, in = r % FX_HEAD_DIM;
    return heads == 0 ? r : head * FX_HEAD_DIM + (in % 2 ? FX_HEAD_DIM / 2 : 0) + in / 2;
}

static float stored_scale(bnet_type type, float scale)
{
    return type == BNET_I2_S || type == BNET_F32 ? scale : bnet_f16_to_f32(bnet_f32_to_f16(scale));
}

static void decode_output_row(const bnet_tensor *t, uint64_t row, float *dst)
{
    int8_t trits[FX_FF];
    uint64_t n_row = 0;
    if (t->type != BNET_I2_S) {
        assert_true(bnet_type_bytes(t->type, t->ne[0], 1, &n_row));
        assert_true(bnet_decode_row(t->type, t->data + row * n_row, dst, t->ne[0]));
        return;
    }
    assert_int_equal(bnet_i2s_decode_row(BITNET_I2S_128, t->data, t->ne[0], row, trits), 0);
    for (uint64_t i = 0; i < t->ne[0]; i++)
        dst[i] = (float)trits[i] * bnet_i2s_scale(t->data, bnet_tensor_elems(t));
}

static const bnet_tensor *get_tensor(const bnet_gguf *g, const char *name, bnet_type type,
                                     uint64_t cols, uint64_t rows)
{
    const bnet_tensor *t = bnet_gguf_tensor(g, name);
    if (!t)
        fail_msg("no tensor %s in the output", name);
    if (t->type != type || t->ne[0] != cols || t->ne[1] != rows)
        fail_msg("tensor %s: type %d, shape [%llu, %llu]", name, (int)t->type,
                 (unsigned long long)t->ne[0], (unsigned long long)t->ne[1]);
    return t;
}

static void check_linear(const expectation *x, const bnet_gguf *g, int layer, size_t i,
                         bnet_type type)
{
    char hf[128], name[64];
    float row[FX_FF];
    uint64_t rows = fx_linears[i].rows, cols = fx_linears[i].cols;
    int8_t *trits = malloc(rows * cols);
    assert_non_null(trits);
    snprintf(hf, sizeof hf, "model.layers.%d.%s.weight", layer, fx_linears[i].hf);
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, fx_linears[i].gguf);
    const bnet_tensor *t = get_tensor(g, name, type, cols, rows);
    float scale =
        x->form == DENSE ? 1 : stored_scale(type, expect_ternary(x, hf, rows, cols, trits));
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t from = unpermuted(r, x->llama ? fx_linears[i].rotary_heads : 0);
        decode_output_row(t, r, row);
        for (uint64_t c = 0; c < cols; c++) {
            float want =
                x->form == DENSE ? fx_value(hf, from, c) : (float)trits[from * cols + c] * scale;
            if (row[c] != want)
                fail_msg("%s row %llu column %llu: %g, %g was expected", name,
                         (unsigned long long)r, (unsigned long long)c, (double)row[c],
                         (double)want);
        }
    }
    free(trits);
}

/* A tensor whose values are written as they are, in a type that holds them exactly. */
static void check_floats(const bnet_gguf *g, const char *name, const char *hf, bnet_type type,
                         uint64_t rows, uint64_t cols)
{
    float row[FX_FF];
    const bnet_tensor *t = get_tensor(g, name, type, cols, rows);
    for (uint64_t r = 0; r < rows; r++) {
        decode_output_row(t, r, row);
        for (uint64_t c = 0; c < cols; c++)
            if (row[c] != fx_value(hf, r, c))
                fail_msg("%s row %llu column %llu: %g", name, (unsigned long long)r,
                         (unsigned long long)c, (double)row[c]);
    }
}

static void check_layer(const expectation *x, const bnet_gguf *g, int layer, bnet_type type)
{
    char hf[128], name[64];
    for (size_t i = 0; i < BNET_COUNT(fx_linears); i++)
        check_linear(x, g, layer, i, type);
    for (size_t i = 0; i < BNET_COUNT(fx_norms); i++) {
        bool old = x->model->old_names && fx_norms[i].old;
        snprintf(hf, sizeof hf, "model.layers.%d.%s.weight", layer,
                 old ? fx_norms[i].old : fx_norms[i].hf);
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, fx_norms[i].gguf);
        if (x->model->sub_norms || !fx_norms[i].sub)
            check_floats(g, name, hf, BNET_F32, 1, fx_norms[i].cols);
        else
            assert_null(bnet_gguf_tensor(g, name));
    }
}

static void check_model(const expectation *x, bnet_type type, bnet_type embedding, bool tied)
{
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    if (bnet_gguf_open(out_path, NULL, &g, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    for (int i = 0; i < FX_LAYERS; i++)
        check_layer(x, g, i, type);
    check_floats(g, "token_embd.weight", "model.embed_tokens.weight", embedding, FX_VOCAB,
                 FX_WIDTH);
    check_floats(g, "output_norm.weight", "model.norm.weight", BNET_F32, 1, FX_WIDTH);
    if (tied)
        assert_null(bnet_gguf_tensor(g, "output.weight"));
    else
        check_floats(g, "output.weight", "lm_head.weight", embedding, FX_VOCAB, FX_WIDTH);
    bnet_gguf_close(g);
}

static void convert_or_fail(bnet_type type, bnet_type embedding)
{
    bitnet_error err = {0};
    bnet_convert_options o;
    bnet_convert_options_init(&o);
    o.weight_type = type;
    o.embedding_type = embedding;
    if (bnet_convert(dir, out_path, &o, &err) != BITNET_OK)
        fail_msg("%s", err.message);
}

static void try_all_types(const expectation *x, bool tied)
{
    static const bnet_type types[] = {BNET_I2_S, BNET_TQ2_0, BNET_TQ1_0, BNET_F16, BNET_F32};
    static const bnet_type embeddings[] = {BNET_F16, BNET_F32, BNET_BF16, BNET_F16, BNET_F32};
    for (size_t i = 0; i < BNET_COUNT(types); i++) {
        if (x->form == DENSE && bnet_type_is_ternary(types[i]))
            continue;
        convert_or_fail(types[i], embeddings[i]);
        check_model(x, types[i], embeddings[i], tied);
    }
}

/* ---- forms ---- */

static const fx_model bitnet_packed = {.class = "BitNetForCausalLM",
                                       .act = "relu2",
                                       .quant = FX_MULTIPLY,
                                       .dtype = "U8",
                                       .sub_norms = true,
                                       .extra = ",\"tie_word_embeddings\":true"};

static void test_packed_multiply(void **state)
{
    (void)state;
    expectation x = {&bitnet_packed, MULTIPLY, false};
    fx_write_model(&bitnet_packed, dir);
    try_all_types(&x, true);
}

static void test_packed_divide(void **state)
{
    (void)state;
    fx_model m = {.class = "LlamaForCausalLM",
                  .act = "silu",
                  .quant = FX_DIVIDE,
                  .dtype = "U8",
                  .head = true};
    expectation x = {&m, DIVIDE, true};
    fx_write_model(&m, dir);
    try_all_types(&x, false);
}

/* No quantization_config, but packed bytes: they divide. */
static void test_packed_without_config(void **state)
{
    (void)state;
    fx_model m = bitnet_packed;
    m.quant = NULL;
    expectation x = {&m, DIVIDE, false};
    fx_write_model(&m, dir);
    convert_or_fail(BNET_I2_S, BNET_F16);
    check_model(&x, BNET_I2_S, BNET_F16, true);
}

static void test_masters(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"BF16", "F16", "F32"};
    for (size_t i = 0; i < BNET_COUNT(dtypes); i++) {
        fx_model m = bitnet_packed;
        m.quant = FX_ONLINE;
        m.dtype = dtypes[i];
        expectation x = {&m, MASTER, false};
        fx_write_model(&m, dir);
        try_all_types(&x, true);
    }
}

/* The older class: its norm names, SiLU, masters without a quantization_config, head told by its
 * absence. */
static void test_old_bitnet(void **state)
{
    (void)state;
    fx_model m = {.class = "BitnetForCausalLM",
                  .act = "silu",
                  .dtype = "F32",
                  .sub_norms = true,
                  .old_names = true};
    expectation x = {&m, MASTER, false};
    fx_write_model(&m, dir);
    try_all_types(&x, true);
}

static void test_dense_llama(void **state)
{
    (void)state;
    fx_model m = {.class = "LlamaForCausalLM", .act = "silu", .dtype = "BF16", .head = true};
    expectation x = {&m, DENSE, true};
    bitnet_error err = {0};
    bnet_convert_options o;
    fx_write_model(&m, dir);
    try_all_types(&x, false);
    unlink(out_path);
    bnet_convert_options_init(&o);
    assert_int_equal(bnet_convert(dir, out_path, &o, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "not ternary"));
    assert_non_null(strstr(err.message, "--type f16"));
    assert_int_equal(fx_count(dir, "out.gguf"), 0);
}

static void count_float(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)module;
    if (level == BITNET_LOG_WARN && strstr(message, "float activations"))
        *(int *)user += 1;
}

/* A llama checkpoint with ternary weights written as floats loses its 8-bit activations: said once.
 */
static void test_float_llama(void **state)
{
    (void)state;
    static const bnet_type types[] = {BNET_I2_S, BNET_F16, BNET_F32};
    fx_model m = {.class = "LlamaForCausalLM", .act = "silu", .quant = FX_MULTIPLY, .dtype = "U8"};
    for (size_t i = 0; i < 2 * BNET_COUNT(types); i++) {
        int n = 0;
        bool bitnet = i >= BNET_COUNT(types);
        bnet_type type = types[i % BNET_COUNT(types)];
        bnet_convert_options o;
        bitnet_error err = {0};
        fx_write_model(bitnet ? &bitnet_packed : &m, dir);
        bnet_convert_options_init(&o);
        o.weight_type = type;
        o.log = (bnet_log){count_float, &n};
        if (bnet_convert(dir, out_path, &o, &err) != BITNET_OK)
            fail_msg("%s", err.message);
        assert_int_equal(n, !bitnet && type != BNET_I2_S);
    }
}

static void test_shards(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) {
        fx_model m = bitnet_packed;
        expectation x = {&m, MULTIPLY, false};
        m.n_shards = n;
        fx_write_model(&m, dir);
        convert_or_fail(BNET_I2_S, BNET_F16);
        check_model(&x, BNET_I2_S, BNET_F16, true);
    }
}

/* A head in the file of a model whose config ties it: not written, and said so. */
static void note_log(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)level;
    (void)module;
    if (strstr(message, "lm_head.weight is ignored"))
        *(int *)user += 1;
}

static void test_tied_head_in_file(void **state)
{
    (void)state;
    int n_notes = 0;
    fx_model m = bitnet_packed;
    expectation x = {&m, MULTIPLY, false};
    bitnet_error err = {0};
    bnet_convert_options o;
    m.head = true;
    fx_write_model(&m, dir);
    bnet_convert_options_init(&o);
    o.log = (bnet_log){note_log, &n_notes};
    assert_int_equal(bnet_convert(dir, out_path, &o, &err), BITNET_OK);
    check_model(&x, BNET_I2_S, BNET_F16, true);
    assert_int_equal(n_notes, 1);
}

/* ---- keys ---- */

static void assert_int_key(const bnet_gguf *g, const char *key, int64_t want)
{
    int64_t v = -1;
    bool found = false;
    assert_int_equal(bnet_gguf_int(g, key, INT64_MIN, INT64_MAX, &v, &found, NULL), BITNET_OK);
    if (!found || v != want)
        fail_msg("key %s: found %d, value %lld, %lld was expected", key, found, (long long)v,
                 (long long)want);
}

static void assert_float_key(const bnet_gguf *g, const char *key, float want)
{
    double v = -1;
    assert_int_equal(bnet_gguf_float(g, key, -1e30, 1e30, &v, NULL, NULL), BITNET_OK);
    if ((float)v != want)
        fail_msg("key %s: %g, %g was expected", key, v, (double)want);
}

static void assert_text_key(const bnet_gguf *g, const char *key, const char *want)
{
    bnet_span s = {"", 0};
    assert_int_equal(bnet_gguf_string(g, key, &s, NULL, NULL), BITNET_OK);
    if (s.n != strlen(want) || memcmp(s.data, want, s.n) != 0)
        fail_msg("key %s: \"%.*s\", \"%s\" was expected", key, (int)s.n, s.data, want);
}

static void assert_bool_key(const bnet_gguf *g, const char *key, bool want)
{
    bool v = !want;
    assert_int_equal(bnet_gguf_bool(g, key, &v, NULL, NULL), BITNET_OK);
    assert_int_equal(v, want);
}

static bnet_gguf *open_output(void)
{
    bnet_gguf *g = NULL;
    bitnet_error err = {0};
    if (bnet_gguf_open(out_path, NULL, &g, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    return g;
}

static void test_keys(void **state)
{
    (void)state;
    fx_model m = bitnet_packed;
    m.extra =
        ",\"tie_word_embeddings\":true,\"_name_or_path\":\"owner/little\",\"pad_token_id\":291";
    fx_write_model(&m, dir);
    fx_write_text(dir, "tokenizer_config.json",
                  "{\"chat_template\":[{\"name\":\"tool\",\"template\":\"x\"},"
                  "{\"name\":\"default\",\"template\":\"hello\"}]}");
    convert_or_fail(BNET_I2_S, BNET_F16);
    bnet_gguf *g = open_output();
    assert_text_key(g, "general.architecture", "bitnet-b1.58");
    assert_text_key(g, "general.name", "little");
    assert_text_key(g, "general.source.huggingface.repository", "owner/little");
    assert_int_key(g, "bitnet-b1.58.vocab_size", FX_VOCAB);
    assert_int_key(g, "bitnet-b1.58.context_length", 128);
    assert_int_key(g, "bitnet-b1.58.embedding_length", FX_WIDTH);
    assert_int_key(g, "bitnet-b1.58.block_count", FX_LAYERS);
    assert_int_key(g, "bitnet-b1.58.feed_forward_length", FX_FF);
    assert_int_key(g, "bitnet-b1.58.rope.dimension_count", FX_HEAD_DIM);
    assert_int_key(g, "bitnet-b1.58.attention.head_count", FX_HEADS);
    assert_int_key(g, "bitnet-b1.58.attention.head_count_kv", FX_KV);
    assert_null(bnet_gguf_find(g, "bitnet-b1.58.attention.key_length"));
    assert_float_key(g, "bitnet-b1.58.attention.layer_norm_rms_epsilon", 1e-5f);
    assert_float_key(g, "bitnet-b1.58.rope.freq_base", 10000);
    assert_text_key(g, "bitnet-b1.58.hidden_activation", "relu2");
    assert_int_key(g, "general.file_type", 40);
    assert_int_key(g, "general.quantization_version", 2);
    assert_text_key(g, "tokenizer.ggml.model", "gpt2");
    assert_text_key(g, "tokenizer.ggml.pre", "llama-bpe");
    assert_int_key(g, "tokenizer.ggml.bos_token_id", 290);
    assert_int_key(g, "tokenizer.ggml.eos_token_id", 291);
    assert_int_key(g, "tokenizer.ggml.eot_token_id", 292);
    assert_int_key(g, "tokenizer.ggml.padding_token_id", 291);
    assert_bool_key(g, "tokenizer.ggml.add_bos_token", true);
    assert_text_key(g, "tokenizer.chat_template", "hello");
    bnet_gguf_close(g);
}

/* Activation and class choose the architecture; a head size of its own is told; chat_template.jinja
 * goes before tokenizer_config.json. */
static void test_other_architectures(void **state)
{
    (void)state;
    fx_model m = {.class = "BitnetForCausalLM", .act = "silu", .dtype = "BF16", .sub_norms = true};
    fx_write_model(&m, dir);
    fx_write_text(dir, "tokenizer_config.json", "{\"chat_template\":\"old\"}");
    fx_write_text(dir, "chat_template.jinja", "new");
    convert_or_fail(BNET_TQ2_0, BNET_F16);
    bnet_gguf *g = open_output();
    assert_text_key(g, "general.architecture", "bitnet");
    assert_text_key(g, "bitnet.hidden_activation", "silu");
    assert_int_key(g, "general.file_type", 37);
    assert_text_key(g, "tokenizer.chat_template", "new");
    assert_null(bnet_gguf_find(g, "general.source.huggingface.repository"));
    bnet_gguf_close(g);
}

/* llama-3.1's factors at the two ends and in between, computed here from the published rule. */
static void test_rope_freqs(void **state)
{
    (void)state;
    fx_model m = {.class = "LlamaForCausalLM",
                  .act = "silu",
                  .quant = FX_DIVIDE,
                  .dtype = "U8",
                  .head = true};
    m.extra = ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
              "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}";
    fx_write_model(&m, dir);
    convert_or_fail(BNET_I2_S, BNET_F16);
    bnet_gguf *g = open_output();
    const bnet_tensor *t = get_tensor(g, "rope_freqs.weight", BNET_F32, FX_HEAD_DIM / 2, 1);
    int n_ones = 0, n_full = 0, n_between = 0;
    for (int i = 0; i < FX_HEAD_DIM / 2; i++) {
        float got = bnet_f32(t->data + 4 * i);
        double turns =
            8192 / (2 * acos(-1.0) / pow(10000.0, -2.0 * i / FX_HEAD_DIM)); /* in the old context */
        double blend = turns > 4 ? 1 : turns < 1 ? 0 : (turns - 1) / 3;
        double want = 1 / ((1 - blend) / 8 + blend);
        assert_true(fabs(got - want) < 1e-5 * want);
        n_ones += got == 1;
        n_full += got == 8;
        n_between += got > 1 && got < 8;
    }
    assert_true(n_ones > 0 && n_full > 0 && n_between > 0);
    bnet_gguf_close(g);
}

/* ---- refusals that depend on the request or on weights ---- */

static void expect_failure(const bnet_convert_options *o, bitnet_status want, const char *part)
{
    bitnet_error err = {0};
    unlink(out_path);
    bitnet_status st = bnet_convert(dir, out_path, o, &err);
    if (st != want || !strstr(err.message, part))
        fail_msg("status %d, message \"%s\"; status %d with \"%s\" was expected", (int)st,
                 err.message, (int)want, part);
    assert_int_equal(fx_count(dir, "out.gguf"), 0);
}

static void test_types_refused(void **state)
{
    (void)state;
    bnet_convert_options o;
    fx_write_model(&bitnet_packed, dir);
    bnet_convert_options_init(&o);
    o.weight_type = BNET_Q8_0;
    expect_failure(&o, BITNET_ARGUMENT, "cannot write projections as Q8_0");
    bnet_convert_options_init(&o);
    o.embedding_type = BNET_I2_S;
    expect_failure(&o, BITNET_ARGUMENT, "cannot write embeddings as I2_S");
}

/* Widths that no block divides. */
static void test_rows_refused(void **state)
{
    (void)state;
    bnet_convert_options o;
    fx_file f = {0};
    fx_write_text(dir, "tokenizer.json", fx_tokenizer);
    fx_write_text(
        dir, "config.json",
        "{\"architectures\":[\"BitNetForCausalLM\"],\"hidden_size\":100,\"intermediate_size\":128,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":300,\"max_position_"
        "embeddings\":8,"
        "\"rms_norm_eps\":1e-5,\"rope_theta\":1e4,\"tie_word_embeddings\":true}");
    fx_add_floats(&f, "model.embed_tokens.weight", "BF16", 300, 100);
    fx_add_floats(&f, "model.layers.0.input_layernorm.weight", "BF16", 0, 100);
    fx_add_floats(&f, "model.layers.0.self_attn.q_proj.weight", "BF16", 100, 100);
    fx_finish(&f, dir, "model.safetensors");
    bnet_convert_options_init(&o);
    expect_failure(
        &o, BITNET_ARGUMENT,
        "q_proj.weight: rows of 100 values do not divide into I2_S blocks of 128; use --type f16");
    o.weight_type = BNET_TQ2_0;
    expect_failure(&o, BITNET_ARGUMENT, "do not divide into TQ2_0 blocks of 256; use --type f16");
    o.embedding_type = BNET_Q8_0;
    expect_failure(&o, BITNET_ARGUMENT,
                   "embed_tokens.weight: rows of 100 values do not divide into Q8_0 blocks of 32; "
                   "use --embedding f16");
}

/* Overwrites the first data byte(s) of a tensor in model.safetensors. */
static void poke(const char *name, const void *bytes, size_t n)
{
    char path[1100], *data = NULL, key[200];
    size_t size = 0;
    unsigned long long at = 0;
    fx_path(dir, "model.safetensors", path, sizeof path);
    assert_int_equal(bnet_read_file(path, 1 << 24, &data, &size, NULL), BITNET_OK);
    snprintf(key, sizeof key, "\"%s\"", name);
    const char *p = strstr(data + 8, key);
    assert_non_null(p);
    assert_int_equal(sscanf(strstr(p, "data_offsets\":["), "data_offsets\":[%llu", &at), 1);
    memcpy(data + 8 + bnet_u64(data) + at, bytes, n);
    fx_write(dir, "model.safetensors", data, size);
    bnet_free(data);
}

static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        uint8_t bytes[2];
        size_t n;
        const char *expect;
    } rows[] = {
        {"model.layers.1.mlp.up_proj.weight",
         {0xff, 0},
         1,
         "mlp.up_proj.weight: row 0, column 0: code 3"},
        {"model.layers.0.self_attn.k_proj.weight_scale",
         {0, 0},
         2,
         "k_proj.weight_scale: scale 0 is not a positive"},
        {"model.layers.0.self_attn.v_proj.weight_scale",
         {0x80, 0xbf},
         2,
         "v_proj.weight_scale: scale -1 is not"},
        {"model.layers.0.self_attn.o_proj.weight_scale",
         {0xc0, 0x7f},
         2,
         "o_proj.weight_scale: scale nan is not"},
        {"model.embed_tokens.weight",
         {0xc0, 0x7f},
         2,
         "embed_tokens.weight: row 0, column 0: not a number"},
        {"model.norm.weight", {0x80, 0x7f}, 2, "model.norm.weight: row 0, column 0: infinite"},
        {"model.embed_tokens.weight",
         {0x80, 0x47},
         2,
         "65536 does not fit the output type; use f32 or bf16"},
    };
    bnet_convert_options o;
    bnet_convert_options_init(&o);
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        fx_write_model(&bitnet_packed, dir);
        poke(rows[i].tensor, rows[i].bytes, rows[i].n);
        expect_failure(&o, BITNET_MODEL, rows[i].expect);
    }
    uint8_t tiny[2] = {0x00, 0x2a}; /* 1.1e-13: f16 has nothing near it */
    fx_write_model(&bitnet_packed, dir);
    poke("model.layers.0.self_attn.q_proj.weight_scale", tiny, 2);
    o.weight_type = BNET_TQ2_0;
    expect_failure(&o, BITNET_MODEL, "does not fit 16 bits; use --type i2_s or f32");
}

/* ---- nothing stays behind ---- */

typedef struct watch {
    uint64_t last, stop_at, n_total;
    bool backwards;
} watch;

static bool watch_progress(void *user, uint64_t n_done, uint64_t n_total)
{
    watch *w = user;
    w->backwards = w->backwards || n_done <= w->last || n_done > n_total;
    w->last = n_done;
    w->n_total = n_total;
    return n_done < w->stop_at;
}

static void test_progress_and_cancel(void **state)
{
    (void)state;
    watch w = {.stop_at = UINT64_MAX};
    bitnet_error err = {0};
    bnet_convert_options o;
    fx_write_model(&bitnet_packed, dir);
    bnet_convert_options_init(&o);
    o.on_progress = watch_progress;
    o.progress_user = &w;
    assert_int_equal(bnet_convert(dir, out_path, &o, &err), BITNET_OK);
    assert_false(w.backwards);
    assert_true(w.last > 0 && w.last == w.n_total);
    w = (watch){.stop_at = w.n_total / 2};
    expect_failure(&o, BITNET_CANCELLED, "cancelled at tensor");
    assert_true(w.last < w.n_total);
    assert_int_equal(fx_count(dir, ".tmp"), 0);
}

/* A file that cannot grow past 64 KiB stands for a full disk. In a child: the limit cannot be
 * lifted again. */
static void test_full_disk(void **state)
{
    (void)state;
    fx_write_model(&bitnet_packed, dir);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit limit = {65536, 65536};
        bitnet_error err = {0};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        bitnet_status st = bnet_convert(dir, out_path, NULL, &err);
        _exit(st == BITNET_IO && strstr(err.message, "out.gguf") && strstr(err.message, "write")
                  ? 42
                  : (int)st);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
    assert_int_equal(fx_count(dir, "out.gguf"), 0);
}

/* A failed conversion leaves an older output as it was. */
static void test_old_output_survives(void **state)
{
    (void)state;
    bitnet_error err = {0};
    char *data = NULL;
    size_t n = 0;
    uint8_t bad = 0xff;
    fx_write_model(&bitnet_packed, dir);
    poke("model.layers.1.mlp.up_proj.weight", &bad, 1);
    fx_write_text(dir, "out.gguf", "precious");
    assert_int_equal(bnet_convert(dir, out_path, NULL, &err), BITNET_MODEL);
    assert_int_equal(bnet_read_file(out_path, 100, &data, &n, NULL), BITNET_OK);
    assert_string_equal(data, "precious");
    assert_int_equal(fx_count(dir, ".tmp"), 0);
    bnet_free(data);
}

static void test_no_such_input(void **state)
{
    (void)state;
    bitnet_error err = {0};
    char path[1100];
    fx_path(dir, "nothing", path, sizeof path);
    assert_int_equal(bnet_convert(path, out_path, NULL, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "nothing: cannot open"));
    fx_path(dir, "none/out.gguf", path, sizeof path);
    fx_write_model(&bitnet_packed, dir);
    assert_int_equal(bnet_convert(dir, path, NULL, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "none/out.gguf: cannot create"));
    assert_int_equal(bnet_convert(dir, dir, NULL, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "is the input"));
}

/* No file of the input is replaced, whatever name the output gives it. */
static void test_input_is_no_output(void **state)
{
    (void)state;
    bitnet_error err = {0};
    char path[1100], name[1200], tokens[1100];
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors",
                                        "notes.txt"};
    fx_write_model(&bitnet_packed, dir);
    fx_write_text(dir, "notes.txt", "by hand");
    for (size_t i = 0; i < BNET_COUNT(files); i++) {
        err.message[0] = '\0';
        fx_path(dir, files[i], path, sizeof path);
        if (bnet_convert(dir, path, NULL, &err) != BITNET_ARGUMENT ||
            !strstr(err.message, "is part of the input; choose another output"))
            fail_msg("%s: %s", files[i], err.message);
    }
    fx_path(dir, "model.safetensors", path, sizeof path);
    fx_path(dir, "link.gguf", name, sizeof name);
    assert_int_equal(link(path, name), 0);
    assert_int_equal(bnet_convert(dir, name, NULL, &err), BITNET_ARGUMENT);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(symlink("model.safetensors", name), 0);
    assert_int_equal(bnet_convert(dir, name, NULL, &err), BITNET_ARGUMENT);
    /* an earlier GGUF in the folder may be made anew */
    for (int i = 0; i < 2; i++)
        if (bnet_convert(dir, out_path, NULL, &err) != BITNET_OK)
            fail_msg("%s", err.message);
    bnet_convert_options o;
    bnet_convert_options_init(&o);
    fx_write_text(dir, "tok.bin", "x");
    o.tokenizer = fx_path(dir, "tok.bin", tokens, sizeof tokens);
    assert_int_equal(bnet_convert(path, tokens, &o, &err), BITNET_ARGUMENT);
}

/* A pipe among the files of a checkpoint is refused, not waited for. */
static void test_pipe_in_checkpoint(void **state)
{
    (void)state;
    char path[1100];
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja", "model.safetensors"};
    for (size_t i = 0; i < BNET_COUNT(files); i++) {
        bitnet_error err = {0};
        fx_write_model(&bitnet_packed, dir);
        fx_path(dir, files[i], path, sizeof path);
        unlink(path);
        assert_int_equal(mkfifo(path, 0600), 0);
        alarm(20); /* ends a test that hangs */
        if (bnet_convert(dir, out_path, NULL, &err) != BITNET_IO ||
            !strstr(err.message, "pipe, not a regular file") || !strstr(err.message, files[i]))
            fail_msg("%s: %s", files[i], err.message);
        alarm(0);
        unlink(path);
    }
}

/* ---- the trained models ---- */

/* The packed checkpoint and its masters must give the same codes, tensor for tensor. */
static void test_nano_equals_its_master(void **state)
{
    (void)state;
    char packed[1024], master[1024], other[1100];
    bitnet_error err = {0};
    bnet_gguf *a = NULL, *b = NULL;
    size_t n_ternary = 0;
    if (!shared_path("story-model/nano", packed, sizeof packed) ||
        !shared_path("story-model/nano-master", master, sizeof master))
        skip();
    fx_path(dir, "other.gguf", other, sizeof other);
    assert_int_equal(bnet_convert(packed, out_path, NULL, &err), BITNET_OK);
    assert_int_equal(bnet_convert(master, other, NULL, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_open(out_path, NULL, &a, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_open(other, NULL, &b, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_n_tensors(a), bnet_gguf_n_tensors(b));
    for (size_t i = 0; i < bnet_gguf_n_tensors(a); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(a, i), *u = bnet_gguf_tensor(b, t->name);
        assert_non_null(u);
        assert_int_equal(t->type, u->type);
        uint64_t n = t->type == BNET_I2_S ? bnet_tensor_elems(t) / 4 : t->n_bytes;
        if (memcmp(t->data, u->data, n) != 0)
            fail_msg("%s: the packed and the master checkpoint differ", t->name);
        n_ternary += t->type == BNET_I2_S;
    }
    assert_int_equal(n_ternary, 14);
    bnet_gguf_close(a);
    bnet_gguf_close(b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_packed_multiply),
        TEST(test_packed_divide),
        TEST(test_packed_without_config),
        TEST(test_masters),
        TEST(test_old_bitnet),
        TEST(test_dense_llama),
        TEST(test_float_llama),
        TEST(test_shards),
        TEST(test_tied_head_in_file),
        TEST(test_keys),
        TEST(test_other_architectures),
        TEST(test_rope_freqs),
        TEST(test_types_refused),
        TEST(test_rows_refused),
        TEST(test_bad_values),
        TEST(test_progress_and_cancel),
        TEST(test_full_disk),
        TEST(test_old_output_survives),
        TEST(test_no_such_input),
        TEST(test_input_is_no_output),
        TEST(test_pipe_in_checkpoint),
        TEST(test_nano_equals_its_master),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
