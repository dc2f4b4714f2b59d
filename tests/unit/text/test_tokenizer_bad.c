/* test_tokenizer_bad.c - tokenizer metadata that must be refused, each with its own words. */
#include "test.h"

#include <math.h>

#include "text/tokenizer.h"
#include "vocab_build.h"

typedef struct bad {
    const char *name;
    void (*base)(vocab *);
    void (*spoil)(vocab *);
    const char *wanted[2]; /* parts of the message, beside the file's name */
    uint64_t n_vocab;
} bad;

static void model_missing(vocab *v)
{
    v->model = NULL;
}
static void model_unknown(vocab *v)
{
    v->model = "bert";
}
static void model_long(vocab *v)
{
    v->model = "gpt2\x01 and so on and so on and so on and so on and so on";
}
static void model_number(vocab *v)
{
    v->wrong_type = "tokenizer.ggml.model";
}
static void pre_unknown(vocab *v)
{
    v->pre = "deepseek-llm";
}
static void pre_empty(vocab *v)
{
    v->pre = "";
}
static void pre_number(vocab *v)
{
    v->wrong_type = "tokenizer.ggml.pre";
}
static void tokens_number(vocab *v)
{
    v->wrong_type = "tokenizer.ggml.tokens";
}
static void tokens_empty(vocab *v)
{
    v->n = 0;
    v->bos = v->eos = v->unknown = -1;
}
static void tokens_few(vocab *v)
{
    v->n = 100;
    v->bos = v->eos = -1;
}
static void tokens_few_spm(vocab *v)
{
    v->n = 100;
    v->bos = v->eos = v->unknown = -1;
    v->type[0] = 1;
}
static void byte_missing(vocab *v)
{
    snprintf(v->text[0x41], 48, "replaced");
}
static void byte_control(vocab *v)
{
    v->type[0xff] = 3;
}
static void types_short(vocab *v)
{
    v->n_types = v->n - 1;
}
static void types_long(vocab *v)
{
    v->n_types = v->n + 1;
}
static void types_empty(vocab *v)
{
    v->n_types = 0;
}
static void types_number(vocab *v)
{
    v->wrong_type = "tokenizer.ggml.token_type";
}
static void type_seven(vocab *v)
{
    v->type[5] = 7;
}
static void type_negative(vocab *v)
{
    v->type[5] = -1;
}
static void merges_missing(vocab *v)
{
    v->n_merges = SIZE_MAX;
}
static void merges_number(vocab *v)
{
    v->wrong_type = "tokenizer.ggml.merges";
}
static void merge_single(vocab *v)
{
    v->merges[3] = "hello";
}
static void merge_empty(vocab *v)
{
    v->merges[3] = "";
}
static void merge_no_left(vocab *v)
{
    v->merges[3] = " hello";
}
static void merge_no_right(vocab *v)
{
    v->merges[3] = "hello ";
}
static void bos_large(vocab *v)
{
    v->bos = (int64_t)v->n;
}
static void bos_huge(vocab *v)
{
    v->bos = 0xffffffff;
}
static void bos_float(vocab *v)
{
    v->wrong_type = "tokenizer.ggml.bos_token_id";
}
static void eos_large(vocab *v)
{
    v->eos = 100000;
}
static void eot_large(vocab *v)
{
    v->eot = 100000;
}
static void unknown_large(vocab *v)
{
    v->unknown = 100000;
}
static void add_bos_float(vocab *v)
{
    v->wrong_type = "tokenizer.ggml.add_bos_token";
}
static void prefix_float(vocab *v)
{
    v->wrong_type = "tokenizer.ggml.add_space_prefix";
}
static void scores_missing(vocab *v)
{
    v->n_scores = SIZE_MAX;
}
static void scores_short(vocab *v)
{
    v->n_scores = 10;
}
static void scores_number(vocab *v)
{
    v->wrong_type = "tokenizer.ggml.scores";
}
static void score_nan(vocab *v)
{
    v->score[260] = (float)NAN;
}
static void byte_minus_one(vocab *v)
{
    snprintf(v->text[7], 48, "<0x-1>");
}
static void byte_too_long(vocab *v)
{
    snprintf(v->text[7], 48, "<0x004>");
}
static void byte_no_hex(vocab *v)
{
    snprintf(v->text[7], 48, "<0xG0>");
}
static void byte_empty(vocab *v)
{
    snprintf(v->text[7], 48, "%s", "");
}
static void byte_dropped(vocab *v)
{
    v->type[3 + 0x80] = 1;
    v->type[0] = 1; /* nor an unknown token */
    v->unknown = -1;
}
static void nothing(vocab *v)
{
    (void)v;
}

static const bad rows[] = {
    {"model missing", bpe_base, model_missing, {"tokenizer.ggml.model", "missing"}, 0},
    {"model unknown", bpe_base, model_unknown, {"\"bert\"", "known: gpt2, llama"}, 0},
    {"model long", bpe_base, model_long, {"tokenizer.ggml.model", "\\x01 and"}, 0},
    {"model a number", bpe_base, model_number, {"tokenizer.ggml.model", "string"}, 0},
    {"pre unknown", bpe_base, pre_unknown, {"\"deepseek-llm\"", "llama-bpe, llama3"}, 0},
    {"pre empty", bpe_base, pre_empty, {"tokenizer.ggml.pre", "\"\""}, 0},
    {"pre a number", bpe_base, pre_number, {"tokenizer.ggml.pre", "string"}, 0},
    {"tokens a number", bpe_base, tokens_number, {"tokenizer.ggml.tokens", "array"}, 0},
    {"tokens empty", bpe_base, tokens_empty, {"tokenizer.ggml.tokens", "0 tokens"}, 0},
    {"tokens empty, spm", spm_base, tokens_empty, {"tokenizer.ggml.tokens", "0 tokens"}, 0},
    {"tokens too few", bpe_base, tokens_few, {"no token for the byte", "this one has 100"}, 0},
    {"tokens too few, spm", spm_base, tokens_few_spm, {"<0x61>", "(100 tokens)"}, 0},
    {"byte missing", bpe_base, byte_missing, {"byte 0x41", "all 256"}, 0},
    {"byte a control token", bpe_base, byte_control, {"byte 0xff", "all 256"}, 0},
    {"types short", bpe_base, types_short, {"tokenizer.ggml.token_type", "elements for"}, 0},
    {"types long", bpe_base, types_long, {"tokenizer.ggml.token_type", "elements for"}, 0},
    {"types empty", bpe_base, types_empty, {"tokenizer.ggml.token_type", "0 elements"}, 0},
    {"types a number", bpe_base, types_number, {"tokenizer.ggml.token_type", "array"}, 0},
    {"type seven", bpe_base, type_seven, {"token_type[5] is 7", "0..6"}, 0},
    {"type negative", bpe_base, type_negative, {"token_type[5] is -1", "0..6"}, 0},
    {"merges missing", bpe_base, merges_missing, {"tokenizer.ggml.merges", "missing"}, 0},
    {"merges a number", bpe_base, merges_number, {"tokenizer.ggml.merges", "array"}, 0},
    {"merge of one", bpe_base, merge_single, {"merges[3]", "\"hello\""}, 0},
    {"merge empty", bpe_base, merge_empty, {"merges[3]", "\"\""}, 0},
    {"merge without left", bpe_base, merge_no_left, {"merges[3]", "\" hello\""}, 0},
    {"merge without right", bpe_base, merge_no_right, {"merges[3]", "\"hello \""}, 0},
    {"bos one too large", bpe_base, bos_large, {"tokenizer.ggml.bos_token_id", ""}, 0},
    {"bos huge", bpe_base, bos_huge, {"tokenizer.ggml.bos_token_id", "4294967295"}, 0},
    {"bos a float", bpe_base, bos_float, {"tokenizer.ggml.bos_token_id", ""}, 0},
    {"eos out of range", spm_base, eos_large, {"tokenizer.ggml.eos_token_id", "100000"}, 0},
    {"eot out of range", bpe_base, eot_large, {"tokenizer.ggml.eot_token_id", "100000"}, 0},
    {"unknown out of range", spm_base, unknown_large, {"unknown_token_id", "100000"}, 0},
    {"add_bos a float", bpe_base, add_bos_float, {"tokenizer.ggml.add_bos_token", ""}, 0},
    {"space prefix a float", spm_base, prefix_float, {"tokenizer.ggml.add_space_prefix", ""}, 0},
    {"scores missing", spm_base, scores_missing, {"tokenizer.ggml.scores", "missing"}, 0},
    {"scores short", spm_base, scores_short, {"tokenizer.ggml.scores", "10 elements"}, 0},
    {"scores a number", spm_base, scores_number, {"tokenizer.ggml.scores", "array"}, 0},
    {"score not a number", spm_base, score_nan, {"scores[260]", "not a number"}, 0},
    {"byte <0x-1>", spm_base, byte_minus_one, {"tokens[7]", "<0x-1>"}, 0},
    {"byte <0x004>", spm_base, byte_too_long, {"tokens[7]", "<0x004>"}, 0},
    {"byte <0xG0>", spm_base, byte_no_hex, {"tokens[7]", "<0xG0>"}, 0},
    {"byte without text", spm_base, byte_empty, {"tokens[7]", "\"\""}, 0},
    {"byte dropped", spm_base, byte_dropped, {"<0x80>", "unknown token"}, 0},
    {"larger than the embedding",
     bpe_base,
     nothing,
     {"tokenizer.ggml.tokens", "only 256 rows"},
     256},
};

static void refused(void **state)
{
    (void)state;
    size_t n_failed = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bad *row = &rows[i];
        vocab v;
        bitnet_error err = {0};
        bnet_tokenizer *t = NULL;
        row->base(&v);
        row->spoil(&v);
        bnet_gguf *g = vocab_write(&v);
        assert_non_null(g);
        bitnet_status status = bnet_tokenizer_open(g, row->n_vocab, NULL, &t, &err);
        if (status != BITNET_TOKENIZER || err.status != BITNET_TOKENIZER || t ||
            !strstr(err.message, bnet_gguf_path(g)) || !strstr(err.message, row->wanted[0]) ||
            !strstr(err.message, row->wanted[1])) {
            print_message("%s: status %d, message \"%s\"\n", row->name, (int)status, err.message);
            n_failed++;
        }
        bnet_tokenizer_close(t);
        bnet_gguf_close(g);
    }
    print_message("%zu vocabularies refused\n", sizeof rows / sizeof *rows - n_failed);
    assert_int_equal(n_failed, 0);
}

static void keyless_file(void **state)
{
    (void)state;
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    bnet_gguf_put_string(w, "tokenizer.ggml.model", "gpt2", 4);
    const char *path = TEST_BINARY_DIR "/keyless.gguf";
    bitnet_error err = {0};
    assert_int_equal(bnet_gguf_begin(w, path, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_finish(w, &err), BITNET_OK);
    bnet_gguf_writer_free(w);
    bnet_gguf *g = NULL;
    bnet_tokenizer *t = NULL;
    assert_int_equal(bnet_gguf_open(path, NULL, &g, &err), BITNET_OK);
    assert_int_equal(bnet_tokenizer_open(g, 0, NULL, &t, &err), BITNET_TOKENIZER);
    assert_non_null(strstr(err.message, "tokenizer.ggml.tokens is missing"));
    bnet_gguf_close(g);
    remove(path);
}

/* What looks odd but is lawful. */
static void accepted(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    vocab_add(&v, "", 1, 0); /* empty tokens exist in the wild */
    vocab_add(&v, "", 3, 0);
    vocab_add(&v, "he", 1, 0); /* a second "he" */
    vocab_add(&v, "two words", 1, 0);
    vocab_add(&v, "\xff\xfe", 1, 0); /* no UTF-8 */
    v.merges[v.n_merges++] = "no token";
    bnet_gguf *g = vocab_write(&v);
    bnet_tokenizer *t = NULL;
    bitnet_error err = {0};
    size_t n;
    assert_int_equal(bnet_tokenizer_open(g, v.n + 64, NULL, &t, &err), BITNET_OK);
    assert_non_null(bnet_token_bytes(t, (int32_t)v.n - 5, &n));
    assert_int_equal(n, 0);
    assert_memory_equal(bnet_token_bytes(t, (int32_t)v.n - 2, &n), "two words", 9);
    assert_memory_equal(bnet_token_bytes(t, (int32_t)v.n - 1, &n), "\xff\xfe", 2);
    bnet_tokenizer_close(t);
    bnet_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),
        cmocka_unit_test(keyless_file),
        cmocka_unit_test(accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
