/* test_hf_config.c - config.json: what each spelling means, and every refusal. */
#include "unit/convert/malformed.h"

#include "convert/hf_config.h"

static const char good[] = "{\"architectures\":[\"BitNetForCausalLM\"],\"hidden_act\":\"relu2\","
                           "\"hidden_size\":256,\"intermediate_size\":512,"
                           "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_"
                           "heads\":2,\"vocab_size\":300,"
                           "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"rope_theta\":"
                           "10000.0,\"tie_word_embeddings\":true,"
                           "\"bos_token_id\":290,\"eos_token_id\":[291,292],\"quantization_"
                           "config\":{\"quant_method\":\"bitnet\","
                           "\"linear_class\":\"autobitlinear\",\"quantization_mode\":\"offline\"}}";

static bitnet_status parse(const char *text, bnet_hf_config *c, bitnet_error *err)
{
    return bnet_hf_config_parse(text, strlen(text), "config.json", NULL, c, err);
}

static void parse_edit(const char *from, const char *to, bnet_hf_config *c)
{
    bitnet_error err = {0};
    char *text = fx_replace(good, from, to);
    if (parse(text, c, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    free(text);
}

static void test_good(void **state)
{
    (void)state;
    bnet_hf_config c;
    parse_edit("{", "{", &c);
    assert_string_equal(c.arch, "bitnet-b1.58");
    assert_string_equal(c.activation, "relu2");
    assert_true(c.sub_norms && !c.permute && c.tied && c.tied_known);
    assert_int_equal(c.weights, BNET_HF_MULTIPLY);
    assert_int_equal(c.head_dim, 64);
    assert_false(c.explicit_head_dim);
    assert_int_equal(c.n_kv_heads, 2);
    assert_true(c.rope_base == 10000.0 && c.eps == 1e-5);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos[1], 292);
    assert_int_equal(c.bos, 290);
    assert_int_equal(c.pad, -1);
}

static void test_forms(void **state)
{
    (void)state;
    bnet_hf_config c;
    parse_edit("\"offline\"", "\"online\"", &c);
    assert_int_equal(c.weights, BNET_HF_MASTER);
    parse_edit("\"linear_class\":\"autobitlinear\",", "", &c);
    assert_int_equal(c.weights, BNET_HF_DIVIDE);
    parse_edit("autobitlinear", "bitlinear", &c);
    assert_int_equal(c.weights, BNET_HF_DIVIDE);
    parse_edit("\"quantization_config\"", "\"other\"", &c);
    assert_int_equal(c.weights, BNET_HF_MASTER);
    assert_true(c.packed_by_default);
    parse_edit("[\"BitNetForCausalLM\"],\"hidden_act\":\"relu2\"", "[\"LlamaForCausalLM\"]", &c);
    assert_string_equal(c.arch, "llama");
    assert_true(c.permute && !c.sub_norms);
}

/* Keys of parts that the network has not: absent, off or without effect they are nothing, else they
 * are refused by name. */
static void test_other_parts(void **state)
{
    (void)state;
    static const char *const fine[] = {
        "{\"attention_bias\":false,\"mlp_bias\":false,",
        "{\"attention_bias\":null,\"sliding_window\":null,",
        "{\"sliding_window\":128,",
        "{\"sliding_window\":64,\"use_sliding_window\":false,",
        "{\"use_sliding_window\":false,",
    };
    static const char *const bad[][2] = {
        {"{\"attention_bias\":true,", "attention_bias"},
        {"{\"mlp_bias\":true,", "mlp_bias"},
        {"{\"mlp_bias\":1,", "mlp_bias"},
        {"{\"sliding_window\":127,", "sliding_window: 127 is below max_position_embeddings 128"},
        {"{\"sliding_window\":64,\"use_sliding_window\":null,", "sliding_window: 64"},
        {"{\"use_sliding_window\":true,", "use_sliding_window"},
        {"{\"sliding_window\":\"64\",", "sliding_window"},
    };
    bnet_hf_config c;
    for (size_t i = 0; i < BNET_COUNT(fine); i++)
        parse_edit("{", fine[i], &c);
    for (size_t i = 0; i < BNET_COUNT(bad); i++) {
        bitnet_error err = {0};
        char *text = fx_replace(good, "{", bad[i][0]);
        if (parse(text, &c, &err) != BITNET_MODEL || !strstr(err.message, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], err.message);
        free(text);
    }
}

static void test_defaults_and_nesting(void **state)
{
    (void)state;
    bnet_hf_config c;
    parse_edit("\"rope_theta\":10000.0,", "", &c);
    assert_true(c.rope_base == 500000.0);
    parse_edit("\"rope_theta\":10000.0",
               "\"rope_parameters\":{\"rope_theta\":123456.0,\"rope_type\":\"default\"}", &c);
    assert_true(c.rope_base == 123456.0);
    parse_edit("\"num_key_value_heads\":2,", "", &c);
    assert_int_equal(c.n_kv_heads, 4);
    parse_edit("\"num_key_value_heads\":2,", "\"num_key_value_heads\":2,\"head_dim\":32,", &c);
    assert_int_equal(c.head_dim, 32);
    assert_true(c.explicit_head_dim);
    parse_edit("[291,292]", "291", &c);
    assert_int_equal(c.n_eos, 1);
    parse_edit("[291,292]", "null", &c);
    assert_int_equal(c.n_eos, 0);
    parse_edit("\"tie_word_embeddings\":true,", "", &c);
    assert_false(c.tied_known);
    parse_edit("\"rope_theta\":10000.0",
               "\"rope_theta\":1e4,\"rope_scaling\":{\"type\":\"linear\",\"factor\":1.0}", &c);
    assert_false(c.llama3_rope);
    parse_edit("{", "{\"_name_or_path\":\"/tmp/somewhere\",", &c);
    assert_string_equal(c.name, "");
    parse_edit("{", "{\"_name_or_path\":\"owner/name\",", &c);
    assert_string_equal(c.name, "owner/name");
}

static const malformed broken[] = {
    {NULL, "", BITNET_MODEL, "not valid JSON"},
    {NULL, "7", BITNET_MODEL, "not valid JSON: line 1, column 1"},
    {NULL, "[1]", BITNET_MODEL, "the document is an array"},
    {"\"hidden_size\":256", "\"hidden_size\":256,\"hidden_size\":512", BITNET_MODEL,
     "duplicate object key"},
    {"[\"BitNetForCausalLM\"]", "[]", BITNET_MODEL, "architectures: does not name a model class"},
    {"[\"BitNetForCausalLM\"]", "\"BitNetForCausalLM\"", BITNET_MODEL,
     "architectures: is a string; an array"},
    {"BitNetForCausalLM", "MambaForCausalLM", BITNET_MODEL,
     "\"MambaForCausalLM\" is not supported; BitNetForCausalLM, BitnetForCausalLM and "
     "LlamaForCausalLM are"},
    {"relu2", "gelu", BITNET_MODEL, "hidden_act: \"gelu\" is not supported"},
    {"BitNetForCausalLM", "LlamaForCausalLM", BITNET_MODEL,
     "\"relu2\" is not known for LlamaForCausalLM"},
    {"\"hidden_size\":256,", "", BITNET_MODEL, "hidden_size: is missing"},
    {"256", "\"256\"", BITNET_MODEL, "hidden_size: is a string; an integer was expected"},
    {"256", "0", BITNET_MODEL, "hidden_size: value 0 is outside"},
    {"256", "99999999999", BITNET_MODEL, "hidden_size: value 99999999999 is outside"},
    {"\"intermediate_size\":512", "\"intermediate_size\":-1", BITNET_MODEL,
     "intermediate_size: value -1"},
    {"\"num_hidden_layers\":2", "\"num_hidden_layers\":1000000", BITNET_MODEL,
     "num_hidden_layers: value 1000000"},
    {"\"num_attention_heads\":4", "\"num_attention_heads\":3", BITNET_MODEL,
     "2 does not divide num_attention_heads 3"},
    {"\"num_attention_heads\":4,\"num_key_value_heads\":2", "\"num_attention_heads\":6",
     BITNET_MODEL, "6 does not divide hidden_size 256"},
    {"\"num_attention_heads\":4", "\"num_attention_heads\":256", BITNET_MODEL,
     "head_dim: 1 is odd"},
    {"\"num_key_value_heads\":2", "\"num_key_value_heads\":8", BITNET_MODEL,
     "num_key_value_heads: value 8 is outside 1..4"},
    {"\"vocab_size\":300", "\"vocab_size\":4000000000", BITNET_MODEL,
     "vocab_size: value 4000000000"},
    {"\"max_position_embeddings\":128,", "", BITNET_MODEL, "max_position_embeddings: is missing"},
    {"1e-05", "0", BITNET_MODEL, "rms_norm_eps: value 0 is outside"},
    {"\"rms_norm_eps\":1e-05,", "", BITNET_MODEL, "rms_norm_eps: is missing"},
    {"10000.0", "-1", BITNET_MODEL, "rope_theta: value -1 is outside"},
    {"10000.0", "1e4,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}", BITNET_MODEL,
     "rope_scaling.rope_type: \"linear\" (factor 2) is not supported"},
    {"10000.0", "1e4,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}", BITNET_MODEL,
     "\"yarn\" (factor 4)"},
    {"10000.0", "1e4,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0}", BITNET_MODEL,
     "rope_scaling.low_freq_factor: is missing"},
    {"10000.0",
     "1e4,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_"
     "freq_factor\":1,"
     "\"original_max_position_embeddings\":8192}",
     BITNET_MODEL, "1 must exceed low_freq_factor 4"},
    {"10000.0", "1e4,\"rope_parameters\":{\"rope_type\":\"dynamic\"}", BITNET_MODEL,
     "rope_parameters.rope_type: \"dynamic\""},
    {"10000.0", "1e4,\"partial_rotary_factor\":0.5", BITNET_MODEL,
     "partial_rotary_factor: 0.5 is not supported"},
    {"true", "\"yes\"", BITNET_MODEL, "tie_word_embeddings: is a string; true or false"},
    {"290", "300", BITNET_MODEL, "bos_token_id: value 300 is outside 0..299"},
    {"292", "301", BITNET_MODEL, "eos_token_id: value 301 is outside the vocabulary of 300"},
    {"292", "\"x\"", BITNET_MODEL, "eos_token_id: holds a string"},
    {"[291,292]", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", BITNET_MODEL,
     "eos_token_id: lists 17 ids"},
    {"\"bitnet\"", "\"gptq\"", BITNET_MODEL,
     "quantization_config.quant_method: \"gptq\" is not supported"},
    {"autobitlinear", "lutlinear", BITNET_MODEL, "linear_class: \"lutlinear\" is not supported"},
    {"offline", "halfway", BITNET_MODEL, "quantization_mode: \"halfway\" is not supported"},
    {"\"autobitlinear\",\"quantization_mode\":\"offline\"",
     "\"bitlinear\",\"quantization_mode\":\"online\"", BITNET_MODEL,
     "\"online\" needs linear_class autobitlinear"},
    {"\"offline\"", "\"offline\",\"use_rms_norm\":true", BITNET_MODEL, "use_rms_norm: true"},
};

static void test_malformed(void **state)
{
    (void)state;
    malformed_run run = {0};
    for (size_t i = 0; i < BNET_COUNT(broken); i++) {
        bnet_hf_config c;
        bitnet_error err = {0};
        char *text = fx_replace(good, broken[i].from, broken[i].to);
        malformed_check(&run, &broken[i], parse(text, &c, &err), &err);
        assert_non_null(strstr(err.message, "config.json"));
        free(text);
    }
    malformed_end(&run, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_other_parts), cmocka_unit_test(test_defaults_and_nesting),
        cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
