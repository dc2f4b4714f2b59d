/* Every allocation between opening a vocabulary and reading a rendered conversation back fails
 * once. */
#include "torture/torture.h"

#include "text/chat.h"
#include "unit/text/vocab_build.h"

static const char text[] = "hello world 123 aaaa\n\n \xff<|eot_id|>\xc3\xa9 [TOOL] </s> xyzzy";
static const bitnet_message talk[] = {{"user", "hello <|eot_id|> world"}, {"assistant", "yes"}};

static const char own[] = "{% for m in messages %}<tool>{{ m.content }}|{% endfor %}</tool>";
static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                              "\"text\":\"a<tool>\"},{\"type\":\"text\",\"text\":\"b\"}]}]}";
static const char asked[] = "<tool>a< tool>\nb|</tool>";

/* Text to ids and back: a success must be the whole truth. */
static bitnet_status there_and_back(const bnet_tokenizer *t, const char *s, size_t n,
                                    bitnet_error *err)
{
    bnet_ids ids = {0};
    bnet_str back = {0};
    bnet_detok d;
    bitnet_status st = bnet_tokenize(t, s, n, BITNET_TEXT_SPECIAL, &ids, NULL, err);
    bnet_detok_init(&d, t, true, true);
    for (size_t i = 0; i < ids.n; i++)
        bnet_detok_push(&d, ids.data[i], &back);
    bnet_detok_finish(&d, &back);
    if (st == BITNET_OK && back.failed)
        st = bnet_no_memory(err, "text");
    if (st == BITNET_OK && (back.n != n || memcmp(back.data, s, n) != 0))
        fail_msg("a failed allocation changed the text in silence: %s", back.data);
    bnet_str_free(&back);
    bnet_free(ids.data);
    return st;
}

static bitnet_status speak(void *user, bitnet_error *err)
{
    const bnet_gguf *g = user;
    bnet_tokenizer *t = NULL;
    bnet_str out = {0};
    bitnet_status st = bnet_tokenizer_open(g, 0, NULL, &t, err);
    if (st == BITNET_OK)
        st = there_and_back(t, text, sizeof text - 1, err);
    for (int i = 0; st == BITNET_OK && bnet_chat_at(i); i++) {
        out.n = 0;
        st = bnet_chat_render(bnet_chat_at(i), t, talk, 2, true, &out, err);
    }
    if (st == BITNET_OK)
        st = there_and_back(t, out.data, out.n, err);
    for (int i = 0; st == BITNET_OK && i < 2; i++) {
        out.n = 0;
        st = bnet_chat_render_json(bnet_chat_by_name(i ? "file" : "chatml"), t,
                                   (bnet_span){request, sizeof request - 1}, &out, err);
        if (st == BITNET_OK && i && strcmp(out.data, asked) != 0)
            fail_msg("a failed allocation changed the text in silence: %s", out.data);
    }
    bnet_str_free(&out);
    bnet_tokenizer_close(t);
    return st;
}

static void run(void (*base)(vocab *), const char *pre, bool onward)
{
    static vocab v;
    base(&v);
    v.pre = pre;
    v.chat = own;
    bnet_gguf *g = vocab_write(&v);
    assert_non_null(g);
    torture(speak, g, onward, 1);
    bnet_gguf_close(g);
}

static void byte_level_bpe(void **state)
{
    (void)state;
    run(bpe_base, "llama-bpe", false);
    run(bpe_base, "gpt-2", true);
}

static void sentencepiece(void **state)
{
    (void)state;
    run(spm_base, NULL, false);
    run(spm_base, NULL, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(byte_level_bpe),
                                       cmocka_unit_test(sentencepiece)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
