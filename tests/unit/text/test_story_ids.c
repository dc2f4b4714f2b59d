/* test_story_ids.c - the tokenizers of the models in models/ against the ids their makers recorded.
 */
#include "test.h"

#include <jansson.h>

#include "text/chat.h"

typedef struct opened {
    bnet_gguf *g;
    bnet_tokenizer *t;
} opened;

/* Skips the test where the model or the reference is missing. */
static opened open_model(const char *name, const char *rel, json_t **golden)
{
    char path[512];
    struct stat st;
    opened o = {0};
    bitnet_error err = {0};
    if (!shared_path(rel, path, sizeof path))
        skip();
    *golden = json_load_file(path, 0, NULL);
    assert_non_null(*golden);
    snprintf(path, sizeof path, "%s/models/%s.gguf", TEST_SOURCE_DIR, name);
    if (stat(path, &st) != 0) {
        print_message("%s is missing\n", path);
        json_decref(*golden);
        skip();
    }
    if (bnet_gguf_open(path, NULL, &o.g, &err) != BITNET_OK ||
        bnet_tokenizer_open(o.g, 0, NULL, &o.t, &err) != BITNET_OK)
        fail_msg("%s", err.message);
    return o;
}

static void check_prompt(const bnet_tokenizer *t, const json_t *prompt)
{
    const char *text = json_string_value(json_object_get(prompt, "text"));
    const json_t *ids = json_object_get(prompt, "ids");
    bnet_ids got = {0};
    bnet_str back = {0};
    bnet_detok d;
    bitnet_error err = {0};
    assert_non_null(text);
    assert_true(json_array_size(ids) > 0);
    if (bnet_tokenize(t, text, strlen(text), BITNET_TEXT_BOS | BITNET_TEXT_SPECIAL, &got, NULL,
                      &err))
        fail_msg("%s", err.message);
    assert_int_equal(got.n, json_array_size(ids));
    bnet_detok_init(&d, t, true, true);
    for (size_t i = 0; i < got.n; i++) {
        if (got.data[i] != json_integer_value(json_array_get(ids, i)))
            fail_msg("id %zu of \"%s\" is %d", i, text, (int)got.data[i]);
        bnet_detok_push(&d, got.data[i], &back);
    }
    bnet_detok_finish(&d, &back);
    assert_non_null(strstr(back.data, text));
    bnet_str_free(&back);
    bnet_free(got.data);
}

static void check_model(const char *name, const char *rel)
{
    json_t *golden;
    opened o = open_model(name, rel, &golden);
    size_t n = json_array_size(golden);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        check_prompt(o.t, json_array_get(golden, i));
    print_message("%s: %zu prompts\n", name, n);
    assert_string_equal(bnet_tokenizer_name(o.t), "bpe/llama-3");
    bitnet_template_match match;
    assert_string_equal(bnet_chat_name(bnet_chat_detect(o.g, o.t, &match)), "bitnet");
    assert_int_equal(match, BITNET_TEMPLATE_EXACT);
    int32_t eot;
    assert_true(bnet_token_find(o.t, "<|eot_id|>", 10, &eot));
    assert_true(bnet_token_stops(o.t, eot));
    assert_true(bnet_token_stops(o.t, bnet_tokenizer_eos(o.t)));
    json_decref(golden);
    bnet_tokenizer_close(o.t);
    bnet_gguf_close(o.g);
}

static void story_ids(void **state)
{
    (void)state;
    check_model("story", "story-model/story/golden/golden.json");
}

static void nano_ids(void **state)
{
    (void)state;
    check_model("nano", "story-model/nano/golden/golden.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(story_ids), cmocka_unit_test(nano_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
