/* test_grammar.c - a model that tells stories, made to write something else: with a grammar nothing
 * but texts of the grammar come, greedy or by chance, and a text that is cut off is known to be. */
#include "test.h"

#include <jansson.h>

#include "bitnet.h"

#define STORY_PATH TEST_SOURCE_DIR "/models/story.gguf"
#define OK(call)   assert_int_equal((call), BITNET_OK)

typedef struct teller {
    bitnet_runtime *runtime;
    bitnet_engine *engine;
    bitnet_session *session;
    bitnet_sampler *sampler;
} teller;

static bitnet_error err;

static void teller_open(teller *t, float temperature, uint64_t seed)
{
    bitnet_runtime_options r;
    bitnet_session_options s;
    bitnet_sampler_options o;
    bitnet_runtime_options_init(&r);
    bitnet_session_options_init(&s);
    bitnet_sampler_options_init(&o);
    r.n_threads = 1;
    r.device = "cpu";
    s.n_ctx = 512;
    o.temperature = temperature;
    o.seed = seed;
    OK(bitnet_runtime_open(&r, &t->runtime, &err));
    OK(bitnet_engine_open(t->runtime, STORY_PATH, NULL, &t->engine, &err));
    OK(bitnet_session_open(t->engine, &s, &t->session, &err));
    OK(bitnet_sampler_open(&o, bitnet_engine_model(t->engine)->n_vocab, &t->sampler, &err));
}

static void teller_close(teller *t)
{
    bitnet_sampler_close(t->sampler);
    bitnet_session_close(t->session);
    bitnet_engine_close(t->engine);
    bitnet_runtime_close(t->runtime);
}

typedef struct writing {
    teller *t;
    bitnet_matcher *m;
    bool failed;
    char text[4096];
    size_t n;
} writing;

static bool on_text(void *user, const char *text, size_t n_bytes, int32_t id)
{
    writing *w = user;
    assert_true(w->n + n_bytes < sizeof w->text);
    memcpy(w->text + w->n, text, n_bytes);
    w->n += n_bytes;
    w->text[w->n] = '\0';
    if (bitnet_matcher_accept(w->m, id, &err) != BITNET_OK)
        w->failed = true;
    else if (!bitnet_token_stops(w->t->engine, id) &&
             bitnet_matcher_constrain(w->m, w->t->sampler, NULL, 0, &err) != BITNET_OK)
        w->failed = true;
    return !w->failed;
}

/* What the model writes behind a prompt; *done: the text is one of the grammar. */
static bitnet_finish write_text(teller *t, bitnet_grammar *g, size_t max_tokens, writing *w,
                                bool *done)
{
    int32_t ids[32];
    size_t n_ids;
    bitnet_generate_options o;
    bitnet_generate_result r;
    *w = (writing){.t = t};
    OK(bitnet_tokenize(t->engine, "Once upon a time", 16, BITNET_TEXT_BOS, ids, 32, &n_ids, &err));
    OK(bitnet_matcher_open(g, true, &w->m, &err));
    OK(bitnet_matcher_constrain(w->m, t->sampler, NULL, 0, &err));
    bitnet_generate_options_init(&o);
    o.max_tokens = max_tokens;
    o.on_text = on_text;
    o.user = w;
    OK(bitnet_generate(t->session, t->sampler, ids, n_ids, &o, &r, &err));
    if (w->failed)
        fail_msg("after %s: %s", w->text, err.message);
    *done = bitnet_matcher_done(w->m);
    bitnet_matcher_close(w->m);
    OK(bitnet_sampler_constrain(t->sampler, NULL, &err));
    return r.finish;
}

static bitnet_grammar *grammar(const teller *t, bitnet_grammar_kind kind, const char *text)
{
    bitnet_grammar *g = NULL;
    if (bitnet_grammar_open(t->engine, kind, text, strlen(text), &g, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    return g;
}

static void test_gbnf(void **state)
{
    (void)state;
    teller t;
    writing w;
    bool done;
    teller_open(&t, 0, 0);
    bitnet_grammar *g = grammar(&t, BITNET_GRAMMAR_GBNF, "root ::= [0-9]{3} \"-\" [x-z]{2} \"!\"");
    assert_int_equal(write_text(&t, g, 64, &w, &done), BITNET_FINISH_EOS);
    assert_true(done);
    assert_int_equal(w.n, 7);
    assert_true(w.text[3] == '-' && w.text[6] == '!' && strspn(w.text, "0123456789") == 3);
    assert_int_equal(write_text(&t, g, 2, &w, &done), BITNET_FINISH_LENGTH);
    assert_false(done);
    bitnet_grammar_close(g);
    teller_close(&t);
}

static void test_any_object(void **state)
{
    (void)state;
    int n_whole = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        teller t;
        writing w;
        bool done;
        teller_open(&t, seed ? 1.5f : 0, seed);
        bitnet_grammar *g = grammar(&t, BITNET_GRAMMAR_JSON_OBJECT, "");
        write_text(&t, g, 300, &w, &done);
        json_t *tree = json_loadb(w.text, w.n, 0, NULL);
        assert_int_equal(tree != NULL, done);
        n_whole += done;
        json_decref(tree);
        bitnet_grammar_close(g);
        teller_close(&t);
    }
    print_message("%d of 4 objects came to their end\n", n_whole);
}

/* Greedy: the model would rather tell a story in every one of its words. */
static void test_schema(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": "
        "12},"
        "\"age\": {\"type\": \"integer\", \"minimum\": 3, \"maximum\": 99},"
        "\"kind\": {\"enum\": [\"fox\", \"bear\"]},"
        "\"friends\": {\"type\": \"array\", \"items\": {\"type\": \"string\", \"maxLength\": 6},"
        "\"minItems\": 1, \"maxItems\": 2}},"
        "\"required\": [\"name\", \"age\", \"kind\", \"friends\"], \"additionalProperties\": "
        "false}";
    for (uint64_t seed = 0; seed < 4; seed++) {
        teller t;
        writing w;
        bool done;
        const char *name, *kind;
        int age;
        json_t *friends;
        teller_open(&t, seed ? 2.0f : 0, seed);
        bitnet_grammar *g = grammar(&t, BITNET_GRAMMAR_JSON_SCHEMA, schema);
        assert_int_equal(write_text(&t, g, 300, &w, &done), BITNET_FINISH_EOS);
        assert_true(done);
        json_t *tree = json_loadb(w.text, w.n, 0, NULL);
        assert_int_equal(json_unpack(tree, "{s:s,s:i,s:s,s:o!}", "name", &name, "age", &age, "kind",
                                     &kind, "friends", &friends),
                         0);
        assert_in_range(age, 3, 99);
        assert_true(strcmp(kind, "fox") == 0 || strcmp(kind, "bear") == 0);
        assert_in_range(json_array_size(friends), 1, 2);
        json_decref(tree);
        bitnet_grammar_close(g);
        teller_close(&t);
    }
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    teller t;
    bitnet_grammar *g = NULL;
    bitnet_matcher *m = NULL;
    bitnet_sampler *other = NULL;
    teller_open(&t, 0, 0);
    assert_int_equal(bitnet_grammar_open(t.engine, 7, "x", 1, &g, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "kind is 7"));
    g = grammar(&t, BITNET_GRAMMAR_GBNF, "root ::= \"a\"");
    OK(bitnet_matcher_open(g, true, &m, &err));
    OK(bitnet_sampler_open(NULL, 10, &other, &err));
    assert_int_equal(bitnet_matcher_constrain(m, other, NULL, 0, &err), BITNET_ARGUMENT);
    assert_non_null(strstr(err.message, "opened for 10 tokens"));
    bitnet_sampler_close(other);
    bitnet_grammar_close(g);
    bitnet_matcher_close(m);
    teller_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gbnf),
        cmocka_unit_test(test_any_object),
        cmocka_unit_test(test_schema),
        cmocka_unit_test(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
