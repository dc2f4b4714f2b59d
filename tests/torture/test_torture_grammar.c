/* Every allocation between the text of a grammar or schema and a mask fails once. What is compiled
 * all the same must be the whole grammar: a schema that lost a keyword would let through what it
 * forbids. */
#include "torture/torture.h"

#include "grammar/grammar.h"
#include "unit/text/vocab_build.h"

typedef struct row {
    bitnet_grammar_kind kind;
    const char *text, *has, *lacks;
} row;

static const row rows[] = {
    {BITNET_GRAMMAR_GBNF, "root ::= (\"a\" | [^b-\xc3\xa9]+ x){1,3}\nx ::= \"(\" x? \")\"", "aA()",
     "b"},
    {BITNET_GRAMMAR_JSON_OBJECT, "", "{\"a\":[1]}", "[]"},
    {BITNET_GRAMMAR_JSON_SCHEMA,
     "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
     "{\"$ref\":\"#/$defs/b\"},"
     "{\"properties\":{\"a\":{\"minimum\":7}},\"required\":[\"b\",\"a\"]}],"
     "\"$defs\":{\"b\":{\"properties\":{\"a\":{\"maximum\":7},\"b\":"
     "{\"pattern\":\"^x+$\"}},\"required\":[\"b\"]}}}",
     "{\"a\":7,\"b\":\"xx\"}", "{\"a\":7}"},
    {BITNET_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[1,[\"a\"]]}},\"required\":[\"k\"],"
     "\"anyOf\":[{\"properties\":{\"x\":{\"prefixItems\":[{\"type\":\"null\"}]}},\"required\":["
     "\"x\"]}"
     ",{\"additionalProperties\":{\"format\":\"date\"},\"properties\":{\"k\":{}}}]}",
     "{\"k\":1,\"x\":[null]}", "{\"k\":2}"},
    {BITNET_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"required\":[\"k\"],\"oneOf\":[{\"properties\":{\"k\":{\"const\":"
     "\"a\"}}},{\"properties\":{\"k\":{\"$ref\":\"#/$defs/n\"}}}],"
     "\"$defs\":{\"n\":{\"type\":\"integer\",\"maximum\":9007199254740993}}}",
     "{\"k\":9007199254740993}", "{\"k\":9007199254740994}"},
    {BITNET_GRAMMAR_JSON_SCHEMA, /* one rule for both, kept for the schema */
     "{\"type\":\"array\",\"prefixItems\":[{\"format\":\"ipv4\"}],\"items\":{\"format\":\"ipv4\"},"
     "\"minItems\":2,\"propertyNames\":{\"type\":\"string\",\"x-a\":1}}",
     "[\"1.2.3.4\",\"5.6.7.8\"]", "[\"1.2.3.4\",\"5.6.7.256\"]"},
    {BITNET_GRAMMAR_JSON_SCHEMA, "{\"enum\":[0.1,2.5,12345678901234567890]}",
     "12345678901234567890", "12345678901234567168"},
};

static bool takes(bitnet_grammar *g, const char *text, bitnet_status *st, bitnet_error *err)
{
    static uint32_t mask[64];
    bitnet_matcher *m = NULL;
    *st = bitnet_matcher_open(g, true, &m, err);
    for (const char *c = text; *c && *st == BITNET_OK; c++) {
        *st = bitnet_matcher_mask(m, mask, bnet_grammar_words(g), err);
        if (*st == BITNET_OK)
            *st = bitnet_matcher_accept(m, (unsigned char)*c, err);
    }
    bool done = *st == BITNET_OK && bitnet_matcher_done(m);
    if (*st == BITNET_ARGUMENT) /* a byte that may not follow */
        *st = BITNET_OK;
    bitnet_matcher_close(m);
    return done;
}

static bitnet_status follow(void *user, bitnet_error *err)
{
    bnet_tokenizer *t = NULL;
    bitnet_status st = bnet_tokenizer_open(user, 0, NULL, &t, err);
    for (size_t i = 0; st == BITNET_OK && i < BNET_COUNT(rows); i++) {
        bitnet_grammar *g = NULL;
        st = bnet_grammar_open(t, (int)bnet_tokenizer_size(t), rows[i].kind,
                               (bnet_span){rows[i].text, strlen(rows[i].text)}, &g, err);
        if (st == BITNET_OK && !takes(g, rows[i].has, &st, err) && st == BITNET_OK)
            fail_msg("%s: a failed allocation lost %s", rows[i].text, rows[i].has);
        if (st == BITNET_OK && takes(g, rows[i].lacks, &st, err))
            fail_msg("%s: a failed allocation let through %s", rows[i].text, rows[i].lacks);
        bitnet_grammar_close(g);
    }
    bnet_tokenizer_close(t);
    return st;
}

static void run(bool onward)
{
    static vocab v;
    bpe_base(&v);
    bnet_gguf *g = vocab_write(&v);
    assert_non_null(g);
    torture(follow, g, onward, 1);
    bnet_gguf_close(g);
}

static void one_fails(void **state)
{
    (void)state;
    run(false);
}

static void all_fail(void **state)
{
    (void)state;
    run(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_fails), cmocka_unit_test(all_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
