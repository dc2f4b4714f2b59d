/* test_tokenizer.c - token ids: the published vectors, known answers, special tokens, BOS, stops,
 * splitters. */
#include "test.h"

#include "text/tokenizer.h"
#include "text/split.h"
#include "vocab_build.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        bitnet_error err = {0};                                                                    \
        bitnet_status st_ = (call);                                                                \
        if (st_ != BITNET_OK)                                                                      \
            fail_msg("%s: status %d: %s", #call, (int)st_, err.message);                           \
    } while (0)

typedef struct opened {
    bnet_gguf *g;
    bnet_tokenizer *t;
} opened;

static void shut(opened *o)
{
    bnet_tokenizer_close(o->t);
    bnet_gguf_close(o->g);
}

/* Skips the test where the reference file is missing. */
static opened open_shared(const char *rel)
{
    char path[512];
    opened o = {0};
    if (!shared_path(rel, path, sizeof path))
        skip();
    OK(bnet_gguf_open(path, NULL, &o.g, &err));
    OK(bnet_tokenizer_open(o.g, 0, NULL, &o.t, &err));
    return o;
}

static opened open_vocab(const vocab *v)
{
    opened o = {.g = vocab_write(v)};
    assert_non_null(o.g);
    OK(bnet_tokenizer_open(o.g, 0, NULL, &o.t, &err));
    return o;
}

static void print_ids(const char *what, const int32_t *ids, size_t n)
{
    print_message("%s:", what);
    for (size_t i = 0; i < n; i++)
        print_message(" %d", (int)ids[i]);
    print_message("\n");
}

static bool same_ids(const bnet_tokenizer *t, const char *text, size_t n_text, unsigned flags,
                     const int32_t *ids, size_t n)
{
    bnet_ids got = {0};
    OK(bnet_tokenize(t, text, n_text, flags, &got, NULL, &err));
    bool same = got.n == n && (n == 0 || memcmp(got.data, ids, n * sizeof *ids) == 0);
    if (!same) {
        print_message("text \"%.*s\" flags %u\n", (int)n_text, text, flags);
        print_ids("wanted", ids, n);
        print_ids("got   ", got.data, got.n);
    }
    bnet_free(got.data);
    return same;
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof(const int32_t[]){__VA_ARGS__} / 4
#define CHECK(t, text, flags, ...)                                                                 \
    assert_true(same_ids(t, text, sizeof(text) - 1, flags, IDS(__VA_ARGS__)))

/* ---- published vectors ---- */

static size_t parse_ids(const char *line, int32_t *ids, size_t cap)
{
    size_t n = 0;
    for (char *end; n < cap; line = end) {
        long v = strtol(line, &end, 10);
        if (end == line)
            break;
        ids[n++] = (int32_t)v;
    }
    return n;
}

static void run_vectors(const char *gguf, const char *stem)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char rel[256], path[512], *inp, *out;
    size_t n_inp, n_out, n_texts = 0;
    opened o = open_shared(gguf);
    snprintf(rel, sizeof rel, "%s.inp", stem);
    assert_non_null(shared_path(rel, path, sizeof path));
    OK(bnet_read_file(path, 1 << 20, &inp, &n_inp, &err));
    snprintf(rel, sizeof rel, "%s.out", stem);
    assert_non_null(shared_path(rel, path, sizeof path));
    OK(bnet_read_file(path, 1 << 20, &out, &n_out, &err));
    const char *text = inp, *line = out;
    for (const char *end; (end = strstr(text, separator)); text = end + sizeof separator - 1) {
        int32_t ids[1024];
        char one[8192];
        size_t n_line = strcspn(line, "\n");
        assert_true(n_line < sizeof one);
        memcpy(one, line, n_line);
        one[n_line] = '\0';
        size_t n = parse_ids(one, ids, 1024);
        if (!same_ids(o.t, text, (size_t)(end - text), 0, ids, n))
            fail_msg("vector %zu of %s", n_texts, stem);
        line += n_line + 1;
        n_texts++;
    }
    assert_int_equal(n_texts, 46);
    bnet_free(inp);
    bnet_free(out);
    shut(&o);
}

static void llama_bpe_vectors(void **state)
{
    (void)state;
    run_vectors("vocab/llama-bpe-rebuilt.gguf", "vocab/ggml-vocab-llama-bpe.gguf");
}

static void llama_spm_vectors(void **state)
{
    (void)state;
    run_vectors("vocab/ggml-vocab-llama-spm.gguf", "vocab/ggml-vocab-llama-spm.gguf");
}

static void gpt2_vectors(void **state)
{
    (void)state;
    run_vectors("vocab/ggml-vocab-gpt-2.gguf", "vocab/ggml-vocab-gpt-2.gguf");
}

static void llama3_known_answers(void **state)
{
    (void)state;
    opened o = open_shared("vocab/llama-bpe-rebuilt.gguf");
    CHECK(o.t, "hello", 0, 15339);
    CHECK(o.t, " world", 0, 1917);
    CHECK(o.t, "Hello, my name is", 0, 9906, 11, 856, 836, 374);
    CHECK(o.t, "The capital of France is", BITNET_TEXT_BOS, 128000, 791, 6864, 315, 9822, 374);
    CHECK(o.t, "I've 12345 cats!!\n\n  x", 0, 40, 3077, 220, 4513, 1774, 19987, 25833, 220, 865);
    CHECK(o.t,
          "<|begin_of_text|>User: Hey, are you conscious? Can you talk to me?<|eot_id|>Assistant: ",
          BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, 128000, 1502, 25, 28653, 11, 527, 499, 17371, 30,
          3053, 499, 3137, 311, 757, 30, 128009, 72803, 25, 220);
    assert_string_equal(bnet_tokenizer_name(o.t), "bpe/llama-3");
    assert_int_equal(bnet_tokenizer_size(o.t), 128256);
    assert_true(bnet_tokenizer_adds_bos(o.t));
    assert_true(bnet_token_stops(o.t, 128001));
    assert_true(bnet_token_stops(o.t, 128009));
    assert_false(bnet_token_stops(o.t, 128000));
    assert_false(bnet_token_stops(o.t, 0));
    shut(&o);
}

/* ---- special tokens and BOS ---- */

static int32_t id_of(const opened *o, const char *text)
{
    int32_t id = -1;
    if (!bnet_token_find(o->t, text, strlen(text), &id))
        fail_msg("no token \"%s\"", text);
    return id;
}

static void special_tokens(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    opened o = open_vocab(&v);
    int32_t hello = id_of(&o, "hello"), eot = id_of(&o, "<|eot_id|>");
    int32_t eot2 = id_of(&o, "<|eot_id|>!"), user = id_of(&o, "<|user_defined|>");
    CHECK(o.t, "hello<|eot_id|>hello", BITNET_TEXT_SPECIAL, hello, eot, hello);
    CHECK(o.t, "<|eot_id|>!hello", BITNET_TEXT_SPECIAL, eot2, hello);
    CHECK(o.t, "<|eot_id|><|eot_id|>!", BITNET_TEXT_SPECIAL, eot, eot2);
    CHECK(o.t, "hello<|user_defined|>", 0, hello, user);
    CHECK(o.t, "<|eot", BITNET_TEXT_SPECIAL, '<', '|', 'e', 'o', 't');
    CHECK(o.t, "<|eot_id|>", 0, '<', '|', 'e', 'o', 't', '_', 'i', 'd', '|', '>');
    CHECK(o.t, "<|<|eot_id|>", BITNET_TEXT_SPECIAL, '<', '|', eot);
    assert_true(bnet_token_special(o.t, eot));
    assert_false(bnet_token_special(o.t, user));
    assert_false(bnet_token_special(o.t, hello));
    assert_false(bnet_token_special(o.t, -1));
    assert_false(bnet_token_special(o.t, 1 << 20));
    size_t n;
    assert_memory_equal(bnet_token_bytes(o.t, eot, &n), "<|eot_id|>", 10);
    assert_int_equal(n, 10);
    assert_null(bnet_token_bytes(o.t, (int32_t)v.n, &n));
    assert_null(bnet_token_bytes(o.t, -1, &n));
    int32_t id;
    assert_false(bnet_token_find(o.t, "nowhere", 7, &id));
    assert_false(bnet_token_find(o.t, "", 0, &id));
    shut(&o);
}

/* Of a control and a user-defined token with one text the user-defined one is meant: a prompt may
 * contain it, whichever id is lower. */
static void user_defined_beats_control(void **state)
{
    (void)state;
    for (int control_first = 0; control_first < 2; control_first++) {
        vocab v;
        bpe_base(&v);
        int32_t first = vocab_add(&v, "<|twin|>", control_first ? 3 : 4, 0);
        int32_t second = vocab_add(&v, "<|twin|>", control_first ? 4 : 3, 0);
        opened o = open_vocab(&v);
        CHECK(o.t, "<|twin|>", 0, control_first ? second : first);
        CHECK(o.t, "<|twin|>", BITNET_TEXT_SPECIAL, control_first ? second : first);
        shut(&o);
    }
}

/* A shorter special token is passed over in the search for a longer one: what follows it in the
 * file, here the length of a long text, is none of its bytes. */
static void longest_special_token(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    int32_t shorter = vocab_add(&v, "<|x|>", 3, 0);
    vocab_add(&v, "forty-four bytes of text, more than a mark !", 1, 0);
    int32_t longer = vocab_add(&v, "<|x|>!", 3, 0);
    opened o = open_vocab(&v);
    CHECK(o.t, "<|x|>!", BITNET_TEXT_SPECIAL, longer);
    CHECK(o.t, "<|x|>?", BITNET_TEXT_SPECIAL, shorter, '?');
    shut(&o);
}

static void bos_is_not_doubled(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    opened o = open_vocab(&v);
    int32_t hello = id_of(&o, "hello"), bos = id_of(&o, "<|begin_of_text|>");
    unsigned both = BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL;
    CHECK(o.t, "hello", both, bos, hello);
    CHECK(o.t, "hello", BITNET_TEXT_SPECIAL, hello);
    CHECK(o.t, "<|begin_of_text|>hello", both, bos, hello);
    CHECK(o.t, "<|begin_of_text|><|begin_of_text|>", both, bos, bos);
    CHECK(o.t, "hello<|begin_of_text|>", both, bos, hello, bos);
    CHECK(o.t, "", both, bos);
    assert_true(same_ids(o.t, "", 0, 0, NULL, 0));
    bnet_ids ids = {0};
    OK(bnet_tokenize(o.t, "<|begin_of_text|>", 17, BITNET_TEXT_BOS, &ids, NULL, &err));
    assert_int_equal(ids.n, 18); /* plain text behind the BOS */
    assert_int_equal(ids.data[0], bos);
    OK(bnet_tokenize(o.t, "hello", 5, 0, &ids, NULL, &err)); /* appends */
    assert_int_equal(ids.n, 19);
    bnet_free(ids.data);
    shut(&o);
    v.add_bos = 0;
    o = open_vocab(&v);
    assert_false(bnet_tokenizer_adds_bos(o.t));
    CHECK(o.t, "hello", both, hello);
    shut(&o);
    v.pre = "gpt-2";
    v.add_bos = -1;
    o = open_vocab(&v);
    assert_string_equal(bnet_tokenizer_name(o.t), "bpe/gpt-2");
    CHECK(o.t, "hello", both, hello);
    shut(&o);
    v.add_bos = 1;
    o = open_vocab(&v);
    CHECK(o.t, "hello", both, bos, hello);
    shut(&o);
}

static void spm_rules(void **state)
{
    (void)state;
    vocab v;
    spm_base(&v);
    opened o = open_vocab(&v);
    int32_t hello = id_of(&o, "\xe2\x96\x81hello"), world = id_of(&o, "\xe2\x96\x81world");
    int32_t tool = id_of(&o, "[TOOL]"), two = id_of(&o, "\xe2\x96\x81\xe2\x96\x81");
    CHECK(o.t, "hello world", BITNET_TEXT_BOS, 1, hello, world);
    CHECK(o.t, "hello</s>hello", BITNET_TEXT_SPECIAL, hello, 2, hello);
    CHECK(o.t, "<s>hello", BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, 1, hello);
    CHECK(o.t, "hello[TOOL]hello", 0, hello, tool, hello);
    CHECK(o.t, "\n", 0, id_of(&o, "\xe2\x96\x81"), 3 + '\n');
    CHECK(o.t, "\xff", 0, id_of(&o, "\xe2\x96\x81"), 3 + 0xff);
    CHECK(o.t, " ", 0, two);
    assert_true(same_ids(o.t, "", 0, 0, NULL, 0));
    /* merging the text of a control token out of ordinary text would be forgery */
    CHECK(o.t, "</s>", 0, id_of(&o, "\xe2\x96\x81"), id_of(&o, "</s"), id_of(&o, ">"));
    assert_int_equal(id_of(&o, "<0x0A>"), 3 + '\n');
    shut(&o);
    v.space_prefix = 0;
    o = open_vocab(&v);
    CHECK(o.t, "hello world", 0, id_of(&o, "hello"), world);
    shut(&o);
}

static void first_of_equal_merges_wins(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    v.pre = "gpt-2"; /* merges decide, not whole pieces */
    static const char *const merges[] = {"b c", "a b", "b c", "x y", "x y"};
    memcpy(v.merges, merges, sizeof merges);
    v.n_merges = 5;
    int32_t bc = vocab_add(&v, "bc", 1, 0), ab = vocab_add(&v, "ab", 1, 0);
    int32_t dup = vocab_add(&v, "bc", 1, 0);
    opened o = open_vocab(&v);
    CHECK(o.t, "abc", 0, 'a', bc);
    CHECK(o.t, "aba", 0, ab, 'a');
    assert_int_equal(id_of(&o, "bc"), bc);
    assert_int_not_equal(dup, bc);
    CHECK(o.t, "xy", 0, 'x', 'y'); /* the merge exists, its result is no token: byte by byte */
    shut(&o);
}

static void ignore_merges_is_llama3s(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    int32_t whole = vocab_add(&v, "qzq", 1, 0); /* no merge leads there */
    opened o = open_vocab(&v);
    CHECK(o.t, "qzq", 0, whole);
    shut(&o);
    v.pre = "gpt-2";
    o = open_vocab(&v);
    CHECK(o.t, "qzq", 0, 'q', 'z', 'q');
    shut(&o);
}

/* ---- which splitter ---- */

typedef struct heard {
    int n;
    char text[512];
} heard;

static void hear(void *user, bitnet_log_level level, const char *module, const char *message)
{
    heard *h = user;
    (void)module;
    h->n += level == BITNET_LOG_WARN;
    snprintf(h->text, sizeof h->text, "%s", message);
}

static void expect_splitter(vocab *v, const char *pre, const char *name, const char *warning)
{
    heard h = {0};
    bnet_log log = {hear, &h};
    v->pre = pre;
    opened o = {.g = vocab_write(v)};
    assert_non_null(o.g);
    OK(bnet_tokenizer_open(o.g, 0, &log, &o.t, &err));
    assert_string_equal(bnet_tokenizer_name(o.t), name);
    if ((warning && !strstr(h.text, warning)) || h.n != (warning != NULL))
        fail_msg("pre %s: %d warnings, the last \"%s\"", pre ? pre : "missing", h.n, h.text);
    shut(&o);
}

static void splitters_by_name(void **state)
{
    (void)state;
    static const char *const llama[] = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon_e"};
    vocab v;
    bpe_base(&v);
    for (size_t i = 0; i < 5; i++)
        expect_splitter(&v, llama[i], "bpe/llama-3", NULL);
    expect_splitter(&v, "gpt-2", "bpe/gpt-2", NULL);
    expect_splitter(&v, NULL, "bpe/llama-3", "tokenizer.ggml.pre is missing");
    expect_splitter(&v, "default", "bpe/llama-3", "using the llama-3 splitter");
    v.n -= 7; /* without the special tokens of llama-3 */
    v.bos = v.eos = -1;
    expect_splitter(&v, NULL, "bpe/gpt-2", "using the gpt-2 splitter");
    v.add_bos = 1;
    expect_splitter(&v, "gpt-2", "bpe/gpt-2", "names no BOS");
}

static void stop_set(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    int32_t end = vocab_add(&v, "<|end|>", 4, 0), im = vocab_add(&v, "<|im_end|>", 3, 0);
    int32_t plain = vocab_add(&v, "</s>", 1, 0); /* a word of the language, no end */
    v.eot = 'q';
    opened o = open_vocab(&v);
    const int32_t stops[] = {end, im, id_of(&o, "<|eot_id|>"), id_of(&o, "<|end_of_text|>"), 'q'};
    size_t n = 0;
    for (int32_t i = 0; i < (int32_t)v.n; i++)
        n += bnet_token_stops(o.t, i);
    assert_int_equal(n, 5);
    for (size_t i = 0; i < 5; i++)
        assert_true(bnet_token_stops(o.t, stops[i]));
    assert_false(bnet_token_stops(o.t, plain));
    shut(&o);
}

/* Files that leave out types and ids: names and places tell. */
static void missing_keys(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    v.bos = v.eos = -1;
    v.n_types = SIZE_MAX;
    opened o = open_vocab(&v);
    assert_int_equal(bnet_tokenizer_bos(o.t), id_of(&o, "<|begin_of_text|>"));
    assert_int_equal(bnet_tokenizer_eos(o.t), id_of(&o, "<|end_of_text|>"));
    assert_true(bnet_token_special(o.t, id_of(&o, "<|eot_id|>")));
    shut(&o);
    spm_base(&v);
    v.bos = v.eos = v.unknown = -1;
    v.n_types = SIZE_MAX;
    o = open_vocab(&v);
    assert_int_equal(bnet_tokenizer_bos(o.t), 1);
    assert_int_equal(bnet_tokenizer_eos(o.t), 2);
    CHECK(o.t, "\n", 0, id_of(&o, "\xe2\x96\x81"), 3 + '\n');
    shut(&o);
}

/* ---- pieces ---- */

typedef struct pieces {
    char text[256];
} pieces;

static bitnet_status on_piece(void *user, const char *piece, size_t n, bitnet_error *err)
{
    pieces *p = user;
    (void)err;
    size_t at = strlen(p->text);
    snprintf(p->text + at, sizeof p->text - at, "[%.*s]", (int)n, piece);
    return BITNET_OK;
}

static void expect_pieces(bnet_split_kind kind, const char *text, const char *wanted)
{
    pieces p = {{0}};
    bnet_splitter *s = NULL;
    OK(bnet_splitter_open(kind, &s, &err));
    OK(bnet_split_text(s, text, strlen(text), on_piece, &p, &err));
    assert_string_equal(p.text, wanted);
    bnet_splitter_close(s);
}

static void split_pieces(void **state)
{
    (void)state;
    expect_pieces(BNET_SPLIT_LLAMA3, "I'LL we'Re 12345", "[I]['LL][ we]['Re][ ][123][45]");
    expect_pieces(BNET_SPLIT_GPT2, "I'll we'Re 12345", "[I]['ll][ we]['][Re][ 12345]");
    expect_pieces(BNET_SPLIT_LLAMA3, "a  b\n\n c !\n", "[a][ ][ b][\n\n][ c][ !\n]");
    expect_pieces(BNET_SPLIT_LLAMA3, "a\rb\nc\td", "[a][\r][b][\n][c][\td]");
    expect_pieces(BNET_SPLIT_LLAMA3, "x   ", "[x][   ]");
    expect_pieces(BNET_SPLIT_LLAMA3, "x \n \n  y", "[x][ \n \n][ ][ y]");
    /* U+017F is no s, U+180E and U+200B are no white space, U+00A0 is */
    expect_pieces(BNET_SPLIT_LLAMA3, "a'\xc5\xbf", "[a]['\xc5\xbf]");
    expect_pieces(BNET_SPLIT_GPT2, "a'\xc5\xbf", "[a]['][\xc5\xbf]");
    expect_pieces(BNET_SPLIT_GPT2, "a\xe1\xa0\x8e!", "[a][\xe1\xa0\x8e!]");
    expect_pieces(BNET_SPLIT_GPT2, "a\xe2\x80\x8b!", "[a][\xe2\x80\x8b!]");
    expect_pieces(BNET_SPLIT_GPT2, "a\xc2\xa0 !", "[a][\xc2\xa0][ !]");
    /* invalid bytes stand alone */
    expect_pieces(BNET_SPLIT_LLAMA3,
                  "ab\xff\xfe"
                  "cd\xe2\x82",
                  "[ab][\xff][\xfe][cd][\xe2][\x82]");
}

/* Every contraction in the cases that the splitter takes; what is none stays with its word. */
static void every_contraction(void **state)
{
    (void)state;
    static const char *const ends[] = {"s", "t", "m", "d", "re", "ve", "ll"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (unsigned upper = 0; upper < 1u << strlen(ends[i]); upper++) {
            char text[16], wanted[24], end[4];
            snprintf(end, sizeof end, "%s", ends[i]);
            for (size_t k = 0; end[k]; k++)
                end[k] = (char)(end[k] - (upper >> k & 1 ? 'a' - 'A' : 0));
            snprintf(text, sizeof text, "x'%sy", end); /* with y it would be a word */
            snprintf(wanted, sizeof wanted, "[x]['%s][y]", end);
            expect_pieces(BNET_SPLIT_LLAMA3, text, wanted);
            if (upper)
                snprintf(wanted, sizeof wanted, "[x]['][%sy]", end);
            expect_pieces(BNET_SPLIT_GPT2, text, wanted);
        }
    expect_pieces(BNET_SPLIT_GPT2, "x'n", "[x]['][n]");
}

/* The size of the published vocabulary must not be felt at start. */
static void opens_quickly(void **state)
{
    (void)state;
    opened o = open_shared("vocab/llama-bpe-rebuilt.gguf");
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        bnet_tokenizer *t;
        double begin = bnet_now_ms();
        OK(bnet_tokenizer_open(o.g, 0, NULL, &t, &err));
        best = BNET_MIN(best, bnet_now_ms() - begin);
        bnet_tokenizer_close(t);
    }
    print_message("128256 tokens, 280147 merges: %.1f ms\n", best);
    assert_true(best < 2000); /* loose: sanitizers and emulators run this too */
    shut(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_bpe_vectors),
        cmocka_unit_test(llama_spm_vectors),
        cmocka_unit_test(gpt2_vectors),
        cmocka_unit_test(llama3_known_answers),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(user_defined_beats_control),
        cmocka_unit_test(longest_special_token),
        cmocka_unit_test(bos_is_not_doubled),
        cmocka_unit_test(spm_rules),
        cmocka_unit_test(first_of_equal_merges_wins),
        cmocka_unit_test(ignore_merges_is_llama3s),
        cmocka_unit_test(splitters_by_name),
        cmocka_unit_test(stop_set),
        cmocka_unit_test(missing_keys),
        cmocka_unit_test(split_pieces),
        cmocka_unit_test(every_contraction),
        cmocka_unit_test(opens_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
