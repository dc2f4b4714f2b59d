/* test_detok.c - ids to text as they come: whole characters only, nothing lost, nothing allocated
 * per token. */
#include "test.h"

#include "text/tokenizer.h"
#include "vocab_build.h"

typedef struct opened {
    bnet_gguf *g;
    bnet_tokenizer *t;
} opened;

static opened open_vocab(const vocab *v)
{
    opened o = {.g = vocab_write(v)};
    bitnet_error err = {0};
    assert_non_null(o.g);
    if (bnet_tokenizer_open(o.g, 0, NULL, &o.t, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    return o;
}

static void shut(opened *o)
{
    bnet_tokenizer_close(o->t);
    bnet_gguf_close(o->g);
}

/* Does the text end inside a character that further bytes could complete? */
static bool ends_open(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++)
        if (bnet_utf8_len(s + n - back, back) == -1)
            return true;
    return false;
}

static void push_byte(bnet_detok *d, const vocab *v, unsigned char b, bnet_str *out)
{
    bnet_detok_push(d, v->model[0] == 'g' ? b : 3 + b,
                    out); /* ids of the bytes in both vocabularies */
}

/* Byte by byte: what is out is a beginning of the text, never cut inside a character that can still
 * be completed, and at most three bytes behind. */
static void feed(const opened *o, const vocab *v, const char *text, size_t n)
{
    bnet_detok d;
    bnet_str out = {0};
    bnet_detok_init(&d, o->t, false, false);
    for (size_t i = 0; i < n; i++) {
        push_byte(&d, v, (unsigned char)text[i], &out);
        assert_true(out.n + 3 >= i + 1);
        assert_true(out.n <= i + 1);
        if (out.n)
            assert_memory_equal(out.data, text, out.n);
        if (ends_open(out.data, out.n) && out.n == i + 1)
            fail_msg("half a character came out at byte %zu", i);
    }
    bnet_detok_finish(&d, &out);
    assert_int_equal(out.n, n);
    if (n)
        assert_memory_equal(out.data, text, n);
    bnet_str_free(&out);
}

/* A token that ends the character before it and goes on. */
static void one_token_ends_and_begins(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    char text[48];
    snprintf(text, sizeof text, "%.40s!", v.text[0xac]);
    int32_t id = vocab_add(&v, text, 1, 0);
    opened o = open_vocab(&v);
    bnet_detok d;
    bnet_str out = {0};
    bnet_detok_init(&d, o.t, false, false);
    push_byte(&d, &v, 0xe2, &out);
    push_byte(&d, &v, 0x82, &out);
    bnet_detok_push(&d, id, &out);
    bnet_detok_finish(&d, &out);
    assert_int_equal(out.n, 4);
    assert_memory_equal(out.data, "\xe2\x82\xac!", 4);
    bnet_str_free(&out);
    shut(&o);
}

static void byte_by_byte(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "plain",
        "\xc3\xa9t\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80!",
        "\xf0\x9f\x98",                 /* cut short */
        "\xe2\x82z\xe2\x82\xac",        /* broken off, then whole */
        "\xf0\x9f\xe2\x82\xac\xc3",     /* a lead inside another */
        "\xff\xfe\x80\xc0\xaf",         /* never valid */
        "\xed\xa0\x80\xf4\x90\x80\x80", /* surrogate, beyond the last code point */
        "\xe0\x80\x80\xf0\x80\x80\x80", /* overlong */
    };
    for (int spm = 0; spm < 2; spm++) {
        vocab v;
        if (spm)
            spm_base(&v);
        else
            bpe_base(&v);
        opened o = open_vocab(&v);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            feed(&o, &v, texts[i], strlen(texts[i]));
        uint64_t seed = 7;
        for (int i = 0; i < 2000; i++) {
            char text[24];
            for (size_t k = 0; k < sizeof text; k++)
                text[k] = "\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9z"[test_rand(&seed) % 10];
            feed(&o, &v, text, sizeof text);
        }
        shut(&o);
    }
}

/* Tokens that end inside a character, whatever its length and whatever stands before it. */
static void tokens_with_open_ends(void **state)
{
    (void)state;
    static const char emoji[] = "z\xf0\x9f\x98\x80";
    for (size_t first = 0; first < 2; first++)
        for (size_t cut = first + 1; cut < 5; cut++) {
            vocab v;
            bpe_base(&v);
            char name[48] = "";
            for (size_t i = first; i < cut; i++)
                strcat(name, v.text[(unsigned char)emoji[i]]);
            int32_t id = vocab_add(&v, name, 1, 0);
            opened o = open_vocab(&v);
            bnet_detok d;
            bnet_str out = {0};
            bnet_detok_init(&d, o.t, false, false);
            bnet_detok_push(&d, id, &out);
            assert_int_equal(out.n, first == 0); /* the z alone */
            for (size_t i = cut; i < 5; i++)
                push_byte(&d, &v, (unsigned char)emoji[i], &out);
            assert_int_equal(out.n, 5 - first);
            assert_memory_equal(out.data, emoji + first, 5 - first);
            bnet_str_free(&out);
            shut(&o);
        }
}

static void expect(const opened *o, bool special, bool at_start, const char *text,
                   const char *wanted)
{
    bnet_detok d;
    bnet_ids ids = {0};
    bnet_str out = {0};
    bitnet_error err = {0};
    if (bnet_tokenize(o->t, text, strlen(text), BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, &ids, NULL,
                      &err))
        fail_msg("%s", err.message);
    bnet_detok_init(&d, o->t, special, at_start);
    bnet_str_puts(&out, "");
    for (size_t i = 0; i < ids.n; i++)
        bnet_detok_push(&d, ids.data[i], &out);
    bnet_detok_finish(&d, &out);
    assert_string_equal(out.data, wanted);
    bnet_str_free(&out);
    bnet_free(ids.data);
}

static void special_tokens(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    opened o = open_vocab(&v);
    expect(&o, false, true, "hello<|eot_id|> world<|user_defined|>", "hello world<|user_defined|>");
    expect(&o, true, true, "hello<|eot_id|>", "<|begin_of_text|>hello<|eot_id|>");
    shut(&o);
}

static void spm_spaces(void **state)
{
    (void)state;
    vocab v;
    spm_base(&v);
    opened o = open_vocab(&v);
    expect(&o, false, true, "hello world", "hello world");
    expect(&o, false, false, "hello world", " hello world");
    expect(&o, false, true, " hello", " hello");
    expect(&o, true, true, "<s>hello[TOOL]world</s> hello", "<s>hello[TOOL]world</s> hello");
    expect(&o, false, true, "hello</s>world", "hello world"); /* not printed: words stay apart */
    shut(&o);
    v.space_prefix = 0;
    o = open_vocab(&v);
    expect(&o, false, true, " hello world", " hello world");
    shut(&o);
}

static void ids_outside(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    opened o = open_vocab(&v);
    bnet_detok d;
    bnet_str out = {0};
    bnet_detok_init(&d, o.t, true, true);
    bnet_detok_push(&d, -1, &out);
    bnet_detok_push(&d, (int32_t)v.n, &out);
    bnet_detok_push(&d, INT32_MAX, &out);
    assert_int_equal(out.n, 0);
    bnet_detok_push(&d, 0xc3, &out);
    bnet_detok_push(&d, INT32_MIN, &out);
    bnet_detok_push(&d, 0xa9, &out);
    assert_int_equal(out.n, 2);
    bnet_str_free(&out);
    shut(&o);
}

/* Once grown, the buffer stays where it is. */
static void no_allocation_per_token(void **state)
{
    (void)state;
    vocab v;
    bpe_base(&v);
    opened o = open_vocab(&v);
    bnet_detok d;
    bnet_str out = {0};
    bnet_detok_init(&d, o.t, true, true);
    for (int32_t id = 0; id < (int32_t)v.n; id++)
        bnet_detok_push(&d, id, &out);
    bnet_detok_finish(&d, &out);
    const char *data = out.data;
    size_t cap = out.cap;
    for (int k = 0; k < 100; k++) {
        out.n = 0;
        for (int32_t id = 0; id < (int32_t)v.n; id++)
            bnet_detok_push(&d, id, &out);
        bnet_detok_finish(&d, &out);
        assert_ptr_equal(out.data, data);
        assert_int_equal(out.cap, cap);
    }
    bnet_str_free(&out);
    shut(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_token_ends_and_begins),
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(tokens_with_open_ends),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(spm_spaces),
        cmocka_unit_test(ids_outside),
        cmocka_unit_test(no_allocation_per_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
