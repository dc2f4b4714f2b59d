/* test_tokenizer_random.c - decode(encode(x)) == x for texts nobody wrote, and time bounds on texts
 * made to hurt. */
#include <stdlib.h>

#include "test.h"

#include "text/tokenizer.h"
#include "vocab_build.h"

static const char *const published[] = {"vocab/llama-bpe-rebuilt.gguf",
                                        "vocab/ggml-vocab-gpt-2.gguf",
                                        "vocab/ggml-vocab-llama-spm.gguf"};

typedef struct opened {
    bnet_gguf *g;
    bnet_tokenizer *t;
} opened;

static void shut(opened *o)
{
    bnet_tokenizer_close(o->t);
    bnet_gguf_close(o->g);
}

static opened open_gguf(bnet_gguf *g)
{
    opened o = {.g = g};
    bitnet_error err = {0};
    if (!g || bnet_tokenizer_open(g, 0, NULL, &o.t, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    return o;
}

static bool open_shared(const char *rel, opened *o)
{
    char path[512];
    bnet_gguf *g = NULL;
    bitnet_error err = {0};
    if (!shared_path(rel, path, sizeof path))
        return false;
    if (bnet_gguf_open(path, NULL, &g, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    *o = open_gguf(g);
    return true;
}

static void check_round_trip(const bnet_tokenizer *t, const char *text, size_t n, unsigned flags,
                             uint64_t seed)
{
    bnet_ids ids = {0};
    bnet_str back = {0};
    bnet_detok d;
    bitnet_error err = {0};
    if (bnet_tokenize(t, text, n, flags, &ids, NULL, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    bnet_detok_init(&d, t, (flags & BITNET_TEXT_SPECIAL) != 0, true);
    for (size_t i = 0; i < ids.n; i++)
        bnet_detok_push(&d, ids.data[i], &back);
    bnet_detok_finish(&d, &back);
    if (back.n != n || (n && memcmp(back.data, text, n) != 0)) {
        for (size_t i = 0; i < n; i++)
            print_message("%02x ", (unsigned char)text[i]);
        fail_msg("%s: %zu bytes became %zu (seed %llu)", bnet_tokenizer_name(t), n, back.n,
                 (unsigned long long)seed);
    }
    bnet_free(ids.data);
    bnet_str_free(&back);
}

/* Mostly letters and spaces, now and then any code point. */
static uint32_t random_char(uint64_t *seed)
{
    static const uint32_t some[] = {
        ' ',     ' ',     '\n',   '\r',   '\t',   '\'',   's',      'L',    '7',    '<',    '|',
        '>',     0xa0,    0xe9,   0x17f,  0x180e, 0x200b, 0x200d,   0x2028, 0x3000, 0x4e2d, 0x661,
        0x1f600, 0x1f3fd, 0xfe0f, 0xfeff, 0xfffd, 0xd7ff, 0x10ffff, 0x0,    0x85,   0x378};
    uint64_t r = test_rand(seed);
    if (r % 4 == 0)
        return some[(r >> 8) % (sizeof some / sizeof *some)];
    if (r % 4 == 1)
        return (uint32_t)(r >> 8) % 128;
    if (r % 4 == 2)
        return 'a' + (uint32_t)(r >> 8) % 26;
    uint32_t cp = (uint32_t)(r >> 8) % 0x110000;
    return cp >= 0xd800 && cp < 0xe000 ? cp - 0x800 : cp;
}

static size_t random_utf8(uint64_t *seed, char *out, size_t n_chars)
{
    size_t n = 0;
    for (size_t i = 0; i < n_chars; i++) {
        uint32_t cp = random_char(seed);
        if (cp == 0x2581) /* SentencePiece's space mark cannot be told from a space */
            cp = 'x';
        n += (size_t)bnet_utf8_encode(cp, out + n);
    }
    return n;
}

static size_t random_bytes(uint64_t *seed, char *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] =
            test_rand(seed) % 3 ? (char)test_rand(seed) : "\xe2\x96\x80 <|\n"[test_rand(seed) % 7];
    for (size_t i = 0; i + 3 <= n; i++)
        if (memcmp(out + i, "\xe2\x96\x81", 3) == 0)
            out[i] = 'x';
    return n;
}

static void round_trips(const opened *o)
{
    int n_texts = test_quick() ? 500 : 4000;
    char text[4 * 64];
    for (int i = 0; i < n_texts; i++) {
        uint64_t seed = (uint64_t)i, state = seed;
        size_t n = test_rand(&state) % 64;
        unsigned flags = i & 1 ? BITNET_TEXT_SPECIAL : 0;
        n = i & 2 ? random_utf8(&state, text, n) : random_bytes(&state, text, n);
        check_round_trip(o->t, text, n, flags, seed);
    }
}

static void random_small_vocabularies(void **state)
{
    (void)state;
    vocab v;
    static const char *const pres[] = {"llama-bpe", "gpt-2"};
    for (int i = 0; i < 3; i++) {
        if (i < 2)
            bpe_base(&v);
        else
            spm_base(&v);
        v.pre = i < 2 ? pres[i] : NULL;
        opened o = open_gguf(vocab_write(&v));
        round_trips(&o);
        shut(&o);
    }
}

static void random_published_vocabularies(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        opened o;
        if (!open_shared(published[i], &o))
            skip();
        round_trips(&o);
        check_round_trip(o.t, "a</s> b<s>c <|eot_id|>d", 23, BITNET_TEXT_SPECIAL, 0);
        shut(&o);
    }
}

/* ---- a megabyte of trouble (64 KB where all is slow) ---- */

typedef struct trouble {
    const char *name, *unit;
} trouble;

static const trouble troubles[] = {
    {"one letter", "a"},
    {"a rare letter", "\xea\x99\xae"},
    {"spaces", " "},
    {"digits", "7"},
    {"newlines", "\n"},
    {"spaces and newlines", " \n"},
    {"a newline, then spaces", NULL},
    {"punctuation", "="},
    {"apostrophes", "'"},
    {"invalid bytes", "\xff"},
    {"half characters", "\xf0\x9f\x98"},
    {"family emoji", "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7"},
    {"special beginnings", "<|reserved_special_token_"},
    {"special tokens", "<|eot_id|>"},
    {"words", "hello world "},
    {"one long word", "abcdefghijklmnopqrstuvwxyz"},
    {"combining marks", "e\xcc\x81"},
    {"NUL", ""},
};

#define MEGABYTE (1 << 20)

static void fill(char *text, size_t size, const trouble *row)
{
    size_t n = row->unit && *row->unit ? strlen(row->unit) : 1;
    const char *unit = row->unit ? row->unit : " ";
    for (size_t i = 0; i < size; i++)
        text[i] = unit[i % n];
    if (!row->unit) {
        text[0] = '\n';
        text[size - 1] = 'x';
    }
}

static double tokenize_ms(const opened *o, const char *text, size_t n, size_t *n_ids)
{
    bnet_ids ids = {0};
    bitnet_error err = {0};
    double begin = bnet_now_ms();
    if (bnet_tokenize(o->t, text, n, BITNET_TEXT_SPECIAL, &ids, NULL, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    *n_ids = ids.n;
    bnet_free(ids.data);
    return bnet_now_ms() - begin;
}

/* Two seconds at most; where a sanitizer or an emulator makes everything slow, the time must at
 * least not grow faster than the text. */
static void time_troubles(const opened *o)
{
    size_t size = test_quick() ? MEGABYTE / 16 : MEGABYTE;
    char *text = malloc(size);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++) {
        size_t n_ids, n_few;
        fill(text, size, &troubles[i]);
        double ms = tokenize_ms(o, text, size, &n_ids);
        print_message("%-12s %zu KB of %-24s %7zu tokens %6.0f ms\n", bnet_tokenizer_name(o->t),
                      size >> 10, troubles[i].name, n_ids, ms);
        if (ms > 2000 && ms > 4 * 16 * tokenize_ms(o, text, size / 16, &n_few))
            fail_msg("%s: %zu KB of %s took %.0f ms", bnet_tokenizer_name(o->t), size >> 10,
                     troubles[i].name, ms);
        check_round_trip(o->t, text, size, BITNET_TEXT_SPECIAL, i);
    }
    free(text);
}

static void megabytes_in_bounded_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        opened o;
        if (!open_shared(published[i], &o))
            skip();
        time_troubles(&o);
        shut(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_small_vocabularies),
        cmocka_unit_test(random_published_vocabularies),
        cmocka_unit_test(megabytes_in_bounded_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
