/* test_hf_tokenizer.c - tokenizer.json in both families, the files around it, and every refusal. */
#include "unit/convert/malformed.h"

#include "convert/hf_tokenizer.h"

static bitnet_status parse(const char *text, bnet_vocab *v, bitnet_error *err)
{
    return bnet_hf_tokenizer_parse(text, strlen(text), "tokenizer.json", FX_VOCAB, NULL, v, err);
}

static void parse_edit(const char *base, const char *from, const char *to, bnet_vocab *v)
{
    bitnet_error err = {0};
    char *text = fx_replace(base, from, to);
    if (parse(text, v, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    free(text);
}

static void assert_token(const bnet_vocab *v, int32_t id, const char *text, bnet_token_type type)
{
    const bnet_vocab_token *t = &v->tokens[id];
    if (t->type != type || t->text.n != strlen(text) ||
        memcmp(bnet_vocab_bytes(v, t->text), text, t->text.n) != 0)
        fail_msg("token %d: \"%.*s\" of type %d", id, (int)t->text.n, bnet_vocab_bytes(v, t->text),
                 (int)t->type);
}

static void assert_merge(const bnet_vocab *v, size_t i, const char *text)
{
    assert_true(i < v->n_merges);
    assert_int_equal(v->merges[i].n, strlen(text));
    assert_memory_equal(bnet_vocab_bytes(v, v->merges[i]), text, strlen(text));
}

static void test_byte_level(void **state)
{
    (void)state;
    /* both spellings of merges */
    static const char *const merges[] = {"[[\"a\",\"b\"],[\"ab\",\"c\"]]", "[\"a b\",\"ab c\"]"};
    for (size_t i = 0; i < BNET_COUNT(merges); i++) {
        bnet_vocab v;
        parse_edit(fx_tokenizer, merges[0], merges[i], &v);
        assert_string_equal(v.model, "gpt2");
        assert_string_equal(v.pre, "llama-bpe");
        assert_token(&v, 3, "ab", BNET_TOKEN_NORMAL);
        assert_token(&v, 292, "<|eot_id|>", BNET_TOKEN_CONTROL);
        assert_token(&v, 293, "<tool>", BNET_TOKEN_USER);
        assert_int_equal(v.tokens[5].type, BNET_TOKEN_ABSENT);
        assert_int_equal(v.n_merges, 2);
        assert_merge(&v, 0, "a b");
        assert_merge(&v, 1, "ab c");
        assert_int_equal(v.add_bos, -1);
        bnet_vocab_free(&v);
    }
}

static void count_warnings(void *user, bitnet_log_level level, const char *module,
                           const char *message)
{
    (void)module;
    if (level == BITNET_LOG_WARN && strstr(message, "<tool>") && strstr(message, "strip true"))
        *(int *)user += 1;
}

/* What a GGUF cannot say about an added token is said to the user. */
static void test_strip(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        int n_warnings;
    } rows[] = {{"\"lstrip\":false,\"rstrip\":false,", 0},
                {"\"lstrip\":true,", 1},
                {"\"rstrip\":true,", 1},
                {"\"lstrip\":true,\"rstrip\":true,", 2}};
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_vocab v;
        bitnet_error err = {0};
        int n = 0;
        char with[128];
        const bnet_log log = {count_warnings, &n};
        snprintf(with, sizeof with, "%s\"content\":\"<tool>\"", rows[i].more);
        char *text = fx_replace(fx_tokenizer, "\"content\":\"<tool>\"", with);
        if (bnet_hf_tokenizer_parse(text, strlen(text), "tokenizer.json", FX_VOCAB, &log, &v,
                                    &err) != BITNET_OK)
            fail_msg("%s", err.message);
        assert_int_equal(n, rows[i].n_warnings);
        bnet_vocab_free(&v);
        free(text);
    }
}

#define LLAMA3_STEPS_END "\"use_regex\":false}]}"

static void test_gpt2(void **state)
{
    (void)state;
    bnet_vocab v;
    static const char steps[] = "\"pre_tokenizer\":{\"type\":\"Sequence\"";
    parse_edit(fx_tokenizer, steps,
               "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
               "\"was\":{\"type\":\"Sequence\"",
               &v);
    assert_string_equal(v.pre, "gpt-2");
    bnet_vocab_free(&v);
    /* the same regex written out in a Split that keeps its matches */
    parse_edit(fx_tokenizer, steps,
               "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
               "\"pattern\":{\"Regex\":"
               "\"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| "
               "?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
               "\"behavior\":\"Removed\",\"invert\":true},{\"type\":\"ByteLevel\",\"add_prefix_"
               "space\":false,"
               "\"use_regex\":false}]},\"was\":{\"type\":\"Sequence\"",
               &v);
    assert_string_equal(v.pre, "gpt-2");
    bnet_vocab_free(&v);
}

static void test_post_processor(void **state)
{
    (void)state;
    bnet_vocab v;
    parse_edit(fx_tokenizer, "\"post_processor\":null",
               "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
               "{\"type\":"
               "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<|begin_of_text|>\"}"
               "},{\"Sequence\":{}}]}]}",
               &v);
    assert_int_equal(v.add_bos, 1);
    bnet_vocab_free(&v);
    parse_edit(
        fx_tokenizer, "\"post_processor\":null",
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{}}]}", &v);
    assert_int_equal(v.add_bos, 0);
    bnet_vocab_free(&v);
}

static const char spm[] =
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,\"content\":\"<"
    "s>\",\"special\":true},"
    "{\"id\":2,\"content\":\"</s>\",\"special\":true}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
    "\"\xe2\x96\x81\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]},"
    "\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
    "\"SpecialToken\":{\"id\":"
    "\"<s>\"}}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,"
    "\"vocab\":{\"<unk>\":0,"
    "\"<s>\":1,\"</s>\":2,\"<0x00>\":3,\"<0xFF>\":4,\"\xe2\x96\x81\":5,\"a\":6,\"\xe2\x96\x81"
    "a\":7,\"aa\":8,"
    "\"\xe2\x96\x81"
    "aa\":9},\"merges\":[\"\xe2\x96\x81 a\",\"a a\",\"\xe2\x96\x81"
    "a a\",\"\xe2\x96\x81 aa\"]}}";

static void test_sentencepiece(void **state)
{
    (void)state;
    bnet_vocab v;
    parse_edit(spm, "{", "{", &v);
    assert_string_equal(v.model, "llama");
    assert_true(v.add_space_prefix);
    assert_int_equal(v.add_bos, 1);
    assert_int_equal(v.unk, 0);
    assert_token(&v, 0, "<unk>", BNET_TOKEN_UNKNOWN);
    assert_token(&v, 1, "<s>", BNET_TOKEN_CONTROL);
    assert_token(&v, 3, "<0x00>", BNET_TOKEN_BYTE);
    assert_token(&v, 4, "<0xFF>", BNET_TOKEN_BYTE);
    assert_token(&v, 7,
                 "\xe2\x96\x81"
                 "a",
                 BNET_TOKEN_NORMAL);
    assert_int_equal(v.n_merges, 0);
    /* the lower the rank, the higher the score; a token takes its first rank; characters come last
     */
    assert_true(v.tokens[7].score > v.tokens[8].score);
    assert_true(v.tokens[8].score > v.tokens[9].score);
    assert_true(v.tokens[9].score == -3);
    assert_true(v.tokens[5].score < -4 && v.tokens[6].score < -4);
    bnet_vocab_free(&v);
}

static void test_metaspace(void **state)
{
    (void)state;
    static const struct {
        const char *step;
        bool prefix;
    } rows[] = {
        {"{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\"}",
         true},
        {"{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"never\"}",
         false},
        {"{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"add_prefix_space\":false}",
         false},
        {"{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\"}", true},
    };
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_vocab v;
        char *plain = fx_replace(spm, "\"normalizer\"", "\"was\"");
        bnet_str step = {0};
        bnet_str_addf(&step, "\"pre_tokenizer\":%s", rows[i].step);
        parse_edit(plain, "\"pre_tokenizer\":null", step.data, &v);
        assert_int_equal(v.add_space_prefix, rows[i].prefix);
        bnet_vocab_free(&v);
        bnet_str_free(&step);
        free(plain);
    }
}

static const malformed broken[] = {
    {NULL, "", BITNET_TOKENIZER, "not valid JSON"},
    {NULL, "[]", BITNET_TOKENIZER, "the document is an array"},
    {NULL, "{}", BITNET_TOKENIZER, "key model: is missing"},
    {"]}}", "]}", BITNET_TOKENIZER, "not valid JSON: line 1"},
    {"\"BPE\"", "\"Unigram\"", BITNET_TOKENIZER, "tokenizer model \"Unigram\" is not supported"},
    {"\"type\":\"BPE\"", "\"type\":5", BITNET_TOKENIZER, "type: is an integer; a string"},
    {"\"a\":0", "\"a\":0,\"a\":9", BITNET_TOKENIZER, "duplicate object key \"a\""},
    {"\"b\":1", "\"b\":1,\"\\u0062\":1", BITNET_TOKENIZER, "duplicate object key \"b\""},
    {"\"a\":0", "\"a\\u0000\":0", BITNET_TOKENIZER, "vocab: a text holds \\u0000"},
    {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"type\":\"BPE\"", BITNET_TOKENIZER,
     "key type: duplicate object key"},
    {"\"normalizer\":null", "\"normalizer\":null,\"normalizer\":null", BITNET_TOKENIZER,
     "key normalizer: duplicate object key"},
    {"\"normalizer\":null", "\"normalizer\":{\"a\":1,\"a\":2}", BITNET_TOKENIZER,
     "key normalizer: duplicate object key"},
    {"\"special\":false", "\"special\":false,\"special\":true", BITNET_TOKENIZER,
     "added_tokens.special: duplicate object key"},
    {"\"model\":{", "\"model\":[],\"was\":{", BITNET_TOKENIZER, "model: is an array; an object"},
    {"\"a\":0", "\"a\":1", BITNET_TOKENIZER, "id 1 belongs to"},
    {"\"a\":0", "\"a\":\"0\"", BITNET_TOKENIZER, "vocab: token \"a\": id is a string"},
    {"\"a\":0", "\"a\":300", BITNET_TOKENIZER, "id 300 is outside the embedding's 300 rows"},
    {"\"a\":0", "\"a\":-1", BITNET_TOKENIZER, "token \"a\": id -1 is outside"},
    {"\"a\":0", "\"a\":2147483648", BITNET_TOKENIZER, "id 2147483648 is outside"},
    {"\"a\":0", "\"\":0", BITNET_TOKENIZER, "a token has no text"},
    {"{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4}", "{}", BITNET_TOKENIZER, "vocab: is empty"},
    {"\"vocab\":{", "\"words\":{", BITNET_TOKENIZER, "vocab: is missing"},
    {"\"vocab\":{", "\"vocab\":[],\"was\":{", BITNET_TOKENIZER, "vocab: is an array"},
    {"\"added_tokens\":[", "\"added_tokens\":{},\"was\":[", BITNET_TOKENIZER,
     "added_tokens: is an object; an array"},
    {"\"added_tokens\":[", "\"added_tokens\":[7,", BITNET_TOKENIZER,
     "added_tokens: holds an integer"},
    {"\"content\":\"<tool>\"", "\"text\":\"<tool>\"", BITNET_TOKENIZER,
     "added_tokens.content: is missing"},
    {"\"special\":false", "\"special\":0", BITNET_TOKENIZER,
     "added_tokens.special: is an integer; true or false"},
    {"\"id\":293,", "", BITNET_TOKENIZER, "token \"<tool>\": id is missing"},
    {"\"id\":293,", "\"id\":292,", BITNET_TOKENIZER, "id 292 belongs to \"<tool>\" and to another"},
    {"\"<tool>\"", "\"a\"", BITNET_TOKENIZER, "token \"a\" has two ids, 0 and 293"},
    {"\"merges\"", "\"joins\"", BITNET_TOKENIZER, "merges: is missing"},
    {"[\"a\",\"b\"]", "[\"a\",\"q\"]", BITNET_TOKENIZER, "merge 0: \"q\" is not in the vocabulary"},
    {"[\"a\",\"b\"]", "[\"b\",\"a\"]", BITNET_TOKENIZER,
     "merge 0: \"ba\" is not in the vocabulary"},
    {"[\"a\",\"b\"]", "[\"a\"]", BITNET_TOKENIZER, "merge 0 is neither \"left right\" nor a pair"},
    {"[\"a\",\"b\"]", "\"ab\"", BITNET_TOKENIZER, "merge 0 \"ab\": exactly one space"},
    {"[\"a\",\"b\"]", "\"a b c\"", BITNET_TOKENIZER, "merge 0 \"a b c\": exactly one space"},
    {"\\\\p{N}{1,3}", "\\\\p{N}", BITNET_TOKENIZER,
     "splitter regex is neither llama-3's nor gpt-2's: (?i:"},
    {"{\"Regex\":", "{\"String\":", BITNET_TOKENIZER, "the Split step has no pattern.Regex"},
    {"Isolated", "MergedWithNext", BITNET_TOKENIZER, "behavior is not Isolated"},
    {"\"use_regex\":false", "\"use_regex\":true", BITNET_TOKENIZER, "two splitters"},
    {"\"add_prefix_space\":false", "\"add_prefix_space\":true", BITNET_TOKENIZER,
     "add_prefix_space true"},
    {"{\"type\":\"ByteLevel\",\"add_prefix_space\"",
     "{\"type\":\"Digits\"},{\"type\":\"ByteLevel\",\"add_prefix_space\"", BITNET_TOKENIZER,
     "step \"Digits\" is not supported here; one Split and one ByteLevel are"},
    {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false",
     "{\"type\":\"Whitespace\",\"add_prefix_space\":false", BITNET_TOKENIZER,
     "step \"Split\" is not supported here; ByteLevel, or Metaspace"},
    {"\"pre_tokenizer\"", "\"was\"", BITNET_TOKENIZER,
     "pre_tokenizer: is missing, and the model has no byte_fallback"},
    {"\"pre_tokenizer\":{\"type\":\"Sequence\"",
     "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
     "\"use_regex\":false},\"was\":{\"type\":\"Sequence\"",
     BITNET_TOKENIZER, "no splitter"},
    {"\"pre_tokenizer\":{\"type\":\"Sequence\"", "\"pre_tokenizer\":{\"kind\":\"Sequence\"",
     BITNET_TOKENIZER, "pre_tokenizer: a step has no type"},
    {"\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
     "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"A\"},{\"type\":\"A\"}"
     ",{\"type\":\"A\"},"
     "{\"type\":\"A\"},{\"type\":\"A\"},{\"type\":\"A\"},{\"type\":\"A\"},{\"type\":\"A\"},{"
     "\"type\":\"A\"},{\"type\":\"A\"},"
     "{\"type\":\"A\"},{\"type\":\"A\"},{\"type\":\"A\"},{\"type\":\"A\"},{\"type\":\"A\"},",
     BITNET_TOKENIZER, "has more than 16 steps"},
    {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", BITNET_TOKENIZER,
     "step \"NFC\" is not supported here"},
    {"\"normalizer\":null", "\"normalizer\":\"NFC\"", BITNET_TOKENIZER,
     "normalizer: is a string; an object"},
    {"\"post_processor\":null", "\"post_processor\":{\"type\":\"BertProcessing\"}",
     BITNET_TOKENIZER, "step \"BertProcessing\" is not supported"},
    {"\"dropout\":null", "\"end_of_word_suffix\":\"</w>\"", BITNET_TOKENIZER,
     "end_of_word_suffix: is set"},
    {"\"dropout\":null", "\"continuing_subword_prefix\":\"##\"", BITNET_TOKENIZER,
     "continuing_subword_prefix: is set"},
};

static const malformed broken_spm[] = {
    {"\"prepend\":\"\xe2\x96\x81\"", "\"prepend\":\"_\"", BITNET_TOKENIZER,
     "step \"Prepend\" is not supported"},
    {"\"String\":\" \"", "\"String\":\"  \"", BITNET_TOKENIZER,
     "step \"Replace\" is not supported"},
    {"\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}",
     BITNET_TOKENIZER, "step \"Metaspace\" is not supported"},
    {"\"unk_token\":\"<unk>\"", "\"unk_token\":\"<none>\"", BITNET_TOKENIZER,
     "unk_token: \"<none>\" is not in"},
};

static void run_table(malformed_run *run, const char *base, const malformed *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bnet_vocab v;
        bitnet_error err = {0};
        char *text = fx_replace(base, rows[i].from, rows[i].to);
        malformed_check(run, &rows[i], parse(text, &v, &err), &err);
        assert_non_null(strstr(err.message, "tokenizer.json"));
        assert_null(v.tokens);
        free(text);
    }
}

static void test_malformed(void **state)
{
    (void)state;
    malformed_run run = {0};
    run_table(&run, fx_tokenizer, broken, BNET_COUNT(broken));
    run_table(&run, spm, broken_spm, BNET_COUNT(broken_spm));
    malformed_end(&run, 40);
}

/* ---- the files around it ---- */

static char dir[1024];

static int set_up(void **state)
{
    (void)state;
    fx_make_dir(dir, sizeof dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fx_remove_dir(dir);
    return 0;
}

static bitnet_status read_dir(const char *tokenizer_config, bnet_hf_config config, bnet_vocab *v,
                              bitnet_error *err)
{
    fx_write_text(dir, "tokenizer.json", fx_tokenizer);
    fx_write_text(dir, "tokenizer_config.json", tokenizer_config);
    config.n_vocab = FX_VOCAB;
    return bnet_hf_tokenizer_read(dir, &config, NULL, v, err);
}

static void test_names(void **state)
{
    (void)state;
    bnet_vocab v;
    bitnet_error err = {0};
    bnet_hf_config none = {.bos = -1, .pad = -1},
                   given = {.bos = 292, .pad = 1, .eos = {0}, .n_eos = 1};
    static const char names[] =
        "{\"bos_token\":{\"content\":\"<|begin_of_text|>\"},\"eos_token\":\"<|end_of_text|>\","
        "\"add_bos_token\":false}";
    assert_int_equal(read_dir(names, none, &v, &err), BITNET_OK);
    assert_int_equal(v.bos, 290);
    assert_int_equal(v.eos, 291);
    assert_int_equal(v.eot, -1);
    assert_int_equal(v.add_bos, 0);
    bnet_vocab_free(&v);
    assert_int_equal(read_dir(names, given, &v, &err),
                     BITNET_OK); /* the model's config goes first */
    assert_int_equal(v.bos, 292);
    assert_int_equal(v.eos, 0);
    assert_int_equal(v.pad, 1);
    bnet_vocab_free(&v);
    assert_int_equal(read_dir("{}", given, &v, &err),
                     BITNET_OK); /* llama-3 vocabularies begin with BOS */
    assert_int_equal(v.add_bos, 1);
    bnet_vocab_free(&v);
    assert_int_equal(read_dir("{}", none, &v, &err), BITNET_OK); /* unless there is none */
    assert_int_equal(v.add_bos, 0);
    bnet_vocab_free(&v);
}

static void test_broken_names(void **state)
{
    (void)state;
    static const malformed rows[] = {
        {NULL, "{\"bos_token\":\"<nothing>\"}", BITNET_TOKENIZER,
         "bos_token: \"<nothing>\" is not in the vocabulary"},
        {NULL, "{\"eos_token\":\"<nothing>\"}", BITNET_TOKENIZER,
         "eos_token: \"<nothing>\" is not in the vocabulary"},
        {NULL, "{\"chat_template\":3}", BITNET_TOKENIZER,
         "chat_template: is an integer; a string or a list"},
        {NULL, "{\"add_bos_token\":\"yes\"}", BITNET_TOKENIZER,
         "add_bos_token: is a string; true or false"},
        {NULL, "[]", BITNET_TOKENIZER, "tokenizer_config.json: the document is an array"},
        {NULL, "{", BITNET_TOKENIZER, "tokenizer_config.json: not valid JSON"},
    };
    malformed_run run = {0};
    bnet_hf_config none = {.bos = -1, .pad = -1};
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        bnet_vocab v;
        bitnet_error err = {0};
        malformed_check(&run, &rows[i], read_dir(rows[i].to, none, &v, &err), &err);
    }
    malformed_end(&run, 6);
}

static void test_missing(void **state)
{
    (void)state;
    bnet_vocab v;
    bitnet_error err = {0};
    bnet_hf_config none = {.bos = -1, .pad = -1, .n_vocab = FX_VOCAB};
    assert_int_equal(bnet_hf_tokenizer_read(dir, &none, NULL, &v, &err), BITNET_TOKENIZER);
    assert_non_null(strstr(err.message, "tokenizer.json: missing"));
}

/* ---- the trained tokenizers ---- */

static void test_story_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t n_vocab, n_merges;
    } rows[] = {{"story-model/nano", 512, 251}, {"story-model/story", 4096, 3835}};
    for (size_t i = 0; i < BNET_COUNT(rows); i++) {
        char path[1024];
        bnet_vocab v;
        bitnet_error err = {0};
        bnet_hf_config c = {.bos = -1, .pad = -1, .n_vocab = (int64_t)rows[i].n_vocab};
        if (!shared_path(rows[i].path, path, sizeof path))
            skip();
        if (bnet_hf_tokenizer_read(path, &c, NULL, &v, &err) != BITNET_OK)
            fail_msg("%s", err.message);
        assert_int_equal(v.n_merges, rows[i].n_merges);
        assert_int_equal(v.bos, (int)rows[i].n_vocab - 5);
        assert_int_equal(v.add_bos, 1);
        assert_token(&v, (int32_t)rows[i].n_vocab - 1, "<|eot_id|>", BNET_TOKEN_CONTROL);
        for (size_t k = 0; k < v.n_tokens; k++)
            assert_int_not_equal(v.tokens[k].type, BNET_TOKEN_ABSENT);
        bnet_vocab_free(&v);
    }
}

#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_strip),
        cmocka_unit_test(test_post_processor),
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_metaspace),
        cmocka_unit_test(test_malformed),
        IN_DIR(test_names),
        IN_DIR(test_broken_names),
        IN_DIR(test_missing),
        cmocka_unit_test(test_story_tokenizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
