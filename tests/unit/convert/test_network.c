/* test_network.c - checkpoints whose tensors are not those of the network the config describes:
 * each refusal names file, tensor, what was found and what was wanted. */
#include "unit/convert/malformed.h"

#include "convert/convert.h"

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

/* Changes the header of model.safetensors and keeps its data. */
static void edit_header(const char *from, const char *to)
{
    char path[1100], *data = NULL;
    size_t n = 0;
    bnet_str bytes = {0};
    fx_path(dir, "model.safetensors", path, sizeof path);
    assert_int_equal(bnet_read_file(path, 1 << 24, &data, &n, NULL), BITNET_OK);
    size_t len = (size_t)bnet_u64(data);
    char *header = strndup(data + 8, len);
    char *edited = fx_replace(header, from, to);
    fx_join(edited, data + 8 + len, n - 8 - len, &bytes);
    fx_write(dir, "model.safetensors", bytes.data, bytes.n);
    bnet_str_free(&bytes);
    free(edited);
    free(header);
    bnet_free(data);
}

static const malformed rows[] = {
    {"model.norm.weight", "model.gnorm.weight", BITNET_MODEL,
     "tensor model.norm.weight is missing"},
    {"model.embed_tokens.weight", "model.embed.weight", BITNET_MODEL,
     "tensor model.embed_tokens.weight is missing"},
    {"layers.1.mlp.up_proj.weight\"", "layers.1.mlp.upward.weight\"", BITNET_MODEL,
     "model.safetensors: tensor model.layers.1.mlp.up_proj.weight is missing"},
    {"layers.0.self_attn.k_proj.weight_scale", "layers.0.self_attn.k_proj.scale", BITNET_MODEL,
     "tensor model.layers.0.self_attn.k_proj.weight_scale is missing"},
    {"layers.0.mlp.ffn_sub_norm.weight", "layers.0.mlp.ffn_norm.weight", BITNET_MODEL,
     "tensor model.layers.0.mlp.ffn_sub_norm.weight is missing"},
    {"\"shape\":[300,256]", "\"shape\":[256,300]", BITNET_MODEL,
     "tensor model.embed_tokens.weight: shape is [256, 300]; [300, 256] was expected"},
    {"\"shape\":[64,256]", "\"shape\":[128,128]", BITNET_MODEL,
     "q_proj.weight: shape is [128, 128]; [64, 256] was expected"},
    {"\"shape\":[64,256]", "\"shape\":[16384]", BITNET_MODEL,
     "q_proj.weight: shape is [16384]; [64, 256] was expected"},
    {"input_layernorm.weight\":{\"dtype\":\"BF16\",\"shape\":[256]",
     "input_layernorm.weight\":{\"dtype\":\"BF16\",\"shape\":[1,256]", BITNET_MODEL,
     "input_layernorm.weight: shape is [1, 256]; [256] was expected"},
    {"input_layernorm.weight\":{\"dtype\":\"BF16\"", "input_layernorm.weight\":{\"dtype\":\"I16\"",
     BITNET_MODEL, "input_layernorm.weight: dtype is I16; F32, F16 or BF16 was expected"},
    {"q_proj.weight\":{\"dtype\":\"U8\"", "q_proj.weight\":{\"dtype\":\"I8\"", BITNET_MODEL,
     "q_proj.weight: dtype is I8; the config says packed U8 weights"},
    {"q_proj.weight_scale\":{\"dtype\":\"BF16\"", "q_proj.weight_scale\":{\"dtype\":\"U16\"",
     BITNET_MODEL, "q_proj.weight_scale: dtype is U16"},
    {"q_proj.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[1]",
     "q_proj.weight_scale\":{\"dtype\":\"U8\",\"shape\":[2]", BITNET_MODEL,
     "q_proj.weight_scale: shape is [2]; one value was expected"},
    {"model.layers.1.", "model.layers.2.", BITNET_MODEL,
     "tensor model.layers.1.input_layernorm.weight is missing"},
};

static const fx_model packed = {.class = "BitNetForCausalLM",
                                .act = "relu2",
                                .quant = FX_MULTIPLY,
                                .dtype = "U8",
                                .sub_norms = true,
                                .extra = ",\"tie_word_embeddings\":true"};

static void test_mismatches(void **state)
{
    (void)state;
    malformed_run run = {0};
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bitnet_error err = {0};
        fx_write_model(&packed, dir);
        edit_header(rows[i].from, rows[i].to);
        malformed_check(&run, &rows[i], bnet_convert(dir, out_path, NULL, &err), &err);
        assert_int_equal(fx_count(dir, "out.gguf"), 0);
    }
    malformed_end(&run, 14);
}

static void expect(const fx_model *m, bitnet_status want, const char *part)
{
    bitnet_error err = {0};
    fx_write_model(m, dir);
    bitnet_status st = bnet_convert(dir, out_path, NULL, &err);
    if (st != want || !strstr(err.message, part))
        fail_msg("status %d, message \"%s\"; \"%s\" was expected", (int)st, err.message, part);
}

/* Tensors that have no place. */
static void test_extra(void **state)
{
    (void)state;
    fx_model m = packed;
    m.class = "LlamaForCausalLM"; /* its graph has no sub-norms */
    m.act = "silu";
    expect(&m, BITNET_MODEL, "_sub_norm.weight [");
    m = packed;
    m.quant = FX_ONLINE;
    expect(&m, BITNET_MODEL, "q_proj.weight: dtype is U8; the config says float weights");
    m = packed;
    m.dtype = "BF16";
    expect(&m, BITNET_MODEL, "q_proj.weight: dtype is BF16; the config says packed U8 weights");
    m = packed;
    m.extra = ",\"tie_word_embeddings\":false";
    expect(&m, BITNET_MODEL, "tensor lm_head.weight is missing");
}

/* Tables that old exports stored along are passed over. */
static void test_inv_freq(void **state)
{
    (void)state;
    bitnet_error err = {0};
    fx_file f = {0};
    fx_model m = packed;
    m.n_shards = 2;
    fx_write_model(&m, dir);
    fx_add_floats(&f, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 0, 32);
    fx_finish(&f, dir, "model-00003-of-00003.safetensors");
    char path[1100], *index = NULL;
    size_t n = 0;
    fx_path(dir, "model.safetensors.index.json", path, sizeof path);
    assert_int_equal(bnet_read_file(path, 1 << 20, &index, &n, NULL), BITNET_OK);
    char *more = fx_replace(index, "\"weight_map\":{",
                            "\"weight_map\":{\"model.layers.0.self_attn.rotary_emb.inv_freq\":"
                            "\"model-00003-of-00003.safetensors\",");
    fx_write_text(dir, "model.safetensors.index.json", more);
    if (bnet_convert(dir, out_path, NULL, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    free(more);
    bnet_free(index);
}

static void test_missing_files(void **state)
{
    (void)state;
    bitnet_error err = {0};
    char path[1100];
    assert_int_equal(bnet_convert(dir, out_path, NULL, &err), BITNET_IO);
    assert_non_null(strstr(err.message, "config.json: cannot open"));
    fx_write_model(&packed, dir);
    unlink(fx_path(dir, "tokenizer.json", path, sizeof path));
    assert_int_equal(bnet_convert(dir, out_path, NULL, &err), BITNET_TOKENIZER);
    fx_write_text(dir, "tokenizer.json", "{");
    assert_int_equal(bnet_convert(dir, out_path, NULL, &err), BITNET_TOKENIZER);
    assert_int_equal(fx_count(dir, "out.gguf"), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_mismatches), TEST(test_extra), TEST(test_inv_freq),
                                       TEST(test_missing_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
