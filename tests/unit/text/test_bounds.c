/* Time to open a vocabulary and to tokenize is bounded by the sizes of file and text, whatever the
 * texts are. Times are CPU seconds. */
#include "test.h"

#include <time.h>
#include <unistd.h>

#include "text/index.h"
#include "text/tokenizer.h"
#include "vocab_build.h"

static double cpu_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* ---- texts that collided under every seed of the hash this table once had ---- */

static uint64_t old_hash(uint64_t h, const char *s, size_t n)
{
    h ^= n * 0xd6e8feb86659fd93u;
    for (; n >= 8; s += 8, n -= 8) {
        h = (h ^ bnet_u64(s)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    h = h * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    return h * 0xd6e8feb86659fd93u;
}

#define N_BLOCKS 15
#define N_BYTES  (16 * (size_t)N_BLOCKS)
#define N_TEXTS  ((size_t)1 << N_BLOCKS)

/* Bit b of `number` flips bit 63 of block b's first word and, in the second, the bits 63 and 31
 * that become of it: a multiplication by an odd number passes a top bit on alone. */
static void colliding_text(char *out, size_t number)
{
    for (size_t b = 0; b < N_BLOCKS; b++) {
        memset(out + 16 * b, 'a', 16);
        if (number >> b & 1) {
            out[16 * b + 7] ^= (char)0x80;
            out[16 * b + 15] ^= (char)0x80;
            out[16 * b + 11] ^= (char)0x80;
        }
    }
}

typedef struct lists {
    bnet_span *tokens;
    int32_t *types;
    float *scores;
    size_t n;
    char *store; /* N_TEXTS texts */
} lists;

static void add_text(lists *l, const char *text, size_t n, int32_t type)
{
    l->tokens[l->n] = (bnet_span){text, n};
    l->types[l->n] = type;
    l->scores[l->n] = -(float)l->n;
    l->n++;
}

static void make_lists(lists *l, size_t cap)
{
    *l = (lists){calloc(cap, sizeof *l->tokens), calloc(cap, sizeof *l->types),
                 calloc(cap, sizeof *l->scores), 0, malloc(N_TEXTS * N_BYTES)};
    assert_true(l->tokens && l->types && l->scores && l->store);
    add_text(l, "<unk>", 5, 2);
}

static void free_lists(lists *l)
{
    free(l->tokens);
    free(l->types);
    free(l->scores);
    free(l->store);
}

static bnet_gguf *write_lists(const lists *l)
{
    char path[] = "/tmp/bitnet-bounds-XXXXXX";
    bitnet_error err = {0};
    bnet_gguf *g = NULL;
    bnet_gguf_writer *w = bnet_gguf_writer_new();
    int fd = mkstemp(path);
    assert_true(w && fd >= 0);
    close(fd);
    bnet_gguf_put_string(w, "tokenizer.ggml.model", "llama", 5);
    bnet_gguf_put_strings(w, "tokenizer.ggml.tokens", l->tokens, l->n);
    bnet_gguf_put_array(w, "tokenizer.ggml.token_type", BNET_GGUF_I32, l->types, l->n);
    bnet_gguf_put_array(w, "tokenizer.ggml.scores", BNET_GGUF_F32, l->scores, l->n);
    bnet_gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    assert_int_equal(bnet_gguf_begin(w, path, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_finish(w, &err), BITNET_OK);
    assert_int_equal(bnet_gguf_open(path, NULL, &g, &err), BITNET_OK);
    unlink(path);
    bnet_gguf_writer_free(w);
    return g;
}

static void test_colliding_vocabulary(void **state)
{
    (void)state;
    lists l;
    bnet_tokenizer *t;
    bitnet_error err = {0};
    make_lists(&l, N_TEXTS + 3);
    for (size_t i = 0; i < N_TEXTS; i++) {
        char *text = l.store + i * N_BYTES;
        colliding_text(text, i);
        assert_true(old_hash(i % 7, text, N_BYTES) == old_hash(i % 7, l.store, N_BYTES));
        add_text(&l, text, N_BYTES, 1);
    }
    add_text(&l, l.store, N_BYTES, 1); /* a duplicate: the first one is found */
    bnet_gguf *g = write_lists(&l);
    double start = cpu_s();
    assert_int_equal(bnet_tokenizer_open(g, 0, NULL, &t, &err), BITNET_OK);
    for (size_t i = 0; i < N_TEXTS; i++) {
        int32_t id;
        assert_true(bnet_token_find(t, l.store + i * N_BYTES, N_BYTES, &id));
        assert_int_equal(id, 1 + i);
    }
    double took = cpu_s() - start;
    print_message("%zu colliding texts: %.3f s\n", N_TEXTS, took);
    assert_true(took < 1);
    bnet_tokenizer_close(t);
    bnet_gguf_close(g);
    free_lists(&l);
}

/* ---- the limit of probes ---- */

static bnet_fill all_alike(const void *owner, bnet_hash_key key, size_t i, uint64_t *hash)
{
    (void)owner;
    (void)key;
    (void)i;
    *hash = 42;
    return BNET_FILL_PUT;
}

static bnet_fill alike_once(const void *owner, bnet_hash_key key, size_t i, uint64_t *hash)
{
    const bnet_hash_key *first = owner;
    (void)i;
    if (!first->k0)
        memcpy((void *)(uintptr_t)first, &key, sizeof key);
    *hash = first->k0 == key.k0 ? 42 : key.k0 + i * 0x9e3779b97f4a7c15u;
    return BNET_FILL_PUT;
}

static void test_probe_limit(void **state)
{
    (void)state;
    enum { N = 5000 };
    static uint8_t file[N * 16];
    static uint32_t at[N];
    for (uint32_t i = 0; i < N; i++) {
        uint64_t n = 8, text = i;
        memcpy(file + 16 * i, &n, 8);
        memcpy(file + 16 * i + 8, &text, 8);
        at[i] = 16 * i + 8;
    }
    bnet_texts texts = {.base = file, .at = at, .n = N};
    bnet_index x = {0};
    bitnet_error err = {0};
    size_t bad;
    assert_int_equal(bnet_index_open(&x, &texts, all_alike, NULL, &bad, &err), BITNET_TOKENIZER);
    assert_non_null(strstr(err.message, "more than 1024 of 5000 texts share a hash"));
    bnet_index_close(&x);
    bnet_hash_key first = {0};
    assert_int_equal(bnet_index_open(&x, &texts, alike_once, &first, &bad, &err), BITNET_OK);
    assert_int_equal(bad, N);
    assert_true(first.k0 != x.key.k0); /* another key was taken */
    bnet_index_close(&x);
    texts.n = 1000;
    assert_int_equal(bnet_index_open(&x, &texts, all_alike, NULL, &bad, &err), BITNET_OK);
    uint64_t probe = 42;
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(bnet_index_next(&x, 42, &probe), i);
    assert_int_equal(bnet_index_next(&x, 42, &probe), -1);
    bnet_index_close(&x);
}

/* ---- special tokens that nearly match everywhere ---- */

static double scan(const bnet_tokenizer *t, const char *text, size_t n, size_t n_ids)
{
    bnet_ids ids = {0};
    bitnet_error err = {0};
    double start = cpu_s();
    assert_int_equal(bnet_tokenize(t, text, n, BITNET_TEXT_SPECIAL, &ids, NULL, &err), BITNET_OK);
    double took = cpu_s() - start;
    assert_int_equal(ids.n, n_ids);
    bnet_free(ids.data);
    return took;
}

/* Half a megabyte of a with another end: each place of a text of a's matches it nearly. */
static void test_long_special(void **state)
{
    (void)state;
    enum { N_SPECIAL = 500000, N_TEXT = 1000000 };
    lists l;
    bnet_tokenizer *t;
    bitnet_error err = {0};
    char *special = malloc(N_SPECIAL), *text = malloc(N_TEXT);
    assert_true(special && text);
    memset(special, 'a', N_SPECIAL);
    memset(text, 'a', N_TEXT);
    special[N_SPECIAL - 1] = 'b';
    make_lists(&l, 5);
    add_text(&l, "a", 1, 4); /* also a token of its own, so that matches follow each other */
    add_text(&l, special, N_SPECIAL, 3);
    add_text(&l, special + N_SPECIAL - 3, 3, 3);
    bnet_gguf *g = write_lists(&l);
    assert_int_equal(bnet_tokenizer_open(g, 0, NULL, &t, &err), BITNET_OK);
    double took = scan(t, text, N_TEXT, N_TEXT);
    text[N_TEXT - 1] = 'b'; /* the long one at the end */
    took += scan(t, text, N_TEXT, N_TEXT - N_SPECIAL + 1);
    text[N_SPECIAL - 2] = 'b'; /* one byte short: the token of 3 bytes */
    took += scan(t, text, N_TEXT, N_SPECIAL - 4 + 1 + (N_TEXT - N_SPECIAL + 1 - N_SPECIAL) + 1);
    print_message("a special token of %d bytes: %.3f s\n", N_SPECIAL, took);
    assert_true(took < 5); /* each place compared with all of it: minutes */
    bnet_tokenizer_close(t);
    bnet_gguf_close(g);
    free(special);
    free(text);
    free_lists(&l);
}

/* The longest special token at the first place that has one, by comparing with each. */
static size_t plain_match(const lists *l, const char *s, size_t n, bool all, int32_t *id)
{
    size_t best = 0;
    for (size_t i = 0; i < l->n; i++) {
        bnet_span token = l->tokens[i];
        if (l->types[i] < 2 || (!all && l->types[i] != 4) || token.n <= best || token.n > n ||
            memcmp(s, token.data, token.n) != 0)
            continue;
        best = token.n;
        *id = (int32_t)i;
    }
    return best;
}

static void test_specials_as_compared(void **state)
{
    (void)state;
    uint64_t rng = 1;
    for (int round = 0; round < 300; round++) {
        lists l;
        bnet_tokenizer *t;
        bitnet_error err = {0};
        char texts[24][8], text[200];
        make_lists(&l, 32);
        for (size_t i = 0; i < 24; i++) {
            size_t n = 1 + test_rand(&rng) % 7;
            for (size_t k = 0; k < n; k++)
                texts[i][k] = (char)('a' + test_rand(&rng) % 2);
            bool known = false;
            for (size_t k = 0; k < l.n; k++)
                known = known || (l.tokens[k].n == n && !memcmp(l.tokens[k].data, texts[i], n));
            if (!known)
                add_text(&l, texts[i], n, 3 + (int32_t)(test_rand(&rng) % 2));
        }
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = (char)('a' + test_rand(&rng) % 2 + (test_rand(&rng) % 16 == 0));
        bnet_gguf *g = write_lists(&l);
        assert_int_equal(bnet_tokenizer_open(g, 0, NULL, &t, &err), BITNET_OK);
        for (int all = 0; all < 2; all++) {
            bnet_ids ids = {0};
            size_t n_ids = 0;
            assert_int_equal(bnet_tokenize(t, text, sizeof text, all ? BITNET_TEXT_SPECIAL : 0,
                                           &ids, NULL, &err),
                             BITNET_OK);
            for (size_t at = 0, n; at < sizeof text; at += n) {
                int32_t id = 0;
                n = plain_match(&l, text + at, sizeof text - at, all, &id);
                if (!n) { /* ordinary text: nothing but unknown tokens */
                    n = 1;
                    continue;
                }
                while (n_ids < ids.n && ids.data[n_ids] == 0)
                    n_ids++;
                assert_true(n_ids < ids.n && ids.data[n_ids++] == id);
            }
            while (n_ids < ids.n && ids.data[n_ids] == 0)
                n_ids++;
            assert_int_equal(n_ids, ids.n);
            bnet_free(ids.data);
        }
        bnet_tokenizer_close(t);
        bnet_gguf_close(g);
        free_lists(&l);
    }
}

/* ---- a caller who wants no more ---- */

/* Says yes when it is asked for the yes_at-th time (0: never), and keeps the longest CPU time
 * between two questions. */
typedef struct asked {
    size_t n, yes_at;
    double last, longest;
} asked;

static bool ask(void *user)
{
    asked *a = user;
    double now = cpu_s();
    a->longest = BNET_MAX(a->longest, now - a->last);
    a->last = now;
    return ++a->n == a->yes_at;
}

static bitnet_status tokenize_asking(const bnet_tokenizer *t, const char *text, size_t n, asked *a,
                                     bitnet_error *err)
{
    int32_t *first = bnet_alloc(sizeof *first);
    *first = 77;
    bnet_ids ids = {first, 1, 1};
    const bnet_cancel cancel = {ask, a};
    a->last = cpu_s();
    bitnet_status st = bnet_tokenize(t, text, n, BITNET_TEXT_SPECIAL, &ids, &cancel, err);
    a->longest = BNET_MAX(a->longest, cpu_s() - a->last);
    assert_int_equal(ids.data[0], 77);
    assert_true(st == BITNET_OK ? ids.n > 1 : ids.n == 1);
    bnet_free(ids.data);
    return st;
}

/* The text is asked about often enough, and ends at any of the questions. */
static void check_cancelling(const bnet_tokenizer *t, const char *text, size_t n, const char *what)
{
    double longest = 1e9;
    asked never;
    bitnet_error err = {0};
    for (int round = 0; round < 3 && longest > 0.05; round++) {
        never = (asked){0};
        assert_int_equal(tokenize_asking(t, text, n, &never, &err), BITNET_OK);
        longest = BNET_MIN(longest, never.longest);
    }
    print_message("%s: asked %zu times, at most %.1f ms apart\n", what, never.n, longest * 1e3);
    assert_true(never.n >= n / 125000);
    assert_true(longest < (test_quick() || getenv("QEMU_CPU") ? 1 : 0.1));
    for (size_t i = 0; i < 3; i++) {
        asked once = {.yes_at = i == 0 ? 1 : i == 1 ? never.n / 2 : never.n};
        assert_int_equal(tokenize_asking(t, text, n, &once, &err), BITNET_CANCELLED);
        assert_string_equal(err.message, "tokenize: cancelled");
        assert_int_equal(once.n, once.yes_at); /* nobody is asked again */
    }
}

static void test_tokenizing_is_cancelled(void **state)
{
    (void)state;
    const size_t n_bytes = test_quick() ? 500000 : 2000000;
    static const char *const pieces[] = {"a", "hello world ", "<|eot_id|>", "\xff", " "};
    static vocab v;
    char *text = malloc(n_bytes);
    assert_non_null(text);
    for (int spm = 0; spm < 2; spm++) {
        bnet_tokenizer *t;
        bitnet_error err = {0};
        memset(&v, 0, sizeof v);
        (spm ? spm_base : bpe_base)(&v);
        bnet_gguf *g = vocab_write(&v);
        assert_int_equal(bnet_tokenizer_open(g, 0, NULL, &t, &err), BITNET_OK);
        size_t n_texts = getenv("QEMU_CPU") ? 1 : BNET_COUNT(pieces); /* an emulator takes long */
        for (size_t i = 0; i < n_texts; i++) {
            char what[64];
            size_t length = strlen(pieces[i]);
            for (size_t k = 0; k < n_bytes; k++)
                text[k] = pieces[i][k % length];
            snprintf(what, sizeof what, "%s, \"%s\"", spm ? "spm" : "bpe", pieces[i]);
            check_cancelling(t, text, n_bytes, what);
        }
        bnet_tokenizer_close(t);
        bnet_gguf_close(g);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_colliding_vocabulary),
        cmocka_unit_test(test_probe_limit),
        cmocka_unit_test(test_long_special),
        cmocka_unit_test(test_specials_as_compared),
        cmocka_unit_test(test_tokenizing_is_cancelled),
    };
    return cmocka_run_group_tests_name("bounds", tests, NULL, NULL);
}
