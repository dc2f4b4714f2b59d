/* test_matcher.c - masks over vocabularies of both families, ends, forks, spaces that are dropped,
 * states that are forgotten and found again, threads. */
#include <pthread.h>

#include "unit/grammar/grammar_test.h"

enum { MASK = 40 };

static bool allowed(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

/* The mask says of every id what accepting it says. */
static void check_mask(const words *w, bitnet_matcher *m, const uint32_t *mask)
{
    for (int32_t id = 0; id < w->n; id++) {
        bitnet_matcher *other = NULL;
        bitnet_error err = {0};
        assert_int_equal(bitnet_matcher_fork(m, &other, &err), BITNET_OK);
        bool taken = bitnet_matcher_accept(other, id, &err) == BITNET_OK;
        if (taken != allowed(mask, id))
            fail_msg("id %d: mask %d, accept %d", id, allowed(mask, id), taken);
        bitnet_matcher_close(other);
    }
}

static int32_t choose(const uint32_t *mask, int n, uint64_t *seed)
{
    int32_t id;
    do
        id = (int32_t)(test_rand(seed) % (uint64_t)n);
    while (!allowed(mask, id));
    return id;
}

static const char *const grammars[] = {
    "root ::= \"hello\" (\" wor\" \"ld\"?)* [.!]",
    "root ::= ([a-z]+ \" \"){1,4} | \"\xc3\xa9\"+",
    "root ::= \"<\" root \">\" | [^<>]{0,6}",
    "root ::= \" \"* \"aaaaaa\" \"h\"?",
};

static void walk(const words *w, bitnet_grammar *g, bool continues, uint64_t *seed, bool check)
{
    uint32_t mask[MASK];
    bitnet_matcher *m = NULL;
    bitnet_error err = {0};
    size_t n = ((size_t)w->n + 31) / 32;
    assert_true(n <= MASK);
    assert_int_equal(bitnet_matcher_open(g, continues, &m, &err), BITNET_OK);
    for (int i = 0; i < 30; i++) {
        if (bitnet_matcher_mask(m, mask, n, &err) != BITNET_OK)
            fail_msg("%s", err.message);
        if (check)
            check_mask(w, m, mask);
        int32_t id = choose(mask, w->n, seed);
        assert_int_equal(bitnet_matcher_accept(m, id, &err), BITNET_OK);
        if (bnet_token_stops(w->t, id)) {
            assert_true(bitnet_matcher_done(m));
            assert_int_equal(bitnet_matcher_mask(m, mask, n, &err), BITNET_ARGUMENT);
            assert_int_equal(bitnet_matcher_accept(m, id, &err), BITNET_ARGUMENT);
            break;
        }
    }
    bitnet_matcher_close(m);
}

static void test_masks(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int family = 0; family < 2; family++) {
        words w = words_open(family);
        for (size_t i = 0; i < BNET_COUNT(grammars) + 1; i++) {
            bool json = i == BNET_COUNT(grammars);
            bitnet_grammar *g =
                grammar_of(&w, json ? BITNET_GRAMMAR_JSON_OBJECT : BITNET_GRAMMAR_GBNF,
                           json ? "" : grammars[i]);
            for (int k = 0; k < 10; k++)
                walk(&w, g, k & 1, &seed, k < 4);
            bitnet_grammar_close(g);
        }
        words_close(&w);
    }
}

static void test_ends(void **state)
{
    (void)state;
    words w = words_open(false);
    uint32_t mask[MASK];
    size_t n = ((size_t)w.n + 31) / 32;
    int32_t eot, begin;
    bitnet_error err = {0};
    bitnet_matcher *m = NULL;
    bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_GBNF, "root ::= \"a\" \"a\"?");
    assert_true(bnet_token_find(w.t, "<|eot_id|>", 10, &eot));
    assert_true(bnet_token_find(w.t, "<|begin_of_text|>", 17, &begin));
    assert_int_equal(bitnet_matcher_open(g, true, &m, &err), BITNET_OK);
    assert_false(bitnet_matcher_done(m));
    assert_int_equal(bitnet_matcher_accept(m, eot, &err), BITNET_ARGUMENT);
    assert_int_equal(bitnet_matcher_accept(m, begin, &err), BITNET_ARGUMENT);
    assert_int_equal(bitnet_matcher_accept(m, w.n, &err), BITNET_ARGUMENT);
    assert_int_equal(bitnet_matcher_accept(m, -1, &err), BITNET_ARGUMENT);
    assert_int_equal(bitnet_matcher_mask(m, mask, n - 1, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "n_words"));
    assert_int_equal(bitnet_matcher_mask(m, mask, n, &err), BITNET_OK);
    assert_false(allowed(mask, eot));
    assert_int_equal(bitnet_matcher_accept(m, 'a', &err), BITNET_OK);
    assert_true(bitnet_matcher_done(m));
    assert_int_equal(bitnet_matcher_mask(m, mask, n, &err), BITNET_OK);
    assert_true(allowed(mask, eot) && allowed(mask, 'a') && !allowed(mask, begin));
    assert_int_equal(bitnet_matcher_accept(m, 'b', &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "(\"b\") may not follow"));
    assert_int_equal(bitnet_matcher_accept(m, 'a', &err), BITNET_OK);
    assert_int_equal(bitnet_matcher_mask(m, mask, n, &err), BITNET_OK);
    assert_true(allowed(mask, eot) && !allowed(mask, 'a'));
    bitnet_grammar_close(g); /* the matcher keeps what it needs */
    assert_int_equal(bitnet_matcher_accept(m, eot, &err), BITNET_OK);
    bitnet_matcher_close(m);
    words_close(&w);
}

/* SentencePiece: a text that begins has no space in front, whatever its first token has. */
static void test_dropped_space(void **state)
{
    (void)state;
    words w = words_open(true);
    uint32_t mask[MASK];
    size_t n = ((size_t)w.n + 31) / 32;
    int32_t hello, spaced, blank, tool;
    bitnet_error err = {0};
    bitnet_grammar *g =
        grammar_of(&w, BITNET_GRAMMAR_GBNF, "root ::= \"hello\" (\"[TOOL]\" \"hello\")?");
    assert_true(bnet_token_find(w.t, "hello", 5, &hello));
    assert_true(bnet_token_find(w.t, "\xe2\x96\x81hello", 8, &spaced));
    assert_true(bnet_token_find(w.t, "\xe2\x96\x81", 3, &blank));
    assert_true(bnet_token_find(w.t, "[TOOL]", 6, &tool));
    for (int continues = 0; continues < 2; continues++) {
        bitnet_matcher *m = NULL;
        assert_int_equal(bitnet_matcher_open(g, continues, &m, &err), BITNET_OK);
        assert_int_equal(bitnet_matcher_mask(m, mask, n, &err), BITNET_OK);
        assert_true(allowed(mask, hello));
        assert_int_equal(allowed(mask, spaced), !continues);
        assert_int_equal(allowed(mask, blank), !continues);
        check_mask(&w, m, mask);
        assert_int_equal(bitnet_matcher_accept(m, continues ? hello : spaced, &err), BITNET_OK);
        assert_int_equal(bitnet_matcher_mask(m, mask, n, &err), BITNET_OK);
        assert_true(allowed(mask, tool) && !allowed(mask, blank));
        assert_int_equal(bitnet_matcher_accept(m, tool, &err), BITNET_OK);
        assert_int_equal(bitnet_matcher_accept(m, spaced, &err), BITNET_OK);
        assert_true(bitnet_matcher_done(m));
        bitnet_matcher_close(m);
    }
    bitnet_grammar_close(g);
    words_close(&w);
}

static void test_missing_characters(void **state)
{
    (void)state;
    static vocab v;
    bitnet_error err = {0};
    uint32_t mask[MASK];
    spm_base(&v);
    v.type[3 + 'z'] = 5; /* unused */
    words w = {.file = vocab_write(&v)};
    assert_int_equal(bnet_tokenizer_open(w.file, 0, NULL, &w.t, &err), BITNET_OK);
    w.n = (int)bnet_tokenizer_size(w.t);
    bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_GBNF, "root ::= \"1z\"");
    bitnet_matcher *m = NULL;
    assert_int_equal(bitnet_matcher_open(g, true, &m, &err), BITNET_OK);
    size_t n = ((size_t)w.n + 31) / 32;
    assert_int_equal(bitnet_matcher_mask(m, mask, n, &err), BITNET_OK);
    assert_int_equal(bitnet_matcher_accept(m, 3 + '1', &err), BITNET_OK);
    assert_int_equal(bitnet_matcher_mask(m, mask, n, &err), BITNET_ERROR);
    assert_non_null(strstr(err.message, "no token of the vocabulary"));
    bitnet_matcher_close(m);
    bitnet_grammar_close(g);
    words_close(&w);
}

/* Many more states than are kept: matchers that wait stand where they stood. */
static void test_forgetting(void **state)
{
    (void)state;
    words w = words_open(false);
    bitnet_error err = {0};
    bitnet_matcher *waits = NULL, *m = NULL;
    bitnet_grammar *g =
        grammar_of(&w, BITNET_GRAMMAR_GBNF,
                   "root ::= \"a\"{0,100000} x\nx ::= \"(\" x \")\" | \"b\"{0,50000}");
    assert_int_equal(bitnet_matcher_open(g, true, &waits, &err), BITNET_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(bitnet_matcher_accept(waits, '(' - (i < 2) * ('(' - 'a'), &err),
                         BITNET_OK);
    assert_int_equal(bitnet_matcher_open(g, true, &m, &err), BITNET_OK);
    for (int i = 0; i < 60000; i++)
        if (bitnet_matcher_accept(m, i < 30000 ? 'a' : 'b', &err) != BITNET_OK)
            fail_msg("byte %d: %s", i, err.message);
    assert_true(g->machine.n_states < 20000);
    assert_int_equal(bitnet_matcher_accept(m, ')', &err), BITNET_ARGUMENT);
    assert_int_equal(bitnet_matcher_accept(waits, 'a', &err), BITNET_ARGUMENT);
    assert_int_equal(bitnet_matcher_accept(waits, ')', &err), BITNET_OK);
    assert_true(bitnet_matcher_done(waits));
    bitnet_matcher_close(waits);
    bitnet_matcher_close(m);
    bitnet_grammar_close(g);
    words_close(&w);
}

/* A grammar that tells most bytes apart has long rows in its table: fewer of them are kept, and
 * hardly any once nobody uses it. */
static void test_nobody_uses_it(void **state)
{
    (void)state;
    words w = words_open(false);
    bitnet_error err = {0};
    char text[1024] = "root ::= \"a\"{0,100000} | \"";
    size_t n = strlen(text);
    for (int c = 0x80; c < 0xc0; c++) {
        text[n++] = (char)0xc3;
        text[n++] = (char)c;
    }
    for (char c = '#'; c <= 'Z'; c++)
        text[n++] = c;
    for (char c = '^'; c <= 'z'; c++)
        text[n++] = c;
    text[n++] = '"';
    bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_GBNF, text);
    size_t n_classes = (size_t)g->program.n_classes;
    assert_in_range(n_classes, 129, 256);
    bitnet_matcher *m = NULL;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(bitnet_matcher_open(g, true, &m, &err), BITNET_OK);
        while (!bnet_machine_full(&g->machine))
            assert_int_equal(bitnet_matcher_accept(m, 'a', &err), BITNET_OK);
        assert_in_range(g->machine.n_states * n_classes, 1 << 19, (1 << 20) + n_classes);
        bitnet_matcher_close(m);
        assert_in_range(g->machine.n_states, 1, 8);
    }
    bitnet_grammar_close(g);
    words_close(&w);
}

/* Brackets as deep as stacks go: the rest is refused, nothing breaks. */
static void test_depth(void **state)
{
    (void)state;
    words w = words_open(false);
    bitnet_error err = {0};
    bitnet_matcher *m = NULL;
    bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_JSON_OBJECT, "");
    int depth = 0;
    assert_int_equal(bitnet_matcher_open(g, true, &m, &err), BITNET_OK);
    for (const char *c = "{\"a\":"; *c; c++)
        assert_int_equal(bitnet_matcher_accept(m, *c, &err), BITNET_OK);
    while (depth < 100000 && bitnet_matcher_accept(m, '[', &err) == BITNET_OK)
        depth++;
    assert_in_range(depth, 400, 1024);
    for (int i = 0; i < depth; i++)
        if (bitnet_matcher_accept(m, ']', &err) != BITNET_OK)
            fail_msg("%d of %d: %s", i, depth, err.message);
    assert_int_equal(bitnet_matcher_accept(m, '}', &err), BITNET_OK);
    assert_true(bitnet_matcher_done(m));
    bitnet_matcher_close(m);
    bitnet_grammar_close(g);
    words_close(&w);
}

typedef struct worker {
    const words *w;
    bitnet_grammar *g;
    uint64_t seed;
} worker;

static void *work(void *user)
{
    worker *x = user;
    for (int i = 0; i < 50; i++)
        walk(x->w, x->g, true, &x->seed, false);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    words w = words_open(false);
    bitnet_grammar *g = grammar_of(&w, BITNET_GRAMMAR_GBNF, grammars[2]);
    pthread_t threads[4];
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){&w, g, (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    bitnet_grammar_close(g);
    words_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),         cmocka_unit_test(test_ends),
        cmocka_unit_test(test_dropped_space), cmocka_unit_test(test_missing_characters),
        cmocka_unit_test(test_forgetting),    cmocka_unit_test(test_depth),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_nobody_uses_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
